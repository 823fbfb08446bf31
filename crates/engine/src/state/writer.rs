//! The writer that encodes the changes of an update as a patch.

use serde::Serialize;

use super::channel::ChannelId;
use super::patch::Patch;
use super::patch_parts::{EncodedChange, PatchPart};
use super::strict;
use crate::compact::small_vec::SmallVec;
use crate::error::Result;

/// The kind of a write to a channel. It decides whether two concurrent writers of the channel cause an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Write {
    /// The reducer joined the value into the channel, so concurrent writers cause no error.
    Reduced,
    /// The value replaced the channel. Two concurrent writers cause an error, because one of the writes would be lost.
    Overwritten,
}

/// A channel that an update wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Touch {
    /// The channel.
    pub channel: ChannelId,
    /// The kind of the write. If several operations wrote the channel and one of them replaced it, the kind is [`Write::Overwritten`].
    pub write: Write,
    /// The size of the channel's values in the patch, in bytes. It is 0 if the writer encodes no values.
    pub bytes: usize,
}

/// The result of a writer: the patch, and the channels that it changes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WrittenPatch {
    /// The patch. `None` if the writer encodes no values, like a writer that [`PatchWriter::touching`] creates.
    pub patch: Option<Patch>,
    /// One entry per channel, sorted by name.
    pub touched: Vec<Touch>,
}

impl WrittenPatch {
    /// Returns the channel with the most bytes. The error about a record that is too large names it.
    pub fn largest(&self) -> Option<&Touch> {
        self.touched.iter().max_by_key(|touch| touch.bytes)
    }
}

/// A writer that encodes the changes of an update as JSON. If nothing is stored, it only collects the names of changed channels.
///
/// A writer allocates memory only when it is used.
///
/// # Examples
///
/// ```
/// use ferrata_core::state::{ChannelId, PatchWriter, Write};
///
/// let mut patch = PatchWriter::recording();
/// patch.append(&ChannelId::declared(0, "notes"), &["checked"])?;
/// let written = patch.finish();
/// assert_eq!(written.touched[0].write, Write::Reduced);
/// assert_eq!(serde_json::to_string(&written.patch).unwrap(), r#"[{"append":["notes",["checked"]]}]"#);
/// # Ok::<(), ferrata_core::Error>(())
/// ```
#[derive(Debug)]
pub struct PatchWriter {
    recording: bool,
    /// Whether the writer collects channels.
    noting: bool,
    parts: SmallVec<PatchPart>,
    touched: SmallVec<Touch>,
}

/// A position in the output of a writer. The writer is rewound to it if an update fails midway.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    parts: usize,
    touched: usize,
}

impl PatchWriter {
    /// Creates a writer that encodes its values.
    pub const fn recording() -> Self {
        Self { recording: true, noting: true, parts: SmallVec::new(), touched: SmallVec::new() }
    }

    /// Creates a writer that encodes nothing and only collects the written channels.
    pub const fn touching() -> Self {
        Self { recording: false, noting: true, parts: SmallVec::new(), touched: SmallVec::new() }
    }

    /// Creates a writer that ignores all writes, for callers that do not need the patch.
    #[doc(hidden)]
    pub const fn idle() -> Self {
        Self { recording: false, noting: false, parts: SmallVec::new(), touched: SmallVec::new() }
    }

    /// Sets the value of a channel.
    ///
    /// Pass [`Write::Reduced`] if the value was computed from the current value of the channel.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) if the value cannot be stored, see [`strict`]. The call then writes nothing.
    pub fn set<T: ?Sized + Serialize>(&mut self, channel: &ChannelId, value: &T, write: Write) -> Result<()> {
        self.put(channel, write, |name| {
            let text = strict::channel_to_text(name, value)?;
            Ok((text.get().len(), EncodedChange::Set(text)))
        })
    }

    /// Appends items to the channel's array. Without items, it writes nothing.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`PatchWriter::set`].
    pub fn append<T: Serialize>(&mut self, channel: &ChannelId, items: &[T]) -> Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        self.put(channel, Write::Reduced, |name| {
            let text = strict::channel_to_text(name, items)?;
            Ok((text.get().len(), EncodedChange::Append(SmallVec::One(text))))
        })
    }

    /// Puts entries into the channel's object. Without entries, it writes nothing.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`PatchWriter::set`].
    pub fn merge<K: Serialize, V: Serialize>(
        &mut self,
        channel: &ChannelId,
        entries: &[(K, V)],
    ) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        self.put(channel, Write::Reduced, |name| {
            let text = strict::channel_entries_to_text(name, &MergedEntries(entries))?;
            Ok((text.get().len(), EncodedChange::Merge(SmallVec::One(text))))
        })
    }

    /// Removes keys from the channel's object. Without keys, it writes nothing.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`PatchWriter::set`].
    pub fn remove_keys<K: Serialize>(&mut self, channel: &ChannelId, keys: &[K]) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        self.put(channel, Write::Reduced, |name| {
            let keys: Vec<String> =
                keys.iter().map(|key| strict::key_text(name, key)).collect::<Result<_>>()?;
            Ok((keys.iter().map(|key| key.len() + 3).sum(), EncodedChange::RemoveKeys(keys)))
        })
    }

    /// Removes the whole channel.
    pub(crate) fn remove_channel(&mut self, channel: &ChannelId) {
        // Removal encodes no value, so it cannot fail.
        let _ = self.put(channel, Write::Overwritten, |_| Ok((0, EncodedChange::RemoveChannel)));
    }

    fn put(
        &mut self,
        channel: &ChannelId,
        write: Write,
        encode: impl FnOnce(&str) -> Result<(usize, EncodedChange)>,
    ) -> Result<()> {
        let mut bytes = 0;
        if self.recording {
            let (len, change) = encode(channel.name())?;
            bytes = len;
            self.parts.push(PatchPart { channel: channel.shared_name(), change });
        }
        if self.noting {
            self.touched.push(Touch { channel: channel.clone(), write, bytes });
        }
        Ok(())
    }

    /// Returns the current position, for [`rewind`](Self::rewind).
    pub fn mark(&self) -> Mark {
        Mark { parts: self.parts.len(), touched: self.touched.len() }
    }

    /// Discards all writes after `mark`.
    pub fn rewind(&mut self, mark: Mark) {
        self.parts.truncate(mark.parts);
        self.touched.truncate(mark.touched);
    }

    /// Returns whether the writer has no changes.
    pub fn is_empty(&self) -> bool {
        self.touched.is_empty()
    }

    /// Returns the patch and the channels that it changes.
    pub fn finish(self) -> WrittenPatch {
        let (patch, touched) = self.close();
        WrittenPatch { patch, touched: touched.into() }
    }

    /// Returns the patch and the changed channels, like [`finish`](Self::finish), but needs no allocation for a list of one channel.
    #[doc(hidden)]
    pub fn close(self) -> (Option<Patch>, SmallVec<Touch>) {
        let patch = self.recording.then(|| Patch::from_parts(self.parts));
        if self.touched.len() <= 1 {
            return (patch, self.touched);
        }
        let mut touched = Vec::from(self.touched);
        touched.sort_by(|a, b| a.channel.name().cmp(b.channel.name()));
        touched.dedup_by(|later, earlier| {
            let same = later.channel.name() == earlier.channel.name();
            if same {
                earlier.write = earlier.write.max(later.write);
                earlier.bytes += later.bytes;
            }
            same
        });
        (patch, touched.into())
    }
}

/// Pairs as one JSON object.
struct MergedEntries<'a, K, V>(&'a [(K, V)]);

impl<K: Serialize, V: Serialize> Serialize for MergedEntries<'_, K, V> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

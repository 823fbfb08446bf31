//! The writer for the changes of an update.

use serde::Serialize;

use super::channel::ChannelId;
use super::patch::Patch;
use super::patch_parts::{EncodedChange, PatchPart};
use super::strict;
use crate::compact::small_vec::SmallVec;
use crate::error::Result;

/// The kind of write to a channel, which decides whether two concurrent writers are an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Write {
    /// Joined by the reducer: concurrent writers are expected.
    Reduced,
    /// Replaced the value: one of two concurrent writes would be lost.
    Overwritten,
}

/// A channel that an update wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Touch {
    /// The channel.
    pub channel: ChannelId,
    /// The kind of write: [`Write::Overwritten`] if any of several operations was.
    pub write: Write,
    /// The size of its values in the patch, in bytes. 0 if the writer encodes no values.
    pub bytes: usize,
}

/// The output of a writer: the patch and its channels.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WrittenPatch {
    /// The patch, or `None` if the writer only collected channels.
    pub patch: Option<Patch>,
    /// One entry per channel, sorted by name.
    pub touched: Vec<Touch>,
}

impl WrittenPatch {
    /// Returns the channel with the most bytes, for the error about a record that is too large.
    pub fn largest(&self) -> Option<&Touch> {
        self.touched.iter().max_by_key(|touch| touch.bytes)
    }
}

/// Writes the changes of an update as JSON, or only the names of changed channels if nothing is stored.
///
/// An unused writer has allocated nothing.
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

/// A position to rewind to when an update fails midway.
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
    /// Pass [`Write::Reduced`] if the value was computed from the current one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) if the value cannot be stored, see [`strict`]. The call then writes nothing.
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
    /// The errors of [`PatchWriter::set`].
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
    /// The errors of [`PatchWriter::set`].
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
    /// The errors of [`PatchWriter::set`].
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

    /// Returns a position to rewind to.
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

    /// Returns the patch and the channels it touches.
    pub fn finish(self) -> WrittenPatch {
        let (patch, touched) = self.close();
        WrittenPatch { patch, touched: touched.into() }
    }

    /// Finishes like [`finish`](Self::finish), without an allocation for a list of one channel.
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

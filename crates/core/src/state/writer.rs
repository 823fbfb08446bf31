//! Where a state writes what an update changes in it.

use serde::Serialize;

use super::channel::ChannelId;
use super::parts::{Change, Part};
use super::patch::Patch;
use super::strict;
use crate::compact::few::SmallVec;
use crate::error::Result;

/// How a channel was written, which decides whether two concurrent writers are an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Write {
    /// Joined by its reducer: concurrent writers are expected.
    Reduced,
    /// Replaced whatever was there: of two concurrent writers, one would be lost.
    Overwritten,
}

/// A channel that an update wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Touch {
    /// Which channel.
    pub channel: ChannelId,
    /// How; [`Write::Overwritten`] if any of several operations was.
    pub write: Write,
    /// The bytes of its values in the patch; 0 if nothing was recorded.
    pub bytes: usize,
}

/// What was written: the patch, and the channels it is about.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WrittenPatch {
    /// The patch; `None` if the writer only noted channels.
    pub patch: Option<Patch>,
    /// One entry per channel, sorted by name.
    pub touched: Vec<Touch>,
}

impl WrittenPatch {
    /// Returns the channel with the most bytes, the one to blame for a record that is too large.
    pub fn largest(&self) -> Option<&Touch> {
        self.touched.iter().max_by_key(|touch| touch.bytes)
    }
}

/// Takes down what an update changes, as JSON or, where nothing is stored, as the names of channels only.
///
/// A writer that was given nothing has allocated nothing.
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
    /// Whether channels are noted.
    noting: bool,
    parts: SmallVec<Part>,
    touched: SmallVec<Touch>,
}

/// A point to go back to when an update fails half-way.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    parts: usize,
    touched: usize,
}

impl PatchWriter {
    /// Makes a writer that encodes what it is given.
    pub const fn recording() -> Self {
        Self { recording: true, noting: true, parts: SmallVec::new(), touched: SmallVec::new() }
    }

    /// Makes a writer that encodes nothing and only notes which channels were written.
    pub const fn touching() -> Self {
        Self { recording: false, noting: true, parts: SmallVec::new(), touched: SmallVec::new() }
    }

    /// Makes a writer that notes nothing at all, for where no caller reads the patch.
    pub(crate) const fn idle() -> Self {
        Self { recording: false, noting: false, parts: SmallVec::new(), touched: SmallVec::new() }
    }

    /// Puts a value in the place of the channel's.
    ///
    /// `write` is [`Write::Reduced`] where the value was computed from the one that was there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the value cannot be stored, see [`strict`]; nothing was written.
    pub fn set<T: ?Sized + Serialize>(&mut self, channel: &ChannelId, value: &T, write: Write) -> Result<()> {
        self.put(channel, write, |name| {
            let text = strict::channel_to_text(name, value)?;
            Ok((text.get().len(), Change::Set(text)))
        })
    }

    /// Adds items at the end of the channel's array; nothing if there are none.
    ///
    /// # Errors
    ///
    /// As [`PatchWriter::set`].
    pub fn append<T: Serialize>(&mut self, channel: &ChannelId, items: &[T]) -> Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        self.put(channel, Write::Reduced, |name| {
            let text = strict::channel_to_text(name, items)?;
            Ok((text.get().len(), Change::Append(SmallVec::One(text))))
        })
    }

    /// Puts entries into the channel's object; nothing if there are none.
    ///
    /// # Errors
    ///
    /// As [`PatchWriter::set`].
    pub fn merge<K: Serialize, V: Serialize>(
        &mut self,
        channel: &ChannelId,
        entries: &[(K, V)],
    ) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        self.put(channel, Write::Reduced, |name| {
            let text = strict::channel_entries_to_text(name, &Entries(entries))?;
            Ok((text.get().len(), Change::Merge(SmallVec::One(text))))
        })
    }

    /// Takes keys out of the channel's object; nothing if there are none.
    ///
    /// # Errors
    ///
    /// As [`PatchWriter::set`].
    pub fn remove_keys<K: Serialize>(&mut self, channel: &ChannelId, keys: &[K]) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        self.put(channel, Write::Reduced, |name| {
            let keys: Vec<String> =
                keys.iter().map(|key| strict::key_text(name, key)).collect::<Result<_>>()?;
            Ok((keys.iter().map(|key| key.len() + 3).sum(), Change::RemoveKeys(keys)))
        })
    }

    /// Takes the whole channel away.
    pub fn remove_channel(&mut self, channel: &ChannelId) {
        // Nothing is encoded, so nothing can fail.
        let _ = self.put(channel, Write::Overwritten, |_| Ok((0, Change::RemoveChannel)));
    }

    fn put(
        &mut self,
        channel: &ChannelId,
        write: Write,
        encode: impl FnOnce(&str) -> Result<(usize, Change)>,
    ) -> Result<()> {
        let mut bytes = 0;
        if self.recording {
            let (len, change) = encode(channel.name())?;
            bytes = len;
            self.parts.push(Part { channel: channel.shared_name(), change });
        }
        if self.noting {
            self.touched.push(Touch { channel: channel.clone(), write, bytes });
        }
        Ok(())
    }

    /// Returns a point to go back to.
    pub fn mark(&self) -> Mark {
        Mark { parts: self.parts.len(), touched: self.touched.len() }
    }

    /// Forgets what was written after `mark`.
    pub fn rewind(&mut self, mark: Mark) {
        self.parts.truncate(mark.parts);
        self.touched.truncate(mark.touched);
    }

    /// Tells whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.touched.is_empty()
    }

    /// Returns the patch and the channels it touches.
    pub fn finish(self) -> WrittenPatch {
        let (patch, touched) = self.close();
        WrittenPatch { patch, touched: touched.into() }
    }

    /// As [`finish`](Self::finish), without memory for a list of one channel.
    pub(crate) fn close(self) -> (Option<Patch>, SmallVec<Touch>) {
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
struct Entries<'a, K, V>(&'a [(K, V)]);

impl<K: Serialize, V: Serialize> Serialize for Entries<'_, K, V> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

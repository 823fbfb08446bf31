//! Patches that consist of parts. Values are retained as encoded text, and no text is copied when two patches are combined.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::ser::{Error as _, SerializeSeq};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::op::Op;
use super::strict;
use super::text::JsonText;
use crate::compact::small_vec::SmallVec;
use crate::error::Result;

/// An operation with encoded values.
#[derive(Clone)]
pub(super) struct PatchPart {
    pub(super) channel: Cow<'static, str>,
    pub(super) change: EncodedChange,
}

#[derive(Clone)]
pub(super) enum EncodedChange {
    Set(JsonText),
    /// Items to append in order. Each text is an array of items.
    Append(SmallVec<JsonText>),
    /// Objects to merge in order. A later entry replaces an earlier entry with the same key.
    Merge(SmallVec<JsonText>),
    /// At least one key.
    RemoveKeys(Vec<String>),
    RemoveChannel,
}

/// An operation as it appears in JSON text.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawOp<'a> {
    Set(String, #[serde(borrow)] &'a RawValue),
    Append(String, #[serde(borrow)] &'a RawValue),
    Merge(String, #[serde(borrow)] &'a RawValue),
    Remove(String, Vec<String>),
}

impl PatchPart {
    pub(super) fn from_op(op: &Op) -> Result<Self> {
        let name = op.channel();
        let change = match op {
            Op::Set(_, value) => EncodedChange::Set(strict::channel_to_text(name, value)?),
            Op::Append(_, items) => {
                EncodedChange::Append(SmallVec::One(strict::channel_to_text(name, items)?))
            }
            Op::Merge(_, map) => EncodedChange::Merge(SmallVec::One(strict::channel_to_text(name, map)?)),
            Op::Remove(_, keys) => EncodedChange::remove(keys.clone()),
        };
        Ok(Self { channel: name.to_owned().into(), change })
    }

    pub(super) fn parse_all(text: &str) -> serde_json::Result<Vec<Self>> {
        serde_json::from_str::<Vec<RawOp<'_>>>(text)?.into_iter().map(Self::parse).collect()
    }

    /// Returns the operation in its stored form, with decodable values in the canonical spelling of records.
    pub(super) fn into_stored(self) -> Result<Self> {
        let Self { channel, change } = self;
        let checked = |chunks: SmallVec<JsonText>| -> Result<SmallVec<JsonText>> {
            let mut all = SmallVec::new();
            for chunk in chunks {
                all.push(strict::channel_to_text(&channel, &chunk)?);
            }
            Ok(all)
        };
        let change = match change {
            EncodedChange::Set(value) => EncodedChange::Set(strict::channel_to_text(&channel, &value)?),
            EncodedChange::Append(chunks) => EncodedChange::Append(checked(chunks)?),
            EncodedChange::Merge(chunks) => EncodedChange::Merge(checked(chunks)?),
            removal => removal,
        };
        Ok(Self { channel, change })
    }

    fn parse(op: RawOp<'_>) -> serde_json::Result<Self> {
        let chunk = |value: &RawValue, open: char, what: &str| {
            if value.get().starts_with(open) {
                return Ok(SmallVec::One(JsonText::from(value)));
            }
            Err(serde::de::Error::custom(what))
        };
        let (channel, change) = match op {
            RawOp::Set(channel, value) => (channel, EncodedChange::Set(value.into())),
            RawOp::Append(channel, items) => {
                (channel, EncodedChange::Append(chunk(items, '[', "append takes an array of items")?))
            }
            RawOp::Merge(channel, map) => {
                (channel, EncodedChange::Merge(chunk(map, '{', "merge takes an object of entries")?))
            }
            RawOp::Remove(channel, keys) => (channel, EncodedChange::remove(keys)),
        };
        Ok(Self { channel: channel.into(), change })
    }
}

impl std::fmt::Debug for PatchPart {
    /// Shows the channel without payloads.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Part({:?})", self.channel)
    }
}

impl PatchPart {
    /// Appends the JSON text to `out`. The result is the same as with [`Serialize`], but values that are already text are not scanned again.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let (verb, value): (&[u8], _) = match &self.change {
            EncodedChange::Set(value) => (b"{\"set\":[", value),
            EncodedChange::Append(SmallVec::One(items)) => (b"{\"append\":[", items),
            EncodedChange::Merge(SmallVec::One(entries)) => (b"{\"merge\":[", entries),
            _ => return serde_json::to_writer(out, self),
        };
        out.extend_from_slice(verb);
        if self.channel.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
            out.push(b'"');
            out.extend_from_slice(self.channel.as_bytes());
            out.push(b'"');
        } else {
            serde_json::to_writer(&mut *out, &self.channel)?;
        }
        out.push(b',');
        out.extend_from_slice(value.get().as_bytes());
        out.extend_from_slice(b"]}");
        Ok(())
    }
}

impl EncodedChange {
    pub(super) fn remove(keys: Vec<String>) -> Self {
        if keys.is_empty() { Self::RemoveChannel } else { Self::RemoveKeys(keys) }
    }
}

/// Appends an operation, and drops earlier operations that have no effect any more.
pub(super) fn join(parts: &mut SmallVec<PatchPart>, later: PatchPart) {
    if let EncodedChange::Set(_) | EncodedChange::RemoveChannel = later.change {
        parts.retain(|part| part.channel != later.channel);
        parts.push(later);
        return;
    }
    // Only the last operation on a channel may absorb the next one, because their order matters.
    let last = parts.iter_mut().rev().find(|part| part.channel == later.channel);
    match (last.map(|part| &mut part.change), later.change) {
        (Some(EncodedChange::Append(chunks)), EncodedChange::Append(more)) => {
            more.into_iter().for_each(|chunk| chunks.push(chunk))
        }
        (Some(EncodedChange::Merge(chunks)), EncodedChange::Merge(more)) => {
            more.into_iter().for_each(|chunk| chunks.push(chunk))
        }
        (Some(EncodedChange::RemoveKeys(keys)), EncodedChange::RemoveKeys(more)) => keys.extend(more),
        (_, change) => parts.push(PatchPart { channel: later.channel, change }),
    }
}

impl Serialize for PatchPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = &*self.channel;
        match &self.change {
            EncodedChange::Set(value) => one(serializer, "set", name, value),
            EncodedChange::Append(chunks) => match &**chunks {
                [chunk] => one(serializer, "append", name, chunk),
                chunks => one(serializer, "append", name, &JoinedItems(chunks)),
            },
            EncodedChange::Merge(chunks) => match &**chunks {
                [chunk] => one(serializer, "merge", name, chunk),
                chunks => one(serializer, "merge", name, &JoinedEntries(chunks)),
            },
            EncodedChange::RemoveKeys(keys) => one(serializer, "remove", name, keys),
            EncodedChange::RemoveChannel => one(serializer, "remove", name, &[(); 0]),
        }
    }
}

/// `{verb: [channel, value]}`
fn one<S: Serializer, T: ?Sized + Serialize>(
    serializer: S,
    verb: &str,
    channel: &str,
    value: &T,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map([(verb, (channel, value))])
}

struct JoinedItems<'a>(&'a [JsonText]);

impl Serialize for JoinedItems<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = serializer.serialize_seq(None)?;
        for chunk in self.0 {
            for item in serde_json::from_str::<Vec<&RawValue>>(chunk.get()).map_err(S::Error::custom)? {
                all.serialize_element(item)?;
            }
        }
        all.end()
    }
}

struct JoinedEntries<'a>(&'a [JsonText]);

impl Serialize for JoinedEntries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = BTreeMap::new();
        for chunk in self.0 {
            let map: BTreeMap<String, &RawValue> =
                serde_json::from_str(chunk.get()).map_err(S::Error::custom)?;
            all.extend(map);
        }
        serializer.collect_map(all)
    }
}

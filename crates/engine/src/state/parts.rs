//! Patches in parts: values stay encoded text, and joining two patches copies no text.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::ser::{Error as _, SerializeSeq};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::op::Op;
use super::strict;
use super::text::Text;
use crate::compact::few::SmallVec;
use crate::error::Result;

/// An operation with encoded values.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) channel: Cow<'static, str>,
    pub(super) change: Change,
}

#[derive(Clone)]
pub(super) enum Change {
    Set(Text),
    /// Arrays with items to append in order.
    Append(SmallVec<Text>),
    /// Objects to merge in order; later entries win.
    Merge(SmallVec<Text>),
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

impl Part {
    pub(super) fn from_op(op: &Op) -> Result<Self> {
        let name = op.channel();
        let change = match op {
            Op::Set(_, value) => Change::Set(strict::channel_to_text(name, value)?),
            Op::Append(_, items) => Change::Append(SmallVec::One(strict::channel_to_text(name, items)?)),
            Op::Merge(_, map) => Change::Merge(SmallVec::One(strict::channel_to_text(name, map)?)),
            Op::Remove(_, keys) => Change::remove(keys.clone()),
        };
        Ok(Self { channel: name.to_owned().into(), change })
    }

    pub(super) fn parse_all(text: &str) -> serde_json::Result<Vec<Self>> {
        serde_json::from_str::<Vec<RawOp<'_>>>(text)?.into_iter().map(Self::parse).collect()
    }

    /// Returns the operation in its stored form, with decodable values in the canonical spelling of records.
    pub(super) fn checked(self) -> Result<Self> {
        let Self { channel, change } = self;
        let checked = |chunks: SmallVec<Text>| -> Result<SmallVec<Text>> {
            let mut all = SmallVec::new();
            for chunk in chunks {
                all.push(strict::channel_to_text(&channel, &chunk)?);
            }
            Ok(all)
        };
        let change = match change {
            Change::Set(value) => Change::Set(strict::channel_to_text(&channel, &value)?),
            Change::Append(chunks) => Change::Append(checked(chunks)?),
            Change::Merge(chunks) => Change::Merge(checked(chunks)?),
            removal => removal,
        };
        Ok(Self { channel, change })
    }

    fn parse(op: RawOp<'_>) -> serde_json::Result<Self> {
        let chunk = |value: &RawValue, open: char, what: &str| {
            if value.get().starts_with(open) {
                return Ok(SmallVec::One(Text::from(value)));
            }
            Err(serde::de::Error::custom(what))
        };
        let (channel, change) = match op {
            RawOp::Set(channel, value) => (channel, Change::Set(value.into())),
            RawOp::Append(channel, items) => {
                (channel, Change::Append(chunk(items, '[', "append takes an array of items")?))
            }
            RawOp::Merge(channel, map) => {
                (channel, Change::Merge(chunk(map, '{', "merge takes an object of entries")?))
            }
            RawOp::Remove(channel, keys) => (channel, Change::remove(keys)),
        };
        Ok(Self { channel: channel.into(), change })
    }
}

impl std::fmt::Debug for Part {
    /// Shows the channel without payloads.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Part({:?})", self.channel)
    }
}

impl Part {
    /// Appends the output of [`Serialize`], without a scan of values that are already text.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let (verb, value): (&[u8], _) = match &self.change {
            Change::Set(value) => (b"{\"set\":[", value),
            Change::Append(SmallVec::One(items)) => (b"{\"append\":[", items),
            Change::Merge(SmallVec::One(entries)) => (b"{\"merge\":[", entries),
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

impl Change {
    pub(super) fn remove(keys: Vec<String>) -> Self {
        if keys.is_empty() { Self::RemoveChannel } else { Self::RemoveKeys(keys) }
    }
}

/// Appends an operation, and drops the operations that it supersedes.
pub(super) fn join(parts: &mut SmallVec<Part>, later: Part) {
    if let Change::Set(_) | Change::RemoveChannel = later.change {
        parts.retain(|part| part.channel != later.channel);
        parts.push(later);
        return;
    }
    // Only the last operation on a channel may absorb the next one, because their order matters.
    let last = parts.iter_mut().rev().find(|part| part.channel == later.channel);
    match (last.map(|part| &mut part.change), later.change) {
        (Some(Change::Append(chunks)), Change::Append(more)) => {
            more.into_iter().for_each(|chunk| chunks.push(chunk))
        }
        (Some(Change::Merge(chunks)), Change::Merge(more)) => {
            more.into_iter().for_each(|chunk| chunks.push(chunk))
        }
        (Some(Change::RemoveKeys(keys)), Change::RemoveKeys(more)) => keys.extend(more),
        (_, change) => parts.push(Part { channel: later.channel, change }),
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = &*self.channel;
        match &self.change {
            Change::Set(value) => one(serializer, "set", name, value),
            Change::Append(chunks) => match &**chunks {
                [chunk] => one(serializer, "append", name, chunk),
                chunks => one(serializer, "append", name, &Items(chunks)),
            },
            Change::Merge(chunks) => match &**chunks {
                [chunk] => one(serializer, "merge", name, chunk),
                chunks => one(serializer, "merge", name, &Entries(chunks)),
            },
            Change::RemoveKeys(keys) => one(serializer, "remove", name, keys),
            Change::RemoveChannel => one(serializer, "remove", name, &[(); 0]),
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

struct Items<'a>(&'a [Text]);

impl Serialize for Items<'_> {
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

struct Entries<'a>(&'a [Text]);

impl Serialize for Entries<'_> {
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

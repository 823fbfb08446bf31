//! The four operations of a patch.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An operation that changes a channel. It can be applied to the untyped state without the user's type.
///
/// # Examples
///
/// ```
/// use ferrata_core::state::Op;
///
/// let op = Op::Set("draft".into(), "text".into());
/// assert_eq!(serde_json::to_string(&op).unwrap(), r#"{"set":["draft","text"]}"#);
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Replaces the value of the channel.
    Set(String, Value),
    /// Appends items to the channel's array. If the channel is absent, an empty array is created first.
    Append(String, Vec<Value>),
    /// Puts entries into the channel's object. An entry replaces an existing entry with the same key. If the channel is absent, an empty object is
    /// created first.
    Merge(String, Map<String, Value>),
    /// Removes keys from the channel's object. An empty list removes the whole channel. Absent keys are ignored.
    Remove(String, Vec<String>),
}

impl Op {
    /// Returns the name of the operation's channel.
    pub fn channel(&self) -> &str {
        match self {
            Self::Set(channel, _)
            | Self::Append(channel, _)
            | Self::Merge(channel, _)
            | Self::Remove(channel, _) => channel,
        }
    }
}

/// An operation that is about to be applied. The name of its channel is borrowed from the text, if it contains no escapes.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FoldedChange<'a> {
    Set(#[serde(borrow)] Cow<'a, str>, Value),
    Append(#[serde(borrow)] Cow<'a, str>, Vec<Value>),
    Merge(#[serde(borrow)] Cow<'a, str>, Map<String, Value>),
    Remove(#[serde(borrow)] Cow<'a, str>, Vec<String>),
}

impl From<Op> for FoldedChange<'_> {
    fn from(op: Op) -> Self {
        match op {
            Op::Set(channel, value) => Self::Set(channel.into(), value),
            Op::Append(channel, items) => Self::Append(channel.into(), items),
            Op::Merge(channel, entries) => Self::Merge(channel.into(), entries),
            Op::Remove(channel, keys) => Self::Remove(channel.into(), keys),
        }
    }
}

impl fmt::Debug for Op {
    /// Shows the operation and the channel without payloads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Set(..) => "Set",
            Self::Append(..) => "Append",
            Self::Merge(..) => "Merge",
            Self::Remove(..) => "Remove",
        };
        f.debug_tuple(name).field(&self.channel()).finish_non_exhaustive()
    }
}

//! The four plain operations a patch is made of.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One plain operation on a channel: what folding needs to know, without any user type.
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
    /// Puts a value in the place of the channel's.
    Set(String, Value),
    /// Adds items at the end of the channel's array; of an absent channel, makes it.
    Append(String, Vec<Value>),
    /// Puts entries into the channel's object, replacing those of the same key; of an absent channel, makes it.
    Merge(String, Map<String, Value>),
    /// Takes keys out of the channel's object; an empty list takes the whole channel away. What is not there is ignored.
    Remove(String, Vec<String>),
}

impl Op {
    /// Returns the name of the channel it is on.
    pub fn channel(&self) -> &str {
        match self {
            Self::Set(channel, _)
            | Self::Append(channel, _)
            | Self::Merge(channel, _)
            | Self::Remove(channel, _) => channel,
        }
    }
}

/// An operation that is about to be folded: a channel's name is borrowed from the text where that has it as it is.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change<'a> {
    Set(#[serde(borrow)] Cow<'a, str>, Value),
    Append(#[serde(borrow)] Cow<'a, str>, Vec<Value>),
    Merge(#[serde(borrow)] Cow<'a, str>, Map<String, Value>),
    Remove(#[serde(borrow)] Cow<'a, str>, Vec<String>),
}

impl From<Op> for Change<'_> {
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
    /// Shows what is done to which channel, never a payload.
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

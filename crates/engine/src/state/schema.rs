//! Schemas, which list the channels of a state and their reducers.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::secret::Secrets;
use crate::error::{Error, ErrorKind, Result};

/// The reducer of a channel: the rule that joins an update into the channel.
///
/// Its text form in pipeline files is the name of the variant in lower case. For a custom reducer, it is `custom:` and the path of the function.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reducer {
    /// The update replaces the value. If two concurrent activations write the channel, the run fails.
    #[default]
    Last,
    /// The items of the update are added after the current items.
    Append,
    /// The entries of the update are put into the map. An entry replaces an existing entry with the same key.
    Merge,
    /// The greater of the two values is retained.
    Max,
    /// The lesser of the two values is retained.
    Min,
    /// The update is added to the current number.
    Sum,
    /// The items of the update that the channel does not contain yet are added after the current items.
    Union,
    /// The first written value is retained.
    First,
    /// A function of the application joins the update and the current value.
    Custom {
        /// The path of the function in the code. It is part of the fingerprint of a graph. It is never used to find the function.
        with: Cow<'static, str>,
    },
}

impl fmt::Display for Reducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Last => "last",
            Self::Append => "append",
            Self::Merge => "merge",
            Self::Max => "max",
            Self::Min => "min",
            Self::Sum => "sum",
            Self::Union => "union",
            Self::First => "first",
            Self::Custom { with } => return write!(f, "custom:{with}"),
        })
    }
}

impl FromStr for Reducer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "last" => Self::Last,
            "append" => Self::Append,
            "merge" => Self::Merge,
            "max" => Self::Max,
            "min" => Self::Min,
            "sum" => Self::Sum,
            "union" => Self::Union,
            "first" => Self::First,
            _ => match text.strip_prefix("custom:") {
                Some(with) if !with.is_empty() => Self::Custom { with: with.to_owned().into() },
                _ => {
                    let message = format!(
                        "`{}` is not a reducer; use last, append, merge, max, min, sum, union or first",
                        text.escape_debug()
                    );
                    return Err(Error::new(ErrorKind::Invalid, message));
                }
            },
        })
    }
}

/// A channel: its name, its reducer, and whether views show its values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChannelSpec {
    /// The name under which the channel is stored.
    pub name: Cow<'static, str>,
    /// The reducer of the channel.
    pub reducer: Reducer,
    /// Whether the channel is secret, so that views hide its values.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

impl ChannelSpec {
    /// Creates a channel.
    #[doc(hidden)]
    pub fn new(name: impl Into<Cow<'static, str>>, reducer: Reducer) -> Self {
        Self { name: name.into(), reducer, secret: false }
    }

    /// Marks the channel as secret: views show [`HIDDEN`](super::HIDDEN) instead of its values.
    #[must_use]
    #[doc(hidden)]
    pub fn secret(mut self) -> Self {
        self.secret = true;
        self
    }
}

/// The schema of a state: its channels in the order of declaration. Clones share the channels.
///
/// # Examples
///
/// ```
/// use ferrata_core::state::{ChannelSpec, Reducer, Schema};
///
/// let schema = Schema::new(1, [ChannelSpec::new("notes", Reducer::Append)]);
/// assert_eq!(schema.channel_index("notes"), Some(0));
/// assert_eq!(schema.reducer("unheard"), &Reducer::Last);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Schema(Arc<SchemaInner>);

#[derive(PartialEq, Eq)]
struct SchemaInner {
    version: u32,
    channels: Vec<ChannelSpec>,
    /// Positions in `channels`, sorted by name.
    by_name: Vec<usize>,
}

impl Schema {
    /// Creates a schema. If two channels have the same name, the later one replaces the earlier.
    #[doc(hidden)]
    pub fn new(version: u32, channels: impl IntoIterator<Item = ChannelSpec>) -> Self {
        let mut kept: Vec<ChannelSpec> = Vec::new();
        for channel in channels {
            match kept.iter_mut().find(|other| other.name == channel.name) {
                Some(earlier) => *earlier = channel,
                None => kept.push(channel),
            }
        }
        let mut by_name: Vec<usize> = (0..kept.len()).collect();
        by_name.sort_by(|a, b| kept[*a].name.cmp(&kept[*b].name));
        Self(Arc::new(SchemaInner { version, channels: kept, by_name }))
    }

    /// Returns this schema with an additional channel. If the channel already exists, it gets the new reducer.
    #[must_use]
    #[doc(hidden)]
    pub fn with_channel(&self, name: impl Into<Cow<'static, str>>, reducer: Reducer) -> Self {
        let name = name.into();
        let secret = self.is_secret(&name);
        self.with(ChannelSpec { name, reducer, secret })
    }

    /// Returns this schema with a channel marked as secret. If the channel is not declared, it is added with [`Reducer::Last`].
    #[must_use]
    #[doc(hidden)]
    pub fn with_secret(&self, name: impl Into<Cow<'static, str>>) -> Self {
        let name = name.into();
        let reducer = self.reducer(&name).clone();
        self.with(ChannelSpec::new(name, reducer).secret())
    }

    fn with(&self, channel: ChannelSpec) -> Self {
        Self::new(self.0.version, self.0.channels.iter().cloned().chain([channel]))
    }

    /// Returns this schema with another version.
    #[must_use]
    #[doc(hidden)]
    pub fn with_version(&self, version: u32) -> Self {
        Self::new(version, self.0.channels.iter().cloned())
    }

    /// Returns the version from `#[state(version = N)]`, by default 1.
    pub fn version(&self) -> u32 {
        self.0.version
    }

    /// Returns the channels in the order of declaration.
    pub fn channels(&self) -> &[ChannelSpec] {
        &self.0.channels
    }

    /// Returns the position of a channel in [`Schema::channels`].
    #[doc(hidden)]
    pub fn channel_index(&self, name: &str) -> Option<usize> {
        let inner = &*self.0;
        let found = inner.by_name.binary_search_by(|at| (*inner.channels[*at].name).cmp(name));
        found.ok().map(|at| inner.by_name[at])
    }

    /// Returns the reducer of a channel. For a channel that is not declared, this is [`Reducer::Last`].
    pub fn reducer(&self, name: &str) -> &Reducer {
        const UNDECLARED: &Reducer = &Reducer::Last;
        self.channel_index(name).map_or(UNDECLARED, |at| &self.0.channels[at].reducer)
    }

    /// Returns whether the channel is marked as secret.
    pub(crate) fn is_secret(&self, name: &str) -> bool {
        self.channel_index(name).is_some_and(|at| self.0.channels[at].secret)
    }

    /// Returns the channels that are marked as secret.
    #[doc(hidden)]
    pub fn secrets(&self) -> Secrets {
        self.0
            .channels
            .iter()
            .filter(|channel| channel.secret)
            .map(|channel| channel.name.to_string())
            .collect()
    }

    /// Returns whether the channel is declared.
    #[doc(hidden)]
    pub fn declares(&self, name: &str) -> bool {
        self.channel_index(name).is_some()
    }

    /// Returns the canonical JSON text of the schema, from which the fingerprint of a graph is computed.
    ///
    /// Channels are sorted by name, because moving a field inside its struct does not change the stored form. Marking a channel as secret does not
    /// change the text either.
    #[doc(hidden)]
    pub fn fingerprint_input(&self) -> String {
        let mut text = format!("{{\"version\":{},\"channels\":[", self.0.version);
        for (n, at) in self.0.by_name.iter().enumerate() {
            let ChannelSpec { name, reducer, .. } = &self.0.channels[*at];
            let name = serde_json::Value::from(&**name);
            let reducer = serde_json::Value::from(reducer.to_string());
            text.push_str(if n == 0 { "" } else { "," });
            text.push_str(&format!("[{name},{reducer}]"));
        }
        text.push_str("]}");
        text
    }
}

impl Default for Schema {
    /// Returns a schema of version 1 without declared channels.
    fn default() -> Self {
        Self::new(1, [])
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channels = self.0.channels.iter().map(|channel| (&channel.name, channel.reducer.to_string()));
        write!(f, "Schema v{} ", self.0.version)?;
        f.debug_map().entries(channels).finish()
    }
}

//! Identifiers of channels, for code that writes changes of channels.

use std::borrow::Cow;
use std::fmt;

use crate::error::{Error, ErrorKind};

/// The identifier of a channel: its name, and its position in the schema if it is declared there.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ChannelId {
    index: Option<usize>,
    name: Cow<'static, str>,
}

impl ChannelId {
    /// Creates the identifier of the channel at a position of the schema.
    pub const fn declared(index: usize, name: &'static str) -> Self {
        Self { index: Some(index), name: Cow::Borrowed(name) }
    }

    /// Creates the identifier of a channel that is not in the schema, such as a channel that is not stored.
    pub const fn undeclared(name: &'static str) -> Self {
        Self { index: None, name: Cow::Borrowed(name) }
    }

    /// Creates the identifier of a channel that may be in the schema, such as a key of a [`Context`](super::Context).
    pub fn new(index: Option<usize>, name: impl Into<Cow<'static, str>>) -> Self {
        Self { index, name: name.into() }
    }

    /// Returns the position of the channel in the schema, or `None` if the channel is not declared.
    pub fn index(&self) -> Option<usize> {
        self.index
    }

    /// Returns the name under which the channel is stored.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name without copying one that is part of the program.
    pub(super) fn shared_name(&self) -> Cow<'static, str> {
        self.name.clone()
    }

    /// Returns an error about an invalid update of this channel.
    pub fn invalid(&self, message: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Invalid, format!("channel \"{}\": {message}", self.name))
    }
}

impl fmt::Debug for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}

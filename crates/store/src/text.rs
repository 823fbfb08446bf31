//! Parses text during deserialization without an intermediate copy.

use std::fmt;

use serde::de::{Error, Visitor};

/// Reads a text and converts it with the function.
pub(crate) struct TextAs<T, E>(pub(crate) fn(&str) -> Result<T, E>);

impl<T, E: fmt::Display> Visitor<'_> for TextAs<T, E> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<D: Error>(self, text: &str) -> Result<T, D> {
        (self.0)(text).map_err(D::custom)
    }
}

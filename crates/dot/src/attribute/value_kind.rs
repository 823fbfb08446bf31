//! The kinds of values that an attribute accepts.

use std::fmt;

use crate::value::Value;

/// The kind of value that an attribute accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// Any text.
    Text,
    /// A text that is not empty.
    Word,
    /// A whole number that is at least this number.
    Count(i64),
    Integer,
    Boolean,
    /// A boolean. Text is accepted too, as in other dialects.
    Goal,
    Duration,
    /// A number of at least 0.
    Amount,
    OneOf(&'static [&'static str]),
}

impl ValueKind {
    pub(crate) fn accepts(self, value: &Value) -> bool {
        match self {
            Self::Text => true,
            Self::Word => !value.text().trim().is_empty(),
            Self::Count(least) => value.as_integer().is_some_and(|number| number >= least),
            Self::Integer => value.as_integer().is_some(),
            Self::Boolean => value.as_bool().is_some(),
            Self::Goal => {
                value.as_bool().is_some() || value.as_str().is_some_and(|goal| !goal.trim().is_empty())
            }
            Self::Duration => value.as_duration().is_some(),
            Self::Amount => value.as_amount().is_some(),
            Self::OneOf(names) => names.contains(&&*value.text()),
        }
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("text"),
            Self::Word => f.write_str("a text that is not empty"),
            Self::Count(least) => write!(f, "a whole number of at least {least}"),
            Self::Integer => f.write_str("a whole number"),
            Self::Boolean | Self::Goal => f.write_str("`true` or `false`"),
            Self::Duration => f.write_str("a duration as `30s` or `15m`"),
            Self::Amount => f.write_str("a number of at least 0"),
            Self::OneOf(names) => write!(f, "one of `{}`", names.join("`, `")),
        }
    }
}

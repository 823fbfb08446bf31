//! Join rules of nodes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The join rule of a node: when it runs, and with how many tokens.
///
/// The default fits diamonds, conditional branches, fan-outs of any width and loops, without a declaration. The other rules are for nodes that must
/// not wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Join {
    /// Waits for every branch that can still reach the node in the current round of their common loop, then runs once with all tokens.
    #[default]
    All,
    /// Runs once per token, as soon as it arrives, with that token alone.
    Any,
    /// Runs once this many tokens have arrived, at least 1, with the tokens present. Later tokens of the same round are dropped, and recorded as
    /// dropped.
    ///
    /// If the branches that can still reach the node end with fewer tokens, the activation fails. The error has both numbers. The head of a loop
    /// cannot use this rule: it would run during its round, and the tokens of two rounds would be indistinguishable.
    AtLeast(u32),
}

impl fmt::Display for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Any => f.write_str("any"),
            Self::AtLeast(count) => write!(f, "at least {count}"),
        }
    }
}

//! When a node with tokens runs, and with how many of them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// When a node with tokens runs, and with how many of them.
///
/// The default fits diamonds, conditional arms, fan-outs of any width and loops, with nothing declared. The others are for
/// nodes that are not to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Join {
    /// Once all have come: waits for every branch that can still reach the node in the current round of the loop they
    /// share, then runs once with every token.
    #[default]
    All,
    /// For each token: runs at once, as often as a token comes, each time with that token alone.
    Any,
    /// Once so many have come, at least 1: runs with the tokens that are there by then. Tokens that come later in the same
    /// round are dropped, and recorded as dropped.
    ///
    /// If the branches that can still reach the node end with fewer, the activation fails with an error that names both
    /// numbers: a quorum that was not met never passes for one that was. Not for the head of a loop: it would run while its
    /// round goes on, and the tokens of two rounds could not be told apart.
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

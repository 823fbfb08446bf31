//! Join rules of nodes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The join rule of a node. It decides when the node runs after edges to it have fired, and how many of these edges it joins. A fired edge is also
/// called a token.
///
/// The default, [`All`](Self::All), works for parallel branches, conditional branches, routes with any number of items, and loops. The other rules
/// are for nodes that must not wait for all branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Join {
    /// The node waits for every branch that can still reach it, and then runs once with all tokens. In a loop, it waits only for branches that can
    /// reach it in the current round of the loop.
    #[default]
    All,
    /// The node runs once for each token, as soon as the token arrives.
    Any,
    /// The node runs when this number of tokens, at least 1, has arrived. It runs once, with the tokens that are present. Tokens that arrive later in
    /// the same round of a loop are dropped, and the log records this.
    ///
    /// If all branches that could reach the node have ended and fewer tokens have arrived, the activation fails. The error contains both numbers. The
    /// node at which a loop begins cannot use this rule, because it could run before the round has ended, and tokens of two rounds could then not be
    /// distinguished.
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

//! The kinds of edges, by the condition on which they fire.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The condition on which an edge fires.
///
/// After a node succeeds, these edges fire: all plain edges, each conditional edge if its predicate holds for the state after the update, the
/// `Otherwise` edges if no conditional edge of the node fired, and the edges that its route chooses. If no edge fires, the branch ends. After a node
/// fails permanently, only its `OnFailure` edges fire. Without such an edge, the run fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EdgeKind {
    /// The edge fires whenever its node succeeds.
    Plain,
    /// The edge fires when its node succeeds and a predicate on the state returns true.
    When,
    /// The edge fires when its node succeeds and none of the node's `When` edges fires.
    Otherwise,
    /// The edge fires when its node fails permanently.
    OnFailure,
    /// The edge fires when its node succeeds and the routing function of the node chooses the target.
    Routed,
}

impl EdgeKind {
    /// Returns the name of the kind, as fingerprints and files contain it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::When => "when",
            Self::Otherwise => "otherwise",
            Self::OnFailure => "on_failure",
            Self::Routed => "routed",
        }
    }
}

impl fmt::Display for EdgeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

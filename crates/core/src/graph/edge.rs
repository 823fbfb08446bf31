//! The kinds of edges: what makes each of them fire.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What makes an edge fire.
///
/// After a node succeeded, all its plain edges fire, each conditional edge whose predicate holds for the state after the
/// update, the `Otherwise` edges if no conditional edge of the node did, and what its route chooses. If nothing fires, that
/// branch ends there. After a node failed for good, only its `OnFailure` edges fire; if it has none, the failure is the run's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EdgeKind {
    /// Whenever the node succeeds.
    Plain,
    /// When the node succeeds and a predicate on the state holds.
    When,
    /// When the node succeeds and no `When` edge of it fires.
    Otherwise,
    /// When the node fails for good.
    OnFailure,
    /// When the node succeeds and its route chooses the target.
    Routed,
}

impl EdgeKind {
    /// Returns the name, as it stands in fingerprints and files.
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

//! What repeating a node would mean.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What repeating a node would mean: the one thing that decides what must be on disk before the node starts.
///
/// | effect | the node | starts when | if it was in flight at a crash |
/// |---|---|---|---|
/// | `Pure` | computes | at once | runs again |
/// | `Read` | reads the world | at once | runs again |
/// | `Write` | writes, and repeating it with the same idempotency key is safe | all earlier records are durable | runs again, same key |
/// | `External` | must not be repeated | its intent is durable, too | the run is `Interrupted` with a question: retry, supply the result, skip, fail |
/// | `Transactional` | writes in a [transaction](crate::node::NodeContext::transaction) of the store's database | at once | runs again if it was not committed |
/// | `Human` | asks a person | all earlier records are durable | runs again, same key: as `Write` |
///
/// Declaring less than the truth risks the world: a payment declared `Pure` may be made twice. Declaring more costs time only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effect {
    /// It computes its result from the state and nothing else.
    Pure,
    /// It reads the world and leaves it as it was.
    Read,
    /// It writes, and repeating it with the same idempotency key is safe.
    #[default]
    Write,
    /// It does what must not be done twice. However an attempt ends (an error, a timeout, a panic, the end of its process), no
    /// other follows unless the node says that [nothing was done](crate::node::NodeError::not_done), or an operator says so.
    External,
    /// It asks a person.
    Human,
    /// It writes in one [transaction](crate::node::NodeContext::transaction) of the store's database and nowhere else. What it wrote and its
    /// record commit together: it is done exactly once.
    Transactional,
}

impl Effect {
    /// Returns the name, as it is written in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Read => "read",
            Self::Write => "write",
            Self::External => "external",
            Self::Human => "human",
            Self::Transactional => "transactional",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

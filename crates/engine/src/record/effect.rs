//! The effect of a node.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The effect of a node describes what a repeated attempt would do to the world outside of the run. It decides which records must be durable before
/// the node starts, and what happens after a crash.
///
/// | effect | the node | starts when | if it was in flight at a crash |
/// |---|---|---|---|
/// | `Pure` | computes | at once | runs again |
/// | `Read` | reads the world | at once | runs again |
/// | `Write` | writes, and repeating it with the same idempotency key is safe | all earlier records are durable | runs again, same key |
/// | `External` | must not be repeated | its intent is durable, too | the run is `Interrupted` with a question: retry, supply the result, skip, fail |
/// | `Transactional` | writes in a transaction of the store's database | at once | runs again if it was not committed |
/// | `Human` | asks a person | all earlier records are durable | runs again, same key: as `Write` |
///
/// It is dangerous to declare a weaker effect than the node has: a payment that is declared `Pure` may be made twice. If you declare a stronger
/// effect than the node has, the run is only slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effect {
    /// The node computes its result only from the state.
    Pure,
    /// The node reads data from outside of the run, and changes nothing there.
    Read,
    /// The node writes data outside of the run. A repeated write with the same idempotency key is safe.
    #[default]
    Write,
    /// The node does work that must not be repeated. An attempt may end with an error, a timeout, a panic or the death of its process. Then another
    /// attempt follows only if the node reported that its work had no effect, or if an operator decides so.
    External,
    /// The node asks a person.
    Human,
    /// The node writes only in one transaction of the store's database. Its writes and its record commit together, so the writes happen exactly once.
    Transactional,
}

impl Effect {
    /// Returns the name of the effect, as files contain it.
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

//! The effect of a node.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The effect of a node: the consequence of repeating it. It decides which records must be durable before the node starts.
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
/// Declaring too little is dangerous: a payment declared `Pure` may be made twice. Declaring too much only costs time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effect {
    /// Computes its result only from the state.
    Pure,
    /// Reads the outside world and does not change it.
    Read,
    /// Writes, and a repetition with the same idempotency key is safe.
    #[default]
    Write,
    /// Performs work that must not be repeated. After any end of an attempt (an error, a timeout, a panic, the death of its process), no further
    /// attempt follows unless the node reports that nothing was done, or an operator decides so.
    External,
    /// Asks a person.
    Human,
    /// Writes only in one transaction of the store's database. Its writes and its record commit together,
    /// so it happens exactly once.
    Transactional,
}

impl Effect {
    /// Returns the name, as files contain it.
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

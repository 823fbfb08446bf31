//! What the author of a store gives the suite: fresh places, instances on them, and hooks to damage and to let time pass.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::store::CheckpointStore;
use ferrata_core::{RunKey, Seq, Timestamp};

/// Makes places for the suite to work in.
#[async_trait]
pub trait StoreFactory: Send + Sync + 'static {
    /// Makes a fresh space: no run is in it, and nobody else writes to it.
    ///
    /// A schema, a key prefix or a temporary folder of its own; each property gets one, and many run at once.
    async fn fresh(&self) -> Box<dyn Space>;

    /// Returns how long one property may take before it counts as failed.
    ///
    /// Two minutes by default: the longest property makes some 3,000 calls, and none waits for a time to pass longer than
    /// a second unless the store forgets heartbeats.
    fn deadline(&self) -> Duration {
        Duration::from_secs(120)
    }
}

/// One place where runs are kept: what a process finds again when it opens the store a second time.
///
/// What it holds outside the process goes away with [`remove`](Self::remove), or when the space is dropped.
#[async_trait]
pub trait Space: Send + Sync + 'static {
    /// Opens one more instance of the store on this space, as another process would: with connections and caches of its own.
    ///
    /// The suite calls `setup` on what it gets.
    async fn open(&self) -> Arc<dyn CheckpointStore>;

    /// Damages what is stored of `run`, behind the store's back; tells whether the space can do this.
    ///
    /// A space that cannot leaves the group of that damage out of its suite.
    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        let _ = (run, damage);
        false
    }

    /// Moves the store's clock forward, and returns what it says then; `None` if the space has no clock that can be moved.
    ///
    /// Without, the suite lets short times pass on the machine's clock, and the group `clock` is left out.
    async fn advance_clock(&self, by: Duration) -> Option<Timestamp> {
        let _ = by;
        None
    }

    /// Removes everything. Called once, also after a failure, when no instance is used any more.
    async fn remove(&self) {}
}

/// What a disk, an interrupted write, or a newer version may have done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// At least one byte of this record's body is another one; its length is the same. Group `damage`.
    Body(Seq),
    /// This record is gone; those before and after it are there. Group `gap`.
    Gone(Seq),
    /// The last record was not written to its end, as when the power failed. Group `torn`.
    Torn,
    /// This record's format version is one more than this library reads. Group `newer`.
    NewerFormat(Seq),
}

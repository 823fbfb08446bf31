//! The interface between a store's author and the suite: fresh spaces, instances on them, and hooks that damage a space or advance its time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{CheckpointStore, RunKey, Seq, Timestamp};

use crate::table::TransactionTable;

/// Makes places for the suite to work in.
///
/// A factory or a space that cannot do its work panics, and the test that needed it fails with the message. The suite never drops
/// a call to either on the way, except that a property that exceeds its deadline is dropped whatever it is doing.
#[async_trait]
pub trait StoreFactory: Send + Sync + 'static {
    /// Makes a fresh space: no run is in it, and no other test writes to it.
    ///
    /// A schema, a key prefix or a temporary folder of its own; each property gets one, and many run at once.
    async fn fresh(&self) -> Box<dyn Space>;

    /// Returns how long one property may take before it counts as failed.
    ///
    /// Ten minutes by default: the longest property makes some 3,000 calls, and none waits for a time to pass longer than
    /// a second unless the store forgets heartbeats. It is there for what hangs, and a busy machine may take its time.
    fn deadline(&self) -> Duration {
        Duration::from_secs(600)
    }
}

/// One storage space for runs, which a process finds again when it reopens the store.
///
/// [`remove`](Self::remove), or dropping the space, removes its data outside the process.
#[async_trait]
pub trait Space: Send + Sync + 'static {
    /// Opens one more instance of the store on this space, as another process would: with connections and caches of its own.
    ///
    /// The suite calls `setup` on what it gets. Where the group `instances` is left out, the space is opened again only after the
    /// instance before was dropped, for the groups `durable`, `damage`, `gap`, `torn` and `newer`.
    async fn open(&self) -> Arc<dyn CheckpointStore>;

    /// Damages what is stored of `run`, behind the store's back; tells whether the space can do this.
    ///
    /// A space that cannot leaves the group of that damage out of its suite.
    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        let _ = (run, damage);
        false
    }

    /// Creates the table in which transactions of the suite insert rows, or finds it; `None` if the store has no transactions.
    ///
    /// Called once for each property of the group `transactions`, after `setup`.
    async fn transaction_table(&self) -> Option<Box<dyn TransactionTable>> {
        None
    }

    /// Moves the store's clock forward, and returns what it says then; `None` if the space has no clock that can be moved.
    ///
    /// Without, the suite lets short times pass on the machine's clock, and the group `clock` is left out.
    async fn advance_clock(&self, by: Duration) -> Option<Timestamp> {
        let _ = by;
        None
    }

    /// Returns whether the few properties that make by far the most calls take a short form here, with a fifth of them.
    ///
    /// For a server that answers slowly, where the same store has the long form elsewhere: what these properties try is the
    /// store's own work, whatever server it talks to.
    fn is_brief(&self) -> bool {
        false
    }

    /// Removes everything. Called once, also after a failure, when no instance is used any more.
    async fn remove(&self) {}
}

/// Damage to a run, as by a disk, an interrupted write, or a newer version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// At least one byte of this record's body is another one; its length is the same. Group `damage`.
    Body(Seq),
    /// This record is missing; its neighbors exist. Group `gap`.
    Gone(Seq),
    /// The last record is incomplete, as after a power failure. Group `torn`.
    Torn,
    /// This record's format version is one more than this library reads. Group `newer`.
    NewerFormat(Seq),
    /// The records of the run and of this one are swapped: the store finds each under the name of the other, as after a fault in an index or a file
    /// name. Group `swap`.
    Swapped(RunKey),
    /// The last record is missing, and the store's data outside the log, such as a head or an index, is unchanged. Group `tail`.
    Tail,
}

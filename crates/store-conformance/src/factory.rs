//! The interface between the suite and a store's test code: it creates fresh spaces, opens instances of the store on them, damages a space, and
//! advances its clock.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{CheckpointStore, RunKey, Seq, Timestamp};

use crate::table::TransactionTable;

/// Creates the spaces in which the suite works.
///
/// If a factory or a space cannot do its work, it must panic; the test then fails with the message. The suite never drops a call to a factory or a
/// space before it finishes. The only exception is a property that exceeds its deadline: it is dropped in any state.
#[async_trait]
pub trait StoreFactory: Send + Sync + 'static {
    /// Creates a fresh space. It has no run, and no other test writes to it.
    ///
    /// A space may be a separate schema, key prefix or temporary folder. Each property gets its own space, and many properties run at the same
    /// time.
    async fn fresh(&self) -> Box<dyn Space>;

    /// Returns how long one property may take before it counts as failed.
    ///
    /// The default is ten minutes. The longest property makes about 3,000 calls. No property waits for more than a second of real time, unless the
    /// store forgets heartbeats. The deadline exists for tests that hang, so it should leave a busy machine enough time.
    fn deadline(&self) -> Duration {
        Duration::from_secs(600)
    }
}

/// A storage space for runs. A process finds its data again when it reopens the store.
///
/// [`remove`](Self::remove), or dropping the space, removes its data outside of the process.
#[async_trait]
pub trait Space: Send + Sync + 'static {
    /// Opens another instance of the store on this space, as another process would, with its own connections and caches.
    ///
    /// The suite calls `setup` on the instance. If the suite omits the group `instances`, it opens the space again only after it has dropped the
    /// previous instance. It does so for the groups `durable`, `damage`, `gap`, `torn` and `newer`.
    async fn open(&self) -> Arc<dyn CheckpointStore>;

    /// Damages the stored data of `run`, without the store's knowledge. Returns whether the space can do this kind of damage.
    ///
    /// If it cannot, the suite must omit the group of this damage.
    ///
    /// The suite calls this method while an instance is open. If a process can open the storage only once, keep a `Weak` reference to the open store.
    /// Let `open` return that store while it exists. The group `instances` then tests concurrent callers.
    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        let _ = (run, damage);
        false
    }

    /// Creates the table in which transactions of the suite insert rows, or opens an existing one. Returns `None` if the store has no transactions.
    ///
    /// The suite calls it once for each property of the group `transactions`, after `setup`.
    async fn transaction_table(&self) -> Option<Box<dyn TransactionTable>> {
        None
    }

    /// Advances the store's clock, and returns its new time. Returns `None` if the clock of the space cannot be moved.
    ///
    /// In that case the suite waits for short times in real time, and must omit the group `clock`.
    async fn advance_clock(&self, by: Duration) -> Option<Timestamp> {
        let _ = by;
        None
    }

    /// Returns whether the longest properties run in a short form, with a fifth of their calls to the store.
    ///
    /// Return true for a server that answers slowly, if another suite runs the same store with the long form. These properties test the store's own
    /// code, whatever the server is.
    fn is_brief(&self) -> bool {
        false
    }

    /// Removes all data of the space. The suite calls it once, even after a failure, when no instance is in use any more.
    async fn remove(&self) {}
}

/// A kind of damage to a run: by a disk, by an interrupted write, or by a newer version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// At least one byte of this record's body is changed. The length is the same. The group of this damage is `damage`.
    Body(Seq),
    /// This record is missing, and the records before and after it exist. The group of this damage is `gap`.
    Gone(Seq),
    /// The last record is incomplete, as after a power failure. The group of this damage is `torn`.
    Torn,
    /// The format version of this record is one more than this library reads. The group of this damage is `newer`.
    NewerFormat(Seq),
    /// The records of this run and of the other run are swapped. The store finds the records of each run under the name of the other, as after a
    /// fault in an index or a file name. The group of this damage is `swap`.
    Swapped(RunKey),
    /// The last record is missing, and the store's data outside the log, such as a head or an index, is unchanged. The group of this damage is
    /// `tail`.
    Tail,
}

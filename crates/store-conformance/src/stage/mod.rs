//! The tools of a property: instances of the store under test, fresh ids, and the expected logs.

mod calls;
mod overtaken;
mod stories;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ferrata_store::CheckpointStore;
use ferrata_store::{Clock, ExecutorId, IdSource, RunId, RunKey, SystemClock, TenantId, Timestamp};
use ferrata_testing::SeqIds;
pub(crate) use ferrata_testing::{Log, facts};
use tokio::task::JoinSet;

pub(crate) use self::calls::{
    PageWalk, append_one, appended, every_header, every_header_or, every_run, expect_refusal, is_kept,
    is_kept_at_head, ok,
};
pub(crate) use self::overtaken::overtaken;
pub(crate) use self::stories::{key, label, query, tenant};
use crate::factory::{Damage, Space};
use crate::table::TransactionTable;

/// A store under test, as a property gets it.
#[derive(Clone)]
pub(crate) struct TestStage {
    space: Arc<dyn Space>,
    store: Arc<dyn CheckpointStore>,
    ids: Arc<SeqIds>,
}

/// The instance of a store that a property calls.
pub(crate) type Store = Arc<dyn CheckpointStore>;

/// Interval of polls for a condition that depends on time: short enough to lose no time, long enough for a server.
const POLL: Duration = Duration::from_millis(20);

/// How long a condition may take that time brings about, on a machine that is busy with the other properties.
const PATIENCE: Duration = Duration::from_secs(60);

impl TestStage {
    /// Opens a first instance on the space, without preparing it.
    pub(crate) async fn open(space: Arc<dyn Space>) -> Self {
        Self { store: space.open().await, space, ids: Arc::new(SeqIds::new(1)) }
    }

    /// Opens a first instance on the space and prepares it.
    pub(crate) async fn prepared(space: Arc<dyn Space>) -> Self {
        let stage = Self::open(space).await;
        ok(stage.store.setup().await, "setting up an empty space");
        stage
    }

    /// Returns how often a property does what takes long: `long`, or `brief` where the space says so.
    pub(crate) fn times(&self, long: usize, brief: usize) -> usize {
        if self.space.is_brief() { brief } else { long }
    }

    /// Returns the first instance.
    pub(crate) fn store(&self) -> Store {
        Arc::clone(&self.store)
    }

    /// Opens one more instance on the same space.
    pub(crate) async fn another(&self) -> Store {
        let store = self.space.open().await;
        ok(store.setup().await, "setting up one more instance");
        store
    }

    /// Opens one more instance without preparing it.
    pub(crate) async fn unprepared(&self) -> Store {
        self.space.open().await
    }

    /// Drops the first instance and opens the space again, as the next process would.
    pub(crate) async fn reopen(self) -> Self {
        let Self { space, store, ids } = self;
        drop(store);
        let store = space.open().await;
        ok(store.setup().await, "setting up a space that holds runs");
        Self { space, store, ids }
    }

    /// Creates a log in the default tenant, and writes nothing yet.
    pub(crate) fn log(&self, run: &str) -> Log {
        self.log_of(key(run))
    }

    /// Creates a log, and writes nothing yet.
    pub(crate) fn log_of(&self, key: RunKey) -> Log {
        Log::new(key).with_ids(Arc::clone(&self.ids) as _)
    }

    /// Begins a log and writes `count` records.
    pub(crate) async fn written(&self, run: &str, count: usize) -> Log {
        let mut log = self.log(run);
        log.write(&*self.store, count).await;
        log
    }

    /// Makes an executor that is like no other.
    pub(crate) fn executor(&self) -> ExecutorId {
        ExecutorId::from_uuid(self.ids.next(Timestamp::default()))
    }

    /// Damages a run, and opens the space again, as the process does that finds the damage: what an instance remembers of
    /// better times is right, and no fault.
    ///
    /// The group of this damage is not for spaces that cannot do it.
    pub(crate) async fn damaged(self, log: &Log, damage: Damage) -> Self {
        assert!(
            self.space.damage(&log.key, damage.clone()).await,
            "the space cannot do {damage:?}; leave its group out of the suite with the reason"
        );
        self.reopen().await
    }

    /// Returns the table of the space; the group `transactions` is not for spaces without one.
    pub(crate) async fn table(&self) -> Box<dyn TransactionTable> {
        self.space.transaction_table().await.expect(
            "the space has no table for transactions; leave the group `transactions` out of the suite with the reason",
        )
    }

    /// Moves the store's clock and returns what it says then; the group `clock` is not for spaces that cannot.
    pub(crate) async fn advance(&self, by: Duration) -> Timestamp {
        self.space.advance_clock(by).await.expect(
            "the space has no clock to move; leave the group `clock` out of the suite with the reason",
        )
    }

    /// Waits until `is_so`, which a time to live of `ttl` that began before this call will bring about.
    pub(crate) async fn until(&self, ttl: Duration, what: &str, is_so: impl AsyncFn() -> bool) {
        if self.space.advance_clock(ttl).await.is_some() {
            assert!(is_so().await, "{what} did not happen when the store's clock had come to it");
            return;
        }
        let clock = SystemClock::new();
        let deadline = clock.monotonic().saturating_add(PATIENCE);
        while !is_so().await {
            assert!(clock.monotonic() < deadline, "{what} did not happen within {PATIENCE:?}");
            clock.sleep(POLL).await;
        }
    }
}

/// Runs tasks at the same time, on several threads if there are, and returns what they return in their order.
pub(crate) async fn together<T, F>(tasks: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut running = JoinSet::new();
    for (index, task) in tasks.into_iter().enumerate() {
        running.spawn(async move { (index, task.await) });
    }
    let mut results: Vec<_> = std::iter::repeat_with(|| None).take(running.len()).collect();
    while let Some(joined) = running.join_next().await {
        match joined {
            Ok((index, result)) => results[index] = Some(result),
            // The panic of a task is the failure of its property.
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
    results.into_iter().map(|result| result.expect("every task was joined")).collect()
}

/// Makes a key of any valid texts.
pub(crate) fn key_in(tenant: &str, run: &str) -> RunKey {
    let tenant = TenantId::new(tenant).expect("the suite's tenants are valid");
    RunKey::new(tenant, RunId::new(run).expect("the suite's run ids are valid"))
}

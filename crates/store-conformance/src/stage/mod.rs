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

/// A store under test, prepared for one property.
#[derive(Clone)]
pub(crate) struct TestStage {
    space: Arc<dyn Space>,
    store: Arc<dyn CheckpointStore>,
    ids: Arc<SeqIds>,
}

/// An instance of the store that a property calls.
pub(crate) type Store = Arc<dyn CheckpointStore>;

/// The interval between checks of a condition that depends on time. It is short enough to lose no time, and long enough for a server.
const POLL: Duration = Duration::from_millis(20);

/// How long to wait for a condition that becomes true with time, on a machine that is busy with other properties.
const PATIENCE: Duration = Duration::from_secs(60);

impl TestStage {
    /// Opens a first instance on the space without setup.
    pub(crate) async fn open(space: Arc<dyn Space>) -> Self {
        Self { store: space.open().await, space, ids: Arc::new(SeqIds::new(1)) }
    }

    /// Opens a first instance on the space and runs its setup.
    pub(crate) async fn prepared(space: Arc<dyn Space>) -> Self {
        let stage = Self::open(space).await;
        ok(stage.store.setup().await, "setting up an empty space");
        stage
    }

    /// Returns how many times a property repeats a slow step: `long`, or `brief` if the space asks for the short form.
    pub(crate) fn times(&self, long: usize, brief: usize) -> usize {
        if self.space.is_brief() { brief } else { long }
    }

    /// Returns the first instance.
    pub(crate) fn store(&self) -> Store {
        Arc::clone(&self.store)
    }

    /// Opens another instance on the same space.
    pub(crate) async fn another(&self) -> Store {
        let store = self.space.open().await;
        ok(store.setup().await, "setting up one more instance");
        store
    }

    /// Opens another instance without setup.
    pub(crate) async fn unprepared(&self) -> Store {
        self.space.open().await
    }

    /// Drops the first instance and opens the space again, as a new process would.
    pub(crate) async fn reopen(self) -> Self {
        let Self { space, store, ids } = self;
        drop(store);
        let store = space.open().await;
        ok(store.setup().await, "setting up a space that holds runs");
        Self { space, store, ids }
    }

    /// Creates an expected log in the default tenant. Writes nothing.
    pub(crate) fn log(&self, run: &str) -> Log {
        self.log_of(key(run))
    }

    /// Creates an expected log. Writes nothing.
    pub(crate) fn log_of(&self, key: RunKey) -> Log {
        Log::new(key).with_ids(Arc::clone(&self.ids) as _)
    }

    /// Starts a log and writes `count` records.
    pub(crate) async fn written(&self, run: &str, count: usize) -> Log {
        let mut log = self.log(run);
        log.write(&*self.store, count).await;
        log
    }

    /// Creates a unique executor id.
    pub(crate) fn executor(&self) -> ExecutorId {
        ExecutorId::from_uuid(self.ids.next(Timestamp::default()))
    }

    /// Damages a run, and opens the space again, like a process that finds the damage. An instance that was open before may still have the correct
    /// data in its cache, which is allowed.
    ///
    /// Panics if the space cannot do this damage: such a space must omit the damage's group.
    pub(crate) async fn damaged(self, log: &Log, damage: Damage) -> Self {
        assert!(
            self.space.damage(&log.key, damage.clone()).await,
            "the space cannot do {damage:?}; leave its group out of the suite with the reason"
        );
        self.reopen().await
    }

    /// Returns the table of the space. Panics if there is none: such a space must omit the group `transactions`.
    pub(crate) async fn table(&self) -> Box<dyn TransactionTable> {
        self.space.transaction_table().await.expect(
            "the space has no table for transactions; leave the group `transactions` out of the suite with the reason",
        )
    }

    /// Advances the store's clock and returns its time. Panics if the clock cannot be moved: such a space must omit the group `clock`.
    pub(crate) async fn advance(&self, by: Duration) -> Timestamp {
        self.space.advance_clock(by).await.expect(
            "the space has no clock to move; leave the group `clock` out of the suite with the reason",
        )
    }

    /// Waits until `is_so` is true. It becomes true when a time to live of `ttl`, which began before this call, ends.
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

/// Runs tasks at the same time, on several threads if the runtime has several. Returns their results in order.
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
            // If a task panics, its property fails.
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
    results.into_iter().map(|result| result.expect("every task was joined")).collect()
}

/// Creates a key from valid texts.
pub(crate) fn key_in(tenant: &str, run: &str) -> RunKey {
    let tenant = TenantId::new(tenant).expect("the suite's tenants are valid");
    RunKey::new(tenant, RunId::new(run).expect("the suite's run ids are valid"))
}

//! A world for workflow tests: one store and one clock, processes that fail and crash, and time that advances when all tasks are idle.

use std::fmt;
use std::future::IntoFuture;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferrata_core::runtime::{Runtime, RuntimeBuilder, WeakRuntime};
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_core::{Clock, Result};

use super::process::{Process, ProcessClock};
use super::standstill::Standstill;
use crate::{FaultPlan, FaultStore, LedgerStore, ManualClock, SeqIds};

/// Number of turns that every task gets between two steps of the clock. It exceeds the number of tasks that one record passes on its path from a
/// node to the store and back.
const TURNS: u32 = 200;

/// Number of clock steps after which the world gives up. For an idle process that is two months.
const STEPS: u32 = 100_000;

/// Heartbeat lifetime and poll interval. Both are far longer than in a service, so that a week of waiting takes a thousand steps.
pub(super) const TTL: Duration = Duration::from_secs(3_600);
const LOOK: Duration = Duration::from_secs(1_800);

/// A world for tests: an in-memory store, and one [`ManualClock`] for the store and all its [processes](Process).
///
/// Time stands still until [`pass`](Self::pass) finds every task idle. Time then advances to the next wakeup, so a timer of three days takes
/// milliseconds. The same test always runs the same way. Clones share one world.
///
/// The world sees only waits on its own parts: its clock, its store, and channels and tasks of the same thread. It does not see waits on a socket,
/// a file or another thread, so give such nodes another [work](ferrata_core::graph::Graph::with_node). Nodes must sleep by the clock of the world
/// ([`NodeContext::sleep`](ferrata_core::node::NodeContext::sleep)), not by tokio's clock. Tests run on one thread, as under `#[tokio::test]`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use ferrata_core::Clock;
/// use ferrata_core::graph::Graph;
/// use ferrata_core::state::Context;
/// use ferrata_testing::World;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let graph = Graph::<Context>::builder("remind")
///     .node("wait", async |cx, s| {
///         cx.sleep(Duration::from_secs(3 * 86_400)).await?;
///         Ok(s)
///     })
///     .entry("wait")
///     .build()?;
/// let world = World::new();
/// let process = world.process().await?;
/// let run = process.start(&graph, Context::new()).await?;
/// world.pass(run.completed()).await?;
/// assert!(world.clock().monotonic() >= Duration::from_secs(3 * 86_400));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct World {
    shared: Arc<WorldInner>,
}

struct WorldInner {
    clock: Arc<ManualClock>,
    ledger: LedgerStore,
    has_transactions: bool,
    /// All processes ever started, including crashed ones.
    processes: Mutex<Vec<(WeakRuntime, Arc<ProcessClock>)>>,
    started: AtomicU64,
}

impl World {
    /// Creates a world without runs. Its store has no transactions.
    pub fn new() -> Self {
        Self::of(false)
    }

    /// Creates a world whose store has transactions, for workflows with [`Effect::Transactional`](ferrata_core::graph::Effect::Transactional) nodes.
    ///
    /// The store is a [`LedgerStore`]: runs, and a table of numbers. Replace a node that writes to the service's database with another
    /// [work](ferrata_core::graph::Graph::with_node) in the test. That work writes to the table, by
    /// [`NodeContext::transaction`](ferrata_core::node::NodeContext::transaction) of [`LedgerDatabase`](crate::LedgerDatabase). The graph and its fingerprint stay those
    /// of the service. The test reads the table with [`ledger`](Self::ledger).
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::{Effect, Graph};
    /// use ferrata_core::state::{Context, Draft};
    /// use ferrata_testing::{LedgerDatabase, World};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let orders = Graph::<Context>::builder("order")
    ///     .node("reserve", async |_cx, _s: Draft<Context>| Err::<(), _>("there is no PostgreSQL in a test".into()))
    ///     .effect(Effect::Transactional)
    ///     .entry("reserve")
    ///     .build()?;
    /// let tested = orders.with_node("reserve", async |cx, s: Draft<Context>| {
    ///     let mut tx = cx.transaction::<LedgerDatabase>().await?;
    ///     tx.add("reserved", 1);
    ///     s.commit_with(tx)
    /// })?;
    /// assert_eq!(tested.fingerprint(), orders.fingerprint());
    ///
    /// let world = World::with_transactions();
    /// let process = world.process().await?;
    /// let run = process.start(&tested, Context::new()).await?;
    /// world.pass(run.completed()).await?;
    /// assert_eq!(world.ledger().row("reserved").await, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_transactions() -> Self {
        Self::of(true)
    }

    pub(super) fn of(has_transactions: bool) -> Self {
        let clock = Arc::new(ManualClock::default());
        let runs = MemoryStore::with_clock(Arc::clone(&clock) as _);
        let ledger = LedgerStore::new().with_runs(runs);
        let shared = WorldInner {
            clock,
            ledger,
            has_transactions,
            processes: Mutex::default(),
            started: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the clock of the world.
    pub fn clock(&self) -> &ManualClock {
        &self.shared.clock
    }

    /// Returns the store of all processes. It holds the durable records.
    pub fn store(&self) -> &MemoryStore {
        self.shared.ledger.runs()
    }

    /// Returns the table that transactions of this world write, next to the runs. The table stays empty in a world without transactions.
    pub fn ledger(&self) -> &LedgerStore {
        &self.shared.ledger
    }

    /// Starts a process. Several processes may be alive at once.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`RuntimeBuilder::build`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a process that the call did not return owns no run.
    pub async fn process(&self) -> Result<Process> {
        self.process_with(|builder| builder).await
    }

    /// Starts a process with resources, an answerer, limits and the other settings of the service. The world sets heartbeats and intervals before
    /// `set`, so `set` overrides them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`RuntimeBuilder::build`].
    ///
    /// # Cancel safety
    ///
    /// Same as [`process`](Self::process).
    pub async fn process_with(&self, set: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Result<Process> {
        let shared = &self.shared;
        let number = shared.started.fetch_add(1, Ordering::Relaxed);
        let store: Arc<dyn CheckpointStore> = match shared.has_transactions {
            true => Arc::new(shared.ledger.clone()),
            false => Arc::new(shared.ledger.runs().clone()),
        };
        let line = Arc::new(FaultStore::new(store, FaultPlan::new()));
        let clock = Arc::new(ProcessClock::new(Arc::clone(&shared.clock)));
        let builder = Runtime::builder_with(Arc::clone(&line) as _)
            .clock(Arc::clone(&clock) as _)
            .ids(Arc::new(SeqIds::new(number)))
            .heartbeat_ttl(TTL)
            .sweep_interval(LOOK)
            .poll_interval(LOOK)
            .release_after(Duration::MAX);
        let runtime = self.pass(set(builder).build()).await?;
        let mut processes = shared.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.push((runtime.downgrade(), clock));
        Ok(Process::new(runtime, line, self.clone()))
    }

    /// Waits for a future and advances the clock whenever all tasks are idle. Pass starts to this method, too, because a start whose write fails
    /// retries after a delay by this clock: `world.pass(process.start(..))`.
    ///
    /// # Panics
    ///
    /// - If only the test can move an open run: no process serves its workflow, or it waits for an answer or a message. The panic names the run and
    ///   the remedy, after at most a few hundred clock steps.
    /// - If no task waits for the clock, or the future is still pending after about two months of the clock: it waits for a thing outside the
    ///   world.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `done`.
    pub async fn pass<F: IntoFuture>(&self, done: F) -> F::Output {
        let mut done = pin!(done.into_future());
        let begun = self.shared.clock.monotonic();
        let mut standstill = Standstill::new(begun);
        for _ in 0..STEPS {
            for _ in 0..TURNS {
                tokio::select! {
                    biased;
                    result = &mut done => return result,
                    () = tokio::task::yield_now() => {}
                }
            }
            if let Some(why) = standstill.check(self).await {
                panic!("{why}");
            }
            if self.shared.clock.advance_to_next_sleeper().is_none() {
                panic!("the awaited future is not ready, and no task of the world waits for its clock");
            }
        }
        let passed = self.shared.clock.monotonic().saturating_sub(begun);
        panic!(
            "the awaited future is not ready after {passed:?} of the world's clock; a run that is idle continues when its workflow is served, or when \
             it is resumed"
        );
    }

    /// Advances the clock by `time`. Timers due at the end of that time have fired when the call returns.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the clock may have advanced by part of the time.
    pub async fn pass_for(&self, time: Duration) {
        self.pass(self.shared.clock.sleep(time)).await;
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }

    /// Returns the live processes.
    pub(super) fn runtimes(&self) -> Vec<Runtime> {
        let processes = self.shared.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.iter().filter_map(|(runtime, _)| runtime.upgrade()).collect()
    }

    /// Returns whether the test itself waits for the clock.
    pub(super) fn has_waiting_test(&self) -> bool {
        let processes = self.shared.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let of_processes: usize = processes.iter().map(|(_, clock)| clock.sleepers()).sum();
        self.shared.clock.sleepers() > of_processes
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("clock", &self.shared.clock).finish_non_exhaustive()
    }
}

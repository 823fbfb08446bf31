//! A world for tests of workflows: one store and one clock, processes that fail and crash, and time that passes when nothing else does.

use std::fmt;
use std::future::IntoFuture;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferrata_store::testing::{FaultPlan, FaultStore, LedgerStore, ManualClock, SeqIds};

use super::process::{Process, ProcessClock};
use super::standstill::Standstill;
use crate::clock::Clock;
use crate::error::Result;
use crate::runtime::{Runtime, RuntimeBuilder, WeakRuntime};
use crate::store::{CheckpointStore, MemoryStore};

/// How many turns every task has between two steps of the clock: more than the tasks through which one record goes on its way from a
/// node to the store and back.
const TURNS: u32 = 200;

/// After how many steps of the clock the world gives up: two months, for an idle process.
const STEPS: u32 = 10_000;

/// How long a heartbeat lasts, and how often processes poll for work and signals. Far longer than in a service, so that a week of waiting is
/// a thousand steps.
pub(super) const TTL: Duration = Duration::from_secs(3_600);
const LOOK: Duration = Duration::from_secs(1_800);

/// A world for tests: a store in memory and one [`ManualClock`] for the store and all [processes](Process) on it.
///
/// Time stands still until [`pass`](Self::pass) finds that no task has anything to do; then it advances to the moment for which the next one
/// waits. A timer of three days is over in milliseconds, and the same test has the same course each time. Clones are the same world.
///
/// Only what waits for the world is seen: its clock, its store, channels and tasks of the same thread. What waits for a socket, a file or
/// another thread is passed over, so give such nodes another [work](crate::graph::Graph::with_node), and let nodes sleep by the clock of the
/// world ([`NodeContext::sleep`](crate::node::NodeContext::sleep)), not by that of tokio. Tests run on one thread, as `#[tokio::test]` has it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use ferrata_core::Clock;
/// use ferrata_core::graph::Graph;
/// use ferrata_core::state::Context;
/// use ferrata_core::testing::World;
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
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<ManualClock>,
    ledger: LedgerStore,
    has_transactions: bool,
    /// The processes that were started, crashed ones included.
    processes: Mutex<Vec<(WeakRuntime, Arc<ProcessClock>)>>,
    started: AtomicU64,
}

impl World {
    /// Makes a world without any run, whose store has no transactions.
    pub fn new() -> Self {
        Self::of(false)
    }

    /// Makes a world whose store has transactions, for workflows with [`Effect::Transactional`](crate::graph::Effect::Transactional) nodes.
    ///
    /// The store is a [`LedgerStore`]: runs, and a table of numbers. A node that writes in the database of the service gets another
    /// [work](crate::graph::Graph::with_node) in the test, which writes what matters to the test in that table, by
    /// [`NodeContext::transaction`](crate::node::NodeContext::transaction) of [`Ledger`](super::Ledger). The graph and its fingerprint are those of
    /// the service. The test reads the table with [`ledger`](Self::ledger).
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::{Effect, Graph};
    /// use ferrata_core::state::{Context, Draft};
    /// use ferrata_core::testing::{Ledger, World};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let orders = Graph::<Context>::builder("order")
    ///     .node("reserve", async |_cx, _s: Draft<Context>| Err::<(), _>("there is no PostgreSQL in a test".into()))
    ///     .effect(Effect::Transactional)
    ///     .entry("reserve")
    ///     .build()?;
    /// let tested = orders.with_node("reserve", async |cx, s: Draft<Context>| {
    ///     let mut tx = cx.transaction::<Ledger>().await?;
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
        let shared = Shared {
            clock,
            ledger,
            has_transactions,
            processes: Mutex::default(),
            started: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the one clock.
    pub fn clock(&self) -> &ManualClock {
        &self.shared.clock
    }

    /// Returns the store behind all processes: what is durable.
    pub fn store(&self) -> &MemoryStore {
        self.shared.ledger.runs()
    }

    /// Returns the table that transactions of this world write in, beside its runs. It stays empty in a world without transactions.
    pub fn ledger(&self) -> &LedgerStore {
        &self.shared.ledger
    }

    /// Starts a process. Several may be alive at once.
    ///
    /// # Errors
    ///
    /// As [`RuntimeBuilder::build`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a process that is not returned owns no run.
    ///
    /// <!-- held by: worlds::three_days_are_over_at_once -->
    pub async fn process(&self) -> Result<Process> {
        self.process_with(|builder| builder).await
    }

    /// Starts a process with resources, an answerer, limits: whatever the service sets. The world sets heartbeats and intervals first, so `set`
    /// overrides them.
    ///
    /// # Errors
    ///
    /// As [`RuntimeBuilder::build`].
    ///
    /// # Cancel safety
    ///
    /// As [`process`](Self::process).
    ///
    /// <!-- held by: worlds::a_crash_at_each_write_loses_nothing -->
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

    /// Waits for a future, and lets time pass whenever nothing else can happen. A start whose write fails is tried again after a while of the
    /// clock, so let it pass, too: `world.pass(process.start(..))`.
    ///
    /// # Panics
    ///
    /// - If nothing can move an open run any more but the test itself: no process serves its workflow, or it waits for an answer or a message.
    ///   The panic names the run and the remedy. It comes after a few hundred steps of the clock at most.
    /// - If no task waits for the clock, or the future is not ready after some two months of it: it waits for what the world does not move.
    ///
    /// # Cancel safety
    ///
    /// As that of `done`.
    ///
    /// <!-- held by: worlds::unserved_run_is_told_at_once -->
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
                panic!("nothing in the world waits for its clock, and the awaited future is not ready");
            }
        }
        let passed = self.shared.clock.monotonic().saturating_sub(begun);
        panic!(
            "the awaited future is not ready after {passed:?} of the world's clock; a run that is idle continues when its workflow is served, or when \
             it is resumed"
        );
    }

    /// Lets this much time pass. Whatever is due at the end of it has happened when this returns.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: some of the time may have passed.
    ///
    /// <!-- held by: worlds::hours_of_the_world_are_whole -->
    pub async fn pass_for(&self, time: Duration) {
        self.pass(self.shared.clock.sleep(time)).await;
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }

    /// Returns the processes that are alive.
    pub(super) fn runtimes(&self) -> Vec<Runtime> {
        let processes = self.shared.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.iter().filter_map(|(runtime, _)| runtime.upgrade()).collect()
    }

    /// Whether anything but a process waits for the clock: the test itself.
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

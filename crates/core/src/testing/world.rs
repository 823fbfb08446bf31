//! A world for tests of workflows: one store and one clock, processes that fail and crash, and time that passes when nothing else does.

use std::fmt;
use std::future::IntoFuture;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferrata_store::testing::{Fault, FaultPlan, FaultStore, ManualClock, SeqIds};

use crate::clock::Clock;
use crate::error::Result;
use crate::id::{RunKey, Seq};
use crate::runtime::{Runtime, RuntimeBuilder};
use crate::store::MemoryStore;

/// How many turns every task has between two steps of the clock: more than the tasks through which one record goes on its way from a
/// node to the store and back.
const TURNS: u32 = 200;

/// After how many steps of the clock nothing is taken to come of it any more: two months, for a process at rest.
const STEPS: u32 = 10_000;

/// How long a heartbeat lasts, and how often processes look for work and for signals that they were not told of. Far longer than
/// outside, so that a week of waiting is a thousand steps.
const TTL: Duration = Duration::from_secs(3_600);
const LOOK: Duration = Duration::from_secs(1_800);

/// A world for tests: a [`MemoryStore`] and one [`ManualClock`] for the store and all [processes](Process) on it.
///
/// Time stands still until [`pass`](Self::pass) finds that no task has anything to do; then it goes on to the moment for which the next one
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
    store: MemoryStore,
    processes: AtomicU64,
}

impl World {
    /// Makes a world without any run.
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
        Self { shared: Arc::new(Shared { clock, store, processes: AtomicU64::new(0) }) }
    }

    /// Returns the one clock.
    pub fn clock(&self) -> &ManualClock {
        &self.shared.clock
    }

    /// Returns the store as it is behind all processes: what is durable.
    pub fn store(&self) -> &MemoryStore {
        &self.shared.store
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

    /// Starts a process with resources, an answerer, limits: whatever the service sets. Heartbeats and intervals are set before, so that what
    /// is said here counts.
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
        let number = self.shared.processes.fetch_add(1, Ordering::Relaxed);
        let line = Arc::new(FaultStore::new(self.shared.store.clone(), FaultPlan::new()));
        let builder = Runtime::builder_with(Arc::clone(&line) as _)
            .clock(Arc::clone(&self.shared.clock) as _)
            .ids(Arc::new(SeqIds::new(number)))
            .heartbeat_ttl(TTL)
            .sweep_interval(LOOK)
            .poll_interval(LOOK)
            .release_after(Duration::MAX);
        let runtime = self.pass(set(builder).build()).await?;
        Ok(Process { runtime, line, world: self.clone() })
    }

    /// Waits for something, and lets time pass whenever nothing else can happen. A start whose write fails is tried again after a while of the
    /// clock, too, so let it pass: `world.pass(process.start(..))`.
    ///
    /// # Panics
    ///
    /// If no task waits for the clock, or nothing comes of it in some two months of its time: the future waits for what the world does not move.
    ///
    /// # Cancel safety
    ///
    /// As that of `done`.
    pub async fn pass<F: IntoFuture>(&self, done: F) -> F::Output {
        let mut done = pin!(done.into_future());
        let begun = self.shared.clock.monotonic();
        for _ in 0..STEPS {
            for _ in 0..TURNS {
                tokio::select! {
                    biased;
                    result = &mut done => return result,
                    () = tokio::task::yield_now() => {}
                }
            }
            if self.shared.clock.advance_to_next_sleeper().is_none() {
                panic!("nothing in the world waits for its clock, and what is waited for does not happen");
            }
        }
        let passed = self.shared.clock.monotonic().saturating_sub(begun);
        panic!(
            "nothing came of it in {passed:?} of the world's clock; a run that rests goes on when its workflow is served, or when it is \
             resumed"
        );
    }

    /// Lets this much time pass.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: as much time has passed as has.
    pub async fn pass_for(&self, time: Duration) {
        self.pass(self.shared.clock.sleep(time)).await;
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

/// A process of a [`World`]: its [`Runtime`], with a line of its own to the store that can fail at any write.
pub struct Process {
    runtime: Runtime,
    line: Arc<FaultStore<MemoryStore>>,
    world: World,
}

impl Process {
    /// Returns how many writes this process has begun: appended runs, prunes and purges.
    pub fn writes(&self) -> u64 {
        self.line.operations()
    }

    /// Has the `n`-th write from now on fail, 0 being the next.
    pub fn fail_write(&self, n: u64, fault: Fault) {
        self.line.plan(self.line.operations().saturating_add(n), fault);
    }

    /// Tells whether a [fault](Fault) has taken the process for dead.
    pub fn is_crashed(&self) -> bool {
        self.line.is_crashed()
    }

    /// Kills the process where it is: nothing more reaches the store, nodes at work are dropped, and nobody is told. Its runs are to be
    /// gone on with once its heartbeat has expired, by another process that serves or resumes them.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the process is dead from the first poll.
    ///
    /// <!-- held by: worlds::a_crash_at_each_write_loses_nothing -->
    pub async fn crash(self) {
        self.line.crash();
        // What a dead process is told, it does not hear.
        let _ = self.world.pass(self.runtime.shutdown(Duration::ZERO)).await;
        drop(self.runtime);
        self.world.pass_for(TTL).await;
    }

    /// Tells what happened to a run, a line for each event: the same in each run of the same test, to be held against a file.
    ///
    /// # Errors
    ///
    /// As [`Runtime::timeline`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: worlds::a_history_is_the_same_each_time -->
    pub async fn story(&self, run: &RunKey) -> Result<String> {
        let lines = self.runtime.timeline(run, Seq::new(0)).await?;
        Ok(lines.iter().map(|line| format!("{}\n", line.text)).collect())
    }
}

impl Deref for Process {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        &self.runtime
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

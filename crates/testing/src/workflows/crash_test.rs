//! Tests that crash a workflow at each of its writes.

use std::fmt;
use std::future::IntoFuture as _;
use std::sync::Arc;

use ferrata_core::graph::Graph;
use ferrata_core::runtime::{Outcome, RunHandle, RuntimeBuilder, StartRequest};
use ferrata_core::state::State;
use ferrata_core::{Result, RunKey};

use super::process::Process;
use super::world::World;
use crate::Fault;

type SetProcess = dyn Fn(RuntimeBuilder) -> RuntimeBuilder;
type Serve = dyn Fn(&Process) -> Result<()>;
type SetStart<S> = dyn Fn(StartRequest<S>) -> StartRequest<S>;

/// A test that runs a workflow many times, each time in its own [`World`]. The first run is undisturbed. Then there are two runs for each write of
/// the first run: a process crashes just before or just after that write, and another process continues the run.
///
/// The test panics if the workflow cannot start, if the run writes nothing, or if a crash does not happen. A test that runs nothing therefore
/// fails.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// use ferrata_core::graph::{Effect, Graph};
/// use ferrata_core::state::Context;
/// use ferrata_testing::CrashTest;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let paid = Arc::new(AtomicU32::new(0));
/// let bank = Arc::clone(&paid);
/// let graph = Graph::<Context>::builder("pay")
///     .node("pay", move |_cx, s| {
///         bank.fetch_add(1, Ordering::SeqCst);
///         async { Ok(s) }
///     })
///     .effect(Effect::External)
///     .entry("pay")
///     .build()?;
/// let crashes = CrashTest::new(&graph, Context::new())
///     .run(async |_case| assert!(paid.swap(0, Ordering::SeqCst) <= 1))
///     .await;
/// assert!(crashes >= 4);
/// # Ok(())
/// # }
/// ```
#[must_use = "the test starts only when the future of `run` is awaited"]
pub struct CrashTest<S: State> {
    graph: Graph<S>,
    input: S,
    has_transactions: bool,
    set_process: Arc<SetProcess>,
    set_start: Arc<SetStart<S>>,
    serve: Vec<Arc<Serve>>,
}

impl<S: State> CrashTest<S> {
    /// Creates a test of `graph`, whose runs start with `input`.
    pub fn new(graph: &Graph<S>, input: S) -> Self {
        Self {
            graph: graph.clone(),
            input,
            has_transactions: false,
            set_process: Arc::new(|builder| builder),
            set_start: Arc::new(|start| start),
            serve: Vec::new(),
        }
        .with_workflow(graph)
    }

    /// Serves another workflow in each process, such as the workflow of the graph's children.
    pub fn with_workflow<C: State>(mut self, graph: &Graph<C>) -> Self {
        let graph = graph.clone();
        self.serve.push(Arc::new(move |process| process.serve(&graph)));
        self
    }

    /// Tests in worlds [with transactions](World::with_transactions).
    pub fn with_transactions(self) -> Self {
        Self { has_transactions: true, ..self }
    }

    /// Sets resources, an answerer or limits of each process, as [`World::process_with`] does. The test calls `set` once for each process. Create
    /// inside `set` the things that a process uses up, such as a [`ScriptedAnswers`](super::ScriptedAnswers).
    pub fn with_process(self, set: impl Fn(RuntimeBuilder) -> RuntimeBuilder + 'static) -> Self {
        Self { set_process: Arc::new(set), ..self }
    }

    /// Adds to each start the options that the service adds: first messages, a configuration, labels.
    pub fn with_start(self, set: impl Fn(StartRequest<S>) -> StartRequest<S> + 'static) -> Self {
        Self { set_start: Arc::new(set), ..self }
    }

    /// Runs all cases and calls `check` after each run that is finished or stuck. Returns the number of crashes.
    ///
    /// The second process serves the graph and starts the run again with the same id, as a restarted service does. The test must undo side effects
    /// of nodes outside the world: reset its counters in `check`.
    ///
    /// # Panics
    ///
    /// Panics if a process cannot be built, if the run cannot be started or waited for, if the run writes nothing, if a crash does not happen, or
    /// if `check` panics.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future drops the worlds.
    pub async fn run(self, check: impl AsyncFn(CrashCase<S>)) -> u64 {
        let calm = self.calm().await;
        let writes = calm.process.writes();
        assert!(
            writes > 0,
            "the workflow `{}` wrote nothing to the store, so the test cannot crash it; enable checkpoints",
            self.graph.name()
        );
        check(calm).await;
        let mut crashes = 0;
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            for write in 0..writes {
                check(self.crashed(write, fault).await).await;
                crashes += 1;
            }
        }
        crashes
    }

    async fn calm(&self) -> CrashCase<S> {
        let world = World::of(self.has_transactions);
        let process = self.process(&world).await;
        let (run, outcome) = self.drive(&world, &process, "undisturbed").await;
        CrashCase { world, process, run, outcome, crash: None }
    }

    async fn crashed(&self, write: u64, fault: Fault) -> CrashCase<S> {
        let world = World::of(self.has_transactions);
        let process = self.process(&world).await;
        process.fail_write(write, fault);
        // The result of this call is irrelevant: the test judges the state after the crash.
        if let Ok(run) = world.pass(self.start(&process)).await {
            let _ = world.pass(run.wait()).await;
        }
        assert!(
            process.is_crashed(),
            "{fault:?} at write {write} of `{}` did not happen: the run made fewer writes than without faults",
            self.graph.name()
        );
        process.crash().await;
        let process = self.process(&world).await;
        let (run, outcome) = self.drive(&world, &process, &format!("after {fault:?} at write {write}")).await;
        CrashCase { world, process, run, outcome, crash: Some((write, fault)) }
    }

    async fn process(&self, world: &World) -> Process {
        let process = world.process_with(&*self.set_process).await;
        let process = process.unwrap_or_else(|error| panic!("cannot build a process: {error}"));
        let served = self.serve.iter().try_for_each(|serve| serve(&process));
        served.unwrap_or_else(|error| panic!("cannot serve `{}`: {error}", self.graph.name()));
        process
    }

    async fn start(&self, process: &Process) -> Result<RunHandle<S>> {
        let start = process.start(&self.graph, self.input.clone());
        (self.set_start)(start).id("crash-test").into_future().await
    }

    /// Drives the run until no process and no timer can move it.
    async fn drive(&self, world: &World, process: &Process, when: &str) -> (RunKey, Outcome<S>) {
        let name = self.graph.name();
        let run = world.pass(self.start(process)).await;
        let run = run.unwrap_or_else(|error| panic!("cannot start `{name}` {when}: {error}"));
        let outcome = world.pass(run.wait()).await;
        let outcome = outcome.unwrap_or_else(|error| panic!("cannot wait for `{name}` {when}: {error}"));
        (run.run().clone(), outcome)
    }
}

impl<S: State> fmt::Debug for CrashTest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashTest").field("graph", &self.graph.name()).finish_non_exhaustive()
    }
}

/// One run of a [`CrashTest`], after it finished or got stuck.
#[non_exhaustive]
pub struct CrashCase<S> {
    /// The world of the run.
    pub world: World,
    /// The process that continued the run.
    pub process: Process,
    /// The key of the run.
    pub run: RunKey,
    /// The outcome of the run. If an `External` node may or may not have done its work, the run is interrupted by a question.
    pub outcome: Outcome<S>,
    /// The write at which the first process crashed, counted from 0, and whether the crash came before or after it. `None` in the undisturbed run.
    pub crash: Option<(u64, Fault)>,
}

impl<S> fmt::Debug for CrashCase<S> {
    /// Omits the state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = self.outcome.to_string();
        f.debug_struct("CrashCase")
            .field("run", &self.run)
            .field("outcome", &outcome)
            .field("crash", &self.crash)
            .finish_non_exhaustive()
    }
}

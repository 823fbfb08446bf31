//! Crashing a workflow at each of its writes.

use std::fmt;
use std::future::IntoFuture as _;
use std::sync::Arc;

use ferrata_store::testing::Fault;

use super::process::Process;
use super::world::World;
use crate::error::Result;
use crate::graph::Graph;
use crate::id::RunKey;
use crate::runtime::{Outcome, RunHandle, RuntimeBuilder, StartRequest};
use crate::state::State;

type SetProcess = dyn Fn(RuntimeBuilder) -> RuntimeBuilder;
type Serve = dyn Fn(&Process) -> Result<()>;
type SetStart<S> = dyn Fn(StartRequest<S>) -> StartRequest<S>;

/// A test that runs a workflow many times, each time in a [`World`] of its own: once undisturbed, and then once for each write of that run and
/// each side of the write, with a process that crashes there and another one that continues.
///
/// It panics if the workflow cannot start, if nothing is written, or if a crash does not happen, so a test that runs nothing does not pass.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// use ferrata_core::graph::{Effect, Graph};
/// use ferrata_core::state::Context;
/// use ferrata_core::testing::CrashTest;
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
#[must_use = "nothing is tested before `run` is awaited"]
pub struct CrashTest<S: State> {
    graph: Graph<S>,
    input: S,
    has_transactions: bool,
    set_process: Arc<SetProcess>,
    set_start: Arc<SetStart<S>>,
    serve: Vec<Arc<Serve>>,
}

impl<S: State> CrashTest<S> {
    /// Makes a test of this graph, whose runs start with this input.
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

    /// Serves another workflow in each process, such as that of children of the graph.
    pub fn with_workflow<C: State>(mut self, graph: &Graph<C>) -> Self {
        let graph = graph.clone();
        self.serve.push(Arc::new(move |process| process.serve(&graph)));
        self
    }

    /// Tests in worlds [with transactions](World::with_transactions).
    pub fn with_transactions(self) -> Self {
        Self { has_transactions: true, ..self }
    }

    /// Sets resources, an answerer, limits of each process, as [`World::process_with`] does. It is called for each process: make what a process
    /// uses up, such as a [`Script`](super::Script), in `set`.
    pub fn with_process(self, set: impl Fn(RuntimeBuilder) -> RuntimeBuilder + 'static) -> Self {
        Self { set_process: Arc::new(set), ..self }
    }

    /// Adds to each start what the service adds: first messages, a configuration, labels.
    pub fn with_start(self, set: impl Fn(StartRequest<S>) -> StartRequest<S> + 'static) -> Self {
        Self { set_start: Arc::new(set), ..self }
    }

    /// Runs everything, and calls `check` after each run that was waited for until nothing moved it any more. Returns the number of crashes.
    ///
    /// The second process serves the graph and starts the run again by the same id, as a service that was restarted does. What nodes did
    /// outside of the world is up to the test: reset its counters in `check`.
    ///
    /// # Panics
    ///
    /// If a process cannot be built or the run cannot be started or waited for, if the run writes nothing, if a crash does not happen, and
    /// if `check` does.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the worlds are gone.
    ///
    /// <!-- held by: crash_tests::crash_test_finds_repeated_work, crash_tests::crash_test_refuses_to_run_nothing -->
    pub async fn run(self, check: impl AsyncFn(CrashCase<S>)) -> u64 {
        let calm = self.calm().await;
        let writes = calm.process.writes();
        assert!(
            writes > 0,
            "the workflow `{}` wrote nothing, so there is nothing to crash",
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
        // What a caller in the process that dies is told does not matter: the case is judged by what comes after.
        if let Ok(run) = world.pass(self.start(&process)).await {
            let _ = world.pass(run.wait()).await;
        }
        assert!(
            process.is_crashed(),
            "{fault:?} at write {write} of `{}` did not happen: the run made fewer writes than it did undisturbed",
            self.graph.name()
        );
        process.crash().await;
        let process = self.process(&world).await;
        let (run, outcome) = self.drive(&world, &process, &format!("after {fault:?} at write {write}")).await;
        CrashCase { world, process, run, outcome, crash: Some((write, fault)) }
    }

    async fn process(&self, world: &World) -> Process {
        let process = world.process_with(&*self.set_process).await;
        let process = process.unwrap_or_else(|error| panic!("a process cannot be built: {error}"));
        let served = self.serve.iter().try_for_each(|serve| serve(&process));
        served.unwrap_or_else(|error| panic!("`{}` cannot be served: {error}", self.graph.name()));
        process
    }

    async fn start(&self, process: &Process) -> Result<RunHandle<S>> {
        let start = process.start(&self.graph, self.input.clone());
        (self.set_start)(start).id("crash-test").into_future().await
    }

    /// Drives the run until nothing moves it any more.
    async fn drive(&self, world: &World, process: &Process, when: &str) -> (RunKey, Outcome<S>) {
        let name = self.graph.name();
        let run = world.pass(self.start(process)).await;
        let run = run.unwrap_or_else(|error| panic!("`{name}` cannot start {when}: {error}"));
        let outcome = world.pass(run.wait()).await;
        let outcome = outcome.unwrap_or_else(|error| panic!("`{name}` cannot be waited for {when}: {error}"));
        (run.run().clone(), outcome)
    }
}

impl<S: State> fmt::Debug for CrashTest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashTest").field("graph", &self.graph.name()).finish_non_exhaustive()
    }
}

/// One run of a [`CrashTest`], as it is when nothing moves it any more.
#[non_exhaustive]
pub struct CrashCase<S> {
    /// The world of the run.
    pub world: World,
    /// The process that continued the run.
    pub process: Process,
    /// The run.
    pub run: RunKey,
    /// What the run came to. A run that may or may not have done the work of an `External` node is interrupted by a question about it.
    pub outcome: Outcome<S>,
    /// The write at which the first process crashed, counted from 0, and on which side of it; `None` in the undisturbed run.
    pub crash: Option<(u64, Fault)>,
}

impl<S> fmt::Debug for CrashCase<S> {
    /// Never shows the state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = self.outcome.to_string();
        f.debug_struct("CrashCase")
            .field("run", &self.run)
            .field("outcome", &outcome)
            .field("crash", &self.crash)
            .finish_non_exhaustive()
    }
}

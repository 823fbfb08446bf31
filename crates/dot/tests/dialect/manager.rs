//! Section 1.6: a pipeline that supervises another one as a separate run in the same store.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::crashing::between;
use crate::support::{Ran, path_of, pipeline, registry};
use async_trait::async_trait;
use ferrata_core::ask::Answer as Reply;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_core::{Clock, ErrorKind, RunKey, Timestamp};
use ferrata_dot::compile::Compiler;
use ferrata_dot::handler::{
    Backend, BackendAnswer, Codergen, Handler, HandlerError, Manager, Registry, Stage, TaskRequest,
};
use ferrata_dot::outcome::StageOutcome;
use ferrata_dot::transform::Transforms;
use ferrata_testing::{self as testing, ManualClock};
use serde_json::json;

const PARENT: &str = "digraph P { goal=ship start [shape=Mdiamond] exit [shape=Msquare] node [retry_policy=none] \
     first [type=scripted, does=\"success/color:red\"] \
     m [shape=house, stack.child_dotfile=\"child.dot\", manager.poll_interval=5ms] start -> first -> m -> exit }";

const CHILD: &str = "digraph C { start [shape=Mdiamond] exit [shape=Msquare] node [retry_policy=none, type=scripted] \
     a [does=\"success/size:big\"] b start -> a -> b [condition=\"color=red\"] b -> exit }";

/// A store with a clock that advances when nothing else can happen, a directory with the child's file, and processes on them.
struct World {
    time: testing::World,
    memory: MemoryStore,
    directory: tempfile::TempDir,
    parent: String,
}

impl World {
    fn new(parent: &str, child: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("child.dot"), child).unwrap();
        let time = testing::World::new();
        Self { memory: time.store().clone(), time, directory, parent: parent.to_owned() }
    }

    async fn process(&self, registry: Registry) -> (Runtime, ferrata_core::graph::Graph<Context>) {
        let runtime = Runtime::builder(self.memory.clone())
            .clock(Arc::new(self.time.clock().clone()))
            .build()
            .await
            .unwrap();
        (runtime.clone(), self.compile(&runtime, registry))
    }

    async fn process_on(
        &self,
        store: Arc<dyn CheckpointStore>,
        registry: Registry,
    ) -> (Runtime, ferrata_core::graph::Graph<Context>) {
        let runtime = crate::crashing::runtime(store).await;
        (runtime.clone(), self.compile(&runtime, registry))
    }

    fn compile(&self, runtime: &Runtime, registry: Registry) -> ferrata_core::graph::Graph<Context> {
        let manager = manager(self.directory.path(), registry.clone());
        manager.attach(runtime).unwrap();
        Compiler::new(registry.with("stack.manager_loop", manager)).compile(&pipeline(&self.parent)).unwrap()
    }

    async fn run(&self) -> Outcome<Context> {
        let (runtime, graph) = self.process(registry()).await;
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        self.time.pass(run.wait()).await.unwrap()
    }

    async fn status(&self, run: &str) -> Option<RunStatus> {
        self.memory.head(&key(run)).await.unwrap().map(|head| head.status)
    }
}

fn manager(directory: &Path, registry: Registry) -> Manager {
    Manager::with(registry, Transforms::default(), Some(directory.to_owned()))
}

fn key(run: &str) -> RunKey {
    RunKey::try_from(run).unwrap()
}

fn text(context: &Context, key: &str) -> String {
    context.get_value(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
}

/// Guarantees: DOT-16.
#[tokio::test]
async fn manager_starts_child_and_shares_its_success() {
    let world = World::new(PARENT, CHILD);
    let Outcome::Completed(context) = world.run().await else { panic!("not completed") };
    assert_eq!(path_of(&world.memory, &key("r")).await.join(" "), "start first m exit");
    // The child has a predictable id, and the context of its parent.
    assert_eq!(path_of(&world.memory, &key("r.m.1")).await.join(" "), "start a b exit");
    assert_eq!(text(&context, "stack.child.run"), "r.m.1");
    assert_eq!(text(&context, "stack.child.status"), "completed");
    let child = context.get_value("stack.child.context").unwrap();
    assert_eq!((&child["size"], &child["color"]), (&json!("big"), &json!("red")));
    assert!(!context.contains_key("size"), "no value of the child must be merged");
    assert_eq!(
        world.memory.head(&key("r.m.1")).await.unwrap().unwrap().facts.labels.get("ferrata.parent"),
        Some("r")
    );
}

/// Guarantees: DOT-16.
#[tokio::test]
async fn a_child_that_fails_fails_its_manager() {
    let world = World::new(PARENT, &CHILD.replace("b start", "b [does=fail] start"));
    let Outcome::Failed { failure, .. } = world.run().await else { panic!("not failed") };
    assert_eq!(failure.message, "the child failed: node b: b failed");
}

#[tokio::test]
async fn a_stop_condition_ends_the_child_with_success() {
    let stop = "manager.stop_condition=\"stack.child.context.size=big && stack.child.status=in_progress\", shape=house";
    let child = CHILD.replace("b start", "b [does=hang] start");
    let world = World::new(&PARENT.replace("shape=house", stop), &child);
    let Outcome::Completed(context) = world.run().await else { panic!("not completed") };
    assert_eq!(text(&context, "stack.child.status"), "cancelled");
    assert_eq!(world.status("r.m.1").await, Some(RunStatus::Cancelled));
}

#[tokio::test]
async fn manager_out_of_cycles_fails_and_cancels_child() {
    let child = CHILD.replace("b start", "b [does=hang] start");
    let world = World::new(&PARENT.replace("shape=house", "shape=house, manager.max_cycles=3"), &child);
    let Outcome::Failed { failure, .. } = world.run().await else { panic!("not failed") };
    assert_eq!(failure.message, "the child has not ended within 3 cycles");
    assert_eq!(world.status("r.m.1").await, Some(RunStatus::Cancelled));
}

#[tokio::test]
async fn a_timeout_ends_the_child() {
    let child = CHILD.replace("b start", "b [does=hang] start");
    let world = World::new(&PARENT.replace("shape=house", "shape=house, timeout=100ms"), &child);
    let Outcome::Failed { failure, .. } = world.run().await else { panic!("not failed") };
    assert_eq!(failure.message, "the child exceeded the timeout of 100ms");
    assert_eq!(world.status("r.m.1").await, Some(RunStatus::Cancelled));
}

/// A handler that fails in its first execution, and succeeds later.
#[derive(Clone, Debug, Default)]
struct Later {
    hangs: bool,
    calls: Arc<AtomicU32>,
}

#[async_trait]
impl Handler for Later {
    async fn run(&self, _stage: &Stage) -> Result<StageOutcome, HandlerError> {
        match self.calls.fetch_add(1, Ordering::SeqCst) {
            0 if self.hangs => std::future::pending().await,
            0 => Ok(StageOutcome::fail("not yet")),
            _ => Ok(StageOutcome::success()),
        }
    }
}

/// A retried manager starts a new child with its own cycles, time and verdict.
#[tokio::test]
async fn retried_manager_gives_new_child_fresh_limits() {
    let child = CHILD.replace("b start", "b [type=later] start");
    for (hangs, more) in [(false, "label=m"), (true, "timeout=100ms"), (true, "manager.max_cycles=3")] {
        let parent = PARENT.replace("shape=house", &format!("shape=house, {more}"));
        let world = World::new(&parent, &child);
        let later = Later { hangs, ..Later::default() };
        let (runtime, graph) = world.process(registry().with("later", later)).await;
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        let Outcome::Failed { .. } = world.time.pass(run.wait()).await.unwrap() else { panic!("not failed") };
        let ended = if hangs { RunStatus::Cancelled } else { RunStatus::Failed };
        assert_eq!(world.status("r.m.1").await, Some(ended), "{more}");
        runtime.retry(&key("r")).await.unwrap();
        let run = runtime.resume(&graph, "r").await.unwrap();
        let outcome = world.time.pass(run.wait()).await.unwrap();
        let Outcome::Completed(context) = outcome else { panic!("{more}: {outcome:?}") };
        assert_eq!(text(&context, "stack.child.run"), "r.m.1-2", "{more}");
        assert_eq!(world.status("r.m.1-2").await, Some(RunStatus::Completed), "{more}");
    }
}

/// Guarantees: DOT-16.
#[tokio::test]
async fn cancelling_the_run_cancels_the_child() {
    let child = CHILD.replace("b start", "b [does=hang] start");
    let world = World::new(PARENT, &child);
    let (runtime, graph) = world.process(registry()).await;
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    world
        .time
        .pass(async {
            while world.status("r.m.1").await.is_none() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    runtime.cancel(run.run(), "enough").await.unwrap();
    let outcome = world.time.pass(run.wait()).await.unwrap();
    assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
    world
        .time
        .pass(async {
            while world.status("r.m.1").await != Some(RunStatus::Cancelled) {
                tokio::task::yield_now().await;
            }
        })
        .await;
}

#[tokio::test]
async fn child_with_question_continues_after_answer() {
    let child = "digraph C { start [shape=Mdiamond] exit [shape=Msquare] g [shape=hexagon] y [shape=diamond] start -> g -> y -> exit }";
    let world = World::new(PARENT, child);
    let (runtime, graph) = world.process(registry()).await;
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    world
        .time
        .pass(async {
            while world.status("r.m.1").await != Some(RunStatus::Interrupted) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    runtime.respond(&key("r.m.1"), "g", Reply::accept("y").unwrap()).await.unwrap();
    assert!(world.time.pass(run.wait()).await.unwrap().completed().is_some());
}

#[tokio::test]
async fn without_autostart_the_child_is_waited_for() {
    let world = World::new(&PARENT.replace("shape=house", "shape=house, stack.child_autostart=false"), CHILD);
    let (runtime, graph) = world.process(registry()).await;
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    world
        .time
        .pass(async {
            while path_of(&world.memory, &key("r")).await.len() < 2 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    assert_eq!(world.status("r.m.1").await, None);
    let child = Compiler::new(registry()).compile(&pipeline(CHILD)).unwrap();
    let mut input = Context::new();
    input.set("color", "red").unwrap();
    runtime.start(&child, input).id("r.m.1").await.unwrap();
    assert!(world.time.pass(run.wait()).await.unwrap().completed().is_some());
}

/// A backend that gives one instruction, and records every prompt.
#[derive(Clone, Debug, Default)]
struct Supervisor(Arc<Mutex<Vec<(String, String)>>>);

#[async_trait]
impl Backend for Supervisor {
    async fn run(&self, request: TaskRequest<'_>) -> Result<BackendAnswer, HandlerError> {
        let node = request.stage.node.id().to_owned();
        let first = !self.0.lock().unwrap().iter().any(|(known, _)| *known == node);
        self.0.lock().unwrap().push((node.clone(), request.prompt.to_owned()));
        Ok(BackendAnswer::text(if node == "m" && first { "mind the gap".to_owned() } else { String::new() }))
    }
}

#[tokio::test]
async fn steering_reaches_child_tasks() {
    let parent = PARENT.replace(
        "shape=house",
        "shape=house, manager.actions=\"observe,steer,wait\", prompt=\"keep it safe\"",
    );
    let child = "digraph C { start [shape=Mdiamond] exit [shape=Msquare] w [shape=insulator, duration=300ms] t [prompt=\"do t\"] \
                 start -> w -> t -> exit }";
    let world = World::new(&parent, child);
    let supervisor = Supervisor::default();
    let (runtime, graph) =
        world.process(registry().with("codergen", Codergen::new(supervisor.clone()))).await;
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(world.time.pass(run.wait()).await.unwrap().completed().is_some());
    let said = supervisor.0.lock().unwrap();
    let of = |node: &str| &said.iter().find(|(known, _)| known == node).unwrap().1;
    assert!(
        of("m").contains("keep it safe") && of("m").contains("The pipeline is in_progress"),
        "{}",
        of("m")
    );
    assert!(
        of("t").contains("Instructions of the supervisor") && of("t").contains("- mind the gap"),
        "{}",
        of("t")
    );
}

/// Guarantees: DOT-16.
#[tokio::test]
async fn a_crash_at_any_write_changes_no_result() {
    let world = World::new(PARENT, CHILD);
    let Outcome::Completed(calm) = world.run().await else { panic!("not completed") };
    let calm_child = path_of(&world.memory, &key("r.m.1")).await;
    let process = async |store: Arc<dyn CheckpointStore>, _| world.process_on(store, registry()).await;
    // Take over both runs, because the first process is dead and its heartbeat has not expired.
    let take_child = async |second: &Runtime| {
        let head = second.head(&key("r.m.1")).await.unwrap();
        if head.is_some_and(|head| head.status == RunStatus::InProgress) {
            let child = Compiler::new(registry()).compile(&pipeline(CHILD)).unwrap();
            second.resume(&child, "r.m.1").take_over().await.unwrap();
        }
    };
    let known = |context: &Context| {
        // The number of cycles depends on timing.
        let kept = context.iter().filter(|(key, _)| *key != "stack.child.cycles");
        kept.map(|(key, value)| (key.to_owned(), value.clone())).collect::<Vec<_>>()
    };
    let check = async |crash: &str, memory: &MemoryStore, ran: &Ran| {
        assert_eq!(known(ran.context()), known(&calm), "{crash}");
        assert_eq!(path_of(memory, &key("r.m.1")).await, calm_child, "{crash}");
    };
    let crashes = between(process, take_child, check).await;
    assert!(crashes >= 16, "{crashes}");
}

/// A manager between cycles is idle, and a process that claims it continues the current wait instead of starting it again.
///
/// Guarantees: DOT-16.
#[tokio::test]
async fn manager_idles_between_cycles_and_counts_across_restarts() {
    let hour = Duration::from_secs(3600);
    let parent =
        PARENT.replace("manager.poll_interval=5ms", "manager.poll_interval=1h, manager.max_cycles=9");
    let child = "digraph C { start [shape=Mdiamond] exit [shape=Msquare] nap [shape=insulator, duration=150m] start -> nap -> exit }";
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
    let world =
        World { memory: MemoryStore::with_clock(Arc::clone(&clock) as _), ..World::new(&parent, child) };
    let begun = clock.now();
    // Every half hour, a process checks for work.
    for number in 0.. {
        let builder = Runtime::builder(world.memory.clone())
            .clock(Arc::clone(&clock) as _)
            .release_after(Duration::ZERO);
        let runtime = builder.build().await.unwrap();
        let graph = world.compile(&runtime, registry());
        let run = match runtime.head(&key("r")).await.unwrap() {
            None => runtime.start(&graph, Context::new()).id("r").await.unwrap(),
            Some(_) => runtime.resume(&graph, "r").await.unwrap(),
        };
        let outcome = run.wait().await.unwrap();
        runtime.shutdown(Duration::ZERO).await.unwrap();
        match outcome {
            Outcome::Completed(context) => {
                // The cycles are at 0 h, 1 h and 2 h, and at the end of the child, whose process also claims the parent.
                assert_eq!(context.get_value("stack.child.cycles"), Some(&json!(4)));
                assert_eq!(clock.now().since(begun), 5 * hour / 2);
                break;
            }
            Outcome::Sleeping { until } => {
                assert!(until > clock.now() && until.since(clock.now()) <= hour, "{until}");
                assert!(number < 12, "the run does not end");
                clock.advance(hour / 2);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(world.status("r.m.1").await, Some(RunStatus::Completed));
}

/// A run of an earlier version had started its child as an independent run. A process that continues the parent must not take it for its child.
///
/// Guarantees: DOT-16.
#[tokio::test]
async fn manager_refuses_foreign_run_with_child_id() {
    let world = World::new(PARENT, CHILD);
    let (runtime, _graph) = world.process(registry()).await;
    let child = Compiler::new(registry()).compile(&pipeline(CHILD)).unwrap();
    let mut input = Context::new();
    input.set("color", "red").unwrap();
    let older = runtime.start(&child, input).id("r.m.1").label("parent", "r").await.unwrap();
    world.time.pass(older.wait()).await.unwrap();
    let Outcome::Failed { failure, .. } = world.run().await else { panic!("not failed") };
    assert!(
        failure.message.contains("another run, which this activation did not start, has this id"),
        "{}",
        failure.message
    );
    assert_eq!(world.status("r.m.1").await, Some(RunStatus::Completed));
    // After a purge, the id is free for a child.
    runtime.purge(&key("r.m.1")).await.unwrap();
    let (second, graph) = world.process(registry()).await;
    second.retry(&key("r")).await.unwrap();
    let run = second.resume(&graph, "r").await.unwrap();
    assert!(world.time.pass(run.wait()).await.unwrap().completed().is_some());
}

/// Guarantees: DOT-16.
#[tokio::test]
async fn pipeline_that_starts_itself_ends() {
    let world = World::new(PARENT, PARENT);
    let Outcome::Failed { failure, .. } = world.run().await else { panic!("not failed") };
    assert!(failure.message.contains("children can be at most 16 levels deep"), "{}", failure.message);
}

/// Guarantees: DOT-16.
#[test]
fn managers_that_cannot_work_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("child.dot"), CHILD).unwrap();
    std::fs::write(directory.path().join("broken.dot"), "digraph {").unwrap();
    let compile = |attributes: &str| {
        let text = PARENT.replace("stack.child_dotfile=\"child.dot\"", attributes);
        let compiler =
            Compiler::new(registry().with("stack.manager_loop", manager(directory.path(), registry())));
        compiler.compile(&pipeline(&text))
    };
    compile("stack.child_dotfile=\"child.dot\"").unwrap();
    for (attributes, part) in [
        ("label=m", "node m: the manager has no child; set `stack.child_dotfile` to the child's file"),
        ("stack.child_dotfile=\"none.dot\"", "node m: cannot read the child `none.dot`"),
        ("stack.child_dotfile=\"broken.dot\"", "node m: cannot parse the child `broken.dot`"),
        (
            "stack.child_dotfile=\"child.dot\", manager.actions=\"dance\"",
            "node m: the action `dance` does not exist",
        ),
        ("stack.child_dotfile=\"child.dot\", manager.stop_condition=\"=\"", "condition, byte"),
    ] {
        let error = compile(attributes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{attributes}: {error}");
        assert!(error.message().contains(part), "{attributes}: {error}");
    }
}

//! Section 1.6: branches that a decided join abandons, and their running nodes.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]
#![expect(clippy::disallowed_methods, reason = "a test that would hang ends by a deadline in real time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::crashing::{Process, between, runtime};
use crate::support::{Ran, compile, path_of, pipeline, registry, run_with, source};
use async_trait::async_trait;
use ferrata_core::ask::Answer;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_dot::compile::Compiler;
use ferrata_dot::handler::{Handler, HandlerError, Registry, Stage};
use ferrata_dot::outcome::StageOutcome;
use serde_json::Value;

/// A handler that never ends, and counts its drops.
#[derive(Clone, Debug, Default)]
struct Endless {
    begun: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Handler for Endless {
    async fn run(&self, _stage: &Stage) -> Result<StageOutcome, HandlerError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let _dropped = Dropped(Arc::clone(&self.dropped));
        std::future::pending().await
    }
}

/// A handler that waits until the given number of others have started, and then succeeds or fails as the node's attribute says.
#[derive(Clone, Debug)]
struct After(Endless);

#[async_trait]
impl Handler for After {
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let wanted: usize = stage.node.attributes.text("after").parse().unwrap();
        // Wait longer than necessary, as real work would, until the other records are written.
        let mut turns = 0;
        while self.0.begun.load(Ordering::SeqCst) < wanted || turns < 50 {
            turns += 1;
            tokio::task::yield_now().await;
        }
        Ok(match &*stage.node.attributes.text("does") {
            "fail" => StageOutcome::fail("it went wrong"),
            _ => StageOutcome::success(),
        })
    }
}

fn with(endless: &Endless) -> Registry {
    registry().with("endless", endless.clone()).with("after", After(endless.clone()))
}

fn fork(attributes: &str, branches: &str) -> String {
    source(&format!(
        "p [type=parallel{attributes}] f [type=\"parallel.fan_in\"] ok bad start -> p f -> ok [condition=\"outcome=success\"] \
         f -> bad [condition=\"outcome=fail\"] f -> exit ok -> exit bad -> exit {branches}"
    ))
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("the run does not end")
}

fn outcomes(ran: &Ran) -> Vec<(String, String)> {
    let results = ran.context().get::<Vec<Value>>("parallel.results").unwrap().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    results.iter().map(|one| (text(&one["id"]), text(&one["outcome"]))).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(id, outcome)| ((*id).to_owned(), (*outcome).to_owned())).collect()
}

const ENDLESS: &str =
    "a [type=after, after=2] b [type=endless] c [type=endless] d p -> a -> f p -> b -> d -> f p -> c -> f";

/// Guarantees: BRANCH-3.
#[tokio::test]
async fn first_success_leaves_the_others() {
    let endless = Endless::default();
    let ran =
        within(run_with(&fork(", join_policy=first_success", ENDLESS), with(&endless), Context::new())).await;
    assert_eq!(outcomes(&ran), pairs(&[("a", "success"), ("b", "skipped"), ("c", "skipped")]));
    assert!(ran.path.contains(&"ok".to_owned()), "{}", ran.path());
    // No node after an abandoned node runs, and running nodes are dropped before the fan-in.
    assert!(!ran.path.contains(&"d".to_owned()), "{}", ran.path());
    assert_eq!(endless.dropped.load(Ordering::SeqCst), 2);
    assert!(ran.context().keys().all(|key| !key.starts_with("internal.")), "{:?}", ran.context());
}

#[tokio::test]
async fn wait_all_leaves_nobody() {
    let text = fork("", "a b [does=fail] c p -> a -> f p -> b -> f p -> c -> f");
    let ran = run_with(&text, registry(), Context::new()).await;
    assert_eq!(outcomes(&ran), pairs(&[("a", "success"), ("b", "fail"), ("c", "success")]));
}

#[tokio::test]
async fn a_quorum_leaves_the_others() {
    let endless = Endless::default();
    let text = fork(
        ", join_policy=quorum",
        "a [type=after, after=1] b [type=after, after=1] c [type=endless] p -> a -> f p -> b -> f p -> c -> f",
    );
    let ran = within(run_with(&text, with(&endless), Context::new())).await;
    assert_eq!(outcomes(&ran), pairs(&[("a", "success"), ("b", "success"), ("c", "skipped")]));
    assert!(ran.path.contains(&"ok".to_owned()), "{}", ran.path());
}

#[tokio::test]
async fn unreachable_k_aborts_other_branches() {
    let endless = Endless::default();
    let text = fork(
        ", join_policy=k_of_n, k=2",
        "a [type=after, after=1, does=fail] b [type=after, after=1, does=fail] c [type=endless] p -> a -> f p -> b -> f p -> c -> f",
    );
    let ran = within(run_with(&text, with(&endless), Context::new())).await;
    assert_eq!(outcomes(&ran), pairs(&[("a", "fail"), ("b", "fail"), ("c", "skipped")]));
    assert!(ran.path.contains(&"bad".to_owned()), "{}", ran.path());
}

/// Guarantees: BRANCH-3.
#[tokio::test]
async fn fail_fast_leaves_the_others_and_fails() {
    let endless = Endless::default();
    let text = fork(
        ", error_policy=fail_fast",
        "a [type=after, after=1, does=fail] b [type=endless] p -> a -> f p -> b -> f",
    );
    let ran = within(run_with(&text, with(&endless), Context::new())).await;
    assert_eq!(outcomes(&ran), pairs(&[("a", "fail"), ("b", "skipped")]));
    assert!(ran.path.contains(&"bad".to_owned()), "{}", ran.path());
    assert!(ran.text("outcome") == "success", "the run must continue at `bad`");
}

#[tokio::test]
async fn fail_fast_without_a_failure_waits_for_all() {
    let text = fork(", error_policy=fail_fast", "a b p -> a -> f p -> b -> f");
    let ran = run_with(&text, registry(), Context::new()).await;
    assert_eq!(outcomes(&ran), pairs(&[("a", "success"), ("b", "success")]));
    assert!(ran.path.contains(&"ok".to_owned()), "{}", ran.path());
}

#[tokio::test]
async fn what_waits_for_room_is_left() {
    let endless = Endless::default();
    let branches: String = (0..6).map(|at| format!("b{at} [type=after, after=0] p -> b{at} -> f ")).collect();
    let text = fork(", join_policy=first_success, max_parallel=1", &branches);
    let ran = within(run_with(&text, with(&endless), Context::new())).await;
    let left = outcomes(&ran).iter().filter(|(_, outcome)| outcome == "skipped").count();
    // At least the last one is abandoned. The progress of the others is random.
    assert!(left >= 1, "{:?}", outcomes(&ran));
}

#[tokio::test]
async fn branches_within_a_branch_are_left_with_it() {
    let endless = Endless::default();
    let text = fork(
        ", join_policy=first_success",
        "a [type=after, after=2] p -> a -> f q [type=parallel] x [type=endless] y [type=endless] g [type=\"parallel.fan_in\"] z \
         p -> q q -> x -> g q -> y -> g g -> z -> f",
    );
    let ran = within(run_with(&text, with(&endless), Context::new())).await;
    assert_eq!(outcomes(&ran), pairs(&[("a", "success"), ("q", "skipped")]));
    assert!(!ran.path.contains(&"z".to_owned()), "{}", ran.path());
    assert_eq!(endless.dropped.load(Ordering::SeqCst), 2);
}

/// Guarantees: BRANCH-4.
#[tokio::test]
async fn goal_gate_in_abandoned_branch_is_not_missed() {
    let endless = Endless::default();
    let text = fork(
        ", join_policy=first_success",
        "a [type=after, after=1] b [type=endless, goal_gate=true] p -> a -> f p -> b -> f",
    );
    let ran = within(run_with(&text, with(&endless), Context::new())).await;
    assert_eq!(outcomes(&ran), pairs(&[("a", "success"), ("b", "skipped")]));
}

#[tokio::test]
async fn question_in_abandoned_branch_is_withdrawn() {
    let text = fork(
        ", join_policy=first_success",
        "g [type=\"wait.human\"] h [type=\"wait.human\"] yes no p -> g p -> h g -> yes -> f h -> no -> f",
    );
    let store = MemoryStore::new();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let graph = compile(&text, registry());
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let Outcome::Interrupted(questions) = within(run.wait()).await.unwrap() else {
        panic!("the gate must not ask")
    };
    assert_eq!(questions.len(), 2);
    runtime.respond(run.run(), "g", Answer::accept("yes").unwrap()).await.unwrap();
    let again = runtime.resume(&graph, run.run()).await.unwrap();
    let outcome = within(again.wait()).await.unwrap();
    let ran = Ran { path: path_of(&store, run.run()).await, outcome };
    assert_eq!(outcomes(&ran), pairs(&[("g", "success"), ("h", "skipped")]));
    assert!(runtime.respond(run.run(), "h", Answer::accept("no").unwrap()).await.is_err());
}

#[tokio::test]
async fn crash_at_any_write_abandons_same_branches() {
    // Only `a` can decide the join, so that the same nodes are abandoned each time.
    let text = fork(", join_policy=first_success", ENDLESS);
    let process = async |store: Arc<dyn CheckpointStore>, process| {
        // The next process starts `b` and `c` again, unless their ends or the decision of the join are recorded.
        let begun = if process == Process::First { 0 } else { 2 };
        let endless = Endless { begun: Arc::new(AtomicUsize::new(begun)), ..Endless::default() };
        (runtime(store).await, compile(&text, with(&endless)))
    };
    let check = async |crash: &str, _: &MemoryStore, ran: &Ran| {
        let wanted = pairs(&[("a", "success"), ("b", "skipped"), ("c", "skipped")]);
        assert_eq!(outcomes(ran), wanted, "{crash}");
        assert!(ran.path.contains(&"ok".to_owned()), "{crash}: {}", ran.path());
    };
    let crashes = between(process, async |_: &Runtime| {}, check).await;
    assert!(crashes >= 10, "{crashes}");
}

#[test]
fn manager_in_abandonable_branch_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("child.dot"), "digraph C { start exit start -> exit }").unwrap();
    let manager = ferrata_dot::handler::Manager::with(
        registry(),
        ferrata_dot::transform::Transforms::default(),
        Some(directory.path().to_owned()),
    );
    let text = fork(
        ", join_policy=first_success",
        "m [type=\"stack.manager_loop\", stack.child_dotfile=\"child.dot\"] b p -> m -> f p -> b -> f",
    );
    let compiler = Compiler::new(registry().with("stack.manager_loop", manager));
    let error = compiler.compile(&pipeline(&text)).unwrap_err();
    assert!(
        error.message().contains("node m: a manager cannot run in a branch that the join may abandon"),
        "{error}"
    );
    compiler.compile(&pipeline(&text.replace("first_success", "wait_all"))).unwrap();
}

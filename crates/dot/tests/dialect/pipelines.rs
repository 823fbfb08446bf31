//! Pipelines from start to end: the path, the final context and the outcome.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Ran, Scripted, compile, path_of, pipeline, registry, run, run_with, source};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_core::{ErrorKind, RunKey};
use ferrata_dot::compile::Compiler;
use ferrata_dot::handler::{Handler, HandlerError, Noop, Stage};
use ferrata_dot::outcome::StageOutcome;
use ferrata_testing::{Fault, FaultPlan, FaultStore};
use serde_json::json;

/// Checks that a run succeeds along a path.
#[track_caller]
fn completes(ran: &Ran, path: &str) {
    let _ = ran.context();
    assert_eq!(ran.path(), path);
}

/// A table of pipelines that complete: statements and path.
const PATHS: &[(&str, &str)] = &[
    ("a start -> a -> exit", "start a exit"),
    ("a b c start -> a -> b -> c -> exit", "start a b c exit"),
    // Conditions, then weight, then name.
    (
        "a b start -> a a -> b [condition=\"outcome=success\"] a -> exit [weight=9] b -> exit",
        "start a b exit",
    ),
    ("a b start -> a a -> b [condition=\"outcome=fail\"] a -> exit b -> exit", "start a exit"),
    ("a b c start -> a a -> b [weight=1] a -> c [weight=2] b -> exit c -> exit", "start a c exit"),
    ("a c b start -> a a -> c a -> b b -> exit c -> exit", "start a b exit"),
    // Labels and suggestions of the outcome.
    (
        "a [does=\"success/label:No\"] b c start -> a a -> b [label=\"[Y] Yes\"] a -> c [label=\"[N] No\"] b -> exit c -> exit",
        "start a c exit",
    ),
    (
        "a [does=\"success/next:c+b\"] b c start -> a a -> b [weight=5] a -> c b -> exit c -> exit",
        "start a c exit",
    ),
    (
        "a [does=\"success/label:x\"] b start -> a a -> b [condition=\"preferred_label=x\"] a -> exit b -> exit",
        "start a b exit",
    ),
    // Context.
    (
        "a [does=\"success/color:red\"] b start -> a a -> b [condition=\"context.color=red\"] a -> exit b -> exit",
        "start a b exit",
    ),
    (
        "a [does=\"success/color:red\"] b start -> a a -> b [condition=\"color=blue || !color\"] a -> exit b -> exit",
        "start a exit",
    ),
    // Statuses.
    (
        "a [does=partial] b start -> a a -> b [condition=\"outcome=partial_success\"] a -> exit b -> exit",
        "start a b exit",
    ),
    (
        "a [does=skipped] b start -> a a -> b [condition=\"outcome=skipped\"] a -> exit b -> exit",
        "start a b exit",
    ),
    // Failure routing.
    ("a [does=fail] b start -> a a -> b [condition=\"outcome=fail\"] a -> exit b -> exit", "start a b exit"),
    (
        "a [does=fail] b start -> a a -> b [condition=\"outcome!=success\"] a -> exit b -> exit",
        "start a b exit",
    ),
    ("a [does=\"fail success\", retry_target=b] b start -> a a -> exit b -> a", "start a b a exit"),
    (
        "a [does=\"fail success\", retry_target=nobody, fallback_retry_target=b] b start -> a a -> exit b -> a",
        "start a b a exit",
    ),
    (
        "a [does=fail, retry_target=b] b c start -> a a -> c [condition=\"outcome=fail\"] c -> exit a -> exit b -> a",
        "start a c exit",
    ),
    (
        "a [does=permanent] b start -> a a -> b [condition=\"outcome=fail\"] a -> exit b -> exit",
        "start a b exit",
    ),
    ("a [does=panic] b start -> a a -> b [condition=\"outcome=fail\"] a -> exit b -> exit", "start a b exit"),
    // A conditional node uses the outcome of the node before it.
    (
        "a [does=\"fail success\"] g [type=conditional] start -> a -> g g -> exit [condition=\"outcome=success\"] g -> a [condition=\"outcome!=success\"]",
        "start a g a g exit",
    ),
    (
        "a [does=\"fail success\"] g [type=conditional] start -> a -> g g -> exit [condition=\"outcome=success\"] g -> a",
        "start a g a g exit",
    ),
    (
        "a [does=\"success/label:x\"] g [type=conditional] b start -> a -> g g -> b [label=x] g -> exit [weight=9] b -> exit",
        "start a g b exit",
    ),
    (
        "a [does=fail] g [type=conditional] h [type=conditional] start -> a -> g -> h h -> exit [condition=\"outcome=fail\"]",
        "start a g h exit",
    ),
    // Goal gates.
    ("a [goal_gate=true] start -> a -> exit", "start a exit"),
    ("a [goal_gate=true, does=partial] start -> a -> exit", "start a exit"),
    (
        "a [goal_gate=true, does=\"skipped success\", retry_target=a] start -> a -> exit",
        "start a exit a exit",
    ),
    (
        "a [goal_gate=true, does=\"skipped success\"] b graph [retry_target=b] start -> a -> exit b -> a",
        "start a exit b a exit",
    ),
    (
        "a [goal_gate=true, does=\"skipped success\"] b graph [fallback_retry_target=b] start -> a -> exit b -> a",
        "start a exit b a exit",
    ),
    (
        "a [goal_gate=true, does=\"skipped success\", fallback_retry_target=c] b c graph [retry_target=b] start -> a -> exit b -> a c -> a",
        "start a exit c a exit",
    ),
    (
        "a b [goal_gate=true, does=skipped, retry_target=b] start -> a a -> exit a -> b [weight=-1] b -> exit",
        "start a exit",
    ),
    (
        "a [goal_gate=true, does=\"fail success\"] b start -> a a -> b [condition=\"outcome=fail\"] a -> exit b -> a",
        "start a b a exit",
    ),
    // Loops.
    (
        "a [does=\"success success success/done:yes\"] start -> a a -> exit [condition=\"done\"] a -> a",
        "start a a a exit",
    ),
    (
        "a b [does=\"success success/ok:yes\"] start -> a -> b b -> exit [condition=\"ok=yes\"] b -> a [condition=\"ok!=yes\"]",
        "start a b a b exit",
    ),
    // Several edges between the same nodes.
    ("a start -> a a -> exit [label=one] a -> exit [label=two, condition=\"outcome=fail\"]", "start a exit"),
    // Retries.
    ("a [does=\"retry,success\", max_retries=1] start -> a -> exit", "start a exit"),
    ("a [does=\"transient,success\", max_retries=1] start -> a -> exit", "start a exit"),
    (
        "a [does=retry, allow_partial=true] b start -> a a -> b [condition=\"outcome=partial_success\"] b -> exit",
        "start a b exit",
    ),
    ("a [does=retry] b start -> a a -> b [condition=\"outcome=fail\"] b -> exit", "start a b exit"),
    ("a [does=no_status, auto_status=true] start -> a -> exit", "start a exit"),
    (
        "a [does=hang, timeout=20ms] b start -> a a -> b [condition=\"outcome=fail\"] b -> exit",
        "start a b exit",
    ),
    ("a [does=\"hang,success\", timeout=20ms, max_retries=1] start -> a -> exit", "start a exit"),
    // A run that ends where no edge leads on.
    ("a b start -> a a -> b [condition=\"outcome=success\"] a -> exit", "start a b"),
    // Several exits, with goal gates before each.
    (
        "a [does=fail] c [shape=Msquare, type=\"\"] start -> a a -> c [condition=\"outcome=fail\"] a -> exit",
        "start a c",
    ),
    (
        "a [goal_gate=true, does=\"skipped success\", retry_target=a] c [shape=Msquare, type=\"\"] start -> a a -> c [weight=1] a -> exit",
        "start a c a c",
    ),
    // A fresh start.
    (
        "a [does=\"success/n:1 success\"] b start -> a a -> b [condition=\"n=1\", loop_restart=true] a -> exit b -> a",
        "start a b a exit",
    ),
];

/// Pipelines with branches, whose nodes may end in another order after a crash.
const BRANCHES: &[(&str, &str)] = &[
    (
        "p [type=parallel] a b f [type=parallel.fan_in] start -> p p -> a -> f p -> b -> f f -> exit",
        "start p a b f exit",
    ),
    (
        "p [type=parallel] a b c f [type=parallel.fan_in] start -> p p -> a -> c -> f p -> b -> f f -> exit",
        "start p a b c f exit",
    ),
    (
        "p [type=parallel] a [does=fail] b f [type=parallel.fan_in] start -> p p -> a -> f p -> b -> f f -> exit",
        "start p a b f exit",
    ),
    (
        "p [type=parallel, max_parallel=1] a b [does=\"success/score:3\"] f [type=parallel.fan_in] g start -> p p -> a -> f p -> b -> f f -> g [condition=\"parallel.fan_in.best_id=b\"] f -> exit g -> exit",
        "start p a b f g exit",
    ),
];

/// Guarantees: DIALECT-1, DOT-19.
#[tokio::test]
async fn pipelines_take_their_paths() {
    for (statements, path) in PATHS.iter().chain(BRANCHES) {
        let ran = run(statements).await;
        assert!(matches!(ran.outcome, Outcome::Completed(_)), "{statements}: {:?}", ran.outcome);
        assert_eq!(ran.path(), *path, "{statements}");
    }
    assert!(PATHS.len() >= 40);
}

/// Pipelines that fail: statements, path and reason.
const FAILURES: &[(&str, &str, &str)] = &[
    ("a [does=fail] start -> a -> exit", "start a", "a failed"),
    (
        "a [does=fail] b start -> a a -> b [condition=\"outcome=success\"] a -> exit [weight=5] b -> exit",
        "start a",
        "a failed",
    ),
    ("a [does=\"fail/label:x\"] start -> a a -> exit [label=x]", "start a", "a failed"),
    ("a [does=permanent] start -> a -> exit", "start a", "the key is wrong"),
    ("a [does=panic] start -> a -> exit", "start a", "the handler panicked: oh no"),
    ("a [does=retry] start -> a -> exit", "start a", "max retries exceeded"),
    ("a [does=transient] start -> a -> exit", "start a", "the network is away"),
    ("a [does=no_status] start -> a -> exit", "start a", "nobody said"),
    ("a [does=hang, timeout=20ms] start -> a -> exit", "start a", "the node exceeded its timeout of 20ms"),
    (
        "a [does=fail] g [type=conditional] start -> a -> g g -> exit [condition=\"outcome=success\"]",
        "start a g",
        "a failed",
    ),
    (
        "a [goal_gate=true, does=skipped] start -> a -> exit",
        "start a exit",
        "goal gate unsatisfied and no retry target: `a` did not succeed; set its `retry_target`",
    ),
    (
        "a [does=\"fail fail fail\", max_visits=2, retry_target=a] start -> a -> exit",
        "start a a",
        "the node needs visit 3, and at most 2 are allowed; raise `max_visits`",
    ),
    (
        "graph [max_node_visits=2] a start -> a a -> a [weight=1] a -> exit",
        "start a a",
        "the node needs visit 3, and at most 2 are allowed; raise `max_visits`",
    ),
    // A run that ends in the middle has failed.
    (
        "a [does=\"success/label:x\"] b start -> a a -> exit [condition=\"outcome=succes\"] a -> b [condition=\"!outcome=success\"] b -> exit",
        "start a",
        "`a` ended with `success` with the label `x`, and no condition of its edges holds: to `exit` if `outcome=succes`, to `b` if \
         `!outcome=success`; add an edge without a condition",
    ),
    // Its goal gates are also checked where no edge matches.
    (
        "a [goal_gate=true, does=skipped] b start -> a a -> b [weight=1] a -> exit",
        "start a b",
        "goal gate unsatisfied and no retry target: `a` did not succeed; set its `retry_target`",
    ),
    (
        "a [does=\"success/internal.gate.a:success\"] start -> a -> exit",
        "start a",
        "the outcome sets `internal.gate.a`; nodes cannot set keys that begin with `internal.`",
    ),
];

/// Guarantees: DOT-18.
#[tokio::test]
async fn pipelines_fail_with_their_reasons() {
    for (statements, path, reason) in FAILURES {
        let ran = run(statements).await;
        assert_eq!(ran.failure(), *reason, "{statements}");
        assert_eq!(ran.path(), *path, "{statements}");
    }
}

/// The result of a run: its path, its status and its context.
pub(crate) async fn result(
    store: &MemoryStore,
    key: &RunKey,
    outcome: Outcome<Context>,
) -> (Vec<String>, String, Context) {
    let (status, context) = match outcome {
        Outcome::Completed(context) => ("completed".to_owned(), context),
        Outcome::Failed { failure, state } => (failure.message, state),
        other => panic!("{other:?}"),
    };
    (path_of(store, key).await, status, context)
}

/// Crashes a process at one write, and continues the run in another.
async fn crash(statements: &str, at: u64, fault: Fault) -> Option<(Vec<String>, String, Context)> {
    let (memory, key) = (MemoryStore::new(), RunKey::try_from("r").unwrap());
    let store = Arc::new(FaultStore::new(memory.clone(), FaultPlan::new().with_fault(at, fault)));
    let builder = Runtime::builder_with(Arc::clone(&store) as Arc<dyn CheckpointStore>);
    // Each process compiles the graph, so that only the store is shared.
    let graph = &compile(&source(statements), registry());
    let first = builder.store_retries(1, Duration::from_millis(1)).build().await.unwrap();
    let ended = match first.start(graph, Context::new()).id("r").await {
        Ok(run) => run.wait().await.ok(),
        Err(_) => None,
    };
    if !store.is_crashed() {
        // The run has fewer writes.
        return None;
    }
    store.crash();
    drop((first, ended));
    let graph = &compile(&source(statements), registry());
    let second = Runtime::builder(memory.clone()).build().await.unwrap();
    let run = match second.head(&key).await.unwrap() {
        Some(head) if head.status == RunStatus::InProgress => {
            second.resume(graph, "r").take_over().await.unwrap()
        }
        // The last write succeeded, or the first one failed.
        _ => second.start(graph, Context::new()).id("r").await.unwrap(),
    };
    let outcome = run.wait().await.unwrap();
    Some(result(&memory, run.run(), outcome).await)
}

#[tokio::test]
async fn a_crash_at_any_write_changes_nothing() {
    let failures = FAILURES.iter().map(|(statements, ..)| statements);
    let mut crashes = 0;
    for statements in PATHS.iter().map(|(statements, _)| statements).chain(failures) {
        let graph = compile(&source(statements), registry());
        let store = MemoryStore::new();
        let runtime = Runtime::builder(store.clone()).build().await.unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        let outcome = run.wait().await.unwrap();
        let expected = result(&store, run.run(), outcome).await;
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let mut at = 0;
            while let Some(ended) = crash(statements, at, fault).await {
                assert_eq!(ended, expected, "{statements}, {fault:?} at write {at}");
                at += 1;
                crashes += 1;
            }
            assert!(at > 2, "{statements}: only {at} writes");
        }
    }
    assert!(crashes > 400, "{crashes}");
}

/// Guarantees: DOT-17.
#[tokio::test]
async fn context_mirrors_graph_and_last_outcome() {
    let ran =
        run("goal=\"ship\" default_max_retries=0 a [does=\"success/label:L/color:red\"] start -> a -> exit")
            .await;
    completes(&ran, "start a exit");
    assert_eq!(ran.text("graph.goal"), "ship");
    assert_eq!(ran.context().get_value("graph.default_max_retries"), Some(&json!(0)));
    assert_eq!((ran.text("outcome"), ran.text("current_node")), ("success".into(), "exit".into()));
    assert_eq!(ran.text("color"), "red");
    assert!(!ran.context().contains_key("preferred_label"), "the exit must prefer no label");
}

#[tokio::test]
async fn a_preferred_label_ends_with_the_next_outcome() {
    let ran = run(
        "a [does=\"success/label:left\"] b left right start -> a -> b b -> left [condition=\"context.preferred_label=left\"] \
         b -> right left -> exit right -> exit",
    )
    .await;
    completes(&ran, "start a b right exit");
}

/// Guarantees: DOT-18.
#[tokio::test]
async fn failure_reason_reaches_later_nodes() {
    let ran = run("a [does=fail] fix start -> a a -> fix [condition=\"failure_reason contains failed\"] fix -> exit a -> exit").await;
    completes(&ran, "start a fix exit");
    assert!(!ran.context().contains_key("failure_reason"));
}

#[tokio::test]
async fn max_retries_counts_attempts_beyond_the_first() {
    for (attributes, graph, calls) in [
        ("max_retries=3", "", 4),
        ("max_retries=0", "default_max_retries=5", 1),
        ("", "default_max_retries=2", 3),
        ("", "default_max_retry=2", 3),
        ("", "", 1),
        ("retry_policy=none", "default_max_retries=5", 1),
        ("retry_policy=linear, max_retries=1", "", 2),
    ] {
        let scripted = Scripted::default();
        let counted = Arc::clone(&scripted.calls);
        let comma = if attributes.is_empty() { "" } else { ", " };
        let text = format!(
            "digraph G {{ {graph} start exit a [type=scripted, prompt=x, does=transient{comma}{attributes}] start -> a -> exit }}"
        );
        let ran = run_with(&text, registry().with("scripted", scripted), Context::new()).await;
        assert_eq!(ran.failure(), "the network is away");
        assert_eq!(counted.lock().unwrap()["a"], calls, "{attributes} {graph}");
    }
}

/// Guarantees: DOT-18.
#[tokio::test]
async fn a_fail_is_not_retried() {
    let scripted = Scripted::default();
    let counted = Arc::clone(&scripted.calls);
    let text = source("a [does=\"fail success\", max_retries=3] start -> a -> exit");
    let ran = run_with(&text, registry().with("scripted", scripted), Context::new()).await;
    assert_eq!(ran.failure(), "a failed");
    assert_eq!(counted.lock().unwrap()["a"], 1);
}

#[tokio::test]
async fn a_success_resets_the_retries() {
    let ran = run(
        "a [does=\"retry,success retry,success/done:yes\", max_retries=1] start -> a a -> exit [condition=\"done\"] a -> a",
    )
    .await;
    completes(&ran, "start a a exit");
}

/// Guarantees: DOT-21.
#[tokio::test]
async fn loop_restart_preserves_input_and_graph() {
    let mut input = Context::new();
    input.set("given", "yes").unwrap();
    input.set("color", "white").unwrap();
    let text = source(
        "goal=g max_node_visits=5 a [does=\"success/color:red/more:x success\", goal_gate=true] b \
         start -> a -> b b -> a [condition=\"more=x\", loop_restart=true] b -> exit",
    );
    let ran = run_with(&text, registry(), input).await;
    completes(&ran, "start a b a b exit");
    assert_eq!(
        (ran.text("given"), ran.text("color"), ran.text("graph.goal")),
        ("yes".into(), "white".into(), "g".into())
    );
    assert!(!ran.context().contains_key("more"));
    assert_eq!(ran.context().get_value("internal.restarts"), Some(&json!(1)));
}

/// A handler that fails in its first execution.
#[derive(Debug, Default)]
struct Flaky(AtomicBool);

#[async_trait::async_trait]
impl Handler for Flaky {
    async fn run(&self, _stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let again = self.0.swap(true, Ordering::SeqCst);
        Ok(if again { StageOutcome::success() } else { StageOutcome::fail("not yet") })
    }
}

#[tokio::test]
async fn a_failed_run_is_retried_where_it_failed() {
    let store = MemoryStore::new();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let text = source("a b [type=flaky] start -> a -> b -> exit");
    let graph = compile(&text, registry().with("flaky", Flaky::default()));
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    run.wait().await.unwrap();
    runtime.retry(run.run()).await.unwrap();
    let again = runtime.resume(&graph, run.run()).await.unwrap();
    assert!(again.wait().await.unwrap().completed().is_some());
    assert_eq!(path_of(&store, run.run()).await.join(" "), "start a b b exit");
}

#[tokio::test]
async fn a_registered_type_is_replaced() {
    let text = "digraph G { start exit a [does=fail] start -> a -> exit }";
    let ran = run_with(text, registry().with("codergen", Scripted::default()), Context::new()).await;
    assert_eq!(ran.failure(), "a failed");
    let ran = run_with(
        text,
        registry().with("codergen", Scripted::default()).with("codergen", Noop),
        Context::new(),
    )
    .await;
    completes(&ran, "start a exit");
}

#[tokio::test]
async fn a_custom_type_wins_over_the_shape() {
    let text = "digraph G { start exit a [shape=hexagon, type=scripted] start -> a -> exit }";
    completes(&run_with(text, registry(), Context::new()).await, "start a exit");
}

/// Guarantees: DOT-4.
#[test]
fn what_does_not_run_is_refused_by_name() {
    for (statements, kind, part) in [
        (
            "a [type=\"\", shape=house] start -> a -> exit",
            ErrorKind::Unsupported,
            "node a: the type `stack.manager_loop` has no handler",
        ),
        (
            "a [selection=random] b start -> a a -> b [condition=\"outcome=success\"] a -> exit b -> exit",
            ErrorKind::Invalid,
            "node a: `selection=random` needs edges without conditions, and the edge to `b` has one",
        ),
        (
            "a start -> a -> exit a -> exit [freeform=true]",
            ErrorKind::Invalid,
            "edge a -> exit: `freeform` takes the text of a person",
        ),
    ] {
        let error = Compiler::new(registry()).compile(&pipeline(&source(statements))).unwrap_err();
        assert_eq!(error.kind(), kind, "{statements}: {error}");
        assert!(error.message().contains(part), "{statements}: {error}");
    }
}

#[test]
fn a_pipeline_with_a_mistake_is_refused() {
    let refuse = |text: &str| Compiler::new(registry()).compile(&pipeline(text)).unwrap_err();
    let error = refuse("digraph G { start exit }");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("reachability"), "{error}");
    let error = refuse("digraph G { start exit a [shape=parallelogram] start -> a -> exit }");
    assert!(error.message().contains("node a: the tool has no command"), "{error}");
    let error = refuse("digraph G { start exit a [effect=dangerous] start -> a -> exit }");
    assert!(error.message().contains("`effect` is dangerous"), "{error}");
}

#[test]
fn changed_node_configuration_changes_fingerprint() {
    let graph = |statements: &str| compile(&source(statements), registry()).fingerprint();
    let one = graph("a [does=success] start -> a -> exit");
    assert_eq!(one, graph("a [does=success] start -> a -> exit"));
    assert_ne!(one, graph("a [does=fail] start -> a -> exit"));
    assert_ne!(one, graph("a [does=success] start -> a a -> exit [condition=\"outcome=success\"]"));
}

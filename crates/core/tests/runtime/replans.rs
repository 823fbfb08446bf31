//! Replans: up to the limit, beyond it by an operator, and across a restart.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::time::Duration;

use ferrata_core::graph::{
    CheckpointFrequency, CheckpointPolicy, Effect, Graph, NodeCheckpoint, Route, RouteContext,
};
use ferrata_core::record::{Failure, FailureKind};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Reducer};
use ferrata_core::store::{At, CheckpointStore, MemoryStore};
use ferrata_core::{ErrorKind, RunKey};

fn again(_state: &Context, cx: &RouteContext<'_>) -> Route {
    Route::revisit("plan", format!("draft {} is off the point", cx.visit())).and("notify")
}

/// A reviewer that never approves, next to a node that is notified each time. The third draft waits for a resource.
fn review(
    max_replans: u32,
    route: impl Fn(&Context, &RouteContext<'_>) -> Route + Send + Sync + 'static,
) -> Graph<Context> {
    Graph::<Context>::builder("review")
        .channel("path", Reducer::Append)
        .node("plan", async |_cx, _s| Ok(Context::update().reduce("path", vec!["plan"])))
        .max_replans(max_replans)
        .node("draft", async |cx, s| {
            cx.checkpoint().await?;
            if cx.visit().get() == 3 && cx.try_resource::<()>().is_none() {
                std::future::pending::<()>().await;
            }
            Ok(s)
        })
        .node("review", async |_cx, s| Ok(s))
        .checkpoint(NodeCheckpoint::After)
        .node("notify", async |_cx, _s| Ok(ferrata_core::state::Update::none()))
        .effect(Effect::Pure)
        .node("give-up", async |_cx, _s| Ok(Context::update().reduce("path", vec!["give-up"])))
        .entry("plan")
        .edge("plan", "draft")
        .edge("draft", "review")
        .route("review", ["plan", "notify", "give-up"], route)
        .build()
        .unwrap()
}

fn path(state: &Context) -> Vec<String> {
    state.get("path").unwrap().unwrap_or_default()
}

async fn content(store: &MemoryStore) -> Runtime {
    Runtime::builder(store.clone()).resource(()).build().await.unwrap()
}

fn failure(outcome: Outcome<Context>) -> Failure {
    let Outcome::Failed { failure, .. } = outcome else { panic!("not failed") };
    failure
}

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

/// The policies: records with changes, and records with bases only.
fn policies() -> [CheckpointPolicy; 2] {
    [CheckpointFrequency::EveryNode, CheckpointFrequency::Disabled]
        .map(|frequency| CheckpointPolicy::default().with_frequency(frequency))
}

const HISTORY: [&str; 4] = [
    "review@1 -> plan: draft 1 is off the point",
    "review@2 -> plan: draft 2 is off the point",
    "review@3 -> plan: draft 3 is off the point",
    "review@4 -> plan: draft 4 is off the point",
];

/// Guarantees: REPLAN-1.
#[tokio::test]
async fn third_revisit_fails_run_with_history() {
    for policy in policies() {
        let store = MemoryStore::new();
        let runtime = content(&store).await;
        let run = runtime.start(&review(2, again), Context::new()).id("r").checkpoints(policy).await.unwrap();
        let failure = failure(run.wait().await.unwrap());
        assert_eq!(failure.kind, FailureKind::Replan);
        assert_eq!(
            failure.to_string(),
            "node plan: the revisit of `plan` is number 3 of this node, and at most 2 are allowed; change the route of `review`, raise \
             `max_replans`, or retry the run to allow this revisit"
        );
        assert_eq!(failure.causes, HISTORY[..3]);
    }
}

/// Guarantees: REPLAN-6.
#[tokio::test]
async fn log_records_replan_reason_with_fired_edge() {
    let store = MemoryStore::new();
    let runtime = content(&store).await;
    runtime.start(&review(2, again), Context::new()).id("r").await.unwrap().wait().await.unwrap();
    let records = store.load(&key(), At::Latest).await.unwrap().unwrap();
    let bodies: String = records.iter().map(|record| String::from_utf8_lossy(&record.body)).collect();
    assert!(bodies.contains(r#"{"to":"plan","reason":"draft 2 is off the point"},"notify"]"#), "{bodies}");
}

/// Guarantees: REPLAN-5.
#[tokio::test]
async fn retry_grants_one_replan_raised_limit_more() {
    for policy in policies() {
        let store = MemoryStore::new();
        let runtime = content(&store).await;
        let run = runtime.start(&review(2, again), Context::new()).id("r").checkpoints(policy).await.unwrap();
        failure(run.wait().await.unwrap());
        runtime.retry(&key()).await.unwrap();
        let run = runtime.resume(&review(2, again), "r").checkpoints(policy).await.unwrap();
        assert_eq!(failure(run.wait().await.unwrap()).causes, HISTORY);

        // The graph fingerprint does not include the limit, so no changed graph must be allowed.
        runtime.retry(&key()).await.unwrap();
        let run = runtime.resume(&review(5, again), "r").checkpoints(policy).await.unwrap();
        let failure = failure(run.wait().await.unwrap());
        assert!(failure.message.contains("number 6 of this node, and at most 5 are allowed"), "{failure}");
        assert_eq!(failure.causes.len(), 6);
    }
}

/// Guarantees: REPLAN-3.
#[tokio::test]
async fn what_was_counted_survives_the_process() {
    for policy in policies() {
        let store = MemoryStore::new();
        let first = Runtime::builder(store.clone()).build().await.unwrap();
        let run = first.start(&review(2, again), Context::new()).id("r").checkpoints(policy).await.unwrap();
        // The second review is the last event before the next loop.
        let mut looks = 0;
        loop {
            let records = store.load(&key(), At::Latest).await.unwrap().unwrap_or_default();
            let bodies: String = records.iter().map(|record| String::from_utf8_lossy(&record.body)).collect();
            if bodies.contains("draft 2 is off the point") {
                break;
            }
            looks += 1;
            assert!(looks < 100_000, "two drafts were reviewed: {bodies}");
            tokio::task::yield_now().await;
        }
        first.shutdown(Duration::ZERO).await.unwrap();
        assert!(matches!(run.wait().await.unwrap(), Outcome::Released));
        let second = content(&store).await;
        let run = second.resume(&review(2, again), "r").checkpoints(policy).await.unwrap();
        let failure = failure(run.wait().await.unwrap());
        assert_eq!(failure.kind, FailureKind::Replan);
        assert_eq!(failure.causes, HISTORY[..3]);
    }
}

/// Guarantees: REPLAN-4.
#[tokio::test]
async fn route_reads_replan_count_before_limit() {
    let store = MemoryStore::new();
    let runtime = content(&store).await;
    let graph = review(2, |_s, cx| {
        assert_eq!(cx.replans("plan"), cx.visit().get() - 1);
        assert_eq!((cx.replans("draft"), cx.replans("nobody")), (0, 0));
        if cx.replans("plan") < 2 { Route::revisit("plan", "not yet") } else { "give-up".into() }
    });
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let state = run.wait().await.unwrap().completed().unwrap();
    assert_eq!(path(&state), ["plan", "plan", "plan", "give-up"]);
}

#[tokio::test]
async fn going_back_without_saying_so_is_no_replan() {
    let store = MemoryStore::new();
    let runtime = content(&store).await;
    let graph = review(0, |_s, cx| if cx.visit().get() < 5 { "plan" } else { "give-up" }.into());
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert_eq!(path(&run.wait().await.unwrap().completed().unwrap()).len(), 6);
}

#[tokio::test]
async fn revisit_of_undeclared_target_is_refused() {
    let store = MemoryStore::new();
    let runtime = content(&store).await;
    let run = runtime
        .start(&review(2, |_s, _cx| Route::revisit("plam", "a slip")), Context::new())
        .id("r")
        .await
        .unwrap();
    let failure = failure(run.wait().await.unwrap());
    assert_eq!(failure.kind, FailureKind::Route);
    assert_eq!(
        failure.message.trim_start_matches("node review: "),
        "the route chose `plam`, which is not among its targets `plan`, `notify`, `give-up`; did you mean \
         `plan`?"
    );
    let error = runtime.resume(&review(2, again), "r").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongStatus);
}

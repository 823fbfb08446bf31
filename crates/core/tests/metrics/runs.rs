//! Metrics of runs, activations and attempts.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::Seq;
use ferrata_core::ask::Answer;
use ferrata_core::graph::{Effect, Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{
    OutboxMessage, OutboxSink, Outcome, RetentionPolicy, RunLimits, Runtime, SinkError, SweepLimits,
};
use ferrata_core::state::{Context, Draft, Update};
use ferrata_core::store::CheckpointStore;
use ferrata_testing::LedgerStore;
use tokio::sync::Notify;

use crate::world::{WORKFLOW, gated, key, observe};

const COMPLETED: (&str, &str) = ("ferrata.outcome", "completed");

#[tokio::test]
pub(crate) async fn a_run_is_counted_from_its_start_to_its_end() {
    observe(async |world| {
        let runtime = world.process().await;
        let clock = Arc::clone(&world.clock);
        let graph = Graph::<Context>::builder("w")
            .node("first", move |_cx: NodeContext, mut s: Draft<Context>| {
                clock.advance(Duration::from_secs(2));
                async move {
                    s.set("secret", "a secret")?;
                    Ok(s)
                }
            })
            .node("second", async |_cx, s| Ok(s))
            .entry("first")
            .edge("first", "second")
            .build()
            .unwrap();
        let run = world.start(&runtime, &graph).await;
        assert!(matches!(run.wait().await.unwrap(), Outcome::Completed(_)));

        let status = ("ferrata.run.status", "completed");
        assert_eq!(world.value("ferrata.run.started", &[WORKFLOW]), 1.0);
        assert_eq!(world.value("ferrata.run.settled", &[WORKFLOW, status]), 1.0);
        let duration = world.seen.series("ferrata.run.duration", &[WORKFLOW, status]);
        assert_eq!((duration.moves, duration.value), (1, 2.0));
        assert_eq!(world.value("ferrata.activation.ended", &[WORKFLOW, COMPLETED]), 2.0);
        let attempts = world.seen.series("ferrata.attempt.duration", &[WORKFLOW, COMPLETED]);
        assert_eq!((attempts.moves, attempts.value, attempts.most), (2, 2.0, 2.0));
        for gauge in ["ferrata.run.active", "ferrata.attempt.active"] {
            let gauge = world.seen.series(gauge, &[WORKFLOW]);
            assert_eq!((gauge.most, gauge.value), (1.0, 0.0));
        }
    })
    .await;
}

#[tokio::test]
pub(crate) async fn failures_are_counted_by_kind_and_retries_apart() {
    observe(async |world| {
        let runtime = world.process().await;
        let tries = AtomicU32::new(0);
        let graph = Graph::<Context>::builder("w")
            .node("shaky", move |_cx: NodeContext, s: Draft<Context>| {
                let tried = tries.fetch_add(1, Ordering::SeqCst);
                async move { if tried < 2 { Err(NodeError::new("a secret went wrong")) } else { Ok(s) } }
            })
            .retry(RetryPolicy::none().with_attempts(3).with_delay(Duration::from_secs(1)))
            .node("slow", async |_cx, _s| std::future::pending::<Result<(), NodeError>>().await)
            .timeout(Duration::from_secs(3))
            .entry("shaky")
            .edge("shaky", "slow")
            .build()
            .unwrap();
        let run = world.start(&runtime, &graph).await;
        assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Failed { .. }));

        let failures = |kind| world.value("ferrata.activation.failures", &[WORKFLOW, ("error.type", kind)]);
        assert_eq!((failures("node"), failures("timeout"), failures("panic")), (2.0, 1.0, 0.0));
        let ended =
            |outcome| world.value("ferrata.activation.ended", &[WORKFLOW, ("ferrata.outcome", outcome)]);
        assert_eq!((ended("completed"), ended("failed")), (1.0, 1.0));
        let took = |outcome| {
            let labels = [WORKFLOW, ("ferrata.outcome", outcome)];
            world.seen.series("ferrata.attempt.duration", &labels).moves
        };
        assert_eq!((took("completed"), took("failed")), (1, 3));
        let status = ("ferrata.run.status", "failed");
        assert_eq!(world.value("ferrata.run.settled", &[WORKFLOW, status]), 1.0);
    })
    .await;
}

fn asking() -> Graph<Context> {
    Graph::<Context>::builder("w")
        .node("ask", async |cx: NodeContext, s: Draft<Context>| {
            let _: bool = cx.ask("sure", "secret?").await?;
            Ok(s)
        })
        .entry("ask")
        .build()
        .unwrap()
}

#[tokio::test]
pub(crate) async fn a_run_that_rests_and_is_answered_tells_how_long_it_waited() {
    observe(async |world| {
        let runtime = world.process().await;
        let run = world.start(&runtime, &asking()).await;
        run.wait().await.unwrap();
        let interrupted = ("ferrata.run.status", "interrupted");
        assert_eq!(world.value("ferrata.run.settled", &[WORKFLOW, interrupted]), 1.0);
        let dropped = [WORKFLOW, ("ferrata.outcome", "dropped")];
        assert_eq!(world.seen.series("ferrata.attempt.duration", &dropped).moves, 1);
        assert_eq!(world.value("ferrata.attempt.active", &[WORKFLOW]), 0.0);

        world.clock.advance(Duration::from_secs(60));
        runtime
            .respond(&key(), "ask@1:sure", Answer::accept(true).unwrap())
            .by("secret-person")
            .await
            .unwrap();
        let rested = world.seen.series("ferrata.run.rest.duration", &[interrupted]);
        assert_eq!((rested.moves, rested.value), (1, 60.0));
        world.clock.advance(Duration::from_secs(5));
        let run = runtime.resume(&asking(), key()).await.unwrap();
        run.completed().await.unwrap();
        assert_eq!(world.value("ferrata.run.claims", &[WORKFLOW, ("ferrata.outcome", "won")]), 1.0);
        assert_eq!(world.seen.series("ferrata.run.claim.delay", &[WORKFLOW]).most, 5.0);
        let completed = ("ferrata.run.status", "completed");
        assert_eq!(world.seen.series("ferrata.run.duration", &[WORKFLOW, completed]).value, 65.0);
    })
    .await;
}

#[tokio::test]
pub(crate) async fn a_run_cancelled_at_rest_is_counted_without_a_driver() {
    observe(async |world| {
        let runtime = world.process().await;
        let run = world.start(&runtime, &asking()).await;
        run.wait().await.unwrap();
        world.clock.advance(Duration::from_secs(7));
        runtime.cancel(&key(), "a secret reason").await.unwrap();
        let cancelled = ("ferrata.run.status", "cancelled");
        assert_eq!(world.value("ferrata.run.settled", &[WORKFLOW, cancelled]), 1.0);
        assert_eq!(world.seen.series("ferrata.run.duration", &[WORKFLOW, cancelled]).value, 7.0);

        // Another process must ask the store for the workflow.
        let run = world.start_as(&runtime, &asking(), "secret-2").await;
        run.wait().await.unwrap();
        let other = world.process().await;
        other.cancel(run.run(), "a secret reason").await.unwrap();
        let unknown = [("ferrata.workflow.name", "_OTHER"), cancelled];
        assert_eq!(world.value("ferrata.run.settled", &unknown), 1.0);
    })
    .await;
}

#[tokio::test]
pub(crate) async fn nodes_are_told_apart_only_if_asked_for() {
    observe(async |world| {
        let runtime = world.process_with(|builder| builder.metrics_by_node()).await;
        let graph = Graph::<Context>::builder("w")
            .node("first", async |_cx, s| Ok(s))
            .node("second", async |_cx, _s| Err::<(), _>(NodeError::new("a secret went wrong").fatal()))
            .entry("first")
            .edge("first", "second")
            .build()
            .unwrap();
        world.start(&runtime, &graph).await.wait().await.unwrap();
        let node = |node| ("ferrata.node.name", node);
        let failed = ("ferrata.outcome", "failed");
        assert_eq!(world.value("ferrata.activation.ended", &[WORKFLOW, node("first"), COMPLETED]), 1.0);
        assert_eq!(world.value("ferrata.activation.ended", &[WORKFLOW, node("second"), failed]), 1.0);
        let failure = [WORKFLOW, node("second"), ("error.type", "node")];
        assert_eq!(world.value("ferrata.activation.failures", &failure), 1.0);
    })
    .await;
}

#[tokio::test]
pub(crate) async fn runs_beyond_the_limit_are_counted_while_they_wait() {
    observe(async |world| {
        let runtime = world.process_with(|builder| builder.run_limits(RunLimits::new().with_runs(1))).await;
        let word = Arc::new(Notify::new());
        let graph = gated(Effect::Pure, &word);
        let first = world.start_as(&runtime, &graph, "secret-1").await;
        let second = world.start_as(&runtime, &graph, "secret-2").await;
        assert!(second.is_queued());
        assert_eq!(world.value("ferrata.run.queued", &[]), 1.0);
        word.notify_one();
        world.pass(first.completed()).await.unwrap();
        world.pass_until(|| world.value("ferrata.run.active", &[WORKFLOW]) > 0.0).await;
        assert_eq!(world.value("ferrata.run.queued", &[]), 0.0);
        word.notify_one();
        world.pass(second.completed()).await.unwrap();
        assert_eq!(world.value("ferrata.run.started", &[WORKFLOW]), 2.0);
    })
    .await;
}

/// A signal of another process precedes the record of a node's end. The driver writes the record again, and must count the node once.
///
/// Guarantees: METRIC-2.
#[tokio::test]
pub(crate) async fn what_is_made_again_after_a_conflict_is_counted_once() {
    observe(async |world| {
        let (store, runtime) = world.mortal().await;
        let other = world.process().await;
        let word = Arc::new(Notify::new());
        let run = world.start(&runtime, &gated(Effect::Pure, &word)).await;
        store.before(store.operations(), async move {
            other.send(&key(), "a secret message").await.unwrap();
        });
        word.notify_one();
        run.completed().await.unwrap();
        let store = ("ferrata.store.name", "memory");
        assert_eq!(world.value("ferrata.store.conflicts", &[store]), 1.0);
        assert_eq!(world.value("ferrata.activation.ended", &[WORKFLOW, COMPLETED]), 1.0);
        let records = world.store.head(&key()).await.unwrap().unwrap().seq.get() + 1;
        assert_eq!(records, 3, "start, message, end");
    })
    .await;
}

/// A run that starts within a transaction is counted, so that an alert can compare failed runs with started runs.
#[tokio::test]
pub(crate) async fn a_start_within_a_transaction_is_counted() {
    observe(async |world| {
        let store = LedgerStore::new();
        let runtime = Runtime::builder(store.clone()).clock(Arc::clone(&world.clock) as _);
        let runtime = runtime.build().await.unwrap();
        let graph =
            Graph::<Context>::builder("w").node("a", async |_cx, s| Ok(s)).entry("a").build().unwrap();
        let mut tx = store.transaction().await.unwrap();
        let ticket =
            runtime.start(&graph, Context::new()).id("secret-1").in_transaction(&mut *tx).await.unwrap();
        store.finish(tx).await.unwrap();
        assert_eq!(world.value("ferrata.run.started", &[WORKFLOW]), 1.0);
        let appended = ("ferrata.store.operation", "append");
        let name = ("ferrata.store.name", store.capabilities().name);
        assert_eq!(world.value("ferrata.store.records", &[name, appended]), 1.0);
        world.pass(ticket.drive().await.unwrap().wait()).await.unwrap();
        assert_eq!(world.value("ferrata.run.started", &[WORKFLOW]), 1.0);
    })
    .await;
}

/// A conflict is no failure of the store, whichever call it affects.
#[tokio::test]
pub(crate) async fn a_purge_that_another_writer_forestalls_is_no_failure_of_the_store() {
    observe(async |world| {
        let (store, runtime) = world.mortal().await;
        let other = world.process().await;
        let graph =
            Graph::<Context>::builder("w").node("a", async |_cx, s| Ok(s)).entry("a").build().unwrap();
        world.pass(world.start(&runtime, &graph).await.wait()).await.unwrap();
        let (begun, policy) = (store.operations(), RetentionPolicy::keep_all());
        let policy = policy.purge_after(RunStatus::Completed, Duration::ZERO);
        // Let the pin precede the next write, which is the purge.
        let pin = async move { other.pin(&key(), Seq::new(0)).await.unwrap() };
        store.before(begun, pin);
        let swept = runtime.sweep(&policy, SweepLimits::default(), false).await.unwrap();
        assert_eq!((swept.purged, swept.failed.len()), (0, 0));
        let operation = ("ferrata.store.operation", "purge");
        let name = "ferrata.store.operation.duration";
        assert!(world.seen.has(name, &[operation]), "{} calls", store.operations() - begun);
        assert!(!world.seen.has(name, &[("error.type", "CONFLICT")]));
    })
    .await;
}

struct Picky;

#[async_trait::async_trait]
impl OutboxSink for Picky {
    async fn deliver(&self, batch: &[OutboxMessage]) -> Result<(), SinkError> {
        let refused = batch.iter().position(|letter| letter.json() == "0");
        refused.map_or(Ok(()), |at| Err(SinkError::new("zero").after(at).refused()))
    }
}

#[tokio::test]
pub(crate) async fn letters_are_counted_by_topic() {
    observe(async |world| {
        let runtime = Runtime::builder(world.store.clone())
            .clock(Arc::clone(&world.clock) as _)
            .sink("mail", Picky)
            .build()
            .await
            .unwrap();
        let graph = Graph::<Context>::builder("w")
            .node("n", async |_cx: NodeContext, s: Draft<Context>| {
                Ok(Update::from(s).send_out("mail", 7).send_out("mail", 0))
            })
            .entry("n")
            .build()
            .unwrap();
        let run = world.start(&runtime, &graph).await;
        run.wait().await.unwrap();
        let aside = [("ferrata.letter.topic", "mail"), ("ferrata.outcome", "put_aside")];
        world.pass_until(|| world.value("ferrata.letter.failures", &aside) > 0.0).await;
        assert_eq!(world.seen.series("ferrata.letter.delay", &[("ferrata.letter.topic", "mail")]).moves, 1);
    })
    .await;
}

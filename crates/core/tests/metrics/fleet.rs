//! Metrics of claims, recovery and heartbeats.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::CheckpointStore;
use ferrata_core::{Clock, ErrorKind};
use tokio::sync::Notify;

use crate::world::{WORKFLOW, World, gated, key, observe};

fn claims(world: &World, outcome: &str) -> f64 {
    world.value("ferrata.run.claims", &[WORKFLOW, ("ferrata.outcome", outcome)])
}

fn stuck(name: &str) -> Graph<Context> {
    Graph::<Context>::builder("w")
        .node(name, async |_cx, _s| std::future::pending::<Result<(), NodeError>>().await)
        .entry(name)
        .build()
        .unwrap()
}

#[tokio::test]
pub(crate) async fn claims_are_counted_as_won_late_or_failed() {
    observe(async |world| {
        let (first, second) = (world.process().await, world.process().await);
        let word = Arc::new(Notify::new());
        let graph = gated(Effect::Pure, &word);
        world.start(&first, &graph).await;
        let refused = second.resume(&graph, key()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        assert_eq!(claims(world, "late"), 1.0);
        let refused = second.resume(&stuck("renamed"), key()).take_over().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::GraphChanged);
        assert_eq!(claims(world, "failed"), 1.0);
        let run = second.resume(&graph, key()).take_over().await.unwrap();
        assert_eq!(claims(world, "won"), 1.0);
        word.notify_waiters();
        word.notify_one();
        world.pass(run.completed()).await.unwrap();
        // The first process learns of the claim.
        let fenced = [WORKFLOW, ("error.type", "FENCED")];
        world.pass_until(|| world.value("ferrata.run.errors", &fenced) > 0.0).await;
    })
    .await;
}

#[tokio::test]
pub(crate) async fn the_oldest_run_without_a_driver_is_told() {
    observe(async |world| {
        let sleeping = Graph::<Context>::builder("w")
            .node("sleep", async |cx: NodeContext, s: Draft<Context>| {
                cx.sleep(Duration::from_secs(100)).await?;
                Ok(s)
            })
            .entry("sleep")
            .build()
            .unwrap();
        let (store, mortal) = world.mortal().await;
        let run = world.start(&mortal, &sleeping).await;
        run.wait().await.unwrap();
        store.crash();
        world.clock.advance(Duration::from_secs(130));
        let live = world.process().await;
        live.serve(&sleeping).unwrap();
        let lag =
            |listing| world.seen.series("ferrata.recovery.lag", &[("ferrata.recovery.listing", listing)]);
        world.pass_until(|| lag("due").most > 0.0).await;
        assert!((30.0..31.0).contains(&lag("due").most), "time since the run was due: {:?}", lag("due"));
        let done = async {
            while world.store.head(&key()).await.unwrap().unwrap().status != RunStatus::Completed {
                tokio::task::yield_now().await;
            }
        };
        world.pass(done).await;
        world.pass_until(|| lag("due").value == 0.0).await;

        // An orphan whose process ended two minutes ago while a node was running. This time is no recovery lag.
        let word = Arc::new(Notify::new());
        let (store, mortal) = world.mortal().await;
        let waiting = gated(Effect::Pure, &word);
        world.start_as(&mortal, &waiting, "secret-2").await;
        world.pass(Clock::sleep(&*world.clock, Duration::from_secs(120))).await;
        store.crash();
        let stranger = world.process().await;
        stranger.serve(&stuck("renamed")).unwrap();
        world.pass_until(|| lag("orphaned").most > 10.0).await;
        assert!(
            lag("orphaned").most < 60.0,
            "time since the run was found without a driver: {:?}",
            lag("orphaned")
        );
        let heir = world.process().await;
        heir.serve(&waiting).unwrap();
        world.pass_until(|| lag("orphaned").value == 0.0).await;
        let delay = world.seen.series("ferrata.run.claim.delay", &[WORKFLOW]);
        assert!(delay.moves >= 2 && delay.most > 10.0, "{delay:?}");
    })
    .await;
}

#[tokio::test]
pub(crate) async fn what_cannot_be_taken_up_is_told() {
    observe(async |world| {
        let (store, mortal) = world.mortal().await;
        world.start(&mortal, &stuck("before")).await;
        let other =
            Graph::<Context>::builder("other").node("a", async |_cx, s| Ok(s)).entry("a").build().unwrap();
        store.crash();
        let stalled = |why| world.value("ferrata.recovery.stalled", &[("ferrata.outcome", why)]);
        let stranger = world.process().await;
        stranger.serve(&other).unwrap();
        world.pass_until(|| stalled("unserved") == 1.0).await;
        let heir = world.process().await;
        heir.serve(&stuck("renamed")).unwrap();
        world.pass_until(|| stalled("failed") == 1.0).await;
        assert!(claims(world, "failed") >= 1.0);
    })
    .await;
}

/// An alert uses the minimum over all processes, so a process that serves no workflow must not report the lag.
#[tokio::test]
pub(crate) async fn a_process_that_serves_nothing_tells_nothing_of_recovery() {
    observe(async |world| {
        let runtime = world.process().await;
        let quick =
            Graph::<Context>::builder("w").node("a", async |_cx, s| Ok(s)).entry("a").build().unwrap();
        world.pass(world.start(&runtime, &quick).await.wait()).await.unwrap();
        assert!(world.value("ferrata.heartbeat.tries", &[("ferrata.outcome", "alive")]) > 0.0);
        let told = || ["stalled", "lag"].map(|what| world.seen.has(&format!("ferrata.recovery.{what}"), &[]));
        assert_eq!(told(), [false, false]);
        runtime.serve(&quick).unwrap();
        world.pass_until(|| told() == [true, true]).await;
    })
    .await;
}

/// The first page of the listing contains no served run. The served runs are found by their workflow.
#[tokio::test]
pub(crate) async fn the_oldest_run_behind_many_that_are_not_served_is_told() {
    observe(async |world| {
        let (store, mortal) = world.mortal().await;
        let sleeping = |name: &str| {
            let sleep = async |cx: NodeContext, s: Draft<Context>| {
                cx.sleep(Duration::from_secs(100)).await?;
                Ok(s)
            };
            Graph::<Context>::builder(name).node("sleep", sleep).entry("sleep").build().unwrap()
        };
        let (others, own) = (sleeping("others"), sleeping("w"));
        for number in 0..1_100 {
            let id = format!("secret-a{number}");
            mortal.start(&others, Context::new()).id(id).await.unwrap().wait().await.unwrap();
        }
        world.start_as(&mortal, &own, "secret-z").await.wait().await.unwrap();
        store.crash();
        world.clock.advance(Duration::from_secs(130));
        let live = world.process().await;
        live.serve(&own).unwrap();
        let lag = || world.seen.series("ferrata.recovery.lag", &[("ferrata.recovery.listing", "due")]);
        let delay = || world.seen.series("ferrata.run.claim.delay", &[WORKFLOW]);
        world.pass_until(|| delay().moves == 1 && lag().moves > 0).await;
        assert!(lag().most > 29.0, "time since the run was due: {:?}", lag());
    })
    .await;
}

#[tokio::test]
pub(crate) async fn a_run_that_is_taken_up_without_progress_is_counted_as_parked() {
    observe(async |world| {
        let graph = stuck("stuck");
        let (store, mortal) = world.mortal().await;
        world.start(&mortal, &graph).await;
        store.crash();
        let parked = || world.value("ferrata.run.parked", &[WORKFLOW]);
        for _ in 0..2 {
            let (store, mortal) = world.mortal_with(|builder| builder.max_claims(2)).await;
            mortal.serve(&graph).unwrap();
            let won = claims(world, "won");
            world.pass_until(|| claims(world, "won") > won || parked() > 0.0).await;
            store.crash();
        }
        let heir = world.process_with(|builder| builder.max_claims(2)).await;
        heir.serve(&graph).unwrap();
        world.pass_until(|| parked() == 1.0).await;
    })
    .await;
}

#[tokio::test]
pub(crate) async fn heartbeats_and_their_loss_are_counted() {
    observe(async |world| {
        let beats = |outcome| world.value("ferrata.heartbeat.tries", &[("ferrata.outcome", outcome)]);
        let (store, runtime) = world.mortal().await;
        let run = world.start(&runtime, &stuck("stuck")).await;
        let before = world.value("ferrata.heartbeat.time", &[]);
        assert_eq!(before, 1_000.0);
        // Prometheus reports no increase for a series that starts with its first loss, so all series must exist from the start.
        let known = ["alive", "failed", "lost", "still_lost"].map(|outcome| ("ferrata.outcome", outcome));
        assert!(known.iter().all(|outcome| world.seen.has("ferrata.heartbeat.tries", &[*outcome])));
        world.pass_until(|| beats("alive") > 1.0).await;
        assert!(world.value("ferrata.heartbeat.time", &[]) > before);
        store.crash();
        world.pass_until(|| beats("still_lost") > 0.0).await;
        assert!(beats("failed") > 0.0);
        assert_eq!(beats("lost"), 1.0);
        world.pass(run.wait()).await.unwrap_err();
        assert_eq!(world.value("ferrata.run.errors", &[WORKFLOW, ("error.type", "FENCED")]), 1.0);
    })
    .await;
}

#[tokio::test]
pub(crate) async fn a_queue_is_told_as_it_stands() {
    observe(async |world| {
        let runtime = world.process().await;
        let told = |name: &str| {
            ["waiting", "held", "age"]
                .map(|what| world.value(&format!("ferrata.queue.{what}"), &[("ferrata.queue.name", name)]))
        };
        runtime.report_queue("mail", 3, 5, Duration::from_secs(40));
        runtime.report_queue("openai", 1, 0, Duration::ZERO);
        assert_eq!((told("mail"), told("openai")), ([3.0, 5.0, 40.0], [1.0, 0.0, 0.0]));
        runtime.report_queue("mail", 0, 2, Duration::ZERO);
        assert_eq!(told("mail"), [0.0, 2.0, 0.0]);
    })
    .await;
}

//! Removing runs of a tree, by hand or by retention: no child loses its parent, and no parent loses the result of its child.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{RetentionPolicy, Runtime, SweepLimits};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::CheckpointStore;
use ferrata_testing::{Fault, FaultPlan, FaultStore, ManualClock};
use tokio::sync::Notify;

use super::cost::Counting;
use super::family::*;
use super::world::World;

/// Purges all runs that have ended. Returns their number.
async fn sweep(runtime: &Runtime) -> u64 {
    let mut policy = RetentionPolicy::keep_all();
    for status in [RunStatus::Completed, RunStatus::Failed, RunStatus::Cancelled] {
        policy = policy.purge_after(status, Duration::ZERO);
    }
    let would = runtime.sweep(&policy, SweepLimits::default(), true).await.unwrap();
    let report = runtime.sweep(&policy, SweepLimits::default(), false).await.unwrap();
    assert!(report.failed.is_empty(), "{:?}", report.failed);
    assert!(would.purged >= report.purged, "a dry run must list the runs that the sweep removes");
    report.purged
}

async fn is_there(world: &World, run: &str) -> bool {
    world.store.head(&key(run)).await.unwrap().is_some()
}

/// Guarantees: CHILD-14.
#[tokio::test]
async fn purge_refuses_parent_with_active_child() {
    let world = World::new();
    let (child, runtime) = (gate(), world.process().await);
    let graph = parent(&child, "yes");
    served(&runtime, &[&graph, &child]);
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let child_run = only_child_of(&world, "p").await.run;
    let refused = runtime.purge(&key("p")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongStatus);
    assert!(refused.to_string().contains(&child_run.to_string()), "{refused}");
    // Follow the advice of the error: cancel the run, then purge it.
    runtime.cancel(&key("p"), "no need").await.unwrap();
    until(&world, &key("p"), RunStatus::Cancelled).await;
    runtime.purge(&key("p")).await.unwrap();
    assert_eq!(
        status(&world, &child_run).await,
        RunStatus::Cancelled,
        "ended runs stay until they are removed"
    );
    runtime.purge(&child_run).await.unwrap();
}

/// Guarantees: CHILD-14.
#[tokio::test]
async fn a_parent_is_purged_when_its_child_was() {
    let world = World::new();
    let (child, runtime) = (gate(), world.process().await);
    let graph = parent(&child, "yes");
    served(&runtime, &[&child]);
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let child_run = only_child_of(&world, "p").await.run;
    runtime.purge(&child_run).await.unwrap();
    runtime.purge(&key("p")).await.unwrap();
    assert!(!is_there(&world, "p").await);
}

/// A paused parent cannot note the result of its completed child. A purge of the child is refused, because the parent would lose the result.
///
/// Guarantees: CHILD-14.
#[tokio::test]
async fn purge_refuses_child_before_parent_notes_end() {
    let world = World::new();
    let (child, runtime) = (gate(), world.process().await);
    let graph = parent(&child, "yes");
    served(&runtime, &[&graph, &child]);
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    runtime.pause(&key("p"), "lunch").await.unwrap();
    until(&world, &key("p"), RunStatus::Interrupted).await;
    let child_run = only_child_of(&world, "p").await.run;
    runtime.unpause(&child_run).await.unwrap();
    runtime.respond(&child_run, "ok", Answer::accept(true).unwrap()).await.unwrap();
    until(&world, &child_run, RunStatus::Completed).await;
    assert_eq!(sweep(&runtime).await, 0);
    let refused = runtime.purge(&child_run).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongStatus);
    assert!(refused.to_string().contains("default/p"), "{refused}");
    runtime.unpause(&key("p")).await.unwrap();
    until(&world, &key("p"), RunStatus::Completed).await;
    assert_eq!(sweep(&runtime).await, 2, "no run needs the purged runs any more");
}

/// Guarantees: CHILD-14.
#[tokio::test]
async fn purge_refuses_failed_parent_with_active_children() {
    let world = World::new();
    let (child, runtime) = (gate(), world.process().await);
    let of = child.clone();
    let graph = Graph::<Context>::builder("parent")
        .node("begin", async |_cx, s| Ok(s))
        .node(
            "wait",
            using!(of; cx, s => {
                cx.child(&of, with(1)).id("c").await?;
                Ok(s)
            }),
        )
        .node("fail", async |cx, s| {
            cx.sleep(Duration::from_secs(1)).await?;
            if true { Err("no".into()) } else { Ok(s) }
        })
        .entry("begin")
        .edge("begin", "wait")
        .edge("begin", "fail")
        .build()
        .unwrap();
    served(&runtime, &[&graph, &child]);
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until(&world, &key("p"), RunStatus::Failed).await;
    until(&world, &key("c"), RunStatus::Interrupted).await;
    assert_eq!(sweep(&runtime).await, 0, "a retry of the parent must continue with the same child");
    runtime.cancel(&key("c"), "no need").await.unwrap();
    let first = runtime.check_purge(&[key("c"), key("p")]).await.unwrap_err();
    assert!(first.kind() == ErrorKind::WrongStatus && first.run() == Some(&key("c")), "{first}");
    runtime.check_purge(&[key("p"), key("c")]).await.unwrap();
    assert_eq!(sweep(&runtime).await, 1, "the purge removes the parent, and the child that it kept");
    assert_eq!(sweep(&runtime).await, 1);
}

/// The process dies after the child's start, and before the parent's log confirms the start. A purge of the child is refused, because the parent
/// would start it again.
///
/// Guarantees: CHILD-14.
#[tokio::test]
async fn purge_refuses_child_before_parent_knows_start() {
    let world = World::new();
    let (child, graph) = (gate(), parent(&gate(), "yes"));
    let (store, mortal) = world.mortal().await;
    // These are the writes: the parent's start, its note, and the child's start.
    store.plan(2, Fault::CrashAfter);
    drop(world.pass(async { mortal.start(&graph, Context::new()).id("p").await }).await);
    let there = async {
        while children_of(&world, "p").await.is_empty() || !store.is_crashed() {
            tokio::task::yield_now().await;
        }
    };
    world.pass(there).await;
    let operator = world.process().await;
    let child_run = only_child_of(&world, "p").await.run;
    let refused = operator.purge(&child_run).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongStatus);
    assert!(refused.to_string().contains("would start it again"), "{refused}");
    served(&operator, &[&child, &graph]);
    until_asleep(&world, &key("p")).await;
    operator.purge(&child_run).await.unwrap();
    until(&world, &key("p"), RunStatus::Failed).await;
    assert_eq!(children_of(&world, "p").await, []);
}

/// A child with a chosen id was purged, and an application started another run under this id. The parent gets no result of that run, and does not
/// cancel it.
///
/// Guarantees: CHILD-5.
#[tokio::test]
async fn parent_ignores_run_with_reused_child_id() {
    for cancels in [false, true] {
        let world = World::new();
        let (child, runtime) = (gate(), world.process().await);
        let of = child.clone();
        let graph = Graph::<Context>::builder("parent").node(
            "wait",
            using!(of; cx, s => {
                cx.child(&of, with(1)).id("c").await?;
                Ok(s)
            }),
        );
        let graph = graph.entry("wait").build().unwrap();
        served(&runtime, &[&child]);
        runtime.start(&graph, Context::new()).id("p").await.unwrap();
        until_asleep(&world, &key("p")).await;
        runtime.purge(&key("c")).await.unwrap();
        let stranger = runtime.start(&child, with(1)).id("c").await.unwrap();
        until(&world, &key("c"), RunStatus::Interrupted).await;
        if cancels {
            runtime.cancel(&key("p"), "no need").await.unwrap();
        }
        served(&runtime, &[&graph]);
        let wanted = if cancels { RunStatus::Cancelled } else { RunStatus::Failed };
        until(&world, &key("p"), wanted).await;
        assert_eq!(
            status(&world, &key("c")).await,
            RunStatus::Interrupted,
            "the other run must not affect the parent"
        );
        runtime.respond(&key("c"), "ok", Answer::accept(true).unwrap()).await.unwrap();
        world.pass(stranger.completed()).await.unwrap();
    }
}

/// Guarantees: CHILD-13.
#[tokio::test]
async fn a_fork_of_a_child_is_nobodys_child() {
    let world = World::new();
    let (child, runtime) = (gate(), world.process().await);
    let graph = parent(&child, "yes");
    served(&runtime, &[&graph, &child]);
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let child_run = only_child_of(&world, "p").await;
    let reserved = runtime.fork(&child_run.run, child_run.seq).id("g").label("ferrata.parent", "p").await;
    assert_eq!(reserved.unwrap_err().kind(), ErrorKind::Invalid);
    runtime.fork(&child_run.run, child_run.seq).id("f").await.unwrap();
    until(&world, &key("f"), RunStatus::Interrupted).await;
    runtime.respond(&child_run.run, "ok", Answer::accept(true).unwrap()).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    assert_eq!(children_of(&world, "p").await.len(), 1);
    runtime.respond(&key("f"), "ok", Answer::accept(false).unwrap()).await.unwrap();
    until(&world, &key("f"), RunStatus::Completed).await;
}

/// A parent whose node starts a child only in its first execution. A gate follows, so that the parent stays active.
fn fickle(child: &Graph<Context>, attempts: u32) -> Graph<Context> {
    let (child, ran) = (child.clone(), Arc::new(AtomicU32::new(0)));
    Graph::<Context>::builder("parent")
        .node(
            "wait",
            using!(child, ran; cx, s => {
                if ran.fetch_add(1, Ordering::SeqCst) == 0 {
                    cx.child(&child, with(1)).id("c").await?;
                }
                Ok(s)
            }),
        )
        .timeout(Duration::from_secs(20))
        .retry(RetryPolicy::none().with_attempts(attempts))
        .gate("more", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("more", yes))
        .entry("wait")
        .edge("wait", "more")
        .build()
        .unwrap()
}

/// A process stalls between the parent's note of a child and the child's start. Another process claims the parent, and its node needs no child. If
/// the first process then starts the child, the child is cancelled.
///
/// Guarantees: CHILD-10.
#[tokio::test]
async fn late_child_start_of_suspended_process_is_cancelled() {
    for hears in [true, false] {
        starts_too_late(hears).await;
    }
}

/// `hears`: whether the first process gets a notice of the parent's new owner before the start is done. If not, its next write fails.
async fn starts_too_late(hears: bool) {
    let world = World::new();
    let child = gate();
    let graph = fickle(&child, 1);
    let inner: Arc<dyn CheckpointStore> = match hears {
        true => Arc::new(world.store.clone()),
        false => Arc::new(Counting::of(&world.store)),
    };
    let store = Arc::new(FaultStore::new(inner, FaultPlan::new()));
    let suspended = Runtime::builder_with(Arc::clone(&store) as _).clock(Arc::new(ManualClock::default()));
    let suspended = suspended.build().await.unwrap();
    let (reached, resumed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (at, until_resumed) = (Arc::clone(&reached), Arc::clone(&resumed));
    store.before(2, async move {
        at.notify_one();
        until_resumed.notified().await;
    });
    suspended.start(&graph, Context::new()).id("p").await.unwrap();
    reached.notified().await;
    let second = world.process().await;
    served(&second, &[&graph]);
    until(&world, &key("p"), RunStatus::Interrupted).await;
    assert!(!is_there(&world, "c").await);
    resumed.notify_one();
    until(&world, &key("c"), RunStatus::Cancelled).await;
    assert_eq!(status(&world, &key("p")).await, RunStatus::Interrupted);
}

/// The start of a child takes longer than the node's timeout. The next attempt needs no child, and the started child is cancelled.
///
/// Guarantees: CHILD-10.
#[tokio::test]
async fn child_start_outliving_attempt_is_cancelled() {
    let world = World::new();
    let child = gate();
    let graph = fickle(&child, 2);
    let (store, runtime) = world.mortal().await;
    let (reached, resumed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (at, until_resumed) = (Arc::clone(&reached), Arc::clone(&resumed));
    store.before(2, async move {
        at.notify_one();
        until_resumed.notified().await;
    });
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    reached.notified().await;
    world.pass(world_seconds(&world, 22)).await;
    assert!(!is_there(&world, "c").await);
    resumed.notify_one();
    until(&world, &key("p"), RunStatus::Interrupted).await;
    assert_eq!(status(&world, &key("c")).await, RunStatus::Cancelled);
}

/// Waits until `seconds` have passed on the test's clock.
async fn world_seconds(world: &World, seconds: u64) {
    use ferrata_core::Clock as _;
    let until = world.clock.now().plus(Duration::from_secs(seconds));
    while world.clock.now() < until {
        tokio::task::yield_now().await;
    }
}

/// A cancellation of a child is delivered by every later claimer of the parent, if the child's owner was dead when the first claimer recorded it.
///
/// Guarantees: CHILD-10.
#[tokio::test]
async fn orphan_child_of_dead_process_is_cancelled() {
    let world = World::new();
    let child = Graph::<Context>::builder("works")
        .node("work", async |_cx, s| {
            std::future::pending::<()>().await;
            Ok(s)
        })
        .entry("work")
        .build()
        .unwrap();
    let (store, mortal) = world.mortal().await;
    mortal.start(&parent(&child, "number"), Context::new()).id("p").await.unwrap();
    let works = async {
        while children_of(&world, "p").await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    world.pass(works).await;
    let child_run = only_child_of(&world, "p").await.run;
    store.crash();
    // Purge the parent directly, like a purge that ran before the child existed, after another process had claimed the parent.
    world.store.purge(&key("p"), None).await.unwrap();
    let second = world.process().await;
    served(&second, &[&child]);
    until(&world, &child_run, RunStatus::Cancelled).await;
}

//! Children and their parent when the parent ends, fails, forks or is paused.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::NodeContext;
use ferrata_core::record::{Record, RunStatus};
use ferrata_core::runtime::{OnParentEnd, Outcome, Position};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{At, CheckpointStore, RunHead};

use super::family::*;
use super::world::World;

/// Guarantees: CHILD-10.
#[tokio::test]
async fn a_parent_is_cancelled_when_its_children_are() {
    let world = World::new();
    let (child, runtime) = (gate(), world.process().await);
    let graph = parent(&child, "yes");
    served(&runtime, &[&graph, &child]);
    for asleep in [false, true] {
        let id = format!("p-{asleep}");
        let run = runtime.start(&graph, Context::new()).id(&id).await.unwrap();
        if asleep {
            until_asleep(&world, &key(&id)).await;
        } else {
            let begun = async {
                while children_of(&world, &id).await.iter().all(|head| head.status != RunStatus::Interrupted)
                {
                    tokio::task::yield_now().await;
                }
            };
            world.pass(begun).await;
        }
        runtime.cancel(&key(&id), "no need").await.unwrap();
        until(&world, &key(&id), RunStatus::Cancelled).await;
        let child_run = only_child_of(&world, &id).await;
        assert_eq!(child_run.status, RunStatus::Cancelled, "asleep: {asleep}");
        let error = world.pass(run.completed()).await.unwrap_err();
        assert!(error.to_string().ends_with("no need"), "{error}");
    }
}

/// Guarantees: CHILD-10.
#[tokio::test]
async fn child_ends_with_activation_unless_left() {
    let world = World::new();
    let (runtime, child) = (world.process().await, gate());
    let graph = Graph::<Context>::builder("parent")
        .node("start", using!(child; cx, s => {
            cx.child(&child, with(1)).id("bound").start().await?;
            cx.child(&child, with(1)).id("left").name("left").on_parent_end(OnParentEnd::Leave).start().await?;
            cx.spawn(&child, with(1)).id("alone").name("alone").await?;
            Ok(s)
        }))
        .entry("start")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    world.pass(run.completed()).await.unwrap();
    // The child was cancelled before the end of the parent's activation was recorded.
    assert_eq!(status(&world, &key("bound")).await, RunStatus::Cancelled);
    for run in ["left", "alone"] {
        until(&world, &key(run), RunStatus::Interrupted).await;
    }
}

/// Guarantees: CHILD-10.
#[tokio::test]
async fn failure_cancels_siblings_before_its_record() {
    let world = World::new();
    let (runtime, asking) = (world.process().await, gate());
    let failing = Graph::<Context>::builder("failing")
        .node("fail", async |_cx, s| if true { Err("no".into()) } else { Ok(s) })
        .entry("fail")
        .build()
        .unwrap();
    let graph = Graph::<Context>::builder("parent")
        .node(
            "wait",
            using!(asking, failing; cx, s => {
                let one = cx.child(&asking, with(1)).id("sibling").start().await?;
                let two = cx.child(&failing, with(1)).id("fails").start().await?;
                tokio::try_join!(one.result(), two.result())?;
                Ok(s)
            }),
        )
        .entry("wait")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    let Outcome::Failed { failure, .. } = world.pass(run.wait()).await.unwrap() else { panic!() };
    assert_eq!(failure.message, "the child default/fails failed");
    assert_eq!(status(&world, &key("sibling")).await, RunStatus::Cancelled);
}

/// A child that fails `fails` times, a sibling that succeeds, and counters of their executions.
fn flaky(fails: u32) -> (Graph<Context>, Arc<AtomicU32>) {
    let ran = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&ran);
    let graph = Graph::<Context>::builder("flaky")
        .node(
            "try",
            using!(count; _cx, s => {
                if count.fetch_add(1, Ordering::SeqCst) < fails {
                    return Err("not yet".into());
                }
                Ok(s)
            }),
        )
        .entry("try")
        .build()
        .unwrap();
    (graph, ran)
}

fn pair(one: &Graph<Context>, two: &Graph<Context>, attempts: u32) -> Graph<Context> {
    let (one, two) = (one.clone(), two.clone());
    Graph::<Context>::builder("parent")
        .node(
            "wait",
            using!(one, two; cx, s => {
                cx.child(&one, with(1)).name("one").await?;
                cx.child(&two, with(1)).name("two").await?;
                Ok(s)
            }),
        )
        .retry(RetryPolicy::none().with_attempts(attempts).with_delay(Duration::from_millis(1)))
        .entry("wait")
        .build()
        .unwrap()
}

/// Guarantees: CHILD-3.
#[tokio::test]
async fn next_attempt_restarts_only_failed_child() {
    let world = World::new();
    let runtime = world.process().await;
    let ((steady, steadily), (failing, tried)) = (flaky(0), flaky(1));
    let graph = pair(&steady, &failing, 2);
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    world.pass(run.completed()).await.unwrap();
    assert_eq!((steadily.load(Ordering::SeqCst), tried.load(Ordering::SeqCst)), (1, 2));
    let children = children_of(&world, "p").await;
    assert_eq!(children.len(), 3, "the failed child must stay as it is for later inspection");
    assert_eq!(children.iter().filter(|child| child.status == RunStatus::Failed).count(), 1);
}

/// Guarantees: CHILD-3.
#[tokio::test]
async fn parent_retry_restarts_only_failed_child() {
    let world = World::new();
    let runtime = world.process().await;
    let ((steady, steadily), (failing, tried)) = (flaky(0), flaky(2));
    let graph = pair(&steady, &failing, 1);
    served(&runtime, &[&graph]);
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    for _ in 0..2 {
        until(&world, &key("p"), RunStatus::Failed).await;
        runtime.retry(&key("p")).await.unwrap();
    }
    until(&world, &key("p"), RunStatus::Completed).await;
    drop(run);
    assert_eq!((steadily.load(Ordering::SeqCst), tried.load(Ordering::SeqCst)), (1, 3));
}

/// Guarantees: CHILD-13.
#[tokio::test]
async fn fork_keeps_child_results_and_restarts_active_children() {
    let world = World::new();
    let (runtime, done, asking) = (world.process().await, double(), gate());
    let (first, second) = (done.clone(), asking.clone());
    let graph = Graph::<Context>::builder("parent")
        .node(
            "wait",
            using!(first, second; cx, mut s => {
                let one = cx.child(&first, with(1)).await?;
                let two = cx.child(&second, with(1)).await?;
                s.set("got", (one.get::<u32>("number")?, two.get::<bool>("yes")?))?;
                Ok(s)
            }),
        )
        .entry("wait")
        .build()
        .unwrap();
    served(&runtime, &[&graph, &done, &asking]);
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let head = world.store.head(&key("p")).await.unwrap().unwrap();
    runtime.fork(&key("p"), head.seq).id("f").await.unwrap();
    let resumed = runtime.resume(&graph, key("f")).await.ok();
    let asked = async {
        while children_of(&world, "f").await.iter().all(|child| child.status != RunStatus::Interrupted) {
            tokio::task::yield_now().await;
        }
    };
    world.pass(asked).await;
    drop(resumed);
    let (ours, theirs) = (children_of(&world, "p").await, children_of(&world, "f").await);
    assert_eq!(
        (ours.len(), theirs.len()),
        (2, 1),
        "the fork keeps the result of the first child, and has its own second child"
    );
    let asks = |child: &&RunHead| child.facts.workflow.as_str() == "gate";
    let ours = ours.iter().find(asks).unwrap();
    assert_ne!(ours.run, theirs[0].run, "a fork must not share an active child");
    for (child, answer) in [(&ours.run, true), (&theirs[0].run, false)] {
        runtime.respond(child, "ok", Answer::accept(answer).unwrap()).await.unwrap();
    }
    for (run, answer) in [("p", true), ("f", false)] {
        until(&world, &key(run), RunStatus::Completed).await;
        let state = runtime.checkpoint(&key(run), Position::Latest).await.unwrap();
        let got = state.state.to_string();
        assert!(got.contains(&format!("[2,{answer}]")), "{run}: {got}");
    }
}

/// A fork from before the child's end starts its own child. A fork from after it keeps the child's result.
///
/// Guarantees: CHILD-13.
#[tokio::test]
async fn fork_never_shares_active_child() {
    for has_ended in [false, true] {
        let world = World::new();
        let (runtime, child) = (world.process().await, gate());
        let graph = parent(&child, "yes");
        served(&runtime, &[&graph, &child]);
        runtime.start(&graph, Context::new()).id("p").await.unwrap();
        until_asleep(&world, &key("p")).await;
        let original = only_child_of(&world, "p").await.run;
        if has_ended {
            runtime.respond(&original, "ok", Answer::accept(true).unwrap()).await.unwrap();
            until(&world, &key("p"), RunStatus::Completed).await;
        }
        let log = world.store.load(&key("p"), At::Latest).await.unwrap().unwrap();
        let is_told = |record: &Record| String::from_utf8_lossy(&record.body).contains("#told1.gate");
        let told = log.iter().find(|record| is_told(record)).map(|record| record.header.seq);
        assert_eq!((told.is_some(), log[0].header.seq.get()), (has_ended, 0));
        for record in log.iter().filter(|record| !record.header.status.is_finished()) {
            let (seq, id) = (record.header.seq, format!("f{}", record.header.seq));
            runtime.fork(&key("p"), seq).id(&id).await.unwrap();
            let keeps = told.is_some_and(|told| told <= seq);
            if !keeps {
                let asks = async {
                    while children_of(&world, &id)
                        .await
                        .iter()
                        .all(|child| child.status != RunStatus::Interrupted)
                    {
                        tokio::task::yield_now().await;
                    }
                };
                world.pass(asks).await;
                let own = only_child_of(&world, &id).await.run;
                assert_ne!(own, original, "at {seq}");
                runtime.respond(&own, "ok", Answer::accept(true).unwrap()).await.unwrap();
            }
            until(&world, &key(&id), RunStatus::Completed).await;
            assert_eq!(children_of(&world, &id).await.len(), usize::from(!keeps), "at {seq}");
        }
        let wanted = if has_ended { RunStatus::Completed } else { RunStatus::Interrupted };
        assert_eq!(status(&world, &original).await, wanted, "a fork must not change the child");
    }
}

#[tokio::test]
async fn unpaused_parent_receives_child_result() {
    let world = World::new();
    let (runtime, child) = (world.process().await, gate());
    let graph = Graph::<Context>::builder("parent")
        .node(
            "wait",
            using!(child; cx, s => {
                // A child that the parent leaves does not take over the parent's pause.
                cx.child(&child, with(1)).on_parent_end(OnParentEnd::Leave).await?;
                Ok(s)
            }),
        )
        .entry("wait")
        .build()
        .unwrap();
    served(&runtime, &[&graph, &child]);
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    runtime.pause(&key("p"), "lunch").await.unwrap();
    let child_run = only_child_of(&world, "p").await;
    runtime.respond(&child_run.run, "ok", Answer::accept(true).unwrap()).await.unwrap();
    until(&world, &child_run.run, RunStatus::Completed).await;
    world.clock.advance(HOUR);
    assert_eq!(status(&world, &key("p")).await, RunStatus::Interrupted);
    runtime.unpause(&key("p")).await.unwrap();
    until(&world, &key("p"), RunStatus::Completed).await;
}

/// Guarantees: CHILD-10.
#[tokio::test]
async fn child_start_under_cancelled_parent_is_cancelled() {
    let world = World::new();
    let (child, graph) = (gate(), parent(&gate(), "yes"));
    let (first, second) = (world.process().await, world.process().await);
    first.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let child_run = only_child_of(&world, "p").await;
    // Purge the parent, as if the child had started after the parent's cancellation.
    world.store.purge(&key("p"), None).await.unwrap();
    served(&second, &[&child]);
    second.respond(&child_run.run, "ok", Answer::accept(true).unwrap()).await.unwrap();
    until(&world, &child_run.run, RunStatus::Cancelled).await;
}

#[tokio::test]
async fn parent_continues_after_code_change_elsewhere() {
    let world = World::new();
    let (child, runtime) = (gate(), world.process().await);
    let build = |version: &str, attempts: u32| {
        let child = child.clone();
        Graph::<Context>::builder("parent")
            .version(version)
            .node(
                "wait",
                using!(child; cx, s => {
                    cx.child(&child, with(1)).await?;
                    Ok(s)
                }),
            )
            .node("end", async |_cx, s| Ok(s))
            .retry(RetryPolicy::none().with_attempts(attempts))
            .entry("wait")
            .edge("wait", "end")
            .build()
            .unwrap()
    };
    let (old, new) = (build("1", 1), build("2", 3));
    runtime.start(&old, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let child_run = only_child_of(&world, "p").await;
    let later = world.process().await;
    served(&later, &[&new, &child]);
    later.respond(&child_run.run, "ok", Answer::accept(true).unwrap()).await.unwrap();
    until(&world, &key("p"), RunStatus::Completed).await;
    assert_eq!(children_of(&world, "p").await.len(), 1);
}

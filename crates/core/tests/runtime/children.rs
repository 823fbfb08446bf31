//! Child runs: the results that a parent receives, for every way in which parent or child can end.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::graph::{Effect, Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{ChildError, Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, Page, RunQuery};
use ferrata_core::{Error, ErrorKind, NodeName};
use ferrata_testing::{Fault, SeqIds};

use super::family::*;
use super::world::World;

/// Guarantees: CHILD-21.
#[tokio::test]
async fn trivial_child_costs_four_extra_records() {
    let world = World::new();
    let (runtime, child) = (world.process().await, double());
    let graph = parent(&child, "number");
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<u32>("got").unwrap(), Some(42));
    let child = only_child_of(&world, "p").await;
    assert_eq!(child.status, RunStatus::Completed);
    // Without the child there would be these records: the parent's start, and the nodes of both runs.
    let nodes = 3;
    let beyond = records(&world, &key("p")).await + records(&world, &child.run).await - nodes;
    assert_eq!(beyond, 4, "the note, the child's start, the note of its start, and the note of its result");
}

#[tokio::test]
async fn children_run_concurrently_and_return_states() {
    let world = World::new();
    let (runtime, child) = (world.process().await, double());
    let graph = Graph::<Context>::builder("parent")
        .node("wait", using!(child; cx, mut s => {
            let one = cx.child(&child, with(1)).name("one").start().await?;
            let two = cx.child(&child, with(2)).name("two");
            let three = cx.child(&child, with(3)).name("three");
            let (two, three) = tokio::join!(two, three);
            let all = [one.result().await?, two?, three?];
            let numbers: Result<Vec<_>, Error> = all.iter().map(|state| state.get::<u32>("number")).collect();
            s.set("numbers", numbers?)?;
            Ok(s)
        }))
        .entry("wait")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<Vec<u32>>("numbers").unwrap(), Some(vec![2, 4, 6]));
    assert_eq!(children_of(&world, "p").await.len(), 3);
}

/// The log of the parent names each child before the child starts.
///
/// Guarantees: CHILD-15.
#[tokio::test]
async fn next_attempt_starts_child_dropped_before_note() {
    let world = World::new();
    let (runtime, child) = (world.process().await, double());
    let graph = Graph::<Context>::builder("parent")
        .node(
            "spawn",
            using!(child; cx, mut s => {
                let wanted = cx.spawn(&child, with(1)).id("kid");
                if cx.attempt() == 1 {
                    let is_started = tokio::select! {
                        biased;
                        started = wanted => started.is_ok(),
                        () = std::future::ready(()) => false,
                    };
                    cx.sleep(HOUR).await?;
                    return Err(format!("not started: {is_started}").into());
                }
                s.set("started", wanted.await?.run.to_string())?;
                Ok(s)
            }),
        )
        .retry(RetryPolicy::none().with_attempts(2).with_delay(Duration::from_millis(1)))
        .entry("spawn")
        .build()
        .unwrap();
    runtime.serve(&graph).unwrap();
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    assert!(world.store.head(&key("kid")).await.unwrap().is_none());
    world.pass(run.completed()).await.unwrap();
    until(&world, &key("kid"), RunStatus::Completed).await;
}

/// Guarantees: CHILD-19.
#[tokio::test]
async fn two_children_of_one_name_are_refused() {
    let world = World::new();
    let (runtime, child) = (world.process().await, double());
    let graph = Graph::<Context>::builder("parent")
        .node(
            "wait",
            using!(child; cx, s => {
                let first = cx.child(&child, with(1)).start().await?;
                let second = cx.child(&child, with(2)).start().await.unwrap_err();
                assert!(second.to_string().contains("`double`"), "{second}");
                first.await?;
                Ok(s)
            }),
        )
        .entry("wait")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    world.pass(run.completed()).await.unwrap();
}

/// A child id or name that leaves no room for the suffix of a later start is refused. The limits are the same as for steps.
///
/// Guarantees: CHILD-19.
#[tokio::test]
async fn overlong_child_names_are_refused() {
    let world = World::new();
    let (runtime, child) = (world.process().await, double());
    let graph = Graph::<Context>::builder("parent")
        .node(
            "wait",
            using!(child; cx, s => {
                let refused = |error: ChildError, what: &str| assert!(error.to_string().contains(what), "{error}");
                let id = "x".repeat(118);
                refused(cx.child(&child, with(1)).id(&id).await.unwrap_err(), "use at most 117");
                refused(cx.child(&child, with(1)).name("").await.unwrap_err(), "use 1 to 64 of");
                let group = cx.children(&child, [with(1), with(2)]).name("x".repeat(63));
                refused(group.await.unwrap_err(), "use 1 to 62 of");
                // A spawned run gets no suffix, so its id may be longer.
                cx.spawn(&child, with(1)).id("x".repeat(128)).name("spawned").await?;
                Ok(s)
            }),
        )
        .entry("wait")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    world.pass(run.completed()).await.unwrap();
}

/// Guarantees: CHILD-4.
#[tokio::test]
async fn child_failure_names_all_runs_and_nodes() {
    let world = World::new();
    let runtime = world.process().await;
    let leaf = Graph::<Context>::builder("leaf")
        .node("lint", async |_cx, s| {
            if true {
                return Err("no such file".into());
            }
            Ok(s)
        })
        .entry("lint")
        .build()
        .unwrap();
    let between = leaf.clone();
    let middle = Graph::<Context>::builder("middle")
        .node(
            "review",
            using!(between; cx, s => {
                cx.child(&between, with(1)).id("leaf-1").await?;
                Ok(s)
            }),
        )
        .entry("review")
        .build()
        .unwrap();
    let below = middle.clone();
    let graph = Graph::<Context>::builder("top")
        .node("publish", using!(below; cx, _s => {
            let error = cx.child(&below, with(1)).id("middle-1").await.unwrap_err();
            let ChildError::Failed { run, cause } = &error else { panic!("{error}") };
            assert_eq!((run, cause.failure().node.as_ref().map(NodeName::as_str)), (&key("middle-1"), Some("review")));
            assert!(error.source().is_some());
            Err::<Draft<Context>, NodeError>(error.into())
        }))
        .entry("publish")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    let Outcome::Failed { failure, .. } = world.pass(run.wait()).await.unwrap() else { panic!() };
    let told = std::iter::once(failure.message.as_str()).chain(failure.causes.iter().map(String::as_str));
    let told: Vec<_> = told.collect();
    let wanted = [
        "the child default/middle-1 failed",
        "node review: the child default/leaf-1 failed",
        "node lint: no such file",
    ];
    assert_eq!(told, wanted);
    assert_eq!(failure.node.as_ref().map(NodeName::as_str), Some("publish"));
}

/// Guarantees: CHILD-6.
#[tokio::test]
async fn waiting_parent_frees_memory_until_child_ends() {
    let world = World::new();
    let (child, answered) = (gate(), Answer::accept(true).unwrap());
    let graph = parent(&child, "yes");
    let (first, second) = (world.process().await, world.process().await);
    served(&second, &[&graph]);
    let run = first.start(&graph, Context::new()).id("p").await.unwrap();
    let Outcome::Sleeping { .. } = world.pass(run.wait()).await.unwrap() else { panic!() };
    let child_run = only_child_of(&world, "p").await;
    assert_eq!(child_run.status, RunStatus::Interrupted);
    // The third process drives the child and does not serve the workflow of the parent.
    let third = world.process().await;
    served(&third, &[&child]);
    let before = records(&world, &key("p")).await;
    third.respond(&child_run.run, "ok", answered).await.unwrap();
    until(&world, &child_run.run, RunStatus::Completed).await;
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<bool>("got").unwrap(), Some(true));
    let since = records(&world, &key("p")).await - before;
    assert!(
        since <= 6,
        "{since} records: expected the notice, the wake-up, the claim, the completion, and at most two polls"
    );
}

/// Guarantees: CHILD-2.
#[tokio::test]
async fn an_end_that_nobody_told_is_found() {
    let world = World::new();
    let child = gate();
    let graph = parent(&child, "yes");
    let (first, second) = (world.process().await, world.process().await);
    let run = first.start(&graph, Context::new()).id("p").await.unwrap();
    world.pass(run.wait()).await.unwrap();
    let child_run = only_child_of(&world, "p").await;
    // The process that drives the child crashes when it writes the child's end, so no process notifies the parent.
    let (store, mortal) = world.mortal().await;
    mortal.respond(&child_run.run, "ok", Answer::accept(true).unwrap()).await.unwrap();
    store.plan(store.operations() + 1, Fault::CrashAfter);
    let before = records(&world, &key("p")).await;
    let _resumed = mortal.resume(&child, &child_run.run).await.unwrap();
    until(&world, &child_run.run, RunStatus::Completed).await;
    assert!(store.is_crashed());
    assert_eq!(records(&world, &key("p")).await, before, "the parent gets no notice");
    served(&second, &[&graph]);
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<bool>("got").unwrap(), Some(true));
}

/// Guarantees: CHILD-1.
#[tokio::test]
async fn child_id_derives_from_parent_generation() {
    let mut ids = Vec::new();
    for life in [1, 1, 2] {
        let (world, child) = (World::new(), double());
        let builder = Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _);
        let runtime = builder.ids(Arc::new(SeqIds::new(life))).build().await.unwrap();
        let run = runtime.start(&parent(&child, "number"), Context::new()).id("p").await.unwrap();
        world.pass(run.completed()).await.unwrap();
        ids.push(only_child_of(&world, "p").await.run);
    }
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0], ids[2], "the parent's next generation must have another child");
}

/// Guarantees: CHILD-2.
#[tokio::test]
async fn child_polls_back_off_and_never_park_parent() {
    let world = World::new();
    let child = gate();
    let graph = parent(&child, "yes");
    let runtime = world.process().await;
    served(&runtime, &[&graph, &child]);
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let before = records(&world, &key("p")).await;
    let child_run = only_child_of(&world, "p").await;
    for _ in 0..24 * 4 {
        world.clock.advance(HOUR);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    let looks = records(&world, &key("p")).await - before;
    assert!((1..=24 * 4 + 16).contains(&looks), "{looks} polls in four days");
    assert_eq!(status(&world, &key("p")).await, RunStatus::InProgress);
    runtime.respond(&child_run.run, "ok", Answer::accept(true).unwrap()).await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<bool>("got").unwrap(), Some(true));
}

#[tokio::test]
async fn parent_sees_manually_purged_child() {
    let world = World::new();
    let child = gate();
    let graph = parent(&child, "yes");
    let runtime = world.process().await;
    served(&runtime, &[&graph, &child]);
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let child_run = only_child_of(&world, "p").await;
    runtime.purge(&child_run.run).await.unwrap();
    let error = world.pass(run.completed()).await.unwrap_err();
    assert!(error.to_string().contains("was purged"), "{error}");
    assert_eq!(children_of(&world, "p").await, [], "a cancelled child must not be started again");
}

/// Guarantees: CHILD-19.
#[tokio::test]
async fn second_parent_cannot_use_same_child_id() {
    let world = World::new();
    let (runtime, child) = (world.process().await, double());
    let graph = Graph::<Context>::builder("parent")
        .node(
            "wait",
            using!(child; cx, s => {
                cx.child(&child, with(1)).id("shared").await?;
                Ok(s)
            }),
        )
        .entry("wait")
        .build()
        .unwrap();
    let one = runtime.start(&graph, Context::new()).id("one").await.unwrap();
    world.pass(one.completed()).await.unwrap();
    let two = runtime.start(&graph, Context::new()).id("two").await.unwrap();
    let error = world.pass(two.completed()).await.unwrap_err();
    assert!(
        error.to_string().contains("another run, which this activation did not start, has this id"),
        "{error}"
    );
    // A run that somebody else started is not a child, even if its workflow and input are equal.
    runtime.start(&double(), with(1)).id("other").await.unwrap();
    assert_eq!(children_of(&world, "two").await, []);
}

/// Guarantees: CHILD-18.
#[tokio::test]
async fn callers_cannot_set_parent_labels() {
    let world = World::new();
    let runtime = world.process().await;
    let request = runtime.start(&double(), with(1)).label("ferrata.parent", "p");
    assert_eq!(request.await.unwrap_err().kind(), ErrorKind::Invalid);
}

/// A workflow whose node starts the same workflow as a child.
fn endless() -> Graph<Context> {
    fn again(depth: u32) -> Graph<Context> {
        Graph::<Context>::builder("endless")
            .node(
                "again",
                using!(; cx, s => {
                    cx.child(&again(depth + 1), with(depth)).await?;
                    Ok(s)
                }),
            )
            .entry("again")
            .build()
            .unwrap()
    }
    again(1)
}

/// Guarantees: CHILD-19.
#[tokio::test]
async fn endless_self_start_fails_at_depth_limit() {
    let world = World::new();
    let runtime = world.process().await;
    let run = runtime.start(&endless(), Context::new()).id("p").await.unwrap();
    let Outcome::Failed { failure, .. } = world.pass(run.wait()).await.unwrap() else { panic!() };
    assert!(failure.message.starts_with("the child default/endless-"), "{failure:?}");
    // The causes list all sixteen levels, with the original error at the end.
    assert_eq!(failure.causes.len(), 16, "{failure:?}");
    assert!(failure.causes[15].contains("raise `max_depth`"), "{failure:?}");
    let all = world.store.runs(&RunQuery::default(), Page::first(1_000)).await.unwrap().items;
    assert_eq!(all.len(), 17, "the first run and sixteen levels");
    let deepest = all.iter().find(|head| head.facts.labels.get("ferrata.depth") == Some("16")).unwrap();
    assert_eq!(deepest.facts.labels.get("ferrata.root"), Some("p"));
    let deepest = runtime.resume(&endless(), &deepest.run).await.unwrap_err();
    assert_eq!(deepest.kind(), ErrorKind::WrongStatus);
}

/// Guarantees: CHILD-19.
#[tokio::test]
async fn activation_cannot_exceed_child_limit() {
    let world = World::new();
    let child = double();
    let runtime = Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _).max_children(2);
    let runtime = runtime.build().await.unwrap();
    let graph = Graph::<Context>::builder("parent")
        .node(
            "wait",
            using!(child; cx, s => {
                for name in ["a", "b"] {
                    cx.child(&child, with(1)).name(name).await?;
                }
                let refused = cx.child(&child, with(1)).name("c").await.unwrap_err();
                assert!(refused.to_string().contains("max_children"), "{refused}");
                Ok(s)
            }),
        )
        .entry("wait")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    world.pass(run.completed()).await.unwrap();
}

#[tokio::test]
async fn external_node_cannot_start_child() {
    let world = World::new();
    let (runtime, child) = (world.process().await, double());
    let graph = Graph::<Context>::builder("parent")
        .node(
            "wait",
            using!(child; cx, s => {
                let refused = cx.child(&child, with(1)).await.unwrap_err();
                let ChildError::Refused(refused) = refused else { panic!("{refused}") };
                assert_eq!(refused.kind(), ErrorKind::Unsupported);
                Ok(s)
            }),
        )
        .effect(Effect::External)
        .entry("wait")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    world.pass(run.completed()).await.unwrap();
    assert_eq!(children_of(&world, "p").await, []);
}

#[tokio::test]
async fn thousand_children_of_activation_start_once() {
    let world = World::new();
    let (runtime, child) = (world.process().await, double());
    let graph = Graph::<Context>::builder("parent")
        .node(
            "wait",
            using!(child; cx, mut s => {
                let mut started = Vec::new();
                for number in 0..1_000 {
                    started.push(cx.child(&child, with(number)).name(format!("c{number}")).start().await?);
                }
                let mut sum = 0;
                for child in started {
                    sum += child.await?.get::<u32>("number")?.unwrap_or_default();
                }
                s.set("sum", sum)?;
                Ok(s)
            }),
        )
        .entry("wait")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<u32>("sum").unwrap(), Some(999 * 1_000));
    assert_eq!(children_of(&world, "p").await.len(), 1_000);
}

//! One child per item of a list, and deadlines of children.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{ChildError, OnParentEnd, Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, Page, RunQuery};

use super::family::*;
use super::flavors::on_each_runtime;
use super::world::World;

/// The number of running nodes, and its maximum.
#[derive(Clone, Default)]
struct Load(Arc<(AtomicUsize, AtomicUsize)>);

/// A graph that doubles a number in one second, and fails for 13.
fn slow(load: &Load) -> Graph<Context> {
    let load = load.clone();
    Graph::<Context>::builder("slow")
        .node(
            "double",
            using!(load; cx, mut s => {
                let (now, most) = &*load.0;
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                cx.sleep(Duration::from_secs(1)).await?;
                now.fetch_sub(1, Ordering::SeqCst);
                let number: u32 = s.get("number")?.unwrap_or_default();
                if number == 13 {
                    return Err("an unlucky number".into());
                }
                s.set("number", number * 2)?;
                Ok(s)
            }),
        )
        .entry("double")
        .build()
        .unwrap()
}

fn numbers(states: &[Context]) -> Result<Vec<u32>, NodeError> {
    states.iter().map(|state| Ok(state.get("number")?.unwrap_or_default())).collect()
}

/// A graph with one node that runs `call`.
fn over<F, Fut>(name: &str, call: F) -> Graph<Context>
where
    F: Fn(NodeContext, Draft<Context>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Draft<Context>, NodeError>> + Send + 'static,
{
    Graph::<Context>::builder(name).node("map", call).entry("map").build().unwrap()
}

/// Guarantees: CHILD-7.
#[tokio::test]
async fn map_runs_items_in_order_within_limit() {
    let (world, load) = (World::new(), Load::default());
    let (runtime, child) = (world.process().await, slow(&load));
    let graph = over(
        "parent",
        using!(child; cx, mut s => {
            let got = cx.children(&child, (20..40).map(with)).name("item").max_running(3).await?;
            s.set("got", numbers(&got)?)?;
            let none = cx.children(&child, []).name("none").await?;
            assert!(none.is_empty());
            Ok(s)
        }),
    );
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    let wanted: Vec<u32> = (20..40).map(|number| number * 2).collect();
    assert_eq!(state.get::<Vec<u32>>("got").unwrap(), Some(wanted));
    assert_eq!(load.0.1.load(Ordering::SeqCst), 3);
    assert_eq!(children_of(&world, "p").await.len(), 20);
}

#[tokio::test]
async fn the_failures_of_items_are_collected() {
    let (world, load) = (World::new(), Load::default());
    let (runtime, child) = (world.process().await, slow(&load));
    let graph = over(
        "parent",
        using!(child; cx, mut s => {
            let got = cx.children(&child, (12..15).map(with)).settle().await?;
            assert!(matches!(&got[1], Err(ChildError::Failed { run, .. }) if run.run.as_str().starts_with("slow-1-")));
            s.set("good", got.iter().filter(|item| item.is_ok()).count())?;
            Ok(s)
        }),
    );
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<u32>("good").unwrap(), Some(2));
}

#[tokio::test]
async fn first_item_failure_cancels_map() {
    let (world, load) = (World::new(), Load::default());
    let (runtime, child, asking) = (world.process().await, slow(&load), gate());
    let graph = over(
        "parent",
        using!(child, asking; cx, s => {
            let waits = cx.child(&asking, with(1)).into_future();
            let fails = cx.children(&child, (13..100).map(with)).max_running(2).into_future();
            let (_, _) = tokio::try_join!(waits, fails)?;
            Ok(s)
        }),
    );
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    let Outcome::Failed { failure, .. } = world.pass(run.wait()).await.unwrap() else { panic!() };
    assert!(failure.causes.iter().any(|cause| cause.contains("an unlucky number")), "{failure:?}");
    let children = children_of(&world, "p").await;
    assert!(children.len() < 8, "{} were started", children.len());
    assert!(children.iter().all(|child| child.status.is_finished()));
}

/// Guarantees: CHILD-19.
#[tokio::test]
async fn map_cannot_exceed_child_limit() {
    let (world, child) = (World::new(), double());
    let runtime =
        Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _).max_children(200);
    let runtime = runtime.build().await.unwrap();
    let graph = over(
        "parent",
        using!(child; cx, mut s => {
            let refused = cx.children(&child, (0..201).map(with)).await.unwrap_err();
            assert!(refused.to_string().contains("max_children"), "{refused}");
            s.set("got", cx.children(&child, (0..200).map(with)).await?.len())?;
            Ok(s)
        }),
    );
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<u32>("got").unwrap(), Some(200));
    assert_eq!(children_of(&world, "p").await.len(), 200);
}

/// Guarantees: CHILD-9.
#[tokio::test]
async fn child_deadline_cancels_regardless_of_parent_status() {
    for (seconds, rests) in [(10, false), (3_000, true)] {
        let world = World::new();
        let (runtime, child) = (world.process().await, gate());
        let graph = over(
            "parent",
            using!(child; cx, mut s => {
                let limit = Duration::from_secs(seconds);
                let late = cx.child(&child, with(1)).name("late").deadline(limit).start().await?;
                let free = cx.child(&child, with(1)).name("free").start().await?;
                let late = late.await.unwrap_err();
                let ChildError::Cancelled { reason, .. } = &late else { panic!("{late}") };
                s.set("reason", reason)?;
                free.await?;
                Ok(s)
            }),
        );
        served(&runtime, &[&graph, &child]);
        let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
        if rests {
            until_asleep(&world, &key("p")).await;
        }
        let over = async {
            while children_of(&world, "p").await.iter().all(|child| child.status != RunStatus::Cancelled) {
                tokio::task::yield_now().await;
            }
        };
        world.pass(over).await;
        let children = children_of(&world, "p").await;
        let free = children.iter().find(|child| child.status != RunStatus::Cancelled).unwrap();
        let late = children.iter().find(|child| child.status == RunStatus::Cancelled).unwrap();
        let took = late.updated.since(late.facts.created).as_secs();
        assert!((seconds..seconds + 10).contains(&took), "idle: {rests}: cancelled after {took} s");
        runtime.respond(&free.run, "ok", Answer::accept(true).unwrap()).await.unwrap();
        let state = world.pass(run.completed()).await.unwrap();
        assert_eq!(state.get::<String>("reason").unwrap().as_deref(), Some("its deadline has passed"));
    }
}

/// If several children fail, the first failure ends the wait. When the node runs again, the same failure ends the wait again.
#[test]
fn the_failure_that_came_first_comes_first_again() {
    on_each_runtime(async || {
        let (world, asking) = (World::new(), gate());
        let runtime = world.patient_process().await;
        let child = Graph::<Context>::builder("fails")
            .node(
                "fail",
                using!(asking; cx, s => {
                    if s.get::<u32>("number")? == Some(0) {
                        cx.child(&asking, with(1)).id("late").await?;
                    }
                    if true { Err("no".into()) } else { Ok(s) }
                }),
            )
            .entry("fail")
            .build()
            .unwrap();
        let first = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = Arc::clone(&first);
        let graph = over(
            "parent",
            using!(child, seen; cx, s => {
                let failed = cx.children(&child, (0..2).map(with)).name("item").await.unwrap_err();
                seen.lock().unwrap().push(failed.to_string().split('-').nth(1).unwrap().to_owned());
                // The other child fails during the sleep, and then the run becomes idle.
                cx.sleep(Duration::from_secs(30)).await?;
                cx.sleep(HOUR).await?;
                Ok(s)
            }),
        );
        served(&runtime, &[&graph, &child, &asking]);
        let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
        until(&world, &key("late"), RunStatus::Interrupted).await;
        while first.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        runtime.respond(&key("late"), "ok", Answer::accept(true).unwrap()).await.unwrap();
        world.pass(run.wait()).await.unwrap();
        until(&world, &key("p"), RunStatus::Completed).await;
        assert_eq!(*first.lock().unwrap(), ["1", "1"]);
    });
}

/// While a run is idle, the process keeps no node future of the parent or of its children. The test counts values that node futures hold.
///
/// Guarantees: CHILD-6.
#[tokio::test]
async fn idle_parent_of_thousand_children_frees_memory() {
    let world = World::new();
    let builder = Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _);
    let runtime = builder.release_after(Duration::ZERO).build().await.unwrap();
    let (child, held) = (gate(), Arc::new(()));
    let holding = Arc::clone(&held);
    let graph = over(
        "parent",
        using!(child, holding; cx, s => {
            let _held = Arc::clone(&holding);
            cx.children(&child, (0..1_000).map(with)).max_running(1_000).await?;
            Ok(s)
        }),
    );
    let before = Arc::strong_count(&held);
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    let Outcome::Sleeping { .. } = world.pass(run.wait()).await.unwrap() else { panic!() };
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(Arc::strong_count(&held), before);
    assert_eq!(children_of(&world, "p").await.len(), 1_000);
}

/// A child that doubles small numbers, fails for 13, and asks for all others.
fn mixed() -> Graph<Context> {
    Graph::<Context>::builder("mixed")
        .node("double", async |cx, mut s| {
            let number: u32 = s.get("number")?.unwrap_or_default();
            match number {
                13 => return Err("an unlucky number".into()),
                0..10 => s.set("number", number * 2)?,
                _ => drop(cx.ask::<bool>("ok", "Go on?").await?),
            }
            Ok(s)
        })
        .entry("double")
        .build()
        .unwrap()
}

/// With `at_least(3)` of five items, the node continues without an answer to the other two.
///
/// Guarantees: CHILD-8.
#[tokio::test]
async fn at_least_cancels_remaining_children() {
    for bond in [OnParentEnd::Cancel, OnParentEnd::Leave] {
        let world = World::new();
        let (runtime, child, store) = (world.process().await, mixed(), world.store.clone());
        let graph = over(
            "parent",
            using!(child, store; cx, mut s => {
                let items = [100, 1, 2, 100, 13, 3, 100].map(with);
                let request = cx.children(&child, items).max_running(5).on_parent_end(bond);
                let got = request.at_least(3).await?;
                let places: Vec<_> = got.iter().map(|item| item.as_ref().and_then(|s| s.get::<u32>("number").unwrap())).collect();
                s.set("places", places)?;
                // Count the active children now, because the activation may end much later.
                let mut query = RunQuery::default();
                query.workflow = Some(child.name().clone());
                let all = store.runs(&query, Page::first(10)).await?.items;
                s.set("open", all.iter().filter(|head| !head.status.is_finished()).count())?;
                s.set("all", all.len())?;
                Ok(s)
            }),
        );
        let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
        let state = world.pass(run.completed()).await.unwrap();
        let places: Vec<Option<u32>> = state.get("places").unwrap().unwrap();
        assert_eq!(places, [None, Some(2), Some(4), None, None, Some(6), None]);
        let (open, all): (usize, usize) =
            (state.get("open").unwrap().unwrap(), state.get("all").unwrap().unwrap());
        let is_left = bond == OnParentEnd::Leave;
        assert_eq!(open, if is_left { all - 4 } else { 0 }, "{bond:?}: {open} of {all} are active");
        assert!(all >= 6, "{all}");
    }
}

/// A child that completes after the wait must not replace an earlier result when the node runs again, even if its item comes first.
///
/// Guarantees: CHILD-8.
#[tokio::test]
async fn the_children_that_were_enough_are_enough_again() {
    let (world, asking) = (World::new(), gate());
    let runtime = world.process().await;
    let child = over(
        "answers",
        using!(asking; cx, s => {
            if s.get::<u32>("number")? == Some(0) {
                cx.child(&asking, with(1)).id("late").await?;
            }
            Ok(s)
        }),
    );
    let places = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&places);
    let graph = over(
        "parent",
        using!(child, seen; cx, s => {
            let request = cx.children(&child, (0..3).map(with)).on_parent_end(OnParentEnd::Leave);
            let got = request.at_least(2).await?;
            seen.lock().unwrap().push(got.iter().map(Option::is_some).collect::<Vec<_>>());
            // The slow child completes during the sleep, and then the run becomes idle.
            cx.sleep(Duration::from_secs(30)).await?;
            cx.sleep(HOUR).await?;
            Ok(s)
        }),
    );
    served(&runtime, &[&graph, &child, &asking]);
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until(&world, &key("late"), RunStatus::Interrupted).await;
    while places.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    runtime.respond(&key("late"), "ok", Answer::accept(true).unwrap()).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    let places = places.lock().unwrap();
    assert!(places.len() > 1, "the node must run again");
    assert!(places.iter().all(|one| *one == [false, true, true]), "{places:?}");
}

/// Guarantees: CHILD-8.
#[tokio::test]
async fn at_least_fails_after_too_many_failures() {
    let world = World::new();
    let (runtime, child) = (world.process().await, mixed());
    let graph = over(
        "parent",
        using!(child; cx, s => {
            for count in [0, 3] {
                let items = [1, 2].map(with);
                let refused = cx.children(&child, items).name(format!("none{count}")).at_least(count).await.unwrap_err();
                assert!(refused.to_string().contains(&format!("{count} of 2")), "{refused}");
            }
            let items = [13, 1, 13, 100].map(with);
            let failed = cx.children(&child, items).at_least(3).await.unwrap_err();
            assert!(matches!(failed, ChildError::Failed { .. }), "{failed}");
            Ok(s)
        }),
    );
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    world.pass(run.completed()).await.unwrap();
    let children = children_of(&world, "p").await;
    assert_eq!(children.len(), 4, "a refused request must start no child");
    assert!(children.iter().all(|child| child.status.is_finished()));
}

/// The limit `max_children_of_run` stops a workflow that starts children in an endless loop.
///
/// Guarantees: CHILD-19.
#[tokio::test]
async fn endless_child_starts_stop_at_limit() {
    let (world, child) = (World::new(), double());
    let process = async || {
        let runtime = Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _);
        runtime.max_children_of_run(60).build().await.unwrap()
    };
    let graph = Graph::<Context>::builder("loop")
        .node(
            "start",
            using!(child; cx, s => {
                cx.child(&child, with(1)).await?;
                cx.spawn(&child, with(1)).name("alone").await?;
                Ok(s)
            }),
        )
        .entry("start")
        .edge("start", "start")
        .build()
        .unwrap();
    let first = process().await;
    let run = first.start(&graph, Context::new()).id("p").await.unwrap();
    let refused = |outcome: Outcome<Context>| {
        let Outcome::Failed { failure, .. } = outcome else { panic!("{outcome:?}") };
        assert!(
            failure.message.contains("started 60 runs") && failure.message.contains("max_children_of_run"),
            "{failure}"
        );
    };
    refused(world.pass(run.wait()).await.unwrap());
    assert_eq!(children_of(&world, "p").await.len(), 60);
    drop((run, first));
    // The count is restored from the log, even if a base replaces most of it.
    let second = process().await;
    second.retry(&key("p")).await.unwrap();
    let run = second.resume(&graph, key("p")).await.unwrap();
    refused(world.pass(run.wait()).await.unwrap());
    assert_eq!(children_of(&world, "p").await.len(), 60);
}

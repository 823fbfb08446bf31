//! Slots for nodes: the limit holds across processes, for active and idle runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, Runtime, StateCell};
use ferrata_core::state::{Context, Draft, Op, Patch};
use ferrata_core::{Clock, ErrorKind, RunKey};
use ferrata_queue::{GraphQueueExt, NodeQueueExt, QueueSlot, RuntimeQueueExt};
use ferrata_testing::World;
use serde_json::json;

use crate::no_notices::Deaf;
use crate::support::{MOMENT, WHILE, Witness, empty, in_a_place, in_a_place_as, patient, process};

/// Guarantees: QUEUE-1.
#[tokio::test]
async fn nodes_never_exceed_slots_and_all_run() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = in_a_place(&witness, 5 * MOMENT);
    let mut processes = Vec::new();
    for _ in 0..3 {
        let process = process(&world).await;
        process.serve(&graph).unwrap();
        processes.push(process);
    }
    let gpu = processes[0].queue("gpu").at_once(2).declare().await.unwrap();
    let mut runs = Vec::new();
    for n in 0..12 {
        runs.push(processes[n % 3].start(&graph, Context::new()).id(format!("run-{n}")).await.unwrap());
    }
    for run in &runs {
        world.pass(run.completed()).await.unwrap();
    }
    assert_eq!((witness.most(), witness.came().len()), (2, 12), "{:?}", witness.came());
    empty(&world, &gpu).await;
}

/// A node that waits for longer than runs stay in memory becomes idle, with a question that describes the wait. The grant wakes it.
#[tokio::test]
async fn long_wait_frees_memory_until_grant() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = in_a_place(&witness, 10 * WHILE);
    let (holder, process) = (patient(&world, 60 * WHILE).await, process(&world).await);
    process.serve(&graph).unwrap();
    let gpu = process.queue("gpu").at_once(1).declare().await.unwrap();
    let first = holder.start(&graph, Context::new()).id("first").await.unwrap();
    world.pass_for(MOMENT).await;
    let second = process.start(&graph, Context::new()).id("second").await.unwrap();
    world.pass_for(5 * WHILE).await;
    let head = process.head(second.run()).await.unwrap().unwrap();
    assert_eq!((head.status, head.owner), (RunStatus::Interrupted, None), "it rests");
    let asked = process.questions(second.run()).await.unwrap();
    assert!(format!("{:?}", asked[0].id).contains("work@1:queue.gpu.0"), "{asked:?}");
    let status = gpu.status().await.unwrap();
    assert_eq!((status.held.len(), status.waiting), (1, 1));
    assert_eq!(status.line[0].question.as_deref(), Some("work@1:queue.gpu.0"));
    world.pass(first.completed()).await.unwrap();
    world.pass_for(11 * WHILE).await;
    let head = process.head(second.run()).await.unwrap().unwrap();
    assert_eq!(head.status, RunStatus::Completed);
    // The run was idle while it held its slot, too, which it released in the meantime.
    assert_eq!(
        (witness.most(), witness.came()),
        (1, ["first", "second", "second"].map(str::to_owned).into())
    );
    empty(&world, &gpu).await;
}

/// Guarantees: QUEUE-2.
#[tokio::test]
async fn dead_holder_frees_slot_by_heartbeat() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = in_a_place(&witness, 30 * MOMENT);
    let lost = in_a_place_as("served_nowhere", &witness, 30 * MOMENT);
    let (doomed, other) = (process(&world).await, process(&world).await);
    other.serve(&graph).unwrap();
    let gpu = doomed.queue("gpu").at_once(1).declare().await.unwrap();
    drop(world.pass(doomed.start(&lost, Context::new()).id("lost")).await.unwrap());
    world.pass_for(MOMENT).await;
    assert_eq!(gpu.status().await.unwrap().held.len(), 1);
    let next = other.start(&graph, Context::new()).id("next").await.unwrap();
    world.pass_for(MOMENT).await;
    assert_eq!(witness.came(), ["lost"]);
    // No process serves the lost run, so its slot is not kept.
    doomed.crash().await;
    world.pass(next.completed()).await.unwrap();
    assert_eq!((witness.most(), witness.came().last().map(String::as_str)), (1, Some("next")));
    let gpu = other.queue("gpu").find().await.unwrap().unwrap();
    empty(&world, &gpu).await;
}

#[tokio::test]
async fn node_giving_up_wait_leaves_slot_to_others() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = in_a_place(&witness, 20 * MOMENT);
    let impatient = async |cx: NodeContext, mut s: Draft<Context>| {
        let had = tokio::select! {
            place = cx.acquire("gpu", 1) => place.is_ok(),
            slept = cx.sleep(5 * MOMENT) => slept.is_err(),
        };
        s.set("had", had)?;
        Ok::<_, NodeError>(s)
    };
    let impatient =
        Graph::<Context>::builder("impatient").node("try", impatient).entry("try").build().unwrap();
    let process = process(&world).await;
    let gpu = process.queue("gpu").at_once(1).declare().await.unwrap();
    let first = process.start(&graph, Context::new()).await.unwrap();
    world.pass_for(MOMENT).await;
    let second = process.start(&impatient, Context::new()).await.unwrap();
    let state = world.pass(second.completed()).await.unwrap();
    assert_eq!(state.get::<bool>("had").unwrap(), Some(false));
    world.pass_for(MOMENT).await;
    assert_eq!(gpu.status().await.unwrap().waiting, 0, "it must not wait any more");
    world.pass(first.completed()).await.unwrap();
    empty(&world, &gpu).await;
}

#[tokio::test]
async fn released_slot_is_free_at_once() {
    let world = World::new();
    let process = process(&world).await;
    process.queue("gpu").at_once(1).declare().await.unwrap();
    let twice = async |cx: NodeContext, s: Draft<Context>| {
        for _ in 0..3 {
            cx.acquire("gpu", 1).await?.release().await?;
        }
        let one = cx.acquire("gpu", 1).name("one").await?;
        // The slot belongs to this node. A request with another name is a separate slot, which is not free.
        let other = tokio::select! {
            _ = cx.acquire("gpu", 1).name("other") => true,
            _ = cx.sleep(MOMENT) => false,
        };
        drop(one);
        assert!(!other);
        Ok::<_, NodeError>(s)
    };
    let graph = Graph::<Context>::builder("twice").node("work", twice).entry("work").build().unwrap();
    let run = process.start(&graph, Context::new()).await.unwrap();
    world.pass(run.completed()).await.unwrap();
}

#[tokio::test]
async fn retry_after_blocks_grants_for_requested_time() {
    let world = World::new();
    let process = process(&world).await;
    let model = process.queue("model").declare().await.unwrap();
    let witness = Witness::default();
    let ask = {
        let witness = witness.clone();
        move |cx: NodeContext, s: Draft<Context>| {
            let witness = witness.clone();
            async move {
                drop(witness.enter(cx.run().run.as_str()));
                match cx.attempt() {
                    1 if cx.run().run.as_str() == "first" => {
                        Err(NodeError::new("too many requests").retry_after(WHILE))
                    }
                    _ => Ok(s),
                }
            }
        }
    };
    let graph =
        Graph::<Context>::builder("ask").node("ask", ask).limit("model").entry("ask").build().unwrap();
    let first = process.start(&graph, Context::new()).id("first").await.unwrap();
    world.pass_for(MOMENT).await;
    let second = process.start(&graph, Context::new()).id("second").await.unwrap();
    world.pass_for(30 * MOMENT).await;
    assert_eq!(witness.came(), ["first"], "the other run must not get the slot");
    assert!(model.status().await.unwrap().closed_until.is_some());
    let _ = world.pass(first.wait()).await.unwrap();
    let begun = world.pass(second.wait()).await.unwrap();
    assert!(matches!(begun, Outcome::Completed(_)));
}

/// Keys from the state take turns, over all runs and processes.
#[tokio::test]
async fn limit_applies_to_each_state_key() {
    let (world, witness) = (World::new(), Witness::default());
    let work = {
        let witness = witness.clone();
        move |cx: NodeContext, s: Draft<Context>| {
            let witness = witness.clone();
            async move {
                let _inside = witness.enter(cx.run().run.as_str());
                cx.sleep(5 * MOMENT).await?;
                Ok::<_, NodeError>(s)
            }
        }
    };
    let graph = Graph::<Context>::builder("limited")
        .node("work", work)
        .limit_as("gpu", |place, s: &Context| Ok(place.key(s.get::<String>("key")?.unwrap_or_default())))
        .entry("work")
        .build()
        .unwrap();
    let (one, other) = (process(&world).await, process(&world).await);
    let gpu = one.queue("gpu").at_once(5).at_once_per_key(1).declare().await.unwrap();
    let mut runs = Vec::new();
    for n in 0..8 {
        let process = if n % 2 == 0 { &one } else { &other };
        let mut input = Context::new();
        input.set("key", if n < 6 { "ann" } else { "bob" }).unwrap();
        runs.push(process.start(&graph, input).id(format!("run-{n}")).await.unwrap());
    }
    for run in &runs {
        world.pass(run.completed()).await.unwrap();
    }
    assert_eq!((witness.most(), witness.came().len()), (2, 8), "one of each key: {:?}", witness.came());
    empty(&world, &gpu).await;
}

#[tokio::test]
async fn limit_wraps_all_earlier_node_layers() {
    let world = World::new();
    let process = process(&world).await;
    let gpu = process.queue("gpu").at_once(1).declare().await.unwrap();
    let held = async move |gpu: ferrata_queue::Queue| gpu.status().await.unwrap().held.len();
    let (inside, outside) = (gpu.clone(), gpu.clone());
    let graph = Graph::<Context>::builder("around")
        .node("work", async |_cx, mut s: Draft<Context>| {
            s.set("worked", true)?;
            Ok::<_, NodeError>(s)
        })
        .around(move |cx, mut s, work| {
            let gpu = inside.clone();
            async move {
                s.set("inside", held(gpu).await)?;
                work.run(cx, s).await
            }
        })
        .limit("gpu")
        .around(move |cx, mut s, work| {
            let gpu = outside.clone();
            async move {
                s.set("outside", held(gpu).await)?;
                work.run(cx, s).await
            }
        })
        .entry("work")
        .build()
        .unwrap();
    let run = process.start(&graph, Context::new()).await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<bool>("worked").unwrap(), Some(true));
    let counts = ["outside", "inside"].map(|name| state.get::<usize>(name).unwrap());
    assert_eq!(counts, [Some(0), Some(1)], "number of slots held outside and within the limit");
    let none = Graph::<Context>::builder("none").limit("gpu").build().unwrap_err();
    assert!(none.to_string().contains("no node to modify"), "{none}");
}

/// Changes of other processes arrive only at the next poll, and replies without a record are still correct.
#[tokio::test]
async fn answer_without_record_reflects_current_queue() {
    let (world, witness) = (World::new(), Witness::default());
    let operator = process(&world).await;
    let (deaf, _) = Deaf::process(&world, &operator).await;
    deaf.queue("gpu").at_once(1).declare().await.unwrap();
    let one = deaf.start(&in_a_place(&witness, MOMENT), Context::new()).await.unwrap();
    world.pass(one.completed()).await.unwrap();
    let gpu = operator.queue("gpu").find().await.unwrap().unwrap();
    empty(&world, &gpu).await;
    let before = world.clock().monotonic();
    gpu.set(|overrides| overrides.at_once = Some(3)).await.unwrap();
    let all = async |cx: NodeContext, s: Draft<Context>| {
        let place = cx.acquire("gpu", 3).await?;
        place.release().await?;
        Ok::<_, NodeError>(s)
    };
    let all = Graph::<Context>::builder("all").node("work", all).entry("work").build().unwrap();
    let all = deaf.start(&all, Context::new()).await.unwrap();
    let outcome = world.pass(all.wait()).await;
    assert!(matches!(outcome, Ok(Outcome::Completed(_))), "the process knew of one slot only: {outcome:?}");
    assert!(world.clock().monotonic() - before < 5 * MOMENT, "the reply must not wait for a poll");
}

#[tokio::test]
async fn what_cannot_be_is_refused() {
    let world = World::new();
    let process = process(&world).await;
    process.queue("gpu").at_once(2).declare().await.unwrap();
    let work = async |cx: NodeContext, mut s: Draft<Context>| {
        let kinds = [
            cx.acquire("nobody", 1).await.unwrap_err().kind(),
            cx.acquire("../gpu", 1).await.unwrap_err().kind(),
            cx.acquire("gpu", 3).await.unwrap_err().kind(),
            cx.acquire("gpu", 0).await.unwrap_err().kind(),
            cx.acquire("gpu", 1).key("x".repeat(257)).await.unwrap_err().kind(),
            cx.acquire("gpu", 1).name("a b").await.unwrap_err().kind(),
        ];
        s.set("kinds", kinds.map(|kind| format!("{kind:?}")).join(" "))?;
        Ok::<_, NodeError>(s)
    };
    let graph = Graph::<Context>::builder("refused").node("work", work).entry("work").build().unwrap();
    let run = process.start(&graph, Context::new()).await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    let kinds = state.get::<String>("kinds").unwrap().unwrap();
    assert_eq!(kinds, "NotFound Invalid Invalid Invalid Invalid Invalid");
    let none = process.queue("gpu").at_once(0).declare().await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Invalid);
}

/// A store that lost its last records also lost the claim in which the node requested a slot, but the queue's log still has the request. The request
/// of the next claim must not count as one of an outdated process, or nothing wakes the run.
#[tokio::test]
async fn node_gets_slot_despite_lost_claim_record() {
    let (world, witness) = (World::new(), Witness::default());
    let (holder, process) = (patient(&world, 60 * WHILE).await, process(&world).await);
    let gpu = process.queue("gpu").at_once(1).declare().await.unwrap();
    let first = holder.start(&in_a_place(&witness, 10 * WHILE), Context::new()).await.unwrap();
    world.pass_for(MOMENT).await;
    let is_first = Arc::new(AtomicBool::new(true));
    let lost = move |cx: NodeContext, s: Draft<Context>| {
        let is_first = Arc::clone(&is_first);
        async move {
            let runtime = Runtime::of(&cx)?;
            if is_first.swap(false, Ordering::Relaxed) {
                let mut cell = StateCell::new(RunKey::try_from("queue:gpu")?);
                cell.load(&runtime).await?;
                let asked = json!({
                    "run": cx.run(), "kind": "node", "places": 1, "since": cx.now(), "executor": runtime.executor(), "epoch": 7,
                });
                let entries =
                    serde_json::Map::from_iter([(format!("node:{}:", cx.idempotency_key()), asked)]);
                let patch = Patch::from_ops(&[Op::Merge("waiting".to_owned(), entries)])?;
                cell.append(&runtime, patch, "test").await?;
            }
            cx.acquire("gpu", 1).await?.release().await?;
            Ok::<_, NodeError>(s)
        }
    };
    let graph = Graph::<Context>::builder("lost").node("work", lost).entry("work").build().unwrap();
    process.serve(&graph).unwrap();
    let second = process.start(&graph, Context::new()).await.unwrap();
    world.pass_for(5 * WHILE).await;
    let head = process.head(second.run()).await.unwrap().unwrap();
    assert_eq!((head.status, head.owner), (RunStatus::Interrupted, None), "it rests");
    world.pass(first.completed()).await.unwrap();
    world.pass_for(11 * WHILE).await;
    assert_eq!(process.head(second.run()).await.unwrap().unwrap().status, RunStatus::Completed);
    empty(&world, &gpu).await;
}

/// A node that drops its wait and requests again at once keeps its new slot: the release of the first request does not apply to the second.
#[tokio::test]
async fn immediate_second_request_preserves_granted_slot() {
    let (world, witness) = (World::new(), Witness::default());
    let process = process(&world).await;
    let gpu = process.queue("gpu").at_once(1).declare().await.unwrap();
    let seen = witness.clone();
    let hasty = move |cx: NodeContext, s: Draft<Context>| {
        let witness = seen.clone();
        async move {
            for _ in 0..3 {
                tokio::select! {
                    biased;
                    _ = cx.acquire("gpu", 1) => {}
                    () = std::future::ready(()) => {}
                }
            }
            let place = cx.acquire("gpu", 1).await?;
            let inside = witness.enter(cx.run().run.as_str());
            cx.sleep(5 * MOMENT).await?;
            drop((inside, place));
            Ok::<_, NodeError>(s)
        }
    };
    let hasty = Graph::<Context>::builder("hasty").node("work", hasty).entry("work").build().unwrap();
    let hasty = process.start(&hasty, Context::new()).id("hasty").await.unwrap();
    world.pass_for(MOMENT).await;
    let next = process.start(&in_a_place(&witness, MOMENT), Context::new()).id("next").await.unwrap();
    world.pass(hasty.completed()).await.unwrap();
    world.pass(next.completed()).await.unwrap();
    assert_eq!((witness.most(), witness.came()), (1, ["hasty", "next"].map(str::to_owned).into()));
    empty(&world, &gpu).await;
}

/// A node with a limit that requests a slot of the same queue must not release the limit's slot while it runs.
#[tokio::test]
async fn two_unnamed_slots_of_queue_are_refused() {
    let world = World::new();
    let process = process(&world).await;
    let gpu = process.queue("gpu").at_once(3).declare().await.unwrap();
    let status = gpu.clone();
    let work = move |cx: NodeContext, mut s: Draft<Context>| {
        let gpu = status.clone();
        async move {
            let limit = cx.acquire("gpu", 1).await.unwrap_err();
            let (one, two) = tokio::join!(
                cx.acquire("gpu", 1).name("one").into_future(),
                cx.acquire("gpu", 1).name("one").into_future()
            );
            let (one, two) = (one?, two.unwrap_err());
            let other = cx.acquire("gpu", 1).name("other").await?;
            s.set("held", gpu.status().await?.held.len())?;
            s.set("refused", [limit, two].map(|error| format!("{:?}: {error}", error.kind())))?;
            // A released slot can be requested again.
            one.release().await?;
            drop(cx.acquire("gpu", 1).name("one").await?);
            drop(cx.acquire("gpu", 1).name("one").await?);
            drop(other);
            Ok::<_, NodeError>(s)
        }
    };
    let graph =
        Graph::<Context>::builder("two").node("work", work).limit("gpu").entry("work").build().unwrap();
    let run = process.start(&graph, Context::new()).await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<usize>("held").unwrap(), Some(3));
    for refused in state.get::<Vec<String>>("refused").unwrap().unwrap() {
        assert!(refused.starts_with("Invalid") && refused.contains("`gpu`"), "{refused}");
        assert!(refused.contains(".name(..)"), "{refused}");
    }
    empty(&world, &gpu).await;
}

/// An attempt fails while a task next to it still has its slot. The next attempt requests a slot of its own.
#[tokio::test]
async fn attempt_may_request_slot_held_by_earlier_one() {
    let world = World::new();
    let process = process(&world).await;
    let gpu = process.queue("gpu").at_once(1).declare().await.unwrap();
    let kept = Arc::new(std::sync::Mutex::new(None));
    let beside = Arc::clone(&kept);
    let work = move |cx: NodeContext, s: Draft<Context>| {
        let kept = Arc::clone(&beside);
        async move {
            let place = cx.acquire("gpu", 1).await?;
            if cx.attempt() == 1 {
                *kept.lock().unwrap() = Some(place);
                return Err(NodeError::new("try again").retry_after(MOMENT));
            }
            Ok(s)
        }
    };
    let graph = Graph::<Context>::builder("keeps")
        .node("work", work)
        .retry(RetryPolicy::none().with_attempts(2))
        .entry("work")
        .build()
        .unwrap();
    let run = process.start(&graph, Context::new()).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    drop(kept.lock().unwrap().take());
    empty(&world, &gpu).await;
}

/// A task next to an attempt releases its slot while the next attempt is running with the slot.
#[tokio::test]
async fn slot_release_of_earlier_attempt_spares_next() {
    for is_released in [false, true] {
        let (world, witness) = (World::new(), Witness::default());
        let process = process(&world).await;
        let gpu = process.queue("gpu").at_once(1).declare().await.unwrap();
        let kept = Arc::new(std::sync::Mutex::new(None));
        let (beside, seen) = (Arc::clone(&kept), witness.clone());
        let work = move |cx: NodeContext, s: Draft<Context>| {
            let (kept, witness) = (Arc::clone(&beside), seen.clone());
            async move {
                let place = cx.acquire("gpu", 1).await?;
                if cx.attempt() == 1 {
                    *kept.lock().unwrap() = Some(place);
                    return Err(NodeError::new("try again").retry_after(MOMENT));
                }
                let inside = witness.enter("kept");
                cx.sleep(20 * MOMENT).await?;
                drop((inside, place));
                Ok(s)
            }
        };
        let graph = Graph::<Context>::builder("keeps")
            .node("work", work)
            .retry(RetryPolicy::none().with_attempts(2))
            .entry("work")
            .build()
            .unwrap();
        let first = process.start(&graph, Context::new()).await.unwrap();
        world.pass_for(5 * MOMENT).await;
        assert_eq!(witness.inside(), 1);
        let next = process.start(&in_a_place(&witness, MOMENT), Context::new()).id("next").await.unwrap();
        world.pass_for(MOMENT).await;
        let place: QueueSlot = kept.lock().unwrap().take().unwrap();
        match is_released {
            true => world.pass(place.release()).await.unwrap(),
            false => drop(place),
        }
        world.pass(first.completed()).await.unwrap();
        world.pass(next.completed()).await.unwrap();
        assert_eq!(witness.came(), ["kept", "next"]);
        assert_eq!(witness.most(), 1, "released: {is_released}");
        empty(&world, &gpu).await;
    }
}

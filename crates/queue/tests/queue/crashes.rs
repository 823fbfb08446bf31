//! A crash at any write, and lost replies: no start and no slot is lost or doubled.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::atomic::Ordering;

use ferrata_core::graph::Graph;
use ferrata_core::record::RunStatus;
use ferrata_core::state::Context;
use ferrata_queue::{RuntimeQueueExt, StartQueueExt};
use ferrata_testing::{Fault, Process, World};

use crate::no_notices::Deaf;
use crate::support::{MOMENT, WHILE, Witness, empty, in_a_place, patient, process, slow};

const IDS: [&str; 3] = ["one", "two", "three"];

/// The start of a service: declares its queue and starts the runs, repeatedly until all are done.
async fn work(process: &Process, graph: &Graph<Context>, is_queued: bool) -> ferrata_core::Result<()> {
    process.serve(graph)?;
    process.queue("gpu").at_once(1).declare().await?;
    for id in IDS {
        let start = process.start(graph, Context::new()).id(id);
        match is_queued {
            true => drop(start.queue("gpu").await?),
            false => drop(start.await?),
        }
    }
    Ok(())
}

async fn crash_at_each_write(is_queued: bool, fault: Fault) {
    let mut crashes = 0;
    for n in 0.. {
        let (world, witness) = (World::new(), Witness::default());
        let graph = match is_queued {
            true => slow(&witness, 5 * MOMENT),
            false => in_a_place(&witness, 5 * MOMENT),
        };
        let first = process(&world).await;
        first.fail_write(n, fault);
        let _ = world.pass(work(&first, &graph, is_queued)).await;
        world.pass_for(30 * MOMENT).await;
        let is_crashed = first.is_crashed();
        let is_over = first.writes() < n;
        if !matches!(fault, Fault::Before | Fault::After) {
            first.crash().await;
        }
        let said = format!("{fault:?} at write {n}, queued: {is_queued}");
        let second = process(&world).await;
        world.pass(work(&second, &graph, is_queued)).await.unwrap();
        world.pass_for(3 * WHILE).await;
        for id in IDS {
            let head = second.head(&id.try_into().unwrap()).await.unwrap();
            let status = head.map(|head| head.status);
            assert_eq!(status, Some(RunStatus::Completed), "{said}: {id}");
        }
        assert_eq!(witness.most(), 1, "{said}: {:?}", witness.came());
        let gpu = second.queue("gpu").find().await.unwrap().unwrap();
        empty(&world, &gpu).await;
        crashes += u32::from(is_crashed);
        if is_over || !matches!(fault, Fault::Before | Fault::After) && !is_crashed {
            break;
        }
    }
    if !matches!(fault, Fault::Before | Fault::After) {
        assert!(crashes > 10, "{fault:?}: {crashes} writes");
    }
}

/// Guarantees: QUEUE-4.
#[tokio::test]
async fn crash_at_any_write_records_every_start_once() {
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        crash_at_each_write(true, fault).await;
    }
}

#[tokio::test]
async fn a_crash_at_any_write_loses_no_place() {
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        crash_at_each_write(false, fault).await;
    }
}

#[tokio::test]
async fn failed_or_unanswered_write_is_repeated() {
    crash_at_each_write(true, Fault::After).await;
    crash_at_each_write(false, Fault::Before).await;
}

/// A run whose node waits for a slot becomes idle only after the queue knows the question that wakes it. Otherwise a grant would wake nothing.
///
/// Guarantees: QUEUE-9.
#[tokio::test]
async fn waiting_run_idles_after_queue_knows_its_question() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = in_a_place(&witness, 4 * WHILE);
    let holder = patient(&world, 60 * WHILE).await;
    let (waiter, store) = Deaf::process(&world, &holder).await;
    waiter.serve(&graph).unwrap();
    let gpu = waiter.queue("gpu").at_once(1).declare().await.unwrap();
    drop(holder.start(&graph, Context::new()).id("first").await.unwrap());
    world.pass_for(MOMENT).await;
    let second = waiter.start(&graph, Context::new()).id("second").await.unwrap();
    world.pass_for(30 * MOMENT).await;
    assert_eq!(gpu.status().await.unwrap().waiting, 1);
    store.is_away.store(true, Ordering::Relaxed);
    world.pass_for(2 * WHILE).await;
    let head = waiter.head(second.run()).await.unwrap().unwrap();
    assert_eq!(
        (head.status, head.owner),
        (RunStatus::InProgress, Some(waiter.executor())),
        "the node must wait in memory"
    );
    assert_eq!(
        gpu.status().await.unwrap().line[0].question,
        None,
        "because the queue does not know the question"
    );
    store.is_away.store(false, Ordering::Relaxed);
    world.pass_for(30 * MOMENT).await;
    let head = waiter.head(second.run()).await.unwrap().unwrap();
    assert_eq!((head.status, head.owner), (RunStatus::Interrupted, None), "it rests");
    assert!(gpu.status().await.unwrap().line[0].question.is_some());
    world.pass_for(12 * WHILE).await;
    let head = waiter.head(second.run()).await.unwrap().unwrap();
    assert_eq!(head.status, RunStatus::Completed);
    assert_eq!(witness.most(), 1, "{:?}", witness.came());
    empty(&world, &gpu).await;
}

/// A process shuts down while the queue is not writable. A run that has asked its question must not sleep forever.
#[tokio::test]
async fn shutdown_during_queue_outage_leaves_no_run_asleep() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = in_a_place(&witness, 6 * WHILE);
    let holder = patient(&world, 60 * WHILE).await;
    holder.serve(&graph).unwrap();
    let (waiter, store) = Deaf::process(&world, &holder).await;
    waiter.serve(&graph).unwrap();
    let gpu = holder.queue("gpu").at_once(1).declare().await.unwrap();
    drop(holder.start(&graph, Context::new()).id("first").await.unwrap());
    world.pass_for(MOMENT).await;
    let second = waiter.start(&graph, Context::new()).id("second").await.unwrap();
    let run = second.run().clone();
    world.pass_for(30 * MOMENT).await;
    assert_eq!(gpu.status().await.unwrap().waiting, 1);
    store.is_away.store(true, Ordering::Relaxed);
    world.pass_for(2 * WHILE).await;
    drop(second);
    let _ = world.pass(waiter.shutdown(std::time::Duration::ZERO)).await;
    drop(waiter);
    world.pass_for(20 * WHILE).await;
    let head = holder.head(&run).await.unwrap().unwrap();
    assert_eq!(head.status, RunStatus::Completed);
    assert_eq!(witness.most(), 1, "{:?}", witness.came());
    empty(&world, &gpu).await;
}

/// Guarantees: QUEUE-9.
#[tokio::test]
async fn crash_during_idle_wait_leaves_no_run_asleep() {
    let mut crashes = 0;
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        for n in 0.. {
            let (world, witness) = (World::new(), Witness::default());
            let graph = in_a_place(&witness, 2 * WHILE);
            let holder = patient(&world, 60 * WHILE).await;
            holder.serve(&graph).unwrap();
            let gpu = holder.queue("gpu").at_once(1).declare().await.unwrap();
            drop(holder.start(&graph, Context::new()).id("first").await.unwrap());
            world.pass_for(MOMENT).await;
            let waiter = patient(&world, 3 * MOMENT).await;
            let started = world.pass(waiter.start(&graph, Context::new()).id("second")).await.unwrap();
            waiter.fail_write(n, fault);
            world.pass_for(30 * MOMENT).await;
            let (is_crashed, run) = (waiter.is_crashed(), started.run().clone());
            drop(started);
            waiter.crash().await;
            world.pass_for(12 * WHILE).await;
            let head = holder.head(&run).await.unwrap().unwrap();
            assert_eq!(head.status, RunStatus::Completed, "{fault:?} at write {n}");
            assert_eq!(witness.most(), 1, "{fault:?} at write {n}: {:?}", witness.came());
            empty(&world, &gpu).await;
            if !is_crashed {
                break;
            }
            crashes += 1;
        }
    }
    assert!(crashes >= 6, "{crashes} crashes");
}

/// A start replaces another, and its process crashes at any write: one of the two runs, although nothing starts them again.
///
/// Guarantees: QUEUE-8.
#[tokio::test]
async fn crash_during_replacement_loses_no_start() {
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        for n in 0.. {
            let (world, witness) = (World::new(), Witness::default());
            let graph = slow(&witness, MOMENT);
            let (first, second) = (process(&world).await, process(&world).await);
            second.serve(&graph).unwrap();
            second.queue("index").declare().await.unwrap();
            let save = |process: &Process, id: &str| {
                process.start(&graph, Context::new()).id(id).queue("index").debounce("plan", 10 * MOMENT)
            };
            drop(world.pass(save(&second, "one")).await.unwrap());
            first.fail_write(n, fault);
            let is_started = world.pass(save(&first, "two")).await.is_ok();
            let is_crashed = first.is_crashed();
            first.crash().await;
            world.pass_for(4 * WHILE).await;
            let said = format!("{fault:?} at write {n}, started: {is_started}");
            let mut came = witness.came();
            came.dedup();
            assert!(!came.is_empty(), "{said}: neither of them ran");
            assert!(!is_started || came == ["two"], "{said}: {came:?}");
            for id in ["one", "two"] {
                let Some(head) = second.head(&id.try_into().unwrap()).await.unwrap() else { continue };
                assert!(head.status.is_finished(), "{said}: {id} is {}", head.status);
            }
            empty(&world, &second.queue("index").find().await.unwrap().unwrap()).await;
            if !is_crashed {
                assert!(n > 1, "{fault:?}: {n} writes");
                break;
            }
        }
    }
}

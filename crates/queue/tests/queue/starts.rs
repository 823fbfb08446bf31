//! Starts that wait for a slot.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Outcome;
use ferrata_core::state::Context;
use ferrata_queue::{RuntimeQueueExt, StartQueueExt};
use ferrata_testing::{Fault, World};
use serde_json::json;
use tokio::task::JoinSet;

use crate::no_notices::Deaf;
use crate::support::{MOMENT, WHILE, Witness, empty, process, slow};

/// Guarantees: QUEUE-1.
#[tokio::test]
async fn runs_never_exceed_slots_and_all_run() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, 5 * MOMENT);
    let mut processes = Vec::new();
    for _ in 0..3 {
        let process = process(&world).await;
        process.serve(&graph).unwrap();
        processes.push(process);
    }
    let mail = processes[0].queue("mail").at_once(2).declare().await.unwrap();
    let mut runs = Vec::new();
    for n in 0..12 {
        let start = processes[n % 3].start(&graph, Context::new()).id(format!("run-{n}"));
        runs.push(world.pass(start.queue("mail")).await.unwrap());
    }
    assert!(!runs[0].is_waiting().await.unwrap());
    assert!(runs[11].is_waiting().await.unwrap());
    let head = processes[0].head(runs[11].run()).await.unwrap().unwrap();
    assert_eq!((head.status, head.owner), (RunStatus::Interrupted, None), "a waiting run uses no memory");
    for run in &runs {
        assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    }
    assert_eq!((witness.most(), witness.came().len()), (2, 12), "{:?}", witness.came());
    empty(&world, &mail).await;
}

#[tokio::test]
async fn the_urgent_come_first_and_keys_take_turns() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, MOMENT);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    process.queue("mail").at_once(1).declare().await.unwrap();
    let mut runs = Vec::new();
    for (id, key, priority) in [
        ("first", "ann", 0),
        ("ann-1", "ann", 0),
        ("ann-2", "ann", 0),
        ("ann-3", "ann", 0),
        ("bob-1", "bob", 0),
        ("bob-2", "bob", 0),
        ("urgent", "ann", 9),
    ] {
        let start = process.start(&graph, Context::new()).id(id).queue("mail").key(key).priority(priority);
        runs.push(world.pass(start).await.unwrap());
    }
    for run in &runs {
        world.pass(run.wait()).await.unwrap();
    }
    assert_eq!(witness.came(), ["first", "urgent", "bob-1", "ann-1", "bob-2", "ann-2", "ann-3"]);
}

#[tokio::test]
async fn start_waits_for_its_time_until_deadline() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, WHILE);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    let mail = process.queue("mail").at_once(1).declare().await.unwrap();
    let now = process.clock().now();
    let later =
        process.start(&graph, Context::new()).id("later").queue("mail").not_before(now.plus(5 * WHILE));
    let later = world.pass(later).await.unwrap();
    assert!(later.is_waiting().await.unwrap(), "although a slot is free");
    let first = world.pass(process.start(&graph, Context::new()).id("first").queue("mail")).await.unwrap();
    let late = process.start(&graph, Context::new()).id("late").queue("mail").deadline(now.plus(30 * MOMENT));
    let late = world.pass(late).await.unwrap();
    world.pass(first.wait()).await.unwrap();
    assert!(matches!(world.pass(late.wait()).await.unwrap(), Outcome::Cancelled { .. }));
    world.pass(later.wait()).await.unwrap();
    assert_eq!(witness.came(), ["first", "later"]);
    assert!(process.clock().now() >= now.plus(6 * WHILE));
    empty(&world, &mail).await;
}

#[tokio::test]
async fn once_key_is_not_started_again() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, MOMENT);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    let mail = process.queue("mail").max_waiting(1).at_once(1).declare().await.unwrap();
    let start = |id: &str| process.start(&graph, Context::new()).id(id).queue("mail");
    let one = world.pass(start("one").once("invoice-7", WHILE)).await.unwrap();
    let two = world.pass(start("two").once("invoice-7", WHILE)).await.unwrap();
    assert!(one.is_new() && !two.is_new());
    assert_eq!(two.run(), one.run());
    assert_eq!(two.wait().await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(process.head(&"two".try_into().unwrap()).await.unwrap().is_none());
    // One start may wait next to it, and a second one may not.
    let three = world.pass(start("three")).await.unwrap();
    let full = world.pass(start("four")).await.unwrap_err();
    assert_eq!((full.kind(), full.is_retryable()), (ErrorKind::Unavailable, true), "{full}");
    assert!(process.head(&"four".try_into().unwrap()).await.unwrap().is_none());
    // A repeated start with the same id is the same start.
    let again = world.pass(start("three")).await.unwrap();
    assert_eq!(mail.status().await.unwrap().waiting, 1);
    world.pass(one.wait()).await.unwrap();
    world.pass(three.wait()).await.unwrap();
    world.pass(again.wait()).await.unwrap();
    assert_eq!(witness.came(), ["one", "three"]);
    empty(&world, &mail).await;
}

#[tokio::test]
async fn cancelled_or_released_waiter_blocks_no_other() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, WHILE);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    let mail = process.queue("mail").at_once(1).declare().await.unwrap();
    let mut runs = Vec::new();
    for id in ["first", "cancelled", "let-go", "last"] {
        runs.push(world.pass(process.start(&graph, Context::new()).id(id).queue("mail")).await.unwrap());
    }
    process.cancel(runs[1].run(), "not needed").await.unwrap();
    // A run that an operator unpauses by hand does not wait, and takes a slot when its turn comes.
    process.unpause(runs[2].run()).await.unwrap();
    world.pass_for(30 * MOMENT).await;
    assert_eq!(witness.inside(), 2);
    world.pass(runs[3].wait()).await.unwrap();
    assert_eq!(witness.came(), ["first", "let-go", "last"]);
    empty(&world, &mail).await;
}

/// A queued run whose process dies continues in another process, and keeps its slot until it has ended.
#[tokio::test]
async fn run_keeps_slot_across_process_death() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, 30 * MOMENT);
    let (doomed, other) = (process(&world).await, process(&world).await);
    other.serve(&graph).unwrap();
    doomed.serve(&graph).unwrap();
    let mail = other.queue("mail").at_once(1).declare().await.unwrap();
    let first = world.pass(doomed.start(&graph, Context::new()).id("first").queue("mail")).await.unwrap();
    let second = world.pass(other.start(&graph, Context::new()).id("second").queue("mail")).await.unwrap();
    drop(first);
    doomed.crash().await;
    world.pass(second.wait()).await.unwrap();
    assert_eq!(witness.came(), ["first", "first", "second"]);
    assert_eq!(witness.most(), 1);
    empty(&world, &mail).await;
}

/// A document that is saved repeatedly is indexed once, in its last version.
#[tokio::test]
async fn debounce_runs_last_start_of_key() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, MOMENT);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    let index = process.queue("index").max_waiting(2).declare().await.unwrap();
    let save = |id: &str, key: &str| {
        process.start(&graph, Context::new()).id(id).queue("index").debounce(key, WHILE)
    };
    let begun = process.clock().now();
    let mut runs = Vec::new();
    for id in ["one", "two", "three"] {
        runs.push(world.pass(save(id, "plan")).await.unwrap());
        world.pass_for(30 * MOMENT).await;
    }
    // Another key is separate, and a repeated start is the same start.
    let other = world.pass(save("other", "letter")).await.unwrap();
    let again = world.pass(save("three", "plan")).await.unwrap();
    assert!(runs[2].is_waiting().await.unwrap() && again.is_new());
    let status = index.status().await.unwrap();
    assert_eq!((status.waiting, status.line[0].debounced.as_ref().unwrap().key.as_str()), (2, "plan"));
    // A start that replaces another needs no free position, and one that replaces none exceeds the limit.
    let four = world.pass(save("four", "letter")).await.unwrap();
    let full = world.pass(save("five", "note")).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Unavailable);
    for replaced in [&runs[0], &runs[1], &other] {
        let outcome = world.pass(replaced.wait()).await.unwrap();
        assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
    }
    for last in [&runs[2], &four] {
        assert!(matches!(world.pass(last.wait()).await.unwrap(), Outcome::Completed(_)));
    }
    assert_eq!(witness.came(), ["three", "four"]);
    assert!(process.clock().now() >= begun.plus(WHILE + 60 * MOMENT));
    empty(&world, &index).await;
    // A run that has started is not replaced.
    let later = world.pass(save("later", "plan")).await.unwrap();
    assert!(matches!(world.pass(later.wait()).await.unwrap(), Outcome::Completed(_)));
}

#[tokio::test]
async fn repeatedly_replaced_start_runs_at_max_delay() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, MOMENT);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    process.queue("index").declare().await.unwrap();
    for n in 0..8 {
        let save = process.start(&graph, Context::new()).id(format!("{n}")).queue("index");
        drop(world.pass(save.debounce("plan", WHILE).debounce_at_most(2 * WHILE)).await.unwrap());
        world.pass_for(WHILE / 2 - MOMENT).await;
    }
    world.pass_for(3 * WHILE).await;
    assert_eq!(witness.came(), ["4", "7"], "the fifth starts when two have ended");
}

/// A start does not read the heads of the holders.
#[tokio::test]
async fn starts_ask_for_no_heads_of_holders() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, 100 * WHILE);
    let beside = process(&world).await;
    let (busy, asked) = Deaf::process(&world, &beside).await;
    busy.serve(&graph).unwrap();
    beside.serve(&graph).unwrap();
    busy.queue("mail").at_once(10).declare().await.unwrap();
    for n in 0..12 {
        // The process knows that holders of its own are alive.
        drop(
            world
                .pass(beside.start(&graph, Context::new()).id(format!("a-{n}")).queue("mail"))
                .await
                .unwrap(),
        );
    }
    let before = asked.reads.load(Ordering::Relaxed);
    for n in 0..20 {
        drop(
            world.pass(busy.start(&graph, Context::new()).id(format!("b-{n}")).queue("mail")).await.unwrap(),
        );
    }
    let reads = asked.reads.load(Ordering::Relaxed) - before;
    assert!(reads < 20 * 5, "{reads} reads for 20 starts");
}

/// Number of store calls of a process in an hour without events, with `waiting` waiters.
async fn asked_in_an_hour(waiting: u32) -> u64 {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, 100 * WHILE);
    let beside = process(&world).await;
    let (idle, asked) = Deaf::process(&world, &beside).await;
    idle.serve(&graph).unwrap();
    let mail = idle.queue("mail").at_once(1).declare().await.unwrap();
    let mut starts = JoinSet::new();
    for n in 0..=waiting {
        starts.spawn(idle.start(&graph, Context::new()).id(format!("{n}")).queue("mail").into_future());
    }
    while let Some(started) = world.pass(starts.join_next()).await {
        started.unwrap().unwrap();
    }
    world.pass_for(WHILE).await;
    assert_eq!(mail.status().await.unwrap().waiting, waiting as usize);
    let count = || asked.reads.load(Ordering::Relaxed) + asked.writes.load(Ordering::Relaxed);
    let before = count();
    world.pass_for(6 * WHILE).await;
    count() - before
}

#[tokio::test]
async fn those_who_wait_cost_an_idle_fleet_nothing() {
    let (few, many) = (asked_in_an_hour(2).await, asked_in_an_hour(150).await);
    // Each poll reads the head of the queue and that of the one holder. The process also makes other calls, at its own times.
    assert!((36..200).contains(&few), "{few} in 36 polls");
    assert!(many.abs_diff(few) < 10, "{many} in 36 polls with 150 waiters, {few} with two");
}

#[tokio::test]
async fn key_comes_from_input_field() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, 5 * MOMENT);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    let mail = process.queue("mail").at_once(9).at_once_per_key(1).declare().await.unwrap();
    let mut runs = Vec::new();
    let customers = [json!("ann"), json!("ann"), json!(7), json!(7), json!(true)];
    for (n, id) in customers.into_iter().enumerate() {
        let mut input = Context::new();
        input.set("customer", json!({ "id": id })).unwrap();
        let start = process.start(&graph, input).id(format!("run-{n}")).queue("mail");
        runs.push(world.pass(start.key_by("/customer/id")).await.unwrap());
    }
    let status = mail.status().await.unwrap();
    let mut keys: Vec<_> = status.held.iter().map(|held| held.key.clone()).collect();
    keys.sort();
    assert_eq!(
        (keys, status.waiting),
        (["7", "ann", "true"].map(str::to_owned).into(), 2),
        "one of each key"
    );
    for run in &runs {
        assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    }
    for (pointer, what) in [
        ("/customer/name", "it does not exist"),
        ("/customer", "its value is a list, an object or null"),
        ("customer", "it does not exist"),
    ] {
        let mut input = Context::new();
        input.set("customer", json!({ "id": 1, "note": null })).unwrap();
        let start = process.start(&graph, input).id("refused").queue("mail").key_by(pointer);
        let error = world.pass(start).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(what), "{error}");
    }
    assert!(process.head(&"refused".try_into().unwrap()).await.unwrap().is_none());
}

/// A run that starts and ends in a process with a queue causes no additional reads, whether it uses the queue or not.
#[tokio::test]
async fn immediate_start_and_end_read_nothing_extra() {
    const RUNS: usize = 40;
    let (world, witness) = (World::new(), Witness::default());
    let one = process(&world).await;
    let (other, asked) = Deaf::process(&world, &one).await;
    let graph = slow(&witness, Duration::ZERO);
    other.serve(&graph).unwrap();
    let queue = world.pass(other.queue("mail").at_once(1_000).declare()).await.unwrap();
    for is_queued in [true, false] {
        let mut all = JoinSet::new();
        asked.reads.store(0, Ordering::Relaxed);
        for _ in 0..RUNS {
            let start = other.start(&graph, Context::new());
            all.spawn(async move {
                match is_queued {
                    true => start.queue("mail").await?.wait().await,
                    false => start.await?.wait().await,
                }
            });
        }
        world
            .pass(async {
                while let Some(ended) = all.join_next().await {
                    assert!(matches!(ended.unwrap().unwrap(), Outcome::Completed(_)));
                }
            })
            .await;
        world.pass_for(Duration::from_secs(1)).await;
        let reads = asked.reads.load(Ordering::Relaxed);
        assert!(reads < RUNS as u64 / 2, "{reads} reads for {RUNS} runs, queued: {is_queued}");
    }
    empty(&world, &queue).await;
}

/// The queue is not writable when a run ends. The run is purged and restarted in another process, in the slot that it still has. When the first
/// process can write again, it releases its own slot, and not the new one.
#[tokio::test]
async fn late_end_note_spares_slot_of_next_run() {
    let (world, witness) = (World::new(), Witness::default());
    let one = process(&world).await;
    let (other, asked) = Deaf::process(&world, &one).await;
    let graph = slow(&witness, WHILE);
    one.serve(&graph).unwrap();
    let queue = one.queue("mail").at_once(1).declare().await.unwrap();
    let first = world.pass(other.start(&graph, Context::new()).id("mail").queue("mail")).await.unwrap();
    asked.is_away.store(true, Ordering::Relaxed);
    world.pass(first.wait()).await.unwrap();
    one.purge(first.run()).await.unwrap();
    let again = world.pass(one.start(&graph, Context::new()).id("mail").queue("mail")).await.unwrap();
    let next = world.pass(one.start(&graph, Context::new()).id("next").queue("mail")).await.unwrap();
    asked.is_away.store(false, Ordering::Relaxed);
    world.pass_for(30 * MOMENT).await;
    assert!(next.is_waiting().await.unwrap());
    assert_eq!((witness.inside(), queue.status().await.unwrap().held.len()), (1, 1));
    for run in [&again, &next] {
        world.pass(run.wait()).await.unwrap();
    }
    assert_eq!(witness.most(), 1);
    empty(&world, &queue).await;
}

fn titled(title: &str) -> Context {
    let mut input = Context::new();
    input.set("title", title).unwrap();
    input
}

/// A start with the id of an existing run and another input is refused. It must not release the slot of that run, or leave it on hold.
///
/// Guarantees: QUEUE-5.
#[tokio::test]
async fn refused_start_spares_slot_of_existing_run() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, 30 * MOMENT);
    let (one, other) = (process(&world).await, process(&world).await);
    one.serve(&graph).unwrap();
    let mail = one.queue("mail").at_once(1).declare().await.unwrap();
    let first = world.pass(one.start(&graph, titled("one")).id("first").queue("mail")).await.unwrap();
    let second = world.pass(one.start(&graph, titled("one")).id("second").queue("mail")).await.unwrap();
    for (process, id) in [(&one, "first"), (&one, "second"), (&other, "first"), (&other, "second")] {
        let again = world.pass(process.start(&graph, titled("two")).id(id).queue("mail")).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{id}: {again}");
    }
    let third = world.pass(one.start(&graph, titled("one")).id("third").queue("mail")).await.unwrap();
    for run in [&first, &second, &third] {
        assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    }
    assert_eq!((witness.most(), witness.came()), (1, ["first", "second", "third"].map(str::to_owned).into()));
    empty(&world, &mail).await;
    // An ended run has no slot, and a refused start keeps none.
    let again = world.pass(one.start(&graph, titled("two")).id("first").queue("mail")).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");
    world.pass_for(Duration::from_millis(1)).await;
    assert_eq!(mail.status().await.unwrap().held.len(), 0);
}

/// A start that is repeated while its process shuts down is refused, and its run keeps waiting.
#[tokio::test]
async fn repeated_start_during_shutdown_preserves_slot() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, 30 * MOMENT);
    let (one, other) = (process(&world).await, process(&world).await);
    one.serve(&graph).unwrap();
    let mail = one.queue("mail").at_once(1).declare().await.unwrap();
    let first = world.pass(one.start(&graph, Context::new()).id("first").queue("mail")).await.unwrap();
    let second = world.pass(other.start(&graph, Context::new()).id("second").queue("mail")).await.unwrap();
    world.pass(other.shutdown(Duration::ZERO)).await.unwrap();
    let again = world.pass(other.start(&graph, Context::new()).id("second").queue("mail")).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Closed, "{again}");
    world.pass_for(MOMENT).await;
    assert_eq!(mail.status().await.unwrap().waiting, 1);
    drop((second, other));
    world.pass(first.wait()).await.unwrap();
    world.pass_for(60 * MOMENT).await;
    assert_eq!(witness.came(), ["first", "second"]);
    empty(&world, &mail).await;
}

/// Two concurrent starts of one id: one of them becomes the run, and it has the slot.
#[tokio::test]
async fn concurrent_starts_of_id_give_recorded_one_slot() {
    for is_in_one in [true, false] {
        let (world, witness) = (World::new(), Witness::default());
        let graph = slow(&witness, 30 * MOMENT);
        let (one, other) = (process(&world).await, process(&world).await);
        one.serve(&graph).unwrap();
        other.serve(&graph).unwrap();
        let mail = one.queue("mail").at_once(1).declare().await.unwrap();
        let beside = if is_in_one { &one } else { &other };
        let (a, b) = world
            .pass(async {
                tokio::join!(
                    one.start(&graph, titled("one")).id("first").queue("mail").into_future(),
                    beside.start(&graph, titled("two")).id("first").queue("mail").into_future(),
                )
            })
            .await;
        let ((Ok(run), Err(error)) | (Err(error), Ok(run))) = (a, b) else { panic!("one of the two starts") };
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        world.pass_for(Duration::from_millis(1)).await;
        assert_eq!(mail.status().await.unwrap().held.len(), 1, "in one process: {is_in_one}");
        let next = world.pass(one.start(&graph, titled("one")).id("next").queue("mail")).await.unwrap();
        for run in [&run, &next] {
            assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
        }
        assert_eq!((witness.most(), witness.came().len()), (1, 2));
        empty(&world, &mail).await;
    }
}

/// A refused start must not occupy its `once` key.
#[tokio::test]
async fn refused_start_does_not_use_once_key() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, MOMENT);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    process.queue("mail").at_once(1).declare().await.unwrap();
    let start = |id: &str, title: &str| {
        let start = process.start(&graph, titled(title)).id(id).queue("mail");
        start.once("invoice-7", WHILE)
    };
    let taken = world.pass(process.start(&graph, titled("one")).id("taken")).await.unwrap();
    let refused = world.pass(start("taken", "two")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
    let one = world.pass(start("one", "one")).await.unwrap();
    assert!(one.is_new(), "{:?} was started before", one.run());
    world.pass(one.wait()).await.unwrap();
    // The key of the existing run is still remembered from its own start.
    world.pass_for(WHILE / 2).await;
    let refused = world.pass(start("one", "two")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
    let two = world.pass(start("two", "one")).await.unwrap();
    assert_eq!((two.is_new(), two.run()), (false, one.run()));
    world.pass_for(WHILE / 2).await;
    let three = world.pass(start("three", "one")).await.unwrap();
    assert!(three.is_new(), "its window is over");
    world.pass(three.wait()).await.unwrap();
    world.pass(taken.wait()).await.unwrap();
}

/// A start that misses its deadline before its run is recorded: the queue must still cancel the run, and not leave it on hold.
#[tokio::test]
async fn unrecorded_start_past_deadline_is_cancelled() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, MOMENT);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    let mail = process.queue("mail").at_once(1).declare().await.unwrap();
    let now = process.clock().now();
    for held_back in [false, true] {
        let id = format!("late-{held_back}");
        if held_back {
            // The first write is that of the queue. The second is that of the run, which is retried later.
            process.fail_write(1, Fault::Before);
        }
        let late = process.start(&graph, Context::new()).id(&id).queue("mail").deadline(now);
        let late = world.pass(late).await.unwrap();
        let outcome = world.pass(late.wait()).await.unwrap();
        assert!(matches!(outcome, Outcome::Cancelled { .. }), "{id}: {outcome:?}");
        assert!(process.clock().now() < now.plus(WHILE), "{id} waited for too long");
    }
    assert_eq!(witness.came(), Vec::<String>::new());
    empty(&world, &mail).await;
}

/// `debounce_at_most` without `debounce` is refused, because all such starts would share one key.
#[tokio::test]
async fn debounce_at_most_alone_is_refused() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, WHILE);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    let mail = process.queue("mail").at_once(1).declare().await.unwrap();
    world.pass(process.start(&graph, Context::new()).id("holder").queue("mail")).await.unwrap();
    for id in ["one", "two"] {
        let start = process.start(&graph, Context::new()).id(id).queue("mail").debounce_at_most(MOMENT);
        let refused = world.pass(start).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(refused.to_string().contains(".debounce(key, quiet)"), "{refused}");
    }
    // The order of the two calls does not matter.
    let start = process.start(&graph, Context::new()).id("three").queue("mail").debounce_at_most(MOMENT);
    world.pass(start.debounce("plan", WHILE)).await.unwrap();
    let line = mail.status().await.unwrap().line;
    assert!(line[0].not_before.unwrap() <= process.clock().now().plus(MOMENT), "{line:?}");
}

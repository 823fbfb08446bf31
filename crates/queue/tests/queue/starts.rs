//! Starts that wait for their turn.

use ferrata_core::ErrorKind;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Outcome;
use ferrata_core::state::Context;
use ferrata_core::testing::World;
use ferrata_queue::{Enqueue, Queues};

use crate::support::{MOMENT, WHILE, Witness, empty, process, slow};

#[tokio::test]
async fn never_more_runs_than_places_and_each_has_its_turn() {
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
    assert_eq!((head.status, head.owner), (RunStatus::Interrupted, None), "it takes no memory");
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
async fn a_start_waits_for_its_time_and_not_beyond_its_deadline() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, WHILE);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    let mail = process.queue("mail").at_once(1).declare().await.unwrap();
    let now = process.clock().now();
    let later =
        process.start(&graph, Context::new()).id("later").queue("mail").not_before(now.plus(5 * WHILE));
    let later = world.pass(later).await.unwrap();
    assert!(later.is_waiting().await.unwrap(), "though there is a place");
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
async fn what_was_started_for_a_key_is_not_started_again() {
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
    // One may wait beside it, and no second.
    let three = world.pass(start("three")).await.unwrap();
    let full = world.pass(start("four")).await.unwrap_err();
    assert_eq!((full.kind(), full.is_retryable()), (ErrorKind::Unavailable, true), "{full}");
    assert!(process.head(&"four".try_into().unwrap()).await.unwrap().is_none());
    // Started again with the same id it is the same start.
    let again = world.pass(start("three")).await.unwrap();
    assert_eq!(mail.status().await.unwrap().waiting, 1);
    world.pass(one.wait()).await.unwrap();
    world.pass(three.wait()).await.unwrap();
    world.pass(again.wait()).await.unwrap();
    assert_eq!(witness.came(), ["one", "three"]);
    empty(&world, &mail).await;
}

#[tokio::test]
async fn one_that_is_cancelled_or_let_go_while_it_waits_holds_up_nobody() {
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
    // What an operator lets go by hand does not wait, and takes a place when its turn comes.
    process.unpause(runs[2].run()).await.unwrap();
    world.pass_for(30 * MOMENT).await;
    assert_eq!(witness.inside(), 2);
    world.pass(runs[3].wait()).await.unwrap();
    assert_eq!(witness.came(), ["first", "let-go", "last"]);
    empty(&world, &mail).await;
}

/// A queued run whose process dies goes on in another, and has its place until it has ended.
#[tokio::test]
async fn a_run_keeps_its_place_through_the_death_of_its_process() {
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

//! A full wait queue: new starts are rejected, and existing waiters still get a slot.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrata_core::runtime::{Outcome, Runtime, StateCell};
use ferrata_core::state::{Context, Op, Patch};
use ferrata_core::{ErrorKind, RunKey};
use ferrata_queue::{RuntimeQueueExt, StartQueueExt};
use ferrata_testing::World;

use crate::no_notices::Deaf;
use crate::support::{MOMENT, WHILE, Witness, empty, process, set_up, slow};

/// Number of waiters. `FERRATA_LONG_LINE=100000` sets ten times as many.
const MANY: usize = 10_000;

/// The view of a process that only reads.
#[derive(Debug)]
struct Cost {
    /// Calls and bytes while nothing happens.
    idle: (u64, u64),
    /// Calls and bytes during twenty grants.
    busy: (u64, u64),
}

/// Adds `many` waiters without runs behind the existing ones.
async fn fill(runtime: &Runtime, many: usize) {
    let mut cell = StateCell::new(RunKey::try_from("queue:mail").unwrap());
    let now = runtime.clock().now().unix_ms();
    let all: Vec<usize> = (0..many).collect();
    for some in all.chunks(5_000) {
        let entries = some.iter().map(|n| (format!("01932f6e-7a3b-7cc1-9d4e-{n:012}"), (now + 1).into()));
        let line = Op::Merge(format!("runs.{}", runtime.executor()), entries.collect());
        cell.load(runtime).await.unwrap();
        cell.append(runtime, Patch::from_ops(&[line]).unwrap(), "test").await.unwrap();
    }
}

async fn cost(many: usize) -> Cost {
    let (world, witness) = (World::new(), Witness::default());
    let one = process(&world).await;
    let (other, asked) = Deaf::process(&world, &one).await;
    let graph = slow(&witness, MOMENT);
    one.serve(&graph).unwrap();
    for process in [&*one, &other] {
        world.pass(process.queue("mail").at_once(1).max_waiting(1_000_000).declare()).await.unwrap();
    }
    let queue = one.queue("mail").find().await.unwrap().unwrap();
    queue.pause("it is filled first").await.unwrap();
    let mut runs = Vec::new();
    for n in 0..20 {
        runs.push(
            world.pass(one.start(&graph, Context::new()).id(format!("run-{n}")).queue("mail")).await.unwrap(),
        );
    }
    fill(&one, many).await;
    world.pass_for(30 * MOMENT).await;
    let read = || (asked.reads.swap(0, Ordering::Relaxed), asked.bytes.swap(0, Ordering::Relaxed));
    let (_, all) = read();
    assert!(all > many as u64 * 50, "{all} bytes were read for {many} waiters");
    world.pass_for(300 * MOMENT).await;
    let idle = read();
    queue.unpause().await.unwrap();
    for run in &runs {
        assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    }
    world.pass_for(2 * WHILE / 60).await;
    let status = queue.status().await.unwrap();
    assert!(status.waiting >= many - 2, "{} of {many} wait", status.waiting);
    Cost { idle, busy: read() }
}

/// At a grant of another process, a process reads only the change, and not all waiters.
#[tokio::test]
async fn queue_reads_only_changes_of_other_process() {
    let many = std::env::var("FERRATA_LONG_LINE").map_or(MANY, |many| many.parse().unwrap());
    let (few, many) = (cost(100).await, cost(many).await);
    println!("{few:?} with 100 who wait, {many:?} with many");
    assert_eq!(few.idle, many.idle, "waiters must cost a process nothing while nothing happens");
    assert!(few.busy.1 > 20 * 100, "each grant must be read: {few:?}");
    assert!(many.busy.1 < few.busy.1 * 3 / 2, "{few:?} with 100 waiters, and {many:?} with many");
}

/// A queue whose state exceeds the largest record still accepts changes that release slots.
#[tokio::test]
async fn full_queue_refuses_start_and_still_grants() {
    let world = World::new();
    let process = world.process_with(|b| set_up(b, WHILE).max_body(64 * 1024)).await.unwrap();
    let witness = Witness::default();
    let graph = slow(&witness, Duration::ZERO);
    process.serve(&graph).unwrap();
    let queue = process.queue("mail").at_once(8).declare().await.unwrap();
    queue.pause("it is filled first").await.unwrap();
    let start = |n: usize| {
        let key = format!("{}-{}", n % 3, "k".repeat(240));
        process.start(&graph, Context::new()).id(format!("mail-{n}")).queue("mail").key(key)
    };
    let mut started = Vec::new();
    let refused = loop {
        let n = started.len();
        match world.pass(start(n)).await {
            Ok(queued) => started.push(queued),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(
        refused.message().contains("`mail` is full") && refused.message().contains("max_body"),
        "{refused}"
    );
    assert!((100..400).contains(&started.len()), "{} fit", started.len());
    let next = started.len();
    assert!(process.head(&format!("mail-{next}").as_str().try_into().unwrap()).await.unwrap().is_none());

    queue.unpause().await.unwrap();
    for queued in &started {
        assert!(matches!(world.pass(queued.wait()).await.unwrap(), Outcome::Completed(_)));
    }
    assert!(witness.most() <= 8);
    empty(&world, &queue).await;
    let again = world.pass(start(next)).await.unwrap();
    assert!(matches!(world.pass(again.wait()).await.unwrap(), Outcome::Completed(_)));
    world.pass_for(MOMENT).await;
    process.check_log(&queue.status().await.unwrap().run).await.unwrap();
}

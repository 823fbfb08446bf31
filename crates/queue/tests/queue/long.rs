//! A line that has no room for more: who comes is refused, and who is in it has a turn all the same.

use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::runtime::Outcome;
use ferrata_core::state::Context;
use ferrata_core::testing::World;
use ferrata_queue::{Enqueue, Queues};

use crate::support::{MOMENT, WHILE, Witness, empty, set_up, slow};

/// Once, a queue whose state had outgrown the largest record took no change any more: no place in it could be given back.
#[tokio::test]
async fn whoever_finds_no_room_is_refused_and_the_others_have_their_turns() {
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

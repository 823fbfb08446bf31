//! Known faults of other queue systems, each as a test.

use ferrata_core::runtime::Outcome;
use ferrata_core::state::Context;
use ferrata_queue::{RuntimeQueueExt, StartQueueExt};
use ferrata_testing::World;

use crate::support::{MOMENT, WHILE, Witness, empty, process, slow};

/// A cancelled holder admits one waiter, and a cancelled waiter admits none (Kestra).
#[tokio::test]
async fn cancel_admits_as_many_as_it_removes() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, WHILE);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    let mail = process.queue("mail").at_once(2).declare().await.unwrap();
    let mut runs = Vec::new();
    for n in 0..6 {
        let start = process.start(&graph, Context::new()).id(format!("run-{n}")).queue("mail");
        runs.push(world.pass(start).await.unwrap());
    }
    world.pass_for(MOMENT).await;
    assert_eq!(witness.came(), ["run-0", "run-1"]);
    // A cancelled waiter: no other run starts.
    process.cancel(runs[3].run(), "not needed").await.unwrap();
    world.pass_for(30 * MOMENT).await;
    assert_eq!(witness.came(), ["run-0", "run-1"]);
    // A cancelled holder: one run starts.
    process.cancel(runs[0].run(), "not needed").await.unwrap();
    world.pass_for(5 * MOMENT).await;
    assert_eq!(witness.came(), ["run-0", "run-1", "run-2"]);
    for run in [&runs[1], &runs[2], &runs[4], &runs[5]] {
        assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    }
    assert_eq!((witness.came().len(), witness.most()), (5, 2));
    empty(&world, &mail).await;
}

/// A debounced start after an active run with the same key does not replace that run (Windmill, and formerly Inngest).
#[tokio::test]
async fn debounced_start_after_active_run_begins_new_window() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, 20 * MOMENT);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    let index = process.queue("index").at_once(1).declare().await.unwrap();
    let save =
        |id: &str| process.start(&graph, Context::new()).id(id).queue("index").debounce("plan", 5 * MOMENT);
    let first = world.pass(save("first")).await.unwrap();
    world.pass_for(10 * MOMENT).await;
    assert_eq!(witness.inside(), 1, "the first run must be active");
    // While it is active, others arrive: the last of them counts, and none replaces the active run.
    let (second, third) =
        (world.pass(save("second")).await.unwrap(), world.pass(save("third")).await.unwrap());
    assert!(matches!(world.pass(first.wait()).await.unwrap(), Outcome::Completed(_)));
    assert!(matches!(world.pass(third.wait()).await.unwrap(), Outcome::Completed(_)));
    assert!(matches!(world.pass(second.wait()).await.unwrap(), Outcome::Cancelled { .. }));
    assert_eq!((witness.came(), witness.most()), (vec!["first".to_owned(), "third".to_owned()], 1));
    empty(&world, &index).await;
}

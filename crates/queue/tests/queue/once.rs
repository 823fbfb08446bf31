//! Starts with a key of `once`: how long a key prevents another start.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::graph::Graph;
use ferrata_core::state::Context;
use ferrata_queue::{QueuedRun, RuntimeQueueExt, StartQueueExt};
use ferrata_testing::{Process, World};

use crate::support::{MOMENT, WHILE, Witness, process, slow};

struct Once {
    world: World,
    process: Process,
    graph: Graph<Context>,
}

impl Once {
    async fn new() -> Self {
        let world = World::new();
        let (process, graph) = (process(&world).await, slow(&Witness::default(), Duration::ZERO));
        process.serve(&graph).unwrap();
        process.queue("mail").declare().await.unwrap();
        Self { world, process, graph }
    }

    async fn start(&self, id: &str, window: Duration) -> QueuedRun<Context> {
        let start =
            self.process.start(&self.graph, Context::new()).id(id).queue("mail").once("invoice-7", window);
        self.world.pass(start).await.unwrap()
    }
}

/// A start is asked with a short window and one after it with a long one, or the other way round: each goes by the window that it names itself.
#[tokio::test]
async fn later_start_names_its_own_window() {
    let once = Once::new().await;
    assert!(once.start("one", MOMENT).await.is_new());
    once.world.pass_for(2 * MOMENT).await;
    let two = once.start("two", WHILE).await;
    assert_eq!((two.is_new(), two.run().run.as_str()), (false, "one"));
    // The long window is remembered from then on.
    once.world.pass_for(WHILE - 3 * MOMENT).await;
    assert!(!once.start("three", WHILE).await.is_new());
    assert!(once.start("four", MOMENT).await.is_new(), "the last start is longer ago than this window");
    once.world.pass_for(2 * MOMENT).await;
    let five = once.start("five", WHILE).await;
    assert_eq!((five.is_new(), five.run().run.as_str()), (false, "four"));
}

/// A start that is repeated finds its run, which has ended: it starts nothing, and the time of the run counts from when that was started.
#[tokio::test]
async fn repeated_start_renews_no_window() {
    let once = Once::new().await;
    assert!(once.start("one", WHILE).await.is_new());
    for _ in 0..5 {
        once.world.pass_for(WHILE / 6).await;
        assert!(once.start("one", WHILE).await.is_new(), "it is the same start");
        assert!(!once.start("two", WHILE).await.is_new());
    }
    once.world.pass_for(WHILE / 6 + MOMENT).await;
    assert!(once.start("two", WHILE).await.is_new(), "its time is over");
    assert!(!once.start("three", WHILE).await.is_new());
}

/// A run is purged and started again: that is another run, from which the time counts.
#[tokio::test]
async fn restart_after_purge_renews_window() {
    let once = Once::new().await;
    let one = once.start("one", WHILE).await;
    once.world.pass_for(WHILE / 2).await;
    once.process.purge(one.run()).await.unwrap();
    assert!(once.start("one", WHILE).await.is_new());
    once.world.pass_for(WHILE * 3 / 4).await;
    assert!(!once.start("two", WHILE).await.is_new());
}

/// All starts with an empty key would be one.
#[tokio::test]
async fn empty_keys_are_refused() {
    let once = Once::new().await;
    let start = |id: &str| once.process.start(&once.graph, Context::new()).id(id).queue("mail");
    for start in [start("one").once("", WHILE), start("one").debounce("", WHILE)] {
        let refused = once.world.pass(start).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
    assert!(once.process.head(&"one".try_into().unwrap()).await.unwrap().is_none());
}

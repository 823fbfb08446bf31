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

/// Two starts with the same key and different windows: each uses its own window.
#[tokio::test]
async fn later_start_names_its_own_window() {
    let once = Once::new().await;
    assert!(once.start("one", MOMENT).await.is_new());
    once.world.pass_for(2 * MOMENT).await;
    let two = once.start("two", WHILE).await;
    assert_eq!((two.is_new(), two.run().run.as_str()), (false, "one"));
    // From then on, the long window is remembered.
    once.world.pass_for(WHILE - 3 * MOMENT).await;
    assert!(!once.start("three", WHILE).await.is_new());
    assert!(once.start("four", MOMENT).await.is_new(), "the last start is older than this window");
    once.world.pass_for(2 * MOMENT).await;
    let five = once.start("five", WHILE).await;
    assert_eq!((five.is_new(), five.run().run.as_str()), (false, "four"));
}

/// A repeated start finds its ended run and starts nothing. The window counts from the first start.
#[tokio::test]
async fn repeated_start_renews_no_window() {
    let once = Once::new().await;
    assert!(once.start("one", WHILE).await.is_new());
    for _ in 0..5 {
        once.world.pass_for(WHILE / 6).await;
        assert!(once.start("one", WHILE).await.is_new(), "the same start");
        assert!(!once.start("two", WHILE).await.is_new());
    }
    once.world.pass_for(WHILE / 6 + MOMENT).await;
    assert!(once.start("two", WHILE).await.is_new(), "its window is over");
    assert!(!once.start("three", WHILE).await.is_new());
}

/// A purged run that is started again is another run, and the window counts from this start.
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

/// An empty key is refused, because all such starts would share it.
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

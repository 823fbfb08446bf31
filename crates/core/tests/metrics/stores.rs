//! Metrics of the store and of its calls.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::time::Duration;

use ferrata_core::Clock;
use ferrata_core::graph::Graph;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Position, RetentionPolicy, SweepLimits};
use ferrata_core::state::Context;
use ferrata_core::store::{At, CheckpointStore};
use ferrata_testing::Fault;

use crate::world::{key, observe};

const STORE: (&str, &str) = ("ferrata.store.name", "memory");

fn of(operation: &'static str) -> [(&'static str, &'static str); 2] {
    [STORE, ("ferrata.store.operation", operation)]
}

fn graph() -> Graph<Context> {
    let nodes = ["a", "b", "c"];
    let graph = nodes
        .into_iter()
        .fold(Graph::<Context>::builder("w"), |graph, node| graph.node(node, async |_cx, s| Ok(s)));
    graph.entry("a").edge("a", "b").edge("b", "c").build().unwrap()
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
#[tokio::test]
pub(crate) async fn appends_loads_and_removals_are_counted() {
    observe(async |world| {
        let runtime = world.process().await;
        world.start(&runtime, &graph()).await.completed().await.unwrap();
        let log = world.store.load(&key(), At::Latest).await.unwrap().unwrap();
        let (records, bytes) = (log.len(), log.iter().map(|record| record.body.len()).sum::<usize>());
        assert_eq!(world.value("ferrata.store.records", &of("append")), records as f64);
        assert_eq!(world.value("ferrata.store.io", &of("append")), bytes as f64);
        let batches = world.seen.series("ferrata.append.batch.runs", &[]);
        assert!(batches.moves > 0 && batches.most == 1.0, "{batches:?}");
        let queued = world.seen.series("ferrata.append.queued", &[]);
        assert_eq!((queued.most, queued.value), (1.0, 0.0));
        let calls = |operation| world.seen.series("ferrata.store.operation.duration", &of(operation)).moves;
        assert_eq!(calls("append"), batches.moves);
        assert_eq!((calls("setup"), calls("heartbeat")), (1, 1));

        runtime.checkpoint(&key(), Position::Latest).await.unwrap();
        let loaded = world.value("ferrata.store.records", &of("load"));
        assert!(calls("load") > 0 && loaded == calls("load") as f64 * records as f64, "{loaded}");

        let policy = RetentionPolicy::keep_all().purge_after(RunStatus::Completed, Duration::ZERO);
        runtime.sweep(&policy, SweepLimits::default(), false).await.unwrap();
        assert_eq!(world.value("ferrata.store.records", &of("purge")), records as f64);
        assert_eq!(world.value("ferrata.store.io", &of("purge")), bytes as f64);
        let swept = |outcome| world.value("ferrata.sweep.runs", &[("ferrata.outcome", outcome)]);
        assert_eq!((swept("pruned"), swept("purged"), swept("failed")), (0.0, 1.0, 0.0));
        assert_eq!(world.value("ferrata.sweep.time", &[]), world.clock.now().unix_ms() as f64 / 1_000.0);
    })
    .await;
}

#[tokio::test]
pub(crate) async fn a_failed_append_is_counted_with_its_retry() {
    observe(async |world| {
        let (store, runtime) = world.mortal().await;
        // The start succeeds, and the first record of a node fails.
        store.plan(store.operations() + 1, Fault::Before);
        let run = world.start(&runtime, &graph()).await;
        world.pass(run.completed()).await.unwrap();
        let unavailable = ("error.type", "UNAVAILABLE");
        assert_eq!(world.value("ferrata.append.retries", &[unavailable]), 1.0);
        let [name, operation] = of("append");
        let failed = [name, operation, unavailable];
        assert_eq!(world.seen.series("ferrata.store.operation.duration", &failed).moves, 1);
        assert_eq!(world.value("ferrata.append.queued", &[]), 0.0);
    })
    .await;
}

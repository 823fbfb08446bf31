//! A database that is down when a transaction starts.

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::Timestamp;
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::MemoryStore;
use ferrata_testing::{LedgerDatabase, LedgerStore, ManualClock};

/// A transaction that cannot begin during a failover counts as no attempt of the node, however often the begin fails.
///
/// Guarantees: ONCE-6.
#[tokio::test]
async fn failed_transaction_begin_does_not_fail_node() {
    for times in [1, 8, 9, 30] {
        let (store, clock) = (LedgerStore::new(), Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000))));
        let graph = Graph::<Context>::builder("away")
            .node("move", async |cx: NodeContext, s: Draft<Context>| {
                assert_eq!(cx.attempt(), 1);
                let mut tx = cx.transaction::<LedgerDatabase>().await?;
                tx.add("moved", 1);
                s.commit_with(tx)
            })
            .effect(Effect::Transactional)
            .entry("move")
            .build()
            .unwrap();
        let store = store.with_runs(MemoryStore::with_clock(Arc::clone(&clock) as _));
        let builder = Runtime::builder(store.clone()).clock(Arc::clone(&clock) as _);
        let runtime = builder.build().await.unwrap();
        store.reject_begins(times);
        let run = runtime.start(&graph, Context::new()).await.unwrap();
        let mut ended = std::pin::pin!(run.wait());
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut ended => break outcome.unwrap(),
                () = tokio::task::yield_now() => clock.advance(Duration::from_millis(50)),
            }
        };
        assert!(matches!(outcome, Outcome::Completed(_)), "{times} rejected begins: {outcome:?}");
        assert_eq!(store.row("moved").await, 1);
    }
}

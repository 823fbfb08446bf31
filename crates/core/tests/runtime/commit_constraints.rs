//! Deferred database constraints: a rejection at the commit is a failed attempt of the node, like a failed statement.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::graph::{Effect, Graph, GraphBuilder, RetryPolicy};
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_testing::{LedgerDatabase, LedgerStore};

use super::transactions::nothing;

/// Starts a graph with a node that withdraws too much in its first `overdrawn` attempts. It has three attempts.
fn withdrawing(attempts: &Arc<AtomicU32>, overdrawn: u32) -> GraphBuilder<Context> {
    let count = Arc::clone(attempts);
    Graph::<Context>::builder("withdrawal")
        .node("withdraw", move |cx: NodeContext, s: Draft<Context>| {
            let count = Arc::clone(&count);
            async move {
                let mut tx = cx.transaction::<LedgerDatabase>().await?;
                let amount = if count.fetch_add(1, Ordering::SeqCst) < overdrawn { 7 } else { 3 };
                tx.add("cash", -amount);
                tx.add("withdrawals", 1);
                s.commit_with(tx)
            }
        })
        .effect(Effect::Transactional)
        .retry(RetryPolicy::none().with_attempts(3).with_delay(Duration::from_millis(1)))
        .entry("withdraw")
}

/// A store with five in the row `cash`, and a constraint that no row falls below zero.
async fn store() -> LedgerStore {
    let store = LedgerStore::new().with_minimum(0);
    let mut tx = store.transaction().await.unwrap();
    tx.add("cash", 5);
    store.finish(tx).await.unwrap();
    store
}

async fn outcome(store: &LedgerStore, graph: GraphBuilder<Context>) -> Outcome<Context> {
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let run = runtime.start(&graph.build().unwrap(), Context::new()).await.unwrap();
    run.wait().await.unwrap()
}

/// The retry policy starts another attempt, as after any other failed attempt.
///
/// Guarantees: ONCE-8.
#[tokio::test]
async fn refused_commit_is_retried_by_policy() {
    let (store, attempts) = (store().await, Arc::default());
    let outcome = outcome(&store, withdrawing(&attempts, 2)).await;
    assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
    assert_eq!(attempts.load(Ordering::SeqCst), 3);
    assert_eq!((store.row("cash").await, store.row("withdrawals").await), (2, 1));
}

/// When the policy allows no more attempts, the node fails, and the run continues at its `on_failure` edge.
///
/// Guarantees: ONCE-8.
#[tokio::test]
async fn refused_commit_takes_failure_edge() {
    let (store, attempts) = (store().await, Arc::default());
    let graph =
        withdrawing(&attempts, u32::MAX).node("refuse", nothing).edge("withdraw", "refuse").on_failure();
    let outcome = outcome(&store, graph).await;
    assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
    assert_eq!(attempts.load(Ordering::SeqCst), 3);
    assert_eq!((store.row("cash").await, store.row("withdrawals").await), (5, 0));
}

/// Without an `on_failure` edge the run fails, and its failure names the violated constraint.
#[tokio::test]
async fn refused_commit_fails_run_with_reason() {
    let (store, attempts) = (store().await, Arc::default());
    let Outcome::Failed { failure, .. } = outcome(&store, withdrawing(&attempts, u32::MAX)).await else {
        panic!("the run must fail if the constraint rejects every commit")
    };
    assert!(failure.to_string().contains("a deferred constraint rejected the rows"), "{failure}");
    assert_eq!(store.row("cash").await, 5);
}

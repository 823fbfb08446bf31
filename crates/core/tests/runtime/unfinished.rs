//! A node that stops because its run was cancelled or abandoned has not failed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::MemoryStore;

/// A node that stops in its first execution when it is asked to, and ends at once in its second.
fn graph(begun: &Arc<AtomicU32>) -> Graph<Context> {
    let begun = Arc::clone(begun);
    Graph::<Context>::builder("long")
        .node("long", move |cx: NodeContext, mut s: Draft<Context>| {
            let begun = Arc::clone(&begun);
            async move {
                if begun.fetch_add(1, Ordering::SeqCst) == 0 {
                    cx.cancelled().await;
                    return Err(NodeError::new("broken off").fatal().unfinished());
                }
                s.set("attempt", cx.attempt())?;
                Ok(s)
            }
        })
        .retry(RetryPolicy::none())
        .entry("long")
        .build()
        .unwrap()
}

async fn begin(begun: &Arc<AtomicU32>) {
    while begun.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_cancelled_run_is_cancelled_and_not_failed() {
    let begun = Arc::new(AtomicU32::new(0));
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let run = runtime.start(&graph(&begun), Context::new()).id("r").await.unwrap();
    begin(&begun).await;
    run.cancel("enough").await.unwrap();
    let outcome = run.wait().await.unwrap();
    assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
}

#[tokio::test]
async fn resuming_released_run_restarts_node() {
    let begun = Arc::new(AtomicU32::new(0));
    let store = MemoryStore::new();
    let first = Runtime::builder(store.clone()).build().await.unwrap();
    let run = first.start(&graph(&begun), Context::new()).id("r").await.unwrap();
    begin(&begun).await;
    first.shutdown(Duration::from_secs(60)).await.unwrap();
    let outcome = run.wait().await.unwrap();
    assert!(matches!(outcome, Outcome::Released), "{outcome:?}");
    let second = Runtime::builder(store).build().await.unwrap();
    let run = second.resume(&graph(&begun), "r").await.unwrap();
    let state = run.wait().await.unwrap().completed().unwrap();
    assert_eq!(state.get::<u32>("attempt").unwrap(), Some(1), "the first execution must record nothing");
}

#[tokio::test]
async fn unfinished_error_without_stop_fails_run() {
    let graph = Graph::<Context>::builder("odd")
        .node("odd", async |_cx, _s: Draft<Context>| {
            Err::<Draft<Context>, _>(NodeError::new("broken off").fatal().unfinished())
        })
        .entry("odd")
        .build()
        .unwrap();
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let Outcome::Failed { failure, .. } = run.wait().await.unwrap() else { panic!("not failed") };
    assert_eq!(failure.message, "broken off");
}

//! Calls that read values, and calls that only move their names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferrata_blobs::{Blob, Blobs};
use ferrata_core::graph::Graph;
use ferrata_core::runtime::{Position, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore as _, MemoryStore, Page, RunQuery};

use super::world::Failing;

/// Guarantees: BLOB-8.
#[tokio::test]
async fn run_with_thousand_values_reads_none() {
    let place = Failing::default();
    let reads = Arc::clone(&place.reads);
    let blobs = Blobs::new(Arc::new(place));
    let mut pages: Vec<Blob> = Vec::new();
    for at in 0..1_000 {
        pages.push(blobs.put(format!("page {at}")).await.unwrap());
    }
    let before = reads.load(Ordering::Relaxed);
    let store = MemoryStore::new();
    let runtime = Runtime::builder(store.clone()).resource(blobs.clone()).build().await.unwrap();
    let graph = Graph::<Context>::builder("book")
        .node("count", async |_cx, mut s: Draft<Context>| {
            let pages: Vec<Blob> = s.get("pages")?.unwrap_or_default();
            s.set("count", pages.len())?;
            Ok(s)
        })
        .entry("count")
        .build()
        .unwrap();
    let mut input = Context::new();
    input.set("pages", &pages).unwrap();
    let run = runtime.start(&graph, input).await.unwrap();
    run.wait().await.unwrap();
    let state = runtime.state_at(&graph, run.run(), Position::Latest).await.unwrap();
    assert_eq!(state.get::<Vec<Blob>>("pages").unwrap().unwrap(), pages);
    let fork = runtime.fork(run.run(), ferrata_core::Seq::new(0)).drive(&graph).await.unwrap();
    fork.wait().await.unwrap();
    assert_eq!(
        runtime.history(run.run(), Page::first(10)).await.unwrap().items[0].status.to_string(),
        "completed"
    );
    assert_eq!(store.runs(&RunQuery::default(), Page::first(10)).await.unwrap().items.len(), 2);
    assert_eq!(reads.load(Ordering::Relaxed), before, "values must not be read");
    // A read is counted.
    blobs.get(&pages[7]).await.unwrap();
    assert_eq!(reads.load(Ordering::Relaxed), before + 1);
}

//! A cursor of a purged run is never valid for the next run with the same id.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;

use ferrata_core::ErrorKind;
use ferrata_core::runtime::{RetentionPolicy, Runtime, WatchCursor, WatchEventKind};
use ferrata_core::state::Context;
use tokio::sync::Notify;

use super::watching::key;
use super::watching_live::speaker;
use super::world::World;

async fn run(runtime: &Runtime) {
    let may = Arc::new(Notify::new());
    may.notify_one();
    runtime.start(&speaker(0, &may), Context::new()).id("r").await.unwrap().completed().await.unwrap();
}

/// Reads all events, and takes the cursor after each one, as a browser sends it when it reconnects.
async fn cursors(runtime: &Runtime, from: Option<WatchCursor>) -> Vec<WatchCursor> {
    let watch = runtime.watch(&key());
    let mut watch = match from {
        Some(cursor) => watch.after(cursor).await.unwrap(),
        None => watch.await.unwrap(),
    };
    let mut cursors = Vec::new();
    while watch.next().await.unwrap().is_some() {
        cursors.push(watch.cursor().to_string().parse().unwrap());
    }
    cursors
}

/// Every cursor names the run's id, also a cursor within the first record. It is refused for the next run with the same key.
#[tokio::test]
async fn every_cursor_names_its_generation() {
    let world = World::new();
    let runtime = world.process().await;
    run(&runtime).await;
    let told = cursors(&runtime, None).await;
    assert!(told.len() > 3 && told[0].seq().is_none(), "the first record yields several events");
    // After each cursor, a watch of the same run continues.
    for (place, cursor) in told.iter().enumerate() {
        assert_eq!(cursors(&runtime, Some(cursor.clone())).await, told[place + 1..], "{cursor}");
    }
    runtime.purge(&key()).await.unwrap();
    run(&runtime).await;
    for keeps in [false, true] {
        // Another watcher of the next run may have read events of it, which this process caches.
        let mut other = runtime.watch(&key()).await.unwrap();
        if keeps {
            other.next().await.unwrap().unwrap();
        }
        for cursor in &told {
            let mut watch = runtime.watch(&key()).after(cursor.clone()).await.unwrap();
            let error = watch.next().await.expect_err(&cursor.to_string());
            assert_eq!(error.kind(), ErrorKind::NotFound, "{cursor}: {error}");
        }
    }
}

/// A cursor after pruned records also names the run's id.
#[tokio::test]
async fn cursor_behind_pruned_records_names_its_generation() {
    let world = World::new();
    let runtime = world.process().await;
    let prune = async || {
        run(&runtime).await;
        let policy = RetentionPolicy::keep_all().keep_last(1);
        runtime.apply_retention(&key(), &policy).await.unwrap();
    };
    prune().await;
    let mut watch = runtime.watch(&key()).await.unwrap();
    let first = watch.next().await.unwrap().unwrap();
    assert!(matches!(first.what, WatchEventKind::Pruned { .. }), "{first:?}");
    let cursor = watch.cursor();
    // Drop the watch first, so that this process caches none of its events.
    drop(watch);
    assert!(
        cursors(&runtime, Some(cursor.clone())).await.len() > 1,
        "the same run continues after the cursor"
    );
    runtime.purge(&key()).await.unwrap();
    prune().await;
    let mut watch = runtime.watch(&key()).after(cursor).await.unwrap();
    assert_eq!(watch.next().await.unwrap_err().kind(), ErrorKind::NotFound);
}

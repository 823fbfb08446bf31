//! Calls that are dropped on the way leave a connection that can be used.
//!
//! A purge that was dropped while `BEGIN` was on its way gave its connection back to the pool within a transaction that nobody
//! knew of. The next append on it was acknowledged and never committed: lost with the connection. Whatever begins a
//! transaction now runs to its end, whether or not its caller still waits.
#![expect(clippy::unwrap_used, reason = "a test that cannot do its work has failed")]

mod common;

use std::future::poll_fn;
use std::num::NonZeroU32;
use std::pin::pin;
use std::task::Poll;

use common::Schema;
use common::author::{Author, append, is_kept};
use ferrata_core::store::CheckpointStore;
use ferrata_store_postgres::PostgresStore;

/// Polls a call this often, letting others go on in between, and drops it.
async fn drop_after<T>(polls: usize, call: impl Future<Output = T>) {
    let mut call = pin!(call);
    for _ in 0..polls {
        if poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn is_usable_after(prepared: bool) {
    let schema = Schema::new();
    // One connection, so that the next call gets the one that the dropped call had.
    let options = schema.options().with_connections(NonZeroU32::MIN).with_prepared(prepared);
    let store = PostgresStore::from_url(&schema.url, options).unwrap();
    let other = schema.store();
    store.setup().await.unwrap();
    for polls in 0..60 {
        let mut author = Author::new(&format!("r-{polls}"));
        append(&store, author.next(3)).await.unwrap();
        drop_after(polls, store.purge(&author.run)).await;
        store.purge(&author.run).await.unwrap();
        author.records.clear();
        append(&store, author.next(2)).await.unwrap();
        is_kept(&other, &author).await;
        drop_after(polls, store.setup()).await;
        append(&store, author.next(1)).await.unwrap();
        is_kept(&other, &author).await;
        drop_after(polls, store.head(&author.run)).await;
        append(&store, author.next(1)).await.unwrap();
        is_kept(&other, &author).await;
        let entry = author.next(1);
        drop_after(polls, append(&store, entry.clone())).await;
        append(&store, entry).await.unwrap();
        is_kept(&other, &author).await;
    }
    schema.remove().await;
}

#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_connection_is_usable_after_any_dropped_call() {
    is_usable_after(true).await;
}

#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn the_same_without_prepared_statements() {
    is_usable_after(false).await;
}

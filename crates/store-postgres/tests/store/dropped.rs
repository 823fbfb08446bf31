//! A dropped call leaves a usable connection.
//!
//! Otherwise a purge that is dropped during `BEGIN` returns a connection with an open transaction to the pool, and the next append on that connection
//! is never committed. A call that starts a transaction therefore runs to its end, even if its caller is gone.
use std::future::poll_fn;
use std::num::NonZeroU32;
use std::pin::pin;
use std::task::Poll;

use crate::common::Schema;
use crate::common::author::{Author, append, is_kept};
use ferrata_store::CheckpointStore;
use ferrata_store_postgres::PostgresStore;
use sqlx::{Executor as _, Row as _};

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
        drop_after(polls, store.purge(&author.key, None)).await;
        store.purge(&author.key, None).await.unwrap();
        author.records.clear();
        append(&store, author.next(2)).await.unwrap();
        is_kept(&other, &author).await;
        drop_after(polls, store.setup()).await;
        append(&store, author.next(1)).await.unwrap();
        is_kept(&other, &author).await;
        drop_after(polls, store.head(&author.key)).await;
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

/// Guarantees: POSTGRES-3.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn the_same_without_prepared_statements() {
    is_usable_after(false).await;
}

/// A purge is dropped while it waits in the server, and another process purges and restarts the run. When the first purge continues, it must not
/// remove the new generation.
///
/// Guarantees: POSTGRES-15.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn late_purge_spares_restarted_run() {
    let schema = Schema::new();
    let (store, pool) = (schema.store(), schema.pool(1));
    store.setup().await.unwrap();
    let mut author = Author::new("r");
    append(&store, author.next(3)).await.unwrap();
    let sql = |text: &str| sqlx::raw_sql(sqlx::AssertSqlSafe(text.replace("{schema}", &schema.name)));
    let mut holder = pool.begin().await.unwrap();
    holder.execute(sql("LOCK TABLE {schema}.runs IN EXCLUSIVE MODE")).await.unwrap();
    let waits = async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'";
        let mut connection = schema.connection().await;
        let row = sqlx::query(waiting).bind(&schema.name).fetch_one(&mut connection).await.unwrap();
        row.get::<i64, _>(0) > 0
    };
    tokio::select! {
        done = store.purge(&author.key, None) => panic!("the table is locked: {done:?}"),
        () = crate::common::until("a purge that waits", waits) => {}
    }
    let purged = "DELETE FROM {schema}.records; DELETE FROM {schema}.runs";
    holder.execute(sql(purged)).await.unwrap();
    let mut next_life = Author::new("r");
    store.append_in(&mut holder, next_life.next(2)).await.unwrap();
    holder.commit().await.unwrap();
    crate::common::until("the end of the purge", async || !waits().await).await;
    // Whoever removes records holds the table until the removal is done.
    schema.execute("BEGIN; LOCK TABLE {schema}.records IN ACCESS EXCLUSIVE MODE; COMMIT").await;
    is_kept(&store, &next_life).await;
    schema.remove().await;
}

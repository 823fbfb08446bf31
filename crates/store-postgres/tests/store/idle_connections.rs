//! A recently used connection is reused first, and stays available to every caller.
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::author::{Author, append};
use crate::common::proxy::Proxy;
use crate::common::{Schema, until};
use ferrata_store::{CheckpointStore, Transactions};
use ferrata_store_postgres::PostgresStore;
use tokio::task::JoinSet;

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Statements one after the other cost no question in between; a connection that nobody uses goes back to the pool, which asks.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn connection_in_use_is_not_checked_again() {
    let schema = Schema::new();
    let proxy = Proxy::before(&schema.url).await;
    let options = schema.options().with_notices(false);
    let store = PostgresStore::from_url(&proxy.url(&schema.url), options).unwrap();
    store.setup().await.unwrap();
    let mut author = Author::new("r");
    append(&store, author.next(1)).await.unwrap();
    let before = proxy.questions();
    for _ in 0..100 {
        append(&store, author.next(1)).await.unwrap();
        store.head(&author.key).await.unwrap();
    }
    // Two hundred without; some few where the machine stands still for a second.
    let asked = proxy.questions() - before;
    assert!(asked < 50, "asked {asked} times");
    let before = proxy.questions();
    until("the way back", async || proxy.questions() > before).await;
    schema.remove().await;
}

/// So many callers at once commit so many transactions each.
async fn transact(store: &PostgresStore, callers: usize, times: usize) {
    let mut all = JoinSet::new();
    for caller in 0..callers {
        let store = store.clone();
        all.spawn(async move {
            let mut author = Author::new(&format!("r-{callers}-{times}-{caller}"));
            for _ in 0..times {
                let begun = store.begin(&author.key).await.unwrap();
                store.commit(begun, author.next(1)).await.unwrap();
            }
        });
    }
    all.join_all().await;
}

/// The same of transactions, with as many callers as connections and with more: a connection passes from one to the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_transaction_costs_no_question_either() {
    let schema = Schema::new();
    let proxy = Proxy::before(&schema.url).await;
    let options = schema.options().with_connections(NonZeroU32::new(2).unwrap()).with_notices(false);
    let store = PostgresStore::from_url(&proxy.url(&schema.url), options).unwrap();
    store.setup().await.unwrap();
    for callers in [2, 8] {
        // The pool makes its connections.
        transact(&store, callers, 1).await;
        let before = proxy.questions();
        proxy.take_requests();
        transact(&store, callers, 40 / callers).await;
        let (asked, sent) = (proxy.questions() - before, proxy.take_requests());
        // Each begins, asks whether its transaction is open, appends and commits; a connection prepares a statement once.
        assert!((160..=168).contains(&sent), "{sent} requests, with {callers} callers");
        // Forty without; some few where the machine stands still for a second.
        assert!(asked < 10, "asked {asked} times, with {callers} callers");
    }
    schema.remove().await;
}

/// More callers than connections: each gets its turn, among those that take an idle connection and those that wait at the pool.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn who_waits_at_the_pool_is_not_forgotten() {
    let schema = Schema::new();
    let options = schema.options().with_connections(NonZeroU32::new(2).unwrap()).with_notices(false);
    let store = PostgresStore::from_url(&schema.url, options).unwrap();
    store.setup().await.unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    for caller in 0..16 {
        let (store, begun) = (store.clone(), Arc::clone(&begun));
        callers.spawn(async move {
            let mut author = Author::new(&format!("r-{caller}"));
            append(&store, author.next(1)).await.unwrap();
            begun.fetch_add(1, Ordering::SeqCst);
            for _ in 1..40 {
                append(&store, author.next(1)).await.unwrap();
            }
            assert_eq!(
                begun.load(Ordering::SeqCst),
                16,
                "nobody has had forty turns before everybody had one"
            );
            // A purge takes a connection for several statements.
            store.purge(&author.key, None).await.unwrap().records
        });
    }
    assert_eq!(callers.join_all().await, [40; 16]);
    schema.remove().await;
}

/// The runtime of a connection ends; the next one takes another connection, and the store may be dropped outside of any.
#[test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
fn connection_is_used_only_on_its_own_runtime() {
    let schema = Schema::new();
    current_thread().block_on(schema.store().setup()).unwrap();
    let options = schema.options().with_notices(false);
    let store = PostgresStore::from_url(&schema.url, options).unwrap();
    let mut author = Author::new("r");
    let first = current_thread();
    first.block_on(append(&store, author.next(1))).unwrap();
    drop(first);
    let second = current_thread();
    second.block_on(append(&store, author.next(1))).unwrap();
    // At hand on the second runtime, which goes on without the store.
    drop(store);
    second.block_on(schema.remove());
}

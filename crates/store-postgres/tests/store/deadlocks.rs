//! The cycles in which two batches could wait for each other, each produced on purpose. Every cycle resolves.
//!
//! A third transaction holds the locks that both batches need, until both wait. The server then chooses the order, so each test runs several times.
use std::num::NonZeroU32;

use crate::common::author::{Author, append, is_kept};
use crate::common::{Schema, until};
use ferrata_store::{CheckpointStore, ErrorKind, HeadRef, Result, RunAppend};
use ferrata_store_postgres::PostgresStore;
use sqlx::Row as _;

const ROUNDS: usize = 12;

struct Stage {
    schema: Schema,
    store: PostgresStore,
}

impl Stage {
    /// A store with so many runs that the server finds each by the index, in the order in which they are given.
    async fn new() -> Self {
        let schema = Schema::new();
        let store = schema.store();
        store.setup().await.unwrap();
        let many = (0..3_000).map(|n| Author::new(&format!("other-{n}")).next(1)).collect();
        assert!(store.append(many).await.iter().all(Result::is_ok));
        schema.execute("ANALYZE {schema}.runs; ANALYZE {schema}.records").await;
        Self { schema, store }
    }

    async fn started(&self, name: &str) -> Author {
        let mut author = Author::new(name);
        append(&self.store, author.next(1)).await.unwrap();
        author
    }

    /// Appends both batches while a third transaction holds a run, the first one first; returns what became of them.
    async fn crossing(&self, held: RunAppend, batches: [Vec<RunAppend>; 2]) -> [Vec<Result<HeadRef>>; 2] {
        let pool = self.schema.pool(1);
        let mut holder = pool.begin().await.unwrap();
        self.store.append_in(&mut holder, held).await.unwrap();
        let mut running = Vec::new();
        for batch in batches {
            let options = self.schema.options().with_connections(NonZeroU32::MIN).with_notices(false);
            let store = PostgresStore::from_url(&self.schema.url, options).unwrap();
            running.push(tokio::task::spawn_blocking(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(store.append(batch))
            }));
            let count = i64::try_from(running.len()).unwrap();
            until("waiting", async || self.waiting().await == count).await;
        }
        holder.rollback().await.unwrap();
        let second = running.pop().unwrap();
        [running.pop().unwrap().await.unwrap(), second.await.unwrap()]
    }

    /// How many of this test's statements wait for another transaction.
    async fn waiting(&self) -> i64 {
        self.waiting_with("").await
    }

    /// The same of those statements that have this in their text.
    async fn waiting_with(&self, part: &str) -> i64 {
        let mut connection = self.schema.connection().await;
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%' || $2 || '%'";
        sqlx::query(waiting)
            .bind(&self.schema.name)
            .bind(part)
            .fetch_one(&mut connection)
            .await
            .unwrap()
            .get(0)
    }
}

/// Checks that every entry is done or refused with a conflict, and none is the victim of a deadlock.
fn none_is_a_victim(results: &[Vec<Result<HeadRef>>]) {
    for error in results.iter().flatten().filter_map(|result| result.as_ref().err()) {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    }
}

/// Two batches grow the same two runs, given in opposite orders.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn runs_that_grow_are_given_in_opposite_orders() {
    let stage = Stage::new().await;
    for round in 0..ROUNDS {
        let mut first = stage.started(&format!("a-{round}")).await;
        let mut second = stage.started(&format!("b-{round}")).await;
        let held = second.clone().next(1);
        let (a, b) = (first.next(1), second.next(1));
        let results = stage.crossing(held, [vec![b.clone(), a.clone()], vec![a, b]]).await;
        none_is_a_victim(&results);
    }
    stage.schema.remove().await;
}

/// Two batches start the same two runs, given in opposite orders.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn runs_that_start_are_given_in_opposite_orders() {
    let stage = Stage::new().await;
    for round in 0..ROUNDS {
        let start = |name: &str| Author::new(&format!("{name}-{round}")).next(1);
        let batches = [vec![start("b"), start("a")], vec![start("a"), start("b")]];
        none_is_a_victim(&stage.crossing(start("b"), batches).await);
    }
    stage.schema.remove().await;
}

/// One batch grows a run and starts another; the other one starts both, the first of them in vain.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_run_grows_beside_one_that_two_start() {
    let stage = Stage::new().await;
    for round in 0..ROUNDS {
        let mut there = stage.started(&format!("z-{round}")).await;
        let start = |name: &str| Author::new(&format!("{name}-{round}")).next(1);
        let batches = [vec![there.next(1), start("y")], vec![start("y"), start("z")]];
        let results = stage.crossing(start("y"), batches).await;
        none_is_a_victim(&results);
        assert!(results[0][0].is_ok(), "the run that is there grows: {results:?}");
    }
    stage.schema.remove().await;
}

/// A transaction locks a run for long: the batch abandons its short wait, then waits in the fixed order, and is written once.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_batch_waits_as_long_as_it_takes() {
    let stage = Stage::new().await;
    let mut held = stage.started("held").await;
    let mut free = stage.started("free").await;
    let pool = stage.schema.pool(1);
    let mut holder = pool.begin().await.unwrap();
    stage.store.append_in(&mut holder, held.clone().next(1)).await.unwrap();
    let batch = vec![free.next(1), held.next(1), Author::new("new").next(2)];
    let store = stage.store.clone();
    let mut appending = tokio::task::JoinSet::new();
    appending.spawn(async move { store.append(batch).await });
    until("waiting in order", async || stage.waiting_with("ORDER BY key)").await == 1).await;
    holder.rollback().await.unwrap();
    let results = appending.join_next().await.unwrap().unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    is_kept(&stage.store, &held).await;
    is_kept(&stage.store, &free).await;
    stage.schema.remove().await;
}

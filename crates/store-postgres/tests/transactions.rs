//! A record in the user's own transaction: there exactly if the transaction commits.

mod common;

use std::time::Duration;

use common::Schema;
use common::author::{Author, append, is_kept};
use ferrata_store::{CheckpointStore, Clock as _, ErrorKind, SystemClock};
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn work_and_record_commit_together_or_not_at_all() {
    let schema = Schema::new();
    let (store, pool) = (schema.store(), schema.pool(2));
    store.setup().await.unwrap();
    schema.execute("CREATE TABLE {schema}.booked (place int PRIMARY KEY)").await;
    let book = |place: i32| AssertSqlSafe(format!("INSERT INTO {}.booked VALUES ({place})", schema.name));
    let mut author = Author::new("r");
    append(&store, author.next(1)).await.unwrap();

    for (place, commits) in [(1, true), (2, false), (3, true)] {
        let before = author.clone();
        let entry = author.next(1);
        let mut transaction = pool.begin().await.unwrap();
        transaction.execute(sqlx::raw_sql(book(place))).await.unwrap();
        let head = store.append_in(&mut transaction, entry).await.unwrap();
        assert_eq!(Some(head), author.head());
        is_kept(&store, &before).await;
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
            author = before;
        }
        is_kept(&store, &author).await;
    }
    let booked = AssertSqlSafe(format!("SELECT array_agg(place ORDER BY place) FROM {}.booked", schema.name));
    let booked: Vec<i32> = sqlx::query(booked).fetch_one(&pool).await.unwrap().get(0);
    assert_eq!(booked, [1, 3]);
    schema.remove().await;
}

/// A conflict leaves the transaction usable, with nothing of the run in it; a repeat is recognised.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_conflict_within_a_transaction_writes_nothing() {
    let schema = Schema::new();
    let (store, pool) = (schema.store(), schema.pool(2));
    store.setup().await.unwrap();
    let mut author = Author::new("r");
    append(&store, author.next(2)).await.unwrap();
    let mut stale = author.clone();
    append(&store, author.next(1)).await.unwrap();

    let mut transaction = pool.begin().await.unwrap();
    let conflict = store.append_in(&mut transaction, stale.next(1)).await.unwrap_err();
    assert_eq!((conflict.kind(), conflict.actual_head()), (ErrorKind::Conflict, Some(author.head())));
    let missing = store.append_in(&mut transaction, {
        let mut missing = Author::new("missing");
        missing.next(1);
        missing.next(1)
    });
    let missing = missing.await.unwrap_err();
    assert_eq!((missing.kind(), missing.actual_head()), (ErrorKind::Conflict, Some(None)));
    let entry = author.next(1);
    store.append_in(&mut transaction, entry.clone()).await.unwrap();
    store.append_in(&mut transaction, entry.clone()).await.unwrap();
    transaction.commit().await.unwrap();
    append(&store, entry).await.unwrap();
    is_kept(&store, &author).await;
    schema.remove().await;
}

/// Two transactions of a higher isolation level meet at one run: one is told to begin anew, and nothing is written twice.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_serialisable_transaction_is_told_to_begin_anew() {
    let schema = Schema::new();
    let (store, pool) = (schema.store(), schema.pool(2));
    store.setup().await.unwrap();
    let mut author = Author::new("r");
    append(&store, author.next(1)).await.unwrap();
    let mut late = author.clone();
    let mut transaction = pool.begin().await.unwrap();
    transaction.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").await.unwrap();
    transaction.execute("SELECT 1").await.unwrap();
    append(&store, author.next(1)).await.unwrap();
    let refused = store.append_in(&mut transaction, late.next(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    transaction.rollback().await.unwrap();
    is_kept(&store, &author).await;
    schema.remove().await;
}

/// A notice of a record in a transaction comes after the commit, to every process, and never of one rolled back.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_notice_comes_with_the_commit() {
    let schema = Schema::new();
    let (store, other, pool) = (schema.store(), schema.store(), schema.pool(2));
    store.setup().await.unwrap();
    let (mut here, mut there) = (store.subscribe().unwrap(), other.subscribe().unwrap());
    common::listens(&schema, 2).await;
    let clock = SystemClock::new();
    let mut rolled_back = Author::new("rolled-back");
    let mut transaction = pool.begin().await.unwrap();
    store.append_in(&mut transaction, rolled_back.next(1)).await.unwrap();
    transaction.rollback().await.unwrap();
    let mut author = Author::new("r");
    let mut transaction = pool.begin().await.unwrap();
    store.append_in(&mut transaction, author.next(1)).await.unwrap();
    tokio::select! {
        early = there.next() => panic!("a notice before the commit: {early:?}"),
        () = clock.sleep(Duration::from_millis(200)) => {}
    }
    transaction.commit().await.unwrap();
    for notices in [&mut here, &mut there] {
        assert_eq!(notices.next().await.unwrap(), Some(author.key.clone()));
    }
    schema.remove().await;
}

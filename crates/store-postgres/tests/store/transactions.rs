//! A record in the user's transaction, and in one of the store's: it exists exactly if the transaction commits.
use std::time::Duration;

use crate::common::Schema;
use crate::common::author::{Author, append, is_kept};
use ferrata_store::{CheckpointStore, Clock as _, Database as _, ErrorKind, SystemClock, Transactions};
use ferrata_store_postgres::{Postgres, PostgresStore, PostgresTransaction};
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

/// Guarantees: POSTGRES-7.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn work_and_record_commit_together_or_neither() {
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
///
/// Guarantees: POSTGRES-7.
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

/// Two transactions with a higher isolation level conflict on one run: one gets an error that requests a new transaction, and nothing is written
/// twice.
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
///
/// Guarantees: POSTGRES-7.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_notice_comes_with_the_commit() {
    let schema = Schema::new();
    let (store, other, pool) = (schema.store(), schema.store(), schema.pool(2));
    store.setup().await.unwrap();
    let (mut here, mut there) = (store.subscribe().unwrap(), other.subscribe().unwrap());
    crate::common::listens(&schema, 2).await;
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
        assert_eq!(notices.next().await.unwrap().map(|heard| heard.run), Some(author.key.clone()));
    }
    schema.remove().await;
}

/// Begins a transaction of the store's, and books a seat in it.
async fn booking(
    schema: &Schema,
    store: &PostgresStore,
    author: &Author,
    seat: i32,
) -> Box<PostgresTransaction> {
    let begun = store.begin(&author.key).await.unwrap();
    let mut transaction = begun.downcast::<PostgresTransaction>().unwrap();
    let book = AssertSqlSafe(format!("INSERT INTO {}.booked VALUES ({seat})", schema.name));
    transaction.execute(sqlx::raw_sql(book)).await.unwrap();
    transaction
}

async fn booked(schema: &Schema) -> i64 {
    let count = AssertSqlSafe(format!("SELECT count(*) FROM {}.booked", schema.name));
    sqlx::query(count).fetch_one(&mut schema.connection().await).await.unwrap().get(0)
}

/// Guarantees: ONCE-1.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn node_rows_commit_with_its_record() {
    let schema = Schema::new();
    let store = schema.store();
    store.setup().await.unwrap();
    assert_eq!(store.capabilities().name, Postgres::NAME);
    schema.execute("CREATE TABLE {schema}.booked (place int PRIMARY KEY)").await;
    let mut author = Author::new("r");
    // The first commit starts the run.
    for seat in 1..=3 {
        let transaction = booking(&schema, &store, &author, seat).await;
        assert_eq!(booked(&schema).await, i64::from(seat) - 1, "nobody sees it before the commit");
        let entry = author.next(2);
        let head = store.commit(transaction, entry).await.unwrap();
        assert_eq!(Some(head), author.head());
        is_kept(&store, &author).await;
        assert_eq!(booked(&schema).await, i64::from(seat));
    }
    schema.remove().await;
}

#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn conflict_at_commit_rolls_back_rows() {
    let schema = Schema::new();
    let store = schema.store();
    store.setup().await.unwrap();
    schema.execute("CREATE TABLE {schema}.booked (place int PRIMARY KEY)").await;
    let mut author = Author::new("r");
    append(&store, author.next(1)).await.unwrap();
    let mut stale = author.clone();
    let transaction = booking(&schema, &store, &author, 1).await;
    // Somebody else is first, and is not held up by the open transaction.
    append(&store, author.next(1)).await.unwrap();
    let refused = store.commit(transaction, stale.next(1)).await.unwrap_err();
    assert_eq!((refused.kind(), refused.actual_head()), (ErrorKind::Conflict, Some(author.head())));
    assert_eq!(booked(&schema).await, 0);
    is_kept(&store, &author).await;
    schema.remove().await;
}

/// A transaction that is dropped, one with a savepoint open, and one whose rows are refused at the commit: nothing of them is there, and
/// their connection, the only one, is as good as new.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_dropped_transaction_leaves_nothing() {
    let schema = Schema::new();
    let options = schema.options().with_connections(std::num::NonZeroU32::MIN).with_notices(false);
    let store = PostgresStore::from_url(&schema.url, options).unwrap();
    store.setup().await.unwrap();
    let unique = "CREATE TABLE {schema}.booked (place int, UNIQUE (place) DEFERRABLE INITIALLY DEFERRED)";
    schema.execute(unique).await;
    let mut author = Author::new("r");
    append(&store, author.next(1)).await.unwrap();
    drop(booking(&schema, &store, &author, 1).await);
    let mut transaction = booking(&schema, &store, &author, 1).await;
    std::mem::forget(sqlx::Connection::begin(&mut **transaction).await.unwrap());
    let refused = store.commit(transaction, author.clone().next(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused:?}");
    let mut transaction = booking(&schema, &store, &author, 1).await;
    let again = AssertSqlSafe(format!("INSERT INTO {}.booked VALUES (1)", schema.name));
    transaction.execute(sqlx::raw_sql(again)).await.unwrap();
    let refused = store.commit(transaction, author.clone().next(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused:?}");
    assert!(!refused.is_retryable());
    // A begin that is given up on its way leaves no transaction open on a connection that others get.
    for polls in 0..4 {
        let mut begin = Box::pin(store.begin(&author.key));
        for _ in 0..polls {
            if futures_poll(&mut begin).await {
                break;
            }
        }
        drop(begin);
        append(&store, author.next(1)).await.unwrap();
        is_kept(&schema.store(), &author).await;
    }
    assert_eq!(booked(&schema).await, 0);
    schema.remove().await;
}

/// Polls once, lets the driver of the connection read, and tells whether it is done.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> bool {
    tokio::select! {
        biased;
        _ = future => true,
        () = tokio::task::yield_now() => false,
    }
}

#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_connection_to_another_kind_is_invalid() {
    let schema = Schema::new();
    let (store, mut author) = (schema.store(), Author::new("r"));
    let refused = Transactions::append_in(&store, &mut 7, author.clone().next(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let refused = store.commit(Box::new(7), author.next(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

/// The server's own errors, raised at a statement as it raises them itself.
///
/// Guarantees: ONCE-6.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn what_gave_way_is_told_from_what_failed() {
    let schema = Schema::new();
    let (store, mut connection) = (schema.store(), schema.connection().await);
    for (code, gave_way) in
        [("40001", true), ("40P01", true), ("55P03", true), ("23505", false), ("22012", false)]
    {
        let raise = AssertSqlSafe(format!("DO $$ BEGIN RAISE EXCEPTION SQLSTATE '{code}'; END $$"));
        let error = connection.execute(sqlx::raw_sql(raise)).await.unwrap_err();
        assert_eq!(store.is_transient(&error), gave_way, "{code}");
        let wrapped = ferrata_store::Error::new(ErrorKind::Invalid, "a cause").with_source(error);
        assert_eq!(store.is_transient(&wrapped), gave_way, "{code}, as a cause");
    }
}

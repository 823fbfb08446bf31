//! A record in the user's own transaction: there exactly if the transaction commits.

use ferrata_store::{CheckpointStore as _, ErrorKind, Transactions as _};
use ferrata_store_sqlite::{SqliteOptions, SqliteTransaction};
use sqlx::Row as _;

use crate::support::{append, execute, is_kept, log, place};

#[tokio::test]
async fn work_and_record_commit_together_or_not_at_all() {
    let place = place(SqliteOptions::default()).await;
    let mut mine = place.connection().await;
    execute(&mut mine, "CREATE TABLE booked (place INTEGER PRIMARY KEY) STRICT").await;
    let mut log = log("r");
    for (seat, commits) in [(1, true), (2, false), (3, true)] {
        execute(&mut mine, &format!("BEGIN IMMEDIATE; INSERT INTO booked VALUES ({seat})")).await;
        let entry = log.next(2);
        place.store.append_in(&mut mine, entry.clone()).await.unwrap();
        is_kept(&place.store, &log).await;
        execute(&mut mine, if commits { "COMMIT" } else { "ROLLBACK" }).await;
        if commits {
            log.took(&entry);
        }
        is_kept(&place.store, &log).await;
        log.write(&place.store, 1).await;
    }
    let booked = sqlx::query("SELECT group_concat(place) FROM booked").fetch_one(&mut mine).await.unwrap();
    assert_eq!(booked.get::<String, _>(0), "1,3");
}

/// A conflict leaves the transaction usable, with nothing of the run in it; a repeat is recognised.
#[tokio::test]
async fn a_conflict_within_a_transaction_writes_nothing() {
    let place = place(SqliteOptions::default()).await;
    let (mut log, mut mine) = (log("r"), place.connection().await);
    let stale = log.next(1);
    log.write(&place.store, 2).await;
    execute(&mut mine, "CREATE TABLE booked (place INTEGER PRIMARY KEY) STRICT; BEGIN IMMEDIATE").await;
    let conflict = place.store.append_in(&mut mine, stale).await.unwrap_err();
    assert_eq!((conflict.kind(), conflict.actual_head()), (ErrorKind::Conflict, Some(log.head())));
    let entry = log.next(1);
    for _ in 0..2 {
        assert_eq!(place.store.append_in(&mut mine, entry.clone()).await.unwrap().seq.get(), 2);
    }
    execute(&mut mine, "INSERT INTO booked VALUES (1); COMMIT").await;
    log.took(&entry);
    is_kept(&place.store, &log).await;
}

/// A transaction that has read before its first write, and meanwhile another one wrote: SQLite refuses it at once and for good, and no
/// wait for a lock helps. It must not be taken for a conflict, and the next transaction must succeed.
#[tokio::test]
async fn a_transaction_that_read_before_another_wrote_is_unavailable() {
    let place = place(SqliteOptions::default()).await;
    let (mut log, mut mine) = (log("r"), place.connection().await);
    log.write(&place.store, 1).await;
    execute(&mut mine, "BEGIN; SELECT * FROM ferrata_runs").await;
    log.write(&place.store, 1).await;
    let entry = log.next(1);
    let mut before = log.clone();
    before.records.pop();
    let refused = place.store.append_in(&mut mine, before.next(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    execute(&mut mine, "ROLLBACK; BEGIN IMMEDIATE").await;
    place.store.append_in(&mut mine, entry.clone()).await.unwrap();
    execute(&mut mine, "COMMIT").await;
    log.took(&entry);
    is_kept(&place.store, &log).await;
    assert_eq!(append(&place.store, entry).await.unwrap(), log.head().unwrap(), "a repeat through the store");
    assert_eq!(place.store.purge(&log.key, log.head()).await.unwrap().records, 3);
}

async fn booked(mine: &mut sqlx::SqliteConnection) -> String {
    let booked = sqlx::query("SELECT coalesce(group_concat(place), '') FROM booked").fetch_one(mine).await;
    booked.unwrap().get(0)
}

#[tokio::test]
async fn the_rows_of_a_node_and_its_record_commit_together() {
    let place = place(SqliteOptions::default()).await;
    let mut mine = place.connection().await;
    execute(&mut mine, "CREATE TABLE booked (place INTEGER PRIMARY KEY) STRICT").await;
    let mut log = log("r");
    for seat in 1..=3 {
        let mut transaction =
            place.store.begin(&log.key).await.unwrap().downcast::<SqliteTransaction>().unwrap();
        execute(&mut transaction, &format!("INSERT INTO booked VALUES ({seat})")).await;
        let entry = log.next(2);
        assert_eq!(booked(&mut mine).await.split(',').count(), usize::max(1, seat - 1));
        let head = place.store.commit(transaction, entry.clone()).await.unwrap();
        log.took(&entry);
        assert_eq!(Some(head), log.head());
        is_kept(&place.store, &log).await;
        // The lock is free for others.
        log.write(&place.store, 1).await;
    }
    assert_eq!(booked(&mut mine).await, "1,2,3");
}

#[tokio::test]
async fn a_conflict_at_the_commit_rolls_the_rows_back() {
    let place = place(SqliteOptions::default()).await;
    let mut mine = place.connection().await;
    execute(&mut mine, "CREATE TABLE booked (place INTEGER PRIMARY KEY) STRICT").await;
    let mut log = log("r");
    let stale = log.next(1);
    log.write(&place.store, 2).await;
    let mut transaction = place.store.begin(&log.key).await.unwrap().downcast::<SqliteTransaction>().unwrap();
    execute(&mut transaction, "INSERT INTO booked VALUES (1)").await;
    let refused = place.store.commit(transaction, stale).await.unwrap_err();
    assert_eq!((refused.kind(), refused.actual_head()), (ErrorKind::Conflict, Some(log.head())));
    assert_eq!(booked(&mut mine).await, "");
    is_kept(&place.store, &log).await;
}

/// A transaction that is dropped, and one that the caller left a savepoint in: nothing of either is there, and the lock is free.
#[tokio::test]
async fn a_dropped_transaction_leaves_nothing() {
    let place = place(SqliteOptions::default()).await;
    let mut mine = place.connection().await;
    execute(&mut mine, "CREATE TABLE booked (place INTEGER PRIMARY KEY) STRICT").await;
    let mut log = log("r");
    log.write(&place.store, 1).await;
    for ends in [false, true] {
        let mut transaction =
            place.store.begin(&log.key).await.unwrap().downcast::<SqliteTransaction>().unwrap();
        execute(&mut transaction, "INSERT INTO booked VALUES (1)").await;
        if ends {
            std::mem::forget(sqlx::Connection::begin(&mut **transaction).await.unwrap());
            let refused = place.store.commit(transaction, log.next(1)).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused:?}");
        }
    }
    log.write(&place.store, 1).await;
    is_kept(&place.store, &log).await;
    assert_eq!(booked(&mut mine).await, "");
}

/// SQLite rolls a transaction back by itself after some errors, as of a full disk: a node that goes on after one has no transaction any more.
/// Its record must not be there without its rows, nor the rows that it writes after the rollback without the record.
#[tokio::test]
async fn a_transaction_that_sqlite_rolled_back_commits_no_record() {
    let place = place(SqliteOptions::default()).await;
    let mut mine = place.connection().await;
    execute(&mut mine, "CREATE TABLE booked (place INTEGER PRIMARY KEY ON CONFLICT ROLLBACK) STRICT").await;
    let mut log = log("r");
    log.write(&place.store, 1).await;
    let mut transaction = place.store.begin(&log.key).await.unwrap().downcast::<SqliteTransaction>().unwrap();
    execute(&mut transaction, "INSERT INTO booked VALUES (1)").await;
    let again = sqlx::query("INSERT INTO booked VALUES (1)").execute(&mut **transaction).await;
    again.unwrap_err();
    let after = sqlx::query("INSERT INTO booked VALUES (2)").execute(&mut **transaction).await;
    after.unwrap_err();
    let refused = place.store.commit(transaction, log.next(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused:?}");
    is_kept(&place.store, &log).await;
    assert_eq!(booked(&mut mine).await, "");
    // The lock is free for others.
    log.write(&place.store, 1).await;
}

#[tokio::test]
async fn a_connection_to_another_kind_is_invalid() {
    let place = place(SqliteOptions::default()).await;
    let log = log("r");
    let refused =
        ferrata_store::Transactions::append_in(&place.store, &mut 7, log.next(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let refused = place.store.commit(Box::new(7), log.next(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

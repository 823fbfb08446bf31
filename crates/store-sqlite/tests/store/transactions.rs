//! A record in the user's transaction exists exactly if the transaction commits.

use ferrata_store::{CheckpointStore as _, ErrorKind, Transactions as _};
use ferrata_store_sqlite::SqliteOptions;
use sqlx::Row as _;

use crate::support::{append, execute, is_kept, log, place};

/// Guarantees: SQLITE-9.
#[tokio::test]
async fn work_and_record_commit_together_or_neither() {
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
            log.note_append(&entry);
        }
        is_kept(&place.store, &log).await;
        log.write(&place.store, 1).await;
    }
    let booked = sqlx::query("SELECT group_concat(place) FROM booked").fetch_one(&mut mine).await.unwrap();
    assert_eq!(booked.get::<String, _>(0), "1,3");
}

/// After a conflict, the transaction is usable and contains nothing of the run. A repeat is recognized.
///
/// Guarantees: SQLITE-9.
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
    log.note_append(&entry);
    is_kept(&place.store, &log).await;
}

/// A transaction reads before its first write, and another one writes in between: SQLite rejects it at once, and waiting for a lock does not help. It
/// must not count as a write conflict, and the next transaction must succeed.
#[tokio::test]
async fn transaction_with_stale_read_is_unavailable() {
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
    log.note_append(&entry);
    is_kept(&place.store, &log).await;
    assert_eq!(append(&place.store, entry).await.unwrap(), log.head().unwrap(), "a repeat through the store");
    assert_eq!(place.store.purge(&log.key, log.head()).await.unwrap().records, 3);
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

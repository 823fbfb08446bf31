//! The server's view of the statements: cached plans, rows that a step leaves alone, and no leftover settings.

use std::num::NonZeroU32;

use crate::common::author::{Author, append, fresh_id, is_kept};
use crate::common::{Schema, until};
use ferrata_store::{
    At, CheckpointStore, Epoch, ErrorKind, ExecutorId, Order, Page, PruneCut, RecordHeader, RecordKind,
    Result, RunQuery, RunStatus, Seq, Timestamp, Visit,
};
use ferrata_store_postgres::PostgresStore;
use sqlx::Row as _;

const RUNS: usize = 50;

/// A batch is planned for its first few times on a connection, and then no more.
///
/// Guarantees: POSTGRES-18.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn batches_are_not_planned_again_and_again() {
    let schema = Schema::new();
    let pool = schema.pool(1);
    let store = PostgresStore::with_pool(pool.clone(), schema.options().with_notices(false)).unwrap();
    store.setup().await.unwrap();
    let mut authors: Vec<Author> = (0..RUNS).map(|n| Author::new(&format!("r-{n}"))).collect();
    for _ in 0..10 {
        let batch = authors.iter_mut().map(|author| author.next(1)).collect();
        assert!(store.append(batch).await.iter().all(Result::is_ok));
    }
    let sql = "SELECT generic_plans, custom_plans FROM pg_prepared_statements \
               WHERE statement LIKE '%grown AS%' || $1 || '%'";
    let rows = sqlx::query(sql).bind(&schema.name).fetch_all(&pool).await.unwrap();
    let plans: Vec<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    // The first batch starts the runs; of the nine that follow the server plans five for their values.
    assert_eq!(plans, [(4, 5)], "generic and custom plans of each statement");
    let patience: String = sqlx::query("SHOW lock_timeout").fetch_one(&pool).await.unwrap().get(0);
    assert_eq!(patience, "0", "no setting outlives its statement");
    schema.remove().await;
}

/// A prune is one statement, also with a base, and one that is planned for its first few times.
///
/// Guarantees: POSTGRES-18.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_prune_is_one_statement() {
    let schema = Schema::new();
    schema.store().setup().await.unwrap();
    let mut author = Author::new("r");
    append(&schema.store(), author.next(20)).await.unwrap();
    let pool = schema.pool(1);
    let store = PostgresStore::with_pool(pool.clone(), schema.options().with_notices(false)).unwrap();
    for at in 1..15 {
        // Every fifth is a base.
        let base = (at % 5 != 0).then(|| author.as_base(at));
        let cut = PruneCut { at: Seq::new(at), base: base.clone() };
        assert_eq!(store.prune(&author.key, cut).await.unwrap().records, 1, "at {at}");
        author.note_pruned(at, base);
    }
    is_kept(&schema.store(), &author).await;
    let sql = "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE '%' || $1 || '%'";
    let rows = sqlx::query(sql).bind(&schema.name).fetch_all(&pool).await.unwrap();
    let plans: Vec<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(plans, [(9, 5)], "generic and custom plans of each statement");
    schema.remove().await;
}

/// Settings that an application made for its own transaction do not change.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_transaction_keeps_its_own_patience() {
    let schema = Schema::new();
    let (store, pool) = (schema.store(), schema.pool(1));
    store.setup().await.unwrap();
    let mut author = Author::new("r");
    append(&store, author.next(1)).await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    sqlx::query("SET LOCAL lock_timeout = '7s'").execute(&mut *transaction).await.unwrap();
    for count in [1, 3] {
        store.append_in(&mut transaction, author.next(count)).await.unwrap();
    }
    let patience: String =
        sqlx::query("SHOW lock_timeout").fetch_one(&mut *transaction).await.unwrap().get(0);
    assert_eq!(patience, "7s");
    transaction.commit().await.unwrap();
    schema.remove().await;
}

/// A step of a run that goes on inserts its record, and changes no row.
///
/// Guarantees: POSTGRES-12.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn step_is_one_insert() {
    const ROUNDS: usize = 40;
    let schema = Schema::new();
    let store = PostgresStore::from_url(
        &schema.url,
        schema.options().with_connections(NonZeroU32::MIN).with_notices(false),
    )
    .unwrap();
    store.setup().await.unwrap();
    let mut authors: Vec<Author> = (0..RUNS).map(|n| Author::new(&format!("r-{n}"))).collect();
    for round in 0..=ROUNDS {
        let at = Timestamp::from_unix_ms(1_763_700_000_000 + i64::try_from(round).unwrap());
        let next = |author: &mut Author| author.next_as(1, b"{\"a\": 1}", |header| header.at = at);
        let batch: Vec<_> = authors.iter_mut().map(next).collect();
        // Together, and each alone.
        if round % 2 == 0 {
            assert!(store.append(batch).await.iter().all(Result::is_ok));
        } else {
            for entry in batch {
                append(&store, entry).await.unwrap();
            }
        }
    }
    // The server's process tells its counts when it ends, if not before.
    drop(store);
    let counted = async |table: &str| -> (i64, i64) {
        let sql =
            "SELECT n_tup_ins, n_tup_upd FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = $2";
        let mut connection = schema.connection().await;
        let row = sqlx::query(sql).bind(&schema.name).bind(table).fetch_one(&mut connection).await.unwrap();
        (row.get(0), row.get(1))
    };
    let inserts = i64::try_from(RUNS * (ROUNDS + 1)).unwrap();
    until("counting", async || counted("records").await.0 >= inserts).await;
    assert_eq!(counted("records").await.1, 0, "updates of records");
    assert_eq!(counted("runs").await.1, 0, "updates of the rows of runs");
    schema.remove().await;
}

/// A step finds its run by the index, even if the server planned the statement while the tables were empty.
///
/// Guarantees: POSTGRES-12.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn step_uses_index_on_empty_tables() {
    let schema = Schema::new();
    let options = schema.options().with_connections(NonZeroU32::MIN).with_notices(false);
    let store = PostgresStore::from_url(&schema.url, options).unwrap();
    store.setup().await.unwrap();
    schema.execute("VACUUM ANALYZE {schema}.records").await;
    let scans = async || -> (i64, i64) {
        let sql = "SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'records'";
        let mut connection = schema.connection().await;
        let row = sqlx::query(sql).bind(&schema.name).fetch_one(&mut connection).await.unwrap();
        (row.get(0), row.get(1))
    };
    let mut authors: Vec<Author> = (0..4).map(|n| Author::new(&format!("r-{n}"))).collect();
    for round in 0..20 {
        let status = if round % 5 == 0 { RunStatus::Interrupted } else { RunStatus::InProgress };
        let next = |author: &mut Author| author.next_as(1, b"{}", |header| header.status = status);
        let mut batch: Vec<_> = authors.iter_mut().map(next).collect();
        let alone = batch.split_off(2);
        assert!(store.append(batch).await.iter().all(Result::is_ok));
        for entry in alone {
            append(&store, entry).await.unwrap();
        }
    }
    drop(store);
    until("counting", async || scans().await.1 >= 4 * 19).await;
    // The creation of the indexes counts as a few scans.
    assert!(scans().await.0 < 10, "{} of 60 statements scanned all records", scans().await.0);
    schema.remove().await;
}

/// Listings show a run as of its last record, even if the record changes no listed field, is one of several, or is followed by others in its entry.
///
/// Guarantees: POSTGRES-13.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn listings_follow_whatever_a_record_says() {
    let schema = Schema::new();
    let store = schema.store();
    store.setup().await.unwrap();
    let mut authors: Vec<Author> = (0..4).map(|n| Author::new(&format!("r-{n}"))).collect();
    let batch = authors.iter_mut().map(|author| author.next(1)).collect();
    assert!(store.append(batch).await.iter().all(Result::is_ok));
    let [one, other] = [(); 2].map(|()| ExecutorId::from_uuid(*fresh_id().as_uuid()));
    let wake = Timestamp::from_unix_ms(1_763_700_000_777);
    let shapes = [
        (Some(one), RunStatus::InProgress, None),
        (Some(other), RunStatus::InProgress, None),
        (Some(other), RunStatus::InProgress, Some(wake)),
        (Some(other), RunStatus::InProgress, None),
        (Some(other), RunStatus::Interrupted, None),
        (Some(other), RunStatus::InProgress, None),
        (None, RunStatus::InProgress, None),
        (None, RunStatus::Completed, None),
        (Some(one), RunStatus::InProgress, None),
    ];
    for (owner, status, wake_at) in shapes {
        let next = |author: &mut Author, count: usize| {
            author.next_as(count, b"{\"a\": 1}", |header| {
                (header.kind, header.owner, header.status, header.wake_at) =
                    (RecordKind::Node, owner, status, wake_at);
            })
        };
        let alone = next(&mut authors[0], 1);
        append(&store, alone).await.unwrap();
        let together: Vec<_> = authors[1..3].iter_mut().map(|author| next(author, 1)).collect();
        assert!(store.append(together).await.iter().all(Result::is_ok));
        let many = next(&mut authors[3], 3);
        append(&store, many).await.unwrap();
        for author in &authors {
            is_kept(&store, author).await;
        }
        let mut asked = RunQuery::default();
        (asked.owner, asked.statuses) = (owner, vec![status]);
        let listed = store.runs(&asked, Page::default()).await.unwrap().items;
        assert_eq!(listed.len(), authors.len(), "{owner:?} {status:?} {wake_at:?}");
        for head in listed {
            assert_eq!((head.owner, head.status, head.wake_at), (owner, status, wake_at));
            assert_eq!(store.head(&head.run).await.unwrap(), Some(head));
        }
    }
    schema.remove().await;
}

/// Each value is kept by which a record differs from the head of its entry, also where it is the only one of its batch.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn record_stores_values_differing_from_head() {
    let schema = Schema::new();
    let store = schema.store();
    store.setup().await.unwrap();
    let shapes: [fn(&mut RecordHeader); 8] = [
        |header| header.at = Timestamp::from_unix_ms(1_763_700_000_999),
        |header| header.wake_at = Some(Timestamp::from_unix_ms(1_763_700_000_777)),
        |header| header.owner = Some(ExecutorId::from_uuid(*fresh_id().as_uuid())),
        |header| header.epoch = Epoch::new(u32::MAX),
        |header| header.kind = RecordKind::Attempt,
        |header| header.status = RunStatus::Interrupted,
        |header| header.base = !header.base,
        |header| header.visit = Some(Visit::new(7)),
    ];
    for (place, shape) in shapes.into_iter().enumerate() {
        let mut authors = ["a", "b"].map(|name| Author::new(&format!("{name}-{place}")));
        // The start; one record each, as the head by itself; four each, of which one differs; four each, all alike.
        for (count, differs) in [(1, None), (1, Some(1)), (4, Some(3)), (4, None)] {
            let batch = authors.iter_mut().map(|author| {
                author.next_as(count, b"{\"a\": 1}", |header| {
                    if Some(header.seq.get()) == differs {
                        shape(header);
                    }
                })
            });
            assert!(store.append(batch.collect()).await.iter().all(Result::is_ok), "{place}");
        }
        for author in &authors {
            is_kept(&store, author).await;
        }
    }
    schema.remove().await;
}

/// A run whose records are missing, as after a crash of a server with `fsync` off, is left out of a listing and hides no other.
///
/// Guarantees: POSTGRES-13.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn run_without_records_ends_no_listing() {
    let schema = Schema::new();
    let store = schema.store();
    store.setup().await.unwrap();
    let names = ["r-0", "r-1", "r-2", "r-3", "r-4"];
    let batch = names.iter().map(|name| Author::new(name).next(1)).collect();
    assert!(store.append(batch).await.iter().all(Result::is_ok));
    let lost = "DELETE FROM {schema}.records WHERE run IN (SELECT key FROM {schema}.runs WHERE run IN ('r-1', 'r-2'))";
    schema.execute(lost).await;
    for order in [Order::OldestFirst, Order::NewestFirst] {
        for limit in 1..=5 {
            let (mut listed, mut cursor) = (Vec::new(), None);
            loop {
                let mut page = Page::first(limit).with_order(order);
                page.cursor = cursor;
                let found = store.runs(&RunQuery::default(), page).await.unwrap();
                listed.extend(found.items.into_iter().map(|head| head.run.run.to_string()));
                cursor = found.next;
                if cursor.is_none() {
                    break;
                }
            }
            listed.sort();
            assert_eq!(listed, ["r-0", "r-3", "r-4"], "{order:?}, {limit} on a page");
        }
    }
    schema.remove().await;
}

/// A read of the records since a position fails if the last record of the head is missing.
///
/// Guarantees: POSTGRES-13.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn what_came_since_ends_with_the_head() {
    let schema = Schema::new();
    let store = schema.store();
    store.setup().await.unwrap();
    let mut author = Author::new("r");
    append(&store, author.next(4)).await.unwrap();
    let known = |seq: usize| author.records[seq].header.head();
    for (seq, count) in [(1, 2), (3, 0)] {
        let since = store.load_since(&author.key, known(seq)).await.unwrap().unwrap();
        assert_eq!(since.len(), count, "since {seq}");
    }
    schema.execute("DELETE FROM {schema}.records WHERE seq = 3 AND run > 0").await;
    for seq in 0..4 {
        let error = store.load_since(&author.key, known(seq)).await.unwrap_err();
        assert_eq!((error.kind(), error.run()), (ErrorKind::Corrupt, Some(&author.key)), "since {seq}");
    }
    schema.remove().await;
}

/// A run that has lost its records is damaged for every call, and not a run that does not exist: a start would do its work again.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn lost_records_are_no_missing_run() {
    let schema = Schema::new();
    let store = schema.store();
    store.setup().await.unwrap();
    let mut author = Author::new("r");
    let start = author.next(4);
    append(&store, start.clone()).await.unwrap();
    schema.execute("DELETE FROM {schema}.records").await;
    let (key, head, next) = (author.key.clone(), author.records[3].header.head(), author.next(1));
    let run = &key;
    let range = ferrata_store::HeaderRange::oldest(9);
    for refused in [
        store.head(run).await.map(drop),
        store.load(run, At::Latest).await.map(drop),
        store.load_since(run, head).await.map(drop),
        store.headers(run, range).await.map(drop),
        store.prune(run, ferrata_store::PruneCut { at: Seq::new(0), base: None }).await.map(drop),
        store.purge(run, Some(head)).await.map(drop),
        append(&store, Author::new("r").next(1)).await.map(drop),
        append(&store, next).await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!((refused.kind(), refused.run()), (ErrorKind::Corrupt, Some(run)), "{refused:?}");
    }
    assert_eq!(store.purge(run, None).await.unwrap().records, 0);
    assert!(store.head(run).await.unwrap().is_none());
    append(&store, start).await.unwrap();
    schema.remove().await;
}

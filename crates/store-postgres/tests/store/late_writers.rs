//! Appends that meet a purge or a prune of their run. The one that locks the run first wins, and nothing remains of a purged run.

use crate::common::author::{Author, append, is_kept};
use crate::common::{Schema, until};
use ferrata_store::{
    CheckpointStore, ErrorKind, HeadRef, Page, PruneCut, RecordHeader, Result, RunAppend, RunQuery,
    RunStatus, Seq,
};
use ferrata_store_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Executor as _, PgTransaction, Row as _};
use tokio::task::JoinSet;

/// The forms of an append: a step, a change of the run's row, several records, and a batch with another run.
const SHAPES: [&str; 4] = ["step", "end", "many", "batch"];

struct Stage {
    schema: Schema,
    store: PostgresStore,
}

impl Stage {
    async fn new() -> Self {
        let schema = Schema::new();
        let store = schema.store();
        store.setup().await.unwrap();
        Self { schema, store }
    }

    async fn started(&self, name: &str) -> Author {
        let mut author = Author::new(name);
        append(&self.store, author.next(3)).await.unwrap();
        author
    }

    /// Waits until one of this test's statements waits for another transaction.
    async fn one_waits(&self) {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND position($1 in query) > 0";
        until("a statement that waits", async || {
            let mut connection = self.schema.connection().await;
            let row = sqlx::query(sql).bind(&self.schema.name).fetch_one(&mut connection).await.unwrap();
            row.get::<i64, _>(0) > 0
        })
        .await;
    }

    /// Returns the number of records that belong to no run.
    async fn lost_records(&self) -> i64 {
        let sql = AssertSqlSafe(format!(
            "SELECT count(*) FROM {s}.records c WHERE c.run > 0 AND NOT EXISTS (SELECT FROM {s}.runs r WHERE r.key = c.run)",
            s = self.schema.name
        ));
        sqlx::query(sql).fetch_one(&mut self.schema.connection().await).await.unwrap().get(0)
    }

    async fn is_gone(&self, author: &Author) {
        assert_eq!(self.store.head(&author.key).await.unwrap(), None, "{}", author.key);
        let listed = self.store.runs(&RunQuery::default(), Page::default()).await.unwrap().items;
        assert!(listed.iter().all(|head| head.run != author.key), "{} is listed", author.key);
        assert_eq!(self.lost_records().await, 0, "records of {}", author.key);
    }

    fn purge(&self, author: &Author, expected: Option<HeadRef>) -> JoinSet<Result<u64>> {
        let (store, run) = (self.store.clone(), author.key.clone());
        let mut purge = JoinSet::new();
        purge.spawn(async move { store.purge(&run, expected).await.map(|removed| removed.records) });
        purge
    }

    /// Appends the entry in its shape. Returns the result of the entry.
    fn append(&self, shape: &str, entry: RunAppend) -> JoinSet<Result<HeadRef>> {
        let store = self.store.clone();
        let mut batch = vec![entry];
        if shape == "batch" {
            batch.push(Author::new(&format!("beside-{}", batch[0].run.run)).next(1));
        }
        let mut appending = JoinSet::new();
        appending.spawn(async move { store.append(batch).await.swap_remove(0) });
        appending
    }

    /// Locks a run as a purge does, and removes it. The transaction is still open.
    async fn purging(&self, author: &Author) -> PgTransaction<'static> {
        let mut transaction = self.schema.pool(1).begin().await.unwrap();
        let sql = format!(
            "SELECT FROM {s}.runs WHERE run = '{name}' FOR UPDATE;
             SELECT FROM {s}.records WHERE run = (SELECT key FROM {s}.runs WHERE run = '{name}') AND seq = 2 FOR UPDATE;
             WITH gone AS (DELETE FROM {s}.runs WHERE run = '{name}' RETURNING key)
             DELETE FROM {s}.records c USING gone WHERE c.run = gone.key",
            s = self.schema.name,
            name = author.key.run,
        );
        transaction.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
        transaction
    }
}

fn entry(author: &mut Author, shape: &str) -> RunAppend {
    let status = if shape == "end" { RunStatus::Completed } else { RunStatus::InProgress };
    let count = if shape == "many" { 3 } else { 1 };
    author.next_as(count, b"{}", |header: &mut RecordHeader| header.status = status)
}

/// A purge waits for an append that came first, and removes its records, too. A purge that expects the previous head is a conflict.
///
/// Guarantees: POSTGRES-24.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn purge_waits_for_earlier_append() {
    let stage = Stage::new().await;
    for shape in SHAPES {
        for (is_expected, commits) in [(false, true), (true, true), (true, false)] {
            let mut author = stage.started(&format!("{shape}-{is_expected}-{commits}")).await;
            let before = author.head();
            let mut transaction = stage.schema.pool(1).begin().await.unwrap();
            stage.store.append_in(&mut transaction, entry(&mut author, shape)).await.unwrap();
            let mut purge = stage.purge(&author, before.filter(|_| is_expected));
            stage.one_waits().await;
            if commits {
                transaction.commit().await.unwrap();
            } else {
                transaction.rollback().await.unwrap();
            }
            match purge.join_next().await.unwrap().unwrap() {
                Ok(removed) => {
                    assert!(!(is_expected && commits), "{shape}: a purge with an older head");
                    let left = if commits { author.records.len() } else { 3 };
                    assert_eq!(removed, left as u64, "{shape}");
                    stage.is_gone(&author).await;
                }
                Err(error) => {
                    assert!(is_expected && commits, "{shape}: {error:?}");
                    assert_eq!(
                        (error.kind(), error.actual_head()),
                        (ErrorKind::Conflict, Some(author.head()))
                    );
                    is_kept(&stage.store, &author).await;
                }
            }
        }
    }
    stage.schema.remove().await;
}

/// An append that waits for a purge is a conflict. It writes nothing, and does not reach the next run with the id.
///
/// Guarantees: POSTGRES-24.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn append_during_purge_is_conflict() {
    let stage = Stage::new().await;
    for shape in SHAPES {
        for restarts in [false, true] {
            let mut author = stage.started(&format!("{shape}-{restarts}")).await;
            let mut transaction = stage.purging(&author).await;
            let late = entry(&mut author, shape);
            let mut next = Author::new(author.key.run.as_str());
            if restarts {
                stage.store.append_in(&mut transaction, next.next(3)).await.unwrap();
            }
            let mut appending = stage.append(shape, late);
            stage.one_waits().await;
            transaction.commit().await.unwrap();
            let refused = appending.join_next().await.unwrap().unwrap().unwrap_err();
            let actual = next.head();
            assert_eq!(
                (refused.kind(), refused.actual_head()),
                (ErrorKind::Conflict, Some(actual)),
                "{shape}"
            );
            if restarts {
                is_kept(&stage.store, &next).await;
                append(&stage.store, next.next(1)).await.unwrap();
                assert_eq!(stage.lost_records().await, 0);
            } else {
                stage.is_gone(&author).await;
            }
        }
    }
    stage.schema.remove().await;
}

/// A transaction that reads the state of its beginning cannot append to a run that was purged meanwhile.
///
/// Guarantees: POSTGRES-24.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn old_snapshot_cannot_append_to_purged_run() {
    let stage = Stage::new().await;
    for (shape, level) in
        SHAPES[..3].iter().flat_map(|shape| [(shape, "REPEATABLE READ"), (shape, "SERIALIZABLE")])
    {
        let mut author = stage.started(&format!("{shape}-{}", level.len())).await;
        let pool = stage.schema.pool(1);
        let mut transaction = pool.begin().await.unwrap();
        let begin = format!(
            "SET TRANSACTION ISOLATION LEVEL {level}; SELECT count(*) FROM {}.runs",
            stage.schema.name
        );
        transaction.execute(sqlx::raw_sql(AssertSqlSafe(begin))).await.unwrap();
        assert_eq!(stage.store.purge(&author.key, author.head()).await.unwrap().records, 3);
        let late = entry(&mut author, shape);
        let refused = stage.store.append_in(&mut transaction, late).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{shape} {level}: {refused:?}");
        transaction.rollback().await.unwrap();
        stage.is_gone(&author).await;
    }
    stage.schema.remove().await;
}

/// A prune of everything before the head does not wait for an open append, and the append does not wait for the prune.
///
/// Guarantees: POSTGRES-15.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn prune_and_step_do_not_wait() {
    let stage = Stage::new().await;
    let mut author = stage.started("append-first").await;
    let base = author.as_base(2);
    let pool = stage.schema.pool(1);
    let mut transaction = pool.begin().await.unwrap();
    stage.store.append_in(&mut transaction, author.next(1)).await.unwrap();
    let cut = PruneCut { at: Seq::new(2), base: Some(base.clone()) };
    assert_eq!(stage.store.prune(&author.key, cut).await.unwrap().records, 2);
    transaction.commit().await.unwrap();
    author.note_pruned(2, Some(base));
    is_kept(&stage.store, &author).await;

    let mut author = stage.started("prune-first").await;
    let mut transaction = pool.begin().await.unwrap();
    let prune = format!(
        "UPDATE {s}.runs SET first_seq = 2 WHERE run = 'prune-first';
         UPDATE {s}.records SET base = true WHERE run = (SELECT key FROM {s}.runs WHERE run = 'prune-first') AND seq = 2;
         DELETE FROM {s}.records WHERE run = (SELECT key FROM {s}.runs WHERE run = 'prune-first') AND seq < 2",
        s = stage.schema.name
    );
    transaction.execute(sqlx::raw_sql(AssertSqlSafe(prune))).await.unwrap();
    append(&stage.store, author.next(1)).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(stage.store.head(&author.key).await.unwrap().map(|head| head.head()), author.head());
    append(&stage.store, author.next(2)).await.unwrap();
    assert_eq!(stage.lost_records().await, 0);
    stage.schema.remove().await;
}

/// A process appends with the key of an earlier run with the id: it finds the run that another process has started since.
///
/// Guarantees: POSTGRES-14.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn outdated_key_finds_restarted_run() {
    let stage = Stage::new().await;
    let other = stage.schema.store();
    for shape in SHAPES {
        let old = stage.started(shape).await;
        other.purge(&old.key, None).await.unwrap();
        let mut author = Author::new(shape);
        append(&other, author.next(2)).await.unwrap();
        let late = entry(&mut old.clone(), shape);
        let refused = stage.append(shape, late).join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!((refused.kind(), refused.actual_head()), (ErrorKind::Conflict, Some(author.head())));
        other.purge(&old.key, None).await.unwrap();
        let mut author = Author::new(shape);
        append(&other, author.next(2)).await.unwrap();
        let next = entry(&mut author, shape);
        assert_eq!(
            Some(stage.append(shape, next).join_next().await.unwrap().unwrap().unwrap()),
            author.head(),
            "{shape}"
        );
        is_kept(&other, &author).await;
    }
    stage.schema.remove().await;
}

//! Several writers start, append to, prune and purge the same few ids at once, by seeds: each head has one winner, a purge with an older expected
//! head loses no acknowledged record, and no data of an earlier generation remains.
use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::common::author::{Author, append, is_kept};
use crate::common::{Schema, until};
use ferrata_store::{
    At, CheckpointStore, ErrorKind, HeadRef, PruneCut, RecordHeader, RecordId, RecordKind, RunStatus, Seq,
};
use ferrata_store_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Executor as _, PgTransaction, Row as _};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const WRITERS: u64 = 5;
const NAMES: u64 = 2;
const STEPS: usize = 60;

/// Numbers that look random and are the same each time (Knuth's MMIX).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The results that the writers received.
#[derive(Debug, Default)]
struct Told {
    /// The heads that acknowledged appends came after; a start has none.
    followed: Vec<HeadRef>,
    /// The heads that purges expected which removed something.
    purged: Vec<HeadRef>,
    started: usize,
}

async fn writes(store: PostgresStore, together: Arc<Barrier>, mut chance: Chance) -> Told {
    let mut told = Told::default();
    let mut logs: Vec<Author> = (0..NAMES).map(|n| Author::new(&format!("r-{n}"))).collect();
    together.wait().await;
    for _ in 0..STEPS {
        let log = &mut logs[usize::try_from(chance.below(NAMES)).unwrap()];
        // Half of the time it goes on from what it knew, which may be another life.
        if chance.below(2) == 0 {
            log.records = store.load(&log.key, At::Latest).await.unwrap().unwrap_or_default();
        }
        let before = log.records.clone();
        let mistake = |error: &ferrata_store::Error| {
            !matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound | ErrorKind::Unavailable)
        };
        match chance.below(8) {
            0 => {
                let expected = log.head().filter(|_| chance.below(3) > 0);
                match store.purge(&log.key, expected).await {
                    Ok(removed) if removed.records > 0 => told.purged.extend(expected),
                    Ok(_) => {}
                    Err(error) => assert!(!mistake(&error), "{error:?}"),
                }
            }
            1 => {
                let base = log.records.iter().rev().find(|record| record.header.base);
                if let Some(at) = base.map(|record| record.header.seq) {
                    let cut = PruneCut { at, base: None };
                    // Of another life the record may be no base.
                    let pruned = store.prune(&log.key, cut).await;
                    let is_odd =
                        |error: &ferrata_store::Error| mistake(error) && error.kind() != ErrorKind::Invalid;
                    assert!(pruned.as_ref().err().is_none_or(|error| !is_odd(error)), "{pruned:?}");
                }
            }
            kind => {
                let status = if kind == 2 { RunStatus::Interrupted } else { RunStatus::InProgress };
                let count = if kind == 3 { 2 } else { 1 };
                let shape = |header: &mut RecordHeader| {
                    header.status = status;
                    header.kind = RecordKind::Node;
                };
                let expected = log.head();
                let entry = log.next_as(count, b"{\"a\": 1}", shape);
                match append(&store, entry).await {
                    Ok(_) => {
                        told.started += usize::from(expected.is_none());
                        told.followed.extend(expected);
                    }
                    Err(error) => {
                        assert!(!mistake(&error), "{error:?}");
                        log.records = before;
                    }
                }
            }
        }
    }
    told
}

/// Records of no run, rows of runs that are not as their last records, and runs with a gap.
const LEFT: &str = "\
    SELECT (SELECT count(*) FROM {s}.records c WHERE c.run > 0 AND NOT EXISTS (SELECT FROM {s}.runs r WHERE r.key = c.run)), \
    (SELECT count(*) FROM {s}.runs r WHERE NOT EXISTS (SELECT FROM {s}.records h \
        WHERE h.run = r.key AND h.seq = (SELECT max(c.seq) FROM {s}.records c WHERE c.run = r.key) \
        AND h.status = r.status AND h.owner IS NOT DISTINCT FROM r.owner AND h.wake_at IS NOT DISTINCT FROM r.wake_at) \
        OR NOT EXISTS (SELECT FROM {s}.records m WHERE m.run = r.key AND m.seq = r.seq AND m.id = r.id)), \
    (SELECT count(*) FROM {s}.runs r WHERE (SELECT min(c.seq) = r.first_seq AND max(c.seq) - min(c.seq) + 1 = count(*) \
        FROM {s}.records c WHERE c.run = r.key) IS NOT TRUE)";

/// Guarantees: POSTGRES-14.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn generations_of_run_id_never_mix() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("FERRATA_RACE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FERRATA_RACES").unwrap_or(4),
    };
    let (mut won, mut purged) = (0, 0);
    for seed in seeds {
        let schema = Schema::new();
        schema.store().setup().await.unwrap();
        let together = Arc::new(Barrier::new(usize::try_from(WRITERS).unwrap()));
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let options = schema.options().with_connections(NonZeroU32::MIN).with_notices(false);
            let store = PostgresStore::from_url(&schema.url, options).unwrap();
            writers.spawn(writes(store, Arc::clone(&together), Chance(seed << 8 | writer)));
        }
        let told = writers.join_all().await;
        let followed: Vec<RecordId> =
            told.iter().flat_map(|told| &told.followed).map(|head| head.id).collect();
        let once: HashSet<RecordId> = followed.iter().copied().collect();
        assert_eq!(once.len(), followed.len(), "one winner for each head; FERRATA_RACE_SEED={seed}");
        for head in told.iter().flat_map(|told| &told.purged) {
            assert!(!once.contains(&head.id), "a record after {head:?} was lost; FERRATA_RACE_SEED={seed}");
            purged += 1;
        }
        won += followed.len() + told.iter().map(|told| told.started).sum::<usize>();
        let mut connection = schema.connection().await;
        let sql = AssertSqlSafe(LEFT.replace("{s}", &schema.name));
        let row = sqlx::query(sql).fetch_one(&mut connection).await.unwrap();
        let left: [i64; 3] = [row.get(0), row.get(1), row.get(2)];
        assert_eq!(
            left, [0; 3],
            "records of no run, rows that do not fit, and gaps; FERRATA_RACE_SEED={seed}"
        );
        schema.remove().await;
    }
    assert!(won > 40 && purged > 2, "the races did happen: {won} appends, {purged} purges");
}

/// Prunes at record 5, a base, while a transaction holds the run's row in which something happens to the run; says how many
/// records went.
async fn pruned_after(schema: &Schema, author: &Author, transaction: PgTransaction<'_>) -> u64 {
    let (store, run) = (schema.store(), author.key.clone());
    let mut prune = JoinSet::new();
    prune.spawn(async move { store.prune(&run, PruneCut { at: Seq::new(5), base: None }).await });
    let sql =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND position($1 in query) > 0";
    until("waiting for the row", async || {
        let mut connection = schema.connection().await;
        let row = sqlx::query(sql).bind(&schema.name).fetch_one(&mut connection).await.unwrap();
        row.get::<i64, _>(0) > 0
    })
    .await;
    transaction.commit().await.unwrap();
    prune.join_next().await.unwrap().unwrap().unwrap().records
}

/// A prune that waits for the run's row sees concurrent changes: it removes no later appended record, nothing that another prune removed, and nothing of a
/// later generation.
///
/// Guarantees: POSTGRES-15.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn delayed_prune_spares_later_changes() {
    let schema = Schema::new();
    let (store, pool) = (schema.store(), schema.pool(1));
    store.setup().await.unwrap();
    let [mut grows, mut cut, mut old] = ["grows", "cut", "anew"].map(Author::new);
    for author in [&mut grows, &mut cut, &mut old] {
        append(&store, author.next(12)).await.unwrap();
    }

    let mut transaction = pool.begin().await.unwrap();
    let ends = |header: &mut RecordHeader| header.status = RunStatus::Completed;
    store.append_in(&mut transaction, grows.next_as(2, b"{}", ends)).await.unwrap();
    assert_eq!(pruned_after(&schema, &grows, transaction).await, 5);
    grows.note_pruned(5, None);
    is_kept(&store, &grows).await;

    let mut transaction = pool.begin().await.unwrap();
    let further = format!(
        "UPDATE {s}.runs SET first_seq = 10 WHERE run = 'cut'; DELETE FROM {s}.records c USING {s}.runs h \
         WHERE c.run = h.key AND h.run = 'cut' AND c.seq < 10",
        s = schema.name
    );
    transaction.execute(sqlx::raw_sql(AssertSqlSafe(further))).await.unwrap();
    assert_eq!(pruned_after(&schema, &cut, transaction).await, 0);
    cut.note_pruned(10, None);
    is_kept(&store, &cut).await;

    let mut transaction = pool.begin().await.unwrap();
    let purge = format!(
        "DELETE FROM {s}.records c USING {s}.runs h WHERE c.run = h.key AND h.run = 'anew'; DELETE FROM {s}.runs WHERE run = 'anew'",
        s = schema.name
    );
    transaction.execute(sqlx::raw_sql(AssertSqlSafe(purge))).await.unwrap();
    let mut new = Author::new("anew");
    store.append_in(&mut transaction, new.next(12)).await.unwrap();
    assert_eq!(pruned_after(&schema, &old, transaction).await, 0);
    is_kept(&store, &new).await;
    schema.remove().await;
}

/// A purge of a long run has longer than two answers may take: the server has many rows to delete.
///
/// Guarantees: POSTGRES-23.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_purge_has_time_for_a_long_run() {
    let schema = Schema::new();
    let options = schema.options().with_response_timeout(Duration::from_millis(500));
    let store = PostgresStore::from_url(&schema.url, options).unwrap();
    schema.store().setup().await.unwrap();
    let mut author = Author::new("long");
    append(&schema.store(), author.next(3)).await.unwrap();
    // As if it had 200,000 records, which take the server three times as long as two answers.
    schema
        .execute(
            "UPDATE {schema}.runs SET seq = 199999;
             UPDATE {schema}.records SET seq = 199999 WHERE seq = 2 AND run > 0;
             CREATE FUNCTION {schema}.linger() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN PERFORM pg_sleep(3); RETURN NULL; END';
             CREATE TRIGGER linger AFTER DELETE ON {schema}.records FOR EACH STATEMENT EXECUTE FUNCTION {schema}.linger()",
        )
        .await;
    let removed = store.purge(&author.key, None).await.unwrap();
    assert_eq!(removed.records, 3);
    assert_eq!(schema.store().head(&author.key).await.unwrap(), None);
    schema.remove().await;
}

/// A prune that removes many records has longer than an answer may take, with prepared statements and without.
///
/// Guarantees: POSTGRES-23.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_prune_has_time_for_many_records() {
    for prepared in [true, false] {
        let schema = Schema::new();
        let options =
            schema.options().with_response_timeout(Duration::from_millis(500)).with_prepared(prepared);
        let store = PostgresStore::from_url(&schema.url, options).unwrap();
        schema.store().setup().await.unwrap();
        let mut author = Author::new("long");
        append(&schema.store(), author.next(6)).await.unwrap();
        // As if 200,000 records stood before the last one, a base.
        schema
            .execute(
                "UPDATE {schema}.runs SET seq = 200000;
                 UPDATE {schema}.records SET seq = 200000 WHERE seq = 5 AND run > 0;
                 CREATE FUNCTION {schema}.linger() RETURNS trigger LANGUAGE plpgsql AS \
                 'BEGIN IF EXISTS (SELECT FROM gone) THEN PERFORM pg_sleep(3); END IF; RETURN NULL; END';
                 CREATE TRIGGER linger AFTER DELETE ON {schema}.records REFERENCING OLD TABLE AS gone \
                 FOR EACH STATEMENT EXECUTE FUNCTION {schema}.linger()",
            )
            .await;
        let cut = PruneCut { at: Seq::new(200_000), base: None };
        assert_eq!(store.prune(&author.key, cut).await.unwrap().records, 5, "prepared: {prepared}");
        assert_eq!(schema.store().load(&author.key, At::Latest).await.unwrap().unwrap().len(), 1);
        schema.remove().await;
    }
}

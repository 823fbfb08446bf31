//! Creating the tables: concurrently, with an external tool, and next to older and newer versions. Also reading them in SQL.
use std::time::Duration;

use crate::common::Schema;
use crate::common::author::{Author, append, is_kept};
use ferrata_store::{
    CheckpointStore, Clock as _, ErrorKind, NodeName, Page, RunQuery, RunStatus, SystemClock, Timestamp,
};
use ferrata_store_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Executor as _, Row as _};
use tokio::task::JoinSet;

/// Ten instances with connections of their own meet an empty database.
///
/// Guarantees: POSTGRES-8.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn ten_setups_at_once_make_the_tables_once() {
    for _ in 0..5 {
        let schema = Schema::new();
        let mut setups = JoinSet::new();
        for _ in 0..10 {
            let store = schema.store();
            setups.spawn(async move { store.setup().await });
        }
        for done in setups.join_all().await {
            done.unwrap();
        }
        assert_eq!(count(&schema, "migrations").await, 1);
        schema.remove().await;
    }
}

async fn count(schema: &Schema, table: &str) -> i64 {
    let sql = AssertSqlSafe(format!("SELECT count(*) FROM {}.{table}", schema.name));
    sqlx::query(sql).fetch_one(&mut schema.connection().await).await.unwrap().get(0)
}

/// The printed scripts make what `setup` makes, also twice, and `setup` then finds nothing to do: not even the right to
/// make a schema is needed.
///
/// Guarantees: POSTGRES-8.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn the_printed_migrations_are_enough() {
    let schema = Schema::new();
    let options = schema.options().with_prefix("jobs_");
    let store = PostgresStore::from_url(&schema.url, options.clone()).unwrap();
    let script = store.print_migrations();
    schema.execute(&script).await;
    schema.execute(&format!("SET client_min_messages = error; {script}")).await;
    let role = schema.name.clone();
    schema
        .execute(&format!(
            "CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA {{schema}} TO {role};
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {{schema}} TO {role}"
        ))
        .await;
    let connect: sqlx::postgres::PgConnectOptions = schema.url.parse().unwrap();
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(2)
        .connect_lazy_with(connect.username(&role).password("x"));
    let small = PostgresStore::with_pool(pool.clone(), options).unwrap();
    small.setup().await.unwrap();
    let mut author = Author::new("r");
    append(&small, author.next(3)).await.unwrap();
    is_kept(&small, &author).await;
    assert_eq!(count(&schema, "jobs_records WHERE run > 0").await, 3);
    pool.close().await;
    schema.remove().await;
    schema.execute(&format!("DROP ROLE {role}")).await;
}

/// Two stores with different prefixes share a schema and nothing else.
///
/// Guarantees: POSTGRES-10.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn prefixes_keep_stores_apart() {
    let schema = Schema::new();
    let of =
        |prefix: &str| PostgresStore::from_url(&schema.url, schema.options().with_prefix(prefix)).unwrap();
    let stores = [of(""), of("a_"), of("b_")];
    for store in &stores {
        store.setup().await.unwrap();
    }
    let mut author = Author::new("r");
    append(&stores[1], author.next(1)).await.unwrap();
    for (store, there) in stores.iter().zip([0, 1, 0]) {
        assert_eq!(store.runs(&RunQuery::default(), Page::default()).await.unwrap().items.len(), there);
    }
    schema.remove().await;
}

/// `setup` refuses tables of a newer version, and those of before the first release. The printed scripts fail on the latter. Neither changes anything.
///
/// Guarantees: POSTGRES-9.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn tables_of_other_versions_are_refused_untouched() {
    let unreleased = "ALTER TABLE {schema}.migrations ADD COLUMN usable_by int NOT NULL DEFAULT 2; \
        ALTER TABLE {schema}.migrations ALTER COLUMN usable_by DROP DEFAULT; DROP TABLE {schema}.chunks";
    let newer =
        "INSERT INTO {schema}.migrations (version, name) VALUES (2, 'more'); DROP TABLE {schema}.chunks";
    for (change, words) in
        [(newer, ["version 2", "upgrade"]), (unreleased, ["an unreleased version", "drop the schema"])]
    {
        let schema = Schema::new();
        let store = schema.store();
        store.setup().await.unwrap();
        let mut author = Author::new("r");
        append(&store, author.next(2)).await.unwrap();
        schema.execute(change).await;
        let before = columns(&schema).await;
        let refused = schema.store().setup().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(words.iter().all(|word| refused.message().contains(word)), "{refused}");
        if change == unreleased {
            let script = AssertSqlSafe(store.print_migrations());
            schema.connection().await.execute(sqlx::raw_sql(script)).await.unwrap_err();
        }
        assert_eq!(columns(&schema).await, before);
        is_kept(&store, &author).await;
        schema.remove().await;
    }
}

/// Returns every column of the schema's tables.
async fn columns(schema: &Schema) -> Vec<String> {
    let sql = "SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = $1 ORDER BY 1";
    let rows = sqlx::query(sql).bind(&schema.name).fetch_all(&mut schema.connection().await).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Which runs failed today, and why a run does not go on: asked in SQL, answered with names and times.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn the_views_answer_in_sql() {
    let schema = Schema::new();
    let store = schema.store();
    store.setup().await.unwrap();
    let now = SystemClock::new().now();
    for (name, status, at) in [
        ("failed", RunStatus::Failed, now),
        ("long-ago", RunStatus::Failed, Timestamp::from_unix_ms(0)),
        ("at-the-end-of-time", RunStatus::Failed, Timestamp::from_unix_ms(i64::MIN)),
        ("waiting", RunStatus::AwaitingInput, now),
    ] {
        let mut author = Author::new(name);
        append(&store, author.next(1)).await.unwrap();
        let entry = author.next_as(1, b"{}", |header| {
            header.status = status;
            header.at = at;
            header.node = Some(NodeName::new("publish").unwrap());
        });
        append(&store, entry).await.unwrap();
    }
    let mut connection = schema.connection().await;
    let mut ask = async |sql: &str| -> Vec<String> {
        let sql = AssertSqlSafe(sql.replace("{schema}", &schema.name));
        let rows = sqlx::query(sql).fetch_all(&mut connection).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(ask("SELECT run FROM {schema}.failed_today").await, ["failed"]);
    assert_eq!(
        ask("SELECT run || ' ' || status FROM {schema}.run_list WHERE updated > now() - interval '1 hour' ORDER BY 1").await,
        ["failed failed", "waiting awaiting_input"]
    );
    let last = "SELECT kind || ' ' || node || ' ' || status || ' ' || body_bytes FROM {schema}.record_list \
                WHERE run = 'failed' AND seq = 1";
    assert_eq!(ask(last).await, ["node publish failed 2"]);
    schema.remove().await;
}

/// The pool is used up: a call waits as long as was said and no longer, says so, and changes nothing.
///
/// Guarantees: POSTGRES-6.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn exhausted_pool_is_unavailable_after_timeout() {
    let schema = Schema::new();
    let options: sqlx::postgres::PgConnectOptions = schema.url.parse().unwrap();
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(1)
        // Long enough for a login on a busy machine, within which the pool is filled.
        .acquire_timeout(Duration::from_secs(3))
        .connect_lazy_with(options);
    let store = PostgresStore::with_pool(pool.clone(), schema.options()).unwrap();
    store.setup().await.unwrap();
    let mut author = Author::new("r");
    let entry = author.next(1);
    let held = crate::common::retried(async || {
        pool.acquire()
            .await
            .map_err(|error| ferrata_store::Error::new(ErrorKind::Unavailable, error.to_string()))
    })
    .await;
    let clock = SystemClock::new();
    let begin = clock.monotonic();
    let refused = append(&store, entry.clone()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    assert!(refused.message().contains("connection"), "{refused}");
    assert_eq!(store.head(&author.key).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(clock.monotonic().saturating_sub(begin) < Duration::from_secs(30));
    drop(held);
    crate::common::retried(async || append(&store, entry.clone()).await).await;
    is_kept(&store, &author).await;
    schema.remove().await;
}

//! A second version of the tables: what `setup` of the second version does with tables of version 1, and what version 1 does with tables of version
//! 2.

use std::time::Duration;

use ferrata_store::{Clock as _, IdSource as _, RandomIds, SystemClock};
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinSet;

use super::*;
use crate::PostgresOptions;
use crate::migrations::SCRIPTS;

/// A second version, which fails if it is run twice.
const NEXT: (&str, &str) = (
    "notes",
    "ALTER TABLE {runs} ADD COLUMN note text NOT NULL DEFAULT 'none';
     INSERT INTO {migrations} (version, name) VALUES (2, 'notes')",
);

const FILL: &str =
    "INSERT INTO {runs} (seq, id, created, status, graph, input, tenant, run, workflow, version)
    VALUES (0, gen_random_uuid(), 0, 'p', gen_random_uuid(), gen_random_uuid(), 't', 'r', 'w', '')";

/// Ten processes of the second version start at the same time on tables of the first version.
///
/// Guarantees: POSTGRES-8, POSTGRES-9.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn next_version_migrates_tables_once() {
    let url =
        std::env::var("STORE_TEST_POSTGRES_URL").expect("set STORE_TEST_POSTGRES_URL to a PostgreSQL server");
    let second = MigrationScripts(vec![SCRIPTS.0[0], NEXT].leak());
    let id = RandomIds::new().next(SystemClock::new().now()).simple().to_string();
    let schema = format!("t_{}", &id[..30]);
    let names = Names::new(&schema, "").unwrap();
    let options =
        PostgresOptions::default().with_schema(&schema).with_acquire_timeout(Duration::from_secs(60));
    let db = PostgresDb::new(url.parse().unwrap(), options);
    run(&db, &names, SCRIPTS).await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    connection.execute(sqlx::raw_sql(AssertSqlSafe(names.fill(FILL)))).await.unwrap();

    let mut setups = JoinSet::new();
    for _ in 0..10 {
        let (db, names) = (db.clone(), names.clone());
        setups.spawn(async move { run(&db, &names, second).await });
    }
    for done in setups.join_all().await {
        done.unwrap();
    }
    let sql = names.fill(
        "SELECT (SELECT string_agg(run || ' ' || note, ',') FROM {runs}), array_agg(version ORDER BY version) FROM {migrations}",
    );
    let row = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    assert_eq!((row.get::<&str, _>(0), row.get::<Vec<i32>, _>(1)), ("r none", vec![1, 2]));

    let refused = run(&db, &names, SCRIPTS).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    let sql = AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"));
    connection.execute(sqlx::raw_sql(sql)).await.unwrap();
}

//! Checks how much of a long run a load and a page of its history read, according to the server's `EXPLAIN`.

use std::time::Duration;

use ferrata_store::{CheckpointStore as _, Clock as _, IdSource as _, RandomIds, SystemClock};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use super::*;
use crate::headers;
use crate::names::Names;
use crate::{PostgresOptions, PostgresStore};

/// Ten runs of ten thousand records, with a base at every four thousandth record.
const FILL: &str = "
    INSERT INTO {runs} (seq, created, id, graph, input, status, tenant, run, workflow, version)
    SELECT 0, n, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'p', 'default', 'r-' || n, 'w', ''
    FROM generate_series(1, 10) n;
    INSERT INTO {records} (run, seq, at, id, epoch, crc, format, kind, status, base, body)
    SELECT r.key, s, s, gen_random_uuid(), 1, 1, 1, 'n', 'p', s % 4000 = 0, repeat('x', 200)::bytea
    FROM generate_series(0, 9999) s, {runs} r;
    ANALYZE {runs}; ANALYZE {records}";

/// Returns the plan, and the maximum number of rows that a part of it read, including rows that it did not use.
async fn explained(
    connection: &mut PgConnection,
    sql: &str,
    seq: Option<i64>,
    limit: Option<i64>,
) -> (String, f64) {
    let sql: Sql = format!("EXPLAIN (ANALYZE, TIMING OFF) {sql}").into();
    let mut query = query(&sql).bind("default").bind("r-7");
    if limit.is_some() {
        query = query.bind(seq).bind(limit);
    } else if seq.is_some() {
        query = query.bind(seq);
    }
    let rows = query.persistent(false).fetch_all(connection).await.unwrap();
    let plan: String = rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect();
    let numbers = ["(actual rows=", "Rows Removed by Filter: "].into_iter().flat_map(|mark| {
        let number =
            |rest: &str| rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse::<f64>().ok();
        plan.split(mark).skip(1).filter_map(number).collect::<Vec<_>>()
    });
    let most = numbers.fold(0.0, f64::max);
    (plan, most)
}

#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn long_run_is_read_no_further_than_requested() {
    let url =
        std::env::var("STORE_TEST_POSTGRES_URL").expect("set STORE_TEST_POSTGRES_URL to a PostgreSQL server");
    let id = RandomIds::new().next(SystemClock::new().now()).simple().to_string();
    let schema = format!("t_{}", &id[..30]);
    let options =
        PostgresOptions::default().with_schema(&schema).with_acquire_timeout(Duration::from_secs(60));
    let names = Names::new(&schema, "").unwrap();
    PostgresStore::from_url(&url, options).unwrap().setup().await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    connection.execute(sqlx::raw_sql(AssertSqlSafe(names.fill(FILL)))).await.unwrap();
    let fill = |sql: String| names.fill(&sql);

    // The newest base is 8,000. Before 4,500, the newest base is 4,000.
    for (sql, seq, records) in
        [(LATEST, None, 2_000.0), (BY_SEQ, Some(4_500), 501.0), (BY_SEQ, Some(100), 101.0)]
    {
        let (plan, most) = explained(&mut connection, &fill(statement(sql)), seq, None).await;
        assert!(most <= records, "loading {records} records read {most}:\n{plan}");
        assert!(plan.contains("records_bases"), "{plan}");
    }
    for range in [headers::FROM, headers::UP_TO] {
        for anchor in [Some(5_000), Some(0), Some(9_999), Some(i64::MAX - 1_000)] {
            let sql = fill(headers::statement(range));
            let (plan, most) = explained(&mut connection, &sql, anchor, Some(50)).await;
            assert!(most <= 50.0, "a range of 50 at {anchor:?} read {most}:\n{plan}");
        }
    }
    let drop = format!("SET client_min_messages = error; DROP SCHEMA {schema} CASCADE");
    connection.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await.unwrap();
}

/// Rows after the first row are read without a check of their types. So the check of the first row must include columns that are null in it.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn null_column_has_its_type_checked() {
    let url =
        std::env::var("STORE_TEST_POSTGRES_URL").expect("set STORE_TEST_POSTGRES_URL to a PostgreSQL server");
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let row = sqlx::query("SELECT NULL::bytea").fetch_one(&mut connection).await.unwrap();
    assert_eq!(Columns::new(&row, 0).next::<Option<&[u8]>>().unwrap(), None);
    let error = Columns::new(&row, 0).next::<Option<&str>>().unwrap_err();
    assert!(format!("{error:?}").contains("BYTEA"), "{error:?}");
}

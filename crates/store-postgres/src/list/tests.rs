//! Checks which index answers which query, according to the server's `EXPLAIN`, on a table of thirty thousand runs.

use std::time::Duration;

use ferrata_store::{
    CheckpointStore as _, Clock as _, ExecutorId, IdSource as _, RandomIds, RunId, RunKey, SystemClock,
    TenantId, Timestamp,
};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

use super::*;
use crate::{PostgresOptions, PostgresStore};

/// A hundred tenants, two hundred workflows, a thousand executors of which ten are dead, few failures, and few timers.
const FILL: &str = "
    INSERT INTO {runs} (seq, id, wake_at, created, owner, status, graph, input,
        tenant, run, workflow, version, parent_tenant, parent_run, parent_seq, parent_id, labels)
    SELECT 1, '00000000-0000-0000-0000-000000000000', CASE WHEN n % 1000 = 7 THEN n END, n,
        CASE WHEN n % 3 = 0 THEN lpad(to_hex(n % 3000), 32, '0')::uuid END,
        CASE WHEN n % 3 = 0 OR n % 1000 = 7 THEN 'p' WHEN n % 1000 = 1 THEN 'f' ELSE 'c' END::\"char\",
        gen_random_uuid(), gen_random_uuid(), 't-' || n % 100, 'r-' || n, 'w-' || n % 200, '1',
        CASE WHEN n % 500 = 0 THEN 't-0' END, CASE WHEN n % 500 = 0 THEN 'r-1' END,
        CASE WHEN n % 500 = 0 THEN 1 END, CASE WHEN n % 500 = 0 THEN gen_random_uuid() END,
        CASE WHEN n % 10 = 0 THEN jsonb_build_object('customer', (n % 3000)::text) END
    FROM generate_series(1, 30000) n;
    INSERT INTO {heartbeats} SELECT DISTINCT owner, 9000000000000 FROM {runs} WHERE owner IS NOT NULL
        AND owner > '00000000-0000-0000-0000-00000000001e';
    INSERT INTO {records} (run, seq, at, wake_at, id, owner, epoch, crc, format, kind, status, base, body)
    SELECT key, 1, created, wake_at, id, owner, 1, 1, 1, 'n', status, true, '' FROM {runs};
    ANALYZE {runs}; ANALYZE {records}; ANALYZE {heartbeats}";

async fn explained(
    connection: &mut PgConnection,
    names: &Names,
    asked: &RunQuery,
    after: Option<ListPlace>,
) -> String {
    let (sql, values) = statement(asked, Order::NewestFirst, after, 51).expect("a query that runs can meet");
    let sql: Sql = Arc::from(format!("EXPLAIN (ANALYZE, TIMING OFF) {}", names.fill(&sql)));
    let rows =
        values.into_iter().fold(query(&sql), bind).persistent(false).fetch_all(connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect()
}

/// Returns the number of rows that the plan read from the table of runs and its indexes, including rows that it did not use.
fn rows_read(plan: &str) -> f64 {
    let number = |text: &str, after: &str| -> Option<f64> {
        let rest = &text[text.rfind(after)? + after.len()..];
        rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse().ok()
    };
    let mut loops = 1.0;
    let mut sum = 0.0;
    for line in plan.lines() {
        if line.contains("(actual ") {
            loops = number(line, "loops=").unwrap_or(1.0);
            if line.contains(" on runs r") || line.contains("Index Scan on runs_") {
                sum += number(line, "(actual rows=").unwrap_or(0.0) * loops;
            }
        } else if line.contains("Rows Removed by Filter: ") {
            sum += number(line, "Rows Removed by Filter: ").unwrap_or(0.0) * loops;
        }
    }
    sum
}

/// Guarantees: POSTGRES-18.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn every_query_is_answered_by_an_index() {
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

    let with = |change: &dyn Fn(&mut RunQuery)| {
        let mut query = RunQuery::default();
        change(&mut query);
        query
    };
    let tenant = TenantId::new("t-7").unwrap();
    let parent = RunKey::new(TenantId::new("t-0").unwrap(), RunId::new("r-1").unwrap());
    let customer = || vec![("customer".to_owned(), "300".to_owned())];
    let owner = ExecutorId::from_uuid(Uuid::from_u128(300));
    let cases = [
        ("any", with(&|_| ()), "runs_by_created", 200.0),
        ("tenant", with(&|q| q.tenant = Some(tenant.clone())), "runs_by_tenant", 200.0),
        ("workflow", with(&|q| q.workflow = Some("w-3".parse().unwrap())), "runs_by_workflow", 200.0),
        ("status", with(&|q| q.statuses = vec![RunStatus::Failed]), "runs_by_status", 200.0),
        (
            "statuses",
            with(&|q| q.statuses = vec![RunStatus::Failed, RunStatus::Interrupted, RunStatus::Cancelled]),
            "runs_by_status",
            200.0,
        ),
        ("labels", with(&|q| q.labels = customer()), "runs_by_label", 200.0),
        (
            "time",
            with(&|q| {
                q.created_from = Some(Timestamp::from_unix_ms(5_000));
                q.created_before = Some(Timestamp::from_unix_ms(5_100));
            }),
            "runs_by_created",
            300.0,
        ),
        ("parent", with(&|q| q.parent = Some(parent.clone())), "runs_by_parent", 200.0),
        ("owner", with(&|q| q.owner = Some(owner)), "runs_", 200.0),
        // The query looks at each executor once, whatever it owns. Ten of a thousand are dead.
        ("orphaned", with(&|q| q.filter = RunFilter::Orphaned), "runs_to_adopt", 1_400.0),
        ("due", with(&|q| q.filter = RunFilter::Due), "runs_to_wake", 200.0),
    ];
    let after = (29_000, "t-50".to_owned(), "r-29000".to_owned());
    for (what, asked, index, limit) in cases {
        for after in [None, Some(after.clone())] {
            let plan = explained(&mut connection, &names, &asked, after).await;
            assert!(plan.contains(index), "{what} is answered by {index}:\n{plan}");
            for table in ["runs", "records"] {
                let whole = format!("Seq Scan on {table} ");
                assert!(!plan.contains(&whole), "{what} reads the whole table:\n{plan}");
            }
            assert!(rows_read(&plan) <= limit, "{what} reads {} rows:\n{plan}", rows_read(&plan));
        }
    }
    let drop = format!("SET client_min_messages = error; DROP SCHEMA {schema} CASCADE");
    connection.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await.unwrap();
}

#[test]
fn impossible_labels_send_no_query() {
    let with = |labels: &[(&str, &str)]| {
        let mut query = RunQuery::default();
        query.labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        query
    };
    assert!(conditions(&with(&[("a", "1"), ("a", "1"), ("b", "'; --")])).is_some());
    for impossible in [&[("a", "1"), ("a", "2")][..], &[("a\0", "1")], &[("a", "\0")]] {
        assert!(conditions(&with(impossible)).is_none(), "{impossible:?}");
    }
}

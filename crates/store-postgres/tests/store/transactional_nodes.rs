//! Transactional nodes on a server: with one connection, lost replies, and server errors.
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::Schema;
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::{FatalExt as _, NodeContext, NodeResult};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_store::CheckpointStore;
use ferrata_store_postgres::{Postgres, PostgresStore};
use ferrata_test_servers::{FaultEffect, FaultPosition, FaultTrigger, Proxy, ProxyFault};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Row as _};

/// What a node does at each of its statements.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) schema: String,
    /// At which statement the server raises which error, in how many attempts.
    pub(crate) raises: Option<(u32, &'static str, u32)>,
    pub(crate) attempts: Arc<AtomicU32>,
}

async fn say(tx: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
    tx.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.map(drop)
}

/// Three statements, and before each of them the error that is planned.
async fn book(cx: NodeContext, s: Draft<Context>) -> NodeResult<Context> {
    let plan = cx.resource::<Plan>();
    let mut tx = cx.transaction::<Postgres>().await?;
    let attempt = plan.attempts.fetch_add(1, Ordering::SeqCst);
    for place in 0..3 {
        if let Some((_, code, _)) = plan.raises.filter(|(at, _, times)| *at == place && attempt < *times) {
            say(&mut tx, format!("DO $$ BEGIN RAISE EXCEPTION SQLSTATE '{code}'; END $$")).await?;
        }
        let (schema, node, visit) = (&plan.schema, cx.node(), cx.visit());
        let book = format!("INSERT INTO {schema}.booked VALUES ($1, {visit}, $2)");
        let book = sqlx::query(AssertSqlSafe(book)).bind(node.as_str()).bind(i32::try_from(place).fatal()?);
        book.persistent(false).execute(&mut *tx).await?;
    }
    s.commit_with(tx)
}

/// Two transactional nodes beside each other and beside a writer, and one after them.
pub(crate) fn graph() -> Graph<Context> {
    Graph::<Context>::builder("booking")
        .node("begin", async |_cx, s: Draft<Context>| Ok(s))
        .node("left", book)
        .effect(Effect::Transactional)
        .node("right", book)
        .effect(Effect::Transactional)
        .node("write", async |_cx, s: Draft<Context>| Ok(s))
        .node("last", book)
        .effect(Effect::Transactional)
        .entry("begin")
        .edge("begin", ["left", "right", "write"])
        .edge(["left", "right", "write"], "last")
        .build()
        .unwrap()
}

/// Runs it over one connection, through whatever stands before the server, and checks that each row is there once.
async fn is_booked_once(schema: &Schema, url: &str, plan: Plan, run: &str) {
    let options = schema.options().with_connections(NonZeroU32::MIN).with_notices(false);
    is_booked_once_by(schema, PostgresStore::from_url(url, options).unwrap(), plan, run).await;
}

/// The same by any store of the schema.
pub(crate) async fn is_booked_once_by(schema: &Schema, store: PostgresStore, plan: Plan, run: &str) {
    schema.execute("TRUNCATE {schema}.booked").await;
    let runtime = Runtime::builder(store).resource(plan.clone());
    let runtime = runtime.store_retries(8, Duration::from_millis(5)).build().await.unwrap();
    let outcome = runtime.start(&graph(), Context::new()).id(run).await.unwrap().wait().await.unwrap();
    assert!(matches!(outcome, Outcome::Completed(_)), "{run}: {outcome:?}");
    let count = AssertSqlSafe(format!(
        "SELECT count(*), count(DISTINCT (node, visit, place)) FROM {}.booked",
        schema.name
    ));
    let row = sqlx::query(count).fetch_one(&mut schema.connection().await).await.unwrap();
    assert_eq!((row.get::<i64, _>(0), row.get::<i64, _>(1)), (9, 9), "{run}");
    runtime.shutdown(Duration::ZERO).await.unwrap();
}

pub(crate) async fn stage() -> (Schema, Plan) {
    let schema = Schema::new();
    schema.store().setup().await.unwrap();
    schema.execute("CREATE TABLE {schema}.booked (node text, visit int, place int)").await;
    let plan = Plan { schema: schema.name.clone(), raises: None, attempts: Arc::default() };
    (schema, plan)
}

/// Guarantees: ONCE-6.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn transient_statement_errors_restart_node_over_one_connection() {
    let (schema, plan) = stage().await;
    is_booked_once(&schema, &schema.url, plan.clone(), "calm").await;
    for code in ["40001", "40P01", "55P03"] {
        for place in 0..3 {
            let plan = Plan { raises: Some((place, code, 2)), attempts: Arc::default(), ..plan.clone() };
            is_booked_once(&schema, &schema.url, plan, &format!("{code}-{place}")).await;
        }
    }
    schema.remove().await;
}

/// The same errors, raised by the server at the append of the record and at the commit.
///
/// Guarantees: ONCE-6.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn transient_append_and_commit_errors_restart_node() {
    let (schema, plan) = stage().await;
    // A rollback does not set a sequence back.
    schema.execute("CREATE SEQUENCE {schema}.raised").await;
    let deferred =
        "CREATE CONSTRAINT TRIGGER raise AFTER INSERT ON {schema}.booked DEFERRABLE INITIALLY DEFERRED";
    let at = [("append", "CREATE TRIGGER raise AFTER INSERT ON {schema}.records"), ("commit", deferred)];
    for (code, (place, trigger)) in
        ["40001", "40P01", "55P03"].into_iter().flat_map(|code| at.map(|at| (code, at)))
    {
        let raise = format!(
            "ALTER SEQUENCE {{schema}}.raised RESTART; \
             CREATE OR REPLACE FUNCTION {{schema}}.raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF EXISTS (SELECT FROM {{schema}}.booked WHERE xmin = pg_current_xact_id()::xid) \
                 AND nextval('{{schema}}.raised') <= 2 THEN RAISE EXCEPTION SQLSTATE '{code}'; END IF; \
             RETURN NULL; END $$; {trigger} FOR EACH ROW EXECUTE FUNCTION {{schema}}.raise()"
        );
        schema.execute(&raise).await;
        is_booked_once(&schema, &schema.url, plan.clone(), &format!("{code}-{place}")).await;
        let raised = AssertSqlSafe(format!("SELECT last_value FROM {}.raised", schema.name));
        let raised: i64 = sqlx::query(raised).fetch_one(&mut schema.connection().await).await.unwrap().get(0);
        assert!(raised > 2, "{code} at the {place} was raised twice, and then not");
        schema.execute("DROP FUNCTION {schema}.raise() CASCADE").await;
    }
    schema.remove().await;
}

/// A run is cancelled at any moment: between the statements, in one, in the commit. Over one connection, which the next run has.
///
/// Guarantees: ONCE-5.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn cancelled_node_leaves_rows_with_record_or_neither() {
    let (schema, plan) = stage().await;
    let graph = Graph::<Context>::builder("cancelled")
        .node("book", async |cx, mut s: Draft<Context>| {
            s.set("booked", 3)?;
            book(cx, s).await
        })
        .effect(Effect::Transactional)
        .entry("book")
        .build()
        .unwrap();
    let options = schema.options().with_connections(NonZeroU32::MIN).with_notices(false);
    let store = PostgresStore::from_url(&schema.url, options).unwrap();
    let runtime = Runtime::builder(store).resource(plan).build().await.unwrap();
    let (mut cancelled, mut rows) = (0, 0);
    // A turn takes a microsecond or two, a run some milliseconds.
    for turns in (0..40).map(|turn| turn * turn * 4) {
        let run = runtime.start(&graph, Context::new()).await.unwrap();
        let key = run.run().clone();
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        // Refused if it has ended.
        let _ = runtime.cancel(&key, "any moment").await;
        let state = match run.wait().await.unwrap() {
            Outcome::Completed(state) => state,
            Outcome::Cancelled { state, .. } => {
                cancelled += 1;
                state
            }
            outcome => panic!("{outcome:?}"),
        };
        rows += state.get::<i64>("booked").unwrap().unwrap_or_default();
        let booked = AssertSqlSafe(format!("SELECT count(*) FROM {}.booked", schema.name));
        let booked: i64 = sqlx::query(booked).fetch_one(&mut schema.connection().await).await.unwrap().get(0);
        assert_eq!(booked, rows, "after {turns} turns");
    }
    assert!(cancelled > 0, "none was cancelled");
    runtime.shutdown(Duration::ZERO).await.unwrap();
    schema.remove().await;
}

/// The connection is cut before, within and after each statement, from the beginning to the commit: the log decides what was done.
///
/// Guarantees: ONCE-7.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn log_resolves_connection_cut_at_commit() {
    let (schema, plan) = stage().await;
    let options: sqlx::postgres::PgConnectOptions = schema.url.parse().unwrap();
    let proxy =
        Proxy::start(format!("{}:{}", options.get_host(), options.get_port()).parse().unwrap()).unwrap();
    let url = proxy.url(&schema.url);
    let mut cuts = 0;
    for word in ["BEGIN", "booked VALUES", "FOR KEY SHARE", "COMMIT"] {
        for place in FaultPosition::ALL {
            let run = format!("{word}-{place:?}").replace([' ', '(', ')'], "-");
            proxy.arm(FaultTrigger::containing(word), ProxyFault { place, act: FaultEffect::Reset });
            is_booked_once(&schema, &url, plan.clone(), &run).await;
            cuts += 1 - proxy.disarm();
        }
    }
    assert_eq!(cuts, 16, "each cut has happened");
    schema.remove().await;
}

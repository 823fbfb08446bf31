//! A transactional node that times out at any `.await`: its rows are rolled back, and the next attempt writes them once.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{Schema, until};
use ferrata_core::graph::{Effect, Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError, NodeResult};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_store::{CheckpointStore as _, SystemClock, Timestamp, within};
use ferrata_store_postgres::{Postgres, PostgresStore};
use ferrata_testing::ManualClock;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Row as _};
use tokio::sync::Notify;

const TIMEOUT: Duration = Duration::from_secs(1);

/// At which await the first attempt stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    /// Before it asks for a transaction.
    First,
    /// While it waits for the one connection, which another caller has.
    ForConnection,
    /// Before its n-th statement.
    Before(u32),
    /// In its n-th statement, which waits for a lock of another caller.
    In(u32),
    /// With its last statement done, and the transaction not handed in.
    Last,
}

const STATEMENTS: u32 = 3;

#[derive(Clone)]
struct Plan {
    schema: String,
    stays: Stays,
    attempts: Arc<AtomicU32>,
    /// Counts the attempts that came to where the first one stays.
    there: Arc<AtomicU32>,
    /// Lets the first attempt ask for the connection, which is taken.
    is_taken: Arc<Notify>,
}

impl Plan {
    /// Stays here, in the first attempt, if that is planned.
    async fn at(&self, attempt: u32, place: Stays) {
        if self.stays != place {
            return;
        }
        self.there.fetch_add(1, Ordering::SeqCst);
        // The statement itself stays, or the call that waits for a connection.
        let by_itself = matches!(place, Stays::In(_) | Stays::ForConnection);
        if attempt == 0 && !by_itself {
            std::future::pending::<()>().await;
        }
    }

    async fn begin(&self) -> u32 {
        let attempt = self.attempts.fetch_add(1, Ordering::SeqCst);
        self.at(attempt, Stays::First).await;
        self.at(attempt, Stays::ForConnection).await;
        if attempt == 0 && self.stays == Stays::ForConnection {
            self.is_taken.notified().await;
        }
        attempt
    }

    async fn write(&self, attempt: u32, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        for place in 0..STATEMENTS {
            self.at(attempt, Stays::Before(place)).await;
            self.at(attempt, Stays::In(place)).await;
            let sql = format!("INSERT INTO {}.place{place} VALUES (1)", self.schema);
            sqlx::query(AssertSqlSafe(sql)).persistent(false).execute(&mut *tx).await?;
        }
        self.at(attempt, Stays::Last).await;
        Ok(())
    }
}

async fn node(cx: NodeContext, s: Draft<Context>) -> NodeResult<Context> {
    let plan = cx.resource::<Plan>();
    let attempt = plan.begin().await;
    let mut tx = cx.transaction::<Postgres>().await?;
    plan.write(attempt, &mut tx).await?;
    s.commit_with(tx)
}

async fn step(cx: NodeContext, s: Draft<Context>) -> Result<Draft<Context>, NodeError> {
    let plan = cx.resource::<Plan>();
    let attempt = plan.begin().await;
    cx.step_in::<Postgres, _, _, _>("write", async |tx: &mut PgConnection| plan.write(attempt, tx).await)
        .await?;
    Ok(s)
}

fn graph(in_step: bool) -> Graph<Context> {
    let builder = Graph::<Context>::builder("timed");
    let builder = if in_step {
        builder.node("write", step)
    } else {
        builder.node("write", node).effect(Effect::Transactional)
    };
    let retry = RetryPolicy::standard().with_delay(Duration::ZERO);
    builder.retry(retry).timeout(TIMEOUT).entry("write").build().unwrap()
}

/// Waits until a statement of a node waits for a lock.
async fn until_locked(schema: &Schema) {
    let sql =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND starts_with(query, $1)";
    let insert = format!("INSERT INTO {}.place", schema.name);
    until("the statement waits for the lock", async || {
        let waiting = sqlx::query(sql).bind(&insert).fetch_one(&mut schema.connection().await).await;
        waiting.unwrap().get::<i64, _>(0) == 1
    })
    .await;
}

async fn is_written_once(schema: &Schema, stays: Stays, in_step: bool) {
    let told = format!("{stays:?}, in a step: {in_step}");
    schema.execute("TRUNCATE {schema}.place0, {schema}.place1, {schema}.place2").await;
    let options = schema.options().with_connections(NonZeroU32::MIN).with_notices(false);
    let store = PostgresStore::from_url(&schema.url, options).unwrap();
    let schema_name = schema.name.clone();
    let plan = Plan {
        schema: schema_name,
        stays,
        attempts: Arc::default(),
        there: Arc::default(),
        is_taken: Arc::default(),
    };
    // Its time stands still, so that the timeout meets the attempt that stays, and no other on a busy machine.
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
    let runtime = Runtime::builder(store.clone()).resource(plan.clone()).clock(Arc::clone(&clock) as _);
    let runtime = runtime.build().await.unwrap();
    let mut other = schema.connection().await;
    if let Stays::In(place) = stays {
        let lock = format!("BEGIN; LOCK TABLE {}.place{place} IN EXCLUSIVE MODE", schema.name);
        other.execute(sqlx::raw_sql(AssertSqlSafe(lock))).await.unwrap();
    }
    let run = runtime.start(&graph(in_step), Context::new()).await.unwrap();
    until("the first attempt is there", async || plan.there.load(Ordering::SeqCst) == 1).await;
    let taken = match stays {
        Stays::ForConnection => {
            let taken = store.transactions().unwrap().begin(run.run()).await.unwrap();
            plan.is_taken.notify_one();
            // On one thread, a turn of every task brings the node to its call.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            Some(taken)
        }
        Stays::In(_) => {
            until_locked(schema).await;
            None
        }
        _ => None,
    };
    clock.advance(TIMEOUT);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    drop(taken);
    other.execute("ROLLBACK").await.unwrap();
    let outcome =
        within(&SystemClock::new(), Duration::from_secs(300), run.wait()).await.expect("it goes on").unwrap();
    assert!(matches!(outcome, Outcome::Completed(_)), "{told}: {outcome:?}");
    assert_eq!(plan.attempts.load(Ordering::SeqCst), 2, "{told}: the first timed out, the second was done");
    for place in 0..STATEMENTS {
        let sql = AssertSqlSafe(format!("SELECT count(*) FROM {}.place{place}", schema.name));
        let rows: i64 = sqlx::query(sql).fetch_one(&mut other).await.unwrap().get(0);
        assert_eq!(rows, 1, "{told}: rows of statement {place}");
    }
    runtime.shutdown(Duration::ZERO).await.unwrap();
}

/// Guarantees: ONCE-1.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn timed_out_node_writes_once_over_one_connection() {
    let schema = Schema::new();
    schema.store().setup().await.unwrap();
    schema.execute("CREATE TABLE {schema}.place0 (n int); CREATE TABLE {schema}.place1 (n int); CREATE TABLE {schema}.place2 (n int)").await;
    for in_step in [false, true] {
        for stays in [Stays::First, Stays::ForConnection, Stays::Last] {
            is_written_once(&schema, stays, in_step).await;
        }
        for place in 0..STATEMENTS {
            is_written_once(&schema, Stays::Before(place), in_step).await;
            is_written_once(&schema, Stays::In(place), in_step).await;
        }
    }
    schema.remove().await;
}

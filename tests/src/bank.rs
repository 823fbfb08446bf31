//! A program for kill tests: it moves money between accounts in the database of the store.
//!
//! `bank STORE SCHEMA ACCOUNTS TTL RUNS HOW` starts or continues `RUNS` runs, and serves the workflow until it is killed. Each run makes three
//! transfers and notes each in a table that accepts repeated notes of a transfer. `HOW` is `transactional`, or `write` for nodes that commit by
//! themselves, which the test must detect. After its death the process counts as alive for `TTL` milliseconds.

use std::error::Error;
use std::time::Duration;

use ferrata::{Postgres, Sqlite};
use ferrata_core::graph::{Effect, Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError, NodeResult};
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft};
use ferrata_core::{Clock, SystemClock};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, SqliteConnection,
};

/// The location of the tables, and the access of a node without a transaction of the store.
struct Tables {
    schema: String,
    accounts: u64,
    url: String,
}

impl Tables {
    /// The statements of a transfer. Its accounts depend only on the run and the visit.
    fn statements(&self, cx: &NodeContext) -> Vec<String> {
        let (run, visit, schema) = (&cx.run().run, cx.visit().get(), &self.schema);
        let mixed = run.as_str().bytes().fold(u64::from(visit), |sum, byte| sum * 31 + u64::from(byte));
        let (all, from) = (self.accounts, mixed % self.accounts);
        let to = (from + 1 + mixed / all % (all - 1)) % all;
        vec![
            format!("UPDATE {schema}accounts SET balance = balance - 7 WHERE id = {from}"),
            format!("UPDATE {schema}accounts SET balance = balance + 7 WHERE id = {to}"),
            format!("INSERT INTO {schema}transfers VALUES ('{run}', {visit})"),
        ]
    }
}

/// Pause between an effect and its record, so that kills hit this moment. The longer pause makes most kills hit it.
const SHORT: Duration = Duration::from_millis(3);
const LONG: Duration = Duration::from_millis(60);

async fn linger(time: Duration) {
    SystemClock::new().sleep(time).await;
}

async fn on_postgres(cx: NodeContext, s: Draft<Context>) -> NodeResult<Context> {
    let mut tx = cx.transaction::<Postgres>().await?;
    for statement in cx.resource::<Tables>().statements(&cx) {
        tx.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await?;
    }
    linger(SHORT).await;
    s.commit_with(tx)
}

async fn on_sqlite(cx: NodeContext, s: Draft<Context>) -> NodeResult<Context> {
    let mut tx = cx.transaction::<Sqlite>().await?;
    for statement in cx.resource::<Tables>().statements(&cx) {
        tx.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await?;
    }
    linger(SHORT).await;
    s.commit_with(tx)
}

async fn careless(cx: NodeContext, s: Draft<Context>) -> Result<Draft<Context>, NodeError> {
    let tables = cx.resource::<Tables>();
    let statements = tables.statements(&cx).join("; ");
    match tables.url.strip_prefix("sqlite:") {
        Some(file) => {
            let options = SqliteConnectOptions::new().filename(file).busy_timeout(Duration::from_secs(60));
            let mut connection: SqliteConnection = options.connect().await?;
            let all = format!("BEGIN IMMEDIATE; {statements}; COMMIT");
            connection.execute(sqlx::raw_sql(AssertSqlSafe(all))).await?;
        }
        None => {
            let mut connection = PgConnection::connect(&tables.url).await?;
            let all = format!("BEGIN; {statements}; COMMIT");
            connection.execute(sqlx::raw_sql(AssertSqlSafe(all))).await?;
        }
    }
    linger(LONG).await;
    Ok(s)
}

fn graph(is_sqlite: bool, how: &str) -> Result<Graph<Context>, Box<dyn Error>> {
    let builder = Graph::<Context>::builder("bank");
    let builder = match (how, is_sqlite) {
        ("transactional", true) => builder.node("move", on_sqlite).effect(Effect::Transactional),
        ("transactional", false) => builder.node("move", on_postgres).effect(Effect::Transactional),
        _ => builder.node("move", careless),
    };
    Ok(builder
        // A short outage of the server does not fail the node.
        .retry(RetryPolicy::none().with_attempts(100).with_delay(Duration::from_millis(20)).with_factor(1.0))
        .node("end", async |_cx, s: Draft<Context>| Ok(s))
        .entry("move")
        .route("move", ["move", "end"], |_s, cx| if cx.visit().get() < 3 { "move" } else { "end" })
        .build()?)
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, schema, accounts, ttl, runs, how] = &*arguments else {
        return Err("usage: bank STORE SCHEMA ACCOUNTS TTL RUNS HOW".into());
    };
    let clock = SystemClock::new();
    let url = store.split_once(['?', '&']).map_or(store.as_str(), |(url, _)| url).to_owned();
    let graph = graph(store.starts_with("sqlite:"), how)?;
    let runtime = loop {
        let builder = Runtime::builder_with(ferrata::connect(store)?)
            .heartbeat_ttl(Duration::from_millis(ttl.parse()?))
            // A starved machine claims runs of living processes repeatedly.
            .max_claims(u32::MAX)
            .sweep_interval(Duration::from_millis(100))
            .resource(Tables { schema: schema.clone(), accounts: accounts.parse()?, url: url.clone() });
        match builder.build().await {
            Ok(runtime) => break runtime,
            Err(error) if error.is_retryable() => clock.sleep(Duration::from_millis(20)).await,
            Err(error) => return Err(error.into()),
        }
    };
    runtime.serve(&graph)?;
    for at in 0..runs.parse::<u32>()? {
        // A run that is not started here is started by another process, or found by a sweep.
        while let Err(error) = runtime.start(&graph, Context::new()).id(format!("t{at}")).await {
            if !error.is_retryable() {
                break;
            }
            clock.sleep(Duration::from_millis(20)).await;
        }
    }
    std::future::pending().await
}

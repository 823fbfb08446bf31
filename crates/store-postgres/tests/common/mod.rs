//! A separate schema per test, on the server from the environment.
#![expect(clippy::unwrap_used, reason = "a test that cannot reach its server has failed")]
#![allow(dead_code, reason = "each test program uses a part of this")]

pub(crate) mod author;
pub(crate) mod numbers;
pub(crate) mod proxy;

use std::num::NonZeroU32;
use std::time::Duration;

use ferrata_store::{Clock as _, IdSource as _, RandomIds, Result, SystemClock};
use ferrata_store_postgres::{PostgresOptions, PostgresStore};
use ferrata_test_servers::{Service, service_url};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgPool};

/// A schema that no other test uses; it is dropped by [`Schema::remove`].
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) name: String,
    pub(crate) url: String,
}

impl Schema {
    pub(crate) fn new() -> Self {
        Self::at(service_url(Service::Postgres))
    }

    pub(crate) fn at(url: String) -> Self {
        let id = RandomIds::new().next(SystemClock::new().now()).simple().to_string();
        Self { name: format!("t_{}", &id[..30]), url }
    }

    pub(crate) fn options(&self) -> PostgresOptions {
        PostgresOptions::default()
            .with_schema(&self.name)
            .with_connections(NonZeroU32::new(3).unwrap())
            .with_acquire_timeout(Duration::from_secs(60))
    }

    /// Opens a store; through a pooler that shares connections by transaction, if the environment names one.
    pub(crate) fn store(&self) -> PostgresStore {
        let Ok(pooler) = std::env::var("STORE_TEST_POSTGRES_POOLER_URL") else {
            return PostgresStore::from_url(&self.url, self.options()).unwrap();
        };
        let options = self.options().with_prepared(false).with_listen_url(&self.url);
        PostgresStore::from_url(&pooler, options).unwrap()
    }

    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    /// A small pool of the test's own.
    pub(crate) fn pool(&self, connections: u32) -> PgPool {
        let options: PgConnectOptions = self.url.parse().unwrap();
        PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(Duration::from_secs(60))
            .connect_lazy_with(options)
    }

    /// Runs statements in which `{schema}` is the schema.
    pub(crate) async fn execute(&self, sql: &str) -> u64 {
        let mut connection = self.connection().await;
        let sql = sql.replace("{schema}", &self.name);
        let done = connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
        connection.close().await.unwrap();
        done.rows_affected()
    }

    pub(crate) async fn remove(&self) {
        self.execute("SET client_min_messages = error; DROP SCHEMA IF EXISTS {schema} CASCADE").await;
    }
}

/// Waits until a condition holds that something outside of the test brings about.
pub(crate) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + Duration::from_secs(300);
    while !is_so().await {
        assert!(clock.monotonic() < deadline, "{what} did not happen");
        clock.sleep(Duration::from_millis(10)).await;
    }
}

/// Does a call again as long as it may be done again, as the runtime does.
pub(crate) async fn retried<T>(call: impl AsyncFn() -> Result<T>) -> T {
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + Duration::from_secs(300);
    loop {
        match call().await {
            Ok(done) => return done,
            Err(error) if error.is_retryable() && clock.monotonic() < deadline => {
                clock.sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Returns the server processes that listen for the notices of a schema.
pub(crate) async fn listeners(schema: &Schema) -> Vec<i32> {
    let mut connection = schema.connection().await;
    let sql = "SELECT pid FROM pg_stat_activity WHERE starts_with(query, format('LISTEN \"%s.runs\"', $1))";
    let rows = sqlx::query(sql).bind(&schema.name).fetch_all(&mut connection).await.unwrap();
    rows.iter().map(|row| sqlx::Row::get(row, 0)).collect()
}

/// Waits until so many listen.
pub(crate) async fn listens(schema: &Schema, count: usize) -> Vec<i32> {
    until("listening", async || listeners(schema).await.len() == count).await;
    listeners(schema).await
}

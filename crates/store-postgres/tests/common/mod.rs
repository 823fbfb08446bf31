//! A schema of its own for each test, on the server that the environment names.
#![expect(clippy::unwrap_used, reason = "a test that cannot reach its server has failed")]
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::num::NonZeroU32;
use std::time::Duration;

use ferrata_core::testing::SeqIds;
use ferrata_core::{Clock as _, IdSource as _, RandomIds, SystemClock};
use ferrata_store_postgres::{PostgresOptions, PostgresStore};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgPool};

/// Returns the URL of the server.
pub(crate) fn server() -> String {
    std::env::var("STORE_TEST_POSTGRES_URL").expect(
        "set STORE_TEST_POSTGRES_URL to a PostgreSQL server, as in postgres://postgres@127.0.0.1/postgres",
    )
}

/// A schema that no other test uses; it is dropped by [`Schema::remove`].
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) name: String,
    pub(crate) url: String,
}

impl Schema {
    pub(crate) fn new() -> Self {
        Self::at(server())
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

    pub(crate) fn store(&self) -> PostgresStore {
        PostgresStore::from_url(&self.url, self.options()).unwrap()
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

/// Ids for the records of a test.
pub(crate) fn ids() -> SeqIds {
    SeqIds::new(1)
}

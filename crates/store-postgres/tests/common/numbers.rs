//! The suite's table in the store's schema, and the transaction of a node.

use std::collections::BTreeSet;

use async_trait::async_trait;
use ferrata_store::AnyTransaction;
use ferrata_store_conformance::{
    NestedEnd, StatementError, StatementErrors, StepResult, TransactionStep as Step, TransactionTable,
};
use ferrata_store_postgres::PostgresTransaction;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use super::Schema;

/// The server ends the connection that says this.
const LOSE_CONNECTION: &str = "SELECT pg_terminate_backend(pg_backend_pid())";

/// The numbers of the suite, in a schema.
pub(crate) struct Numbers {
    url: String,
    schema: String,
}

impl Numbers {
    pub(crate) async fn new(schema: &Schema) -> Self {
        schema
            .execute(
                "CREATE TABLE IF NOT EXISTS {schema}.numbers (n bigint PRIMARY KEY);
                 CREATE TABLE IF NOT EXISTS {schema}.references_to
                     (n bigint REFERENCES {schema}.numbers(n) DEFERRABLE INITIALLY DEFERRED);
                 INSERT INTO {schema}.numbers VALUES (0) ON CONFLICT DO NOTHING",
            )
            .await;
        Self { url: schema.url.clone(), schema: schema.name.clone() }
    }

    fn insert(&self, row: u32) -> String {
        format!("INSERT INTO {}.numbers VALUES ({row})", self.schema)
    }

    /// Inserts a number in a transaction of the driver within the one that is open.
    async fn nest(&self, connection: &mut PgConnection, row: u32, end: NestedEnd) -> sqlx::Result<()> {
        let mut nested = connection.begin().await?;
        execute(&mut nested, &self.insert(row)).await?;
        match end {
            NestedEnd::Commit => nested.commit().await,
            NestedEnd::RollBack => nested.rollback().await,
            NestedEnd::Drop => {
                drop(nested);
                Ok(())
            }
            NestedEnd::Forget => {
                std::mem::forget(nested);
                Ok(())
            }
        }
    }
}

async fn execute(connection: &mut PgConnection, sql: &str) -> sqlx::Result<()> {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.map(drop)
}

#[async_trait]
impl TransactionTable for Numbers {
    async fn take_step(&self, transaction: &mut AnyTransaction, step: Step) -> StepResult {
        let connection = &mut **transaction.downcast_mut::<PostgresTransaction>().unwrap();
        let sql = match step {
            Step::Insert(row) => self.insert(row),
            Step::InsertRefused => self.insert(0),
            Step::Savepoint => "SAVEPOINT suite".to_owned(),
            Step::Release => "RELEASE suite".to_owned(),
            Step::RollBackTo => "ROLLBACK TO suite".to_owned(),
            Step::Begin => "BEGIN".to_owned(),
            Step::Commit => "COMMIT".to_owned(),
            Step::RollBack => "ROLLBACK".to_owned(),
            Step::Nested(row, end) => return result(self.nest(connection, row, end).await),
            Step::LoseConnection => LOSE_CONNECTION.to_owned(),
            Step::ViolateAtCommit => format!("INSERT INTO {}.references_to VALUES (-1)", self.schema),
            // This database rolls no transaction back by itself, and a full one is the server's.
            _ => return StepResult::Unsupported,
        };
        result(execute(connection, &sql).await)
    }

    async fn rows(&self) -> BTreeSet<u32> {
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        let sql = format!("SELECT n FROM {}.numbers", self.schema);
        let rows: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        rows.into_iter().map(|row| u32::try_from(row).unwrap()).collect()
    }

    async fn statement_errors(&self) -> StatementErrors {
        let error = async |sql: &str| -> StatementError {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            execute(&mut connection, sql).await.unwrap_err().into()
        };
        // As the server raises them by itself: a serialization failure, a deadlock, a lock that did not come free.
        let mut transient = vec![error(LOSE_CONNECTION).await];
        for code in ["40001", "40P01", "55P03"] {
            let raise = format!("DO $$ BEGIN RAISE EXCEPTION SQLSTATE '{code}'; END $$");
            transient.push(error(&raise).await);
        }
        let permanent = vec![error(&self.insert(0)).await, error("SELECT 1 / 0").await, error("SELEC").await];
        StatementErrors { transient, permanent }
    }
}

fn result(done: sqlx::Result<()>) -> StepResult {
    done.map_or(StepResult::Refused, |()| StepResult::Done)
}

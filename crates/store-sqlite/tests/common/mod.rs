//! The suite's table in the store's file, and the transaction of a node.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use ferrata_store::AnyTransaction;
use ferrata_store_conformance::{
    NestedEnd, StatementError, StatementErrors, StepResult, TransactionStep as Step, TransactionTable,
};
use ferrata_store_sqlite::SqliteTransaction;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};

/// The numbers of the suite. A number without a row is refused at the commit.
const LAYOUT: &str = "CREATE TABLE IF NOT EXISTS numbers (n INTEGER PRIMARY KEY, filler BLOB) STRICT;
    CREATE TABLE IF NOT EXISTS references_to (n INTEGER REFERENCES numbers(n) DEFERRABLE INITIALLY DEFERRED) STRICT;
    INSERT OR IGNORE INTO numbers VALUES (0, NULL);";

/// The numbers of the suite in a file.
pub(crate) struct Numbers {
    path: PathBuf,
}

impl Numbers {
    pub(crate) async fn new(path: &Path) -> Self {
        let numbers = Self { path: path.to_owned() };
        let mut connection = numbers.connection().await;
        execute(&mut connection, LAYOUT).await.unwrap();
        connection.close().await.unwrap();
        numbers
    }

    async fn connection(&self) -> SqliteConnection {
        SqliteConnectOptions::new().filename(&self.path).connect().await.unwrap()
    }
}

async fn execute(connection: &mut SqliteConnection, sql: &str) -> sqlx::Result<()> {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.map(drop)
}

/// Inserts a number in a nested transaction of the driver.
async fn nest(connection: &mut SqliteConnection, row: u32, end: NestedEnd) -> sqlx::Result<()> {
    let mut nested = connection.begin().await?;
    execute(&mut nested, &format!("INSERT INTO numbers VALUES ({row}, NULL)")).await?;
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

#[async_trait]
impl TransactionTable for Numbers {
    async fn take_step(&self, transaction: &mut AnyTransaction, step: Step) -> StepResult {
        let connection = &mut **transaction.downcast_mut::<SqliteTransaction>().unwrap();
        let sql = match step {
            Step::Insert(row) => format!("INSERT INTO numbers VALUES ({row}, NULL)"),
            Step::InsertRefused => "INSERT INTO numbers VALUES (0, NULL)".to_owned(),
            Step::LoseTransaction => "INSERT OR ROLLBACK INTO numbers VALUES (0, NULL)".to_owned(),
            Step::InsertFull(row) => {
                // SQLite replaces a limit below the current size by the current size.
                execute(connection, "PRAGMA max_page_count = 1").await.unwrap();
                let full =
                    execute(connection, &format!("INSERT INTO numbers VALUES ({row}, zeroblob(100000))"))
                        .await;
                execute(connection, "PRAGMA max_page_count = 1000000").await.unwrap();
                return full.map_or(StepResult::Refused, |()| panic!("the database has space"));
            }
            Step::Savepoint => "SAVEPOINT suite".to_owned(),
            Step::Release => "RELEASE suite".to_owned(),
            Step::RollBackTo => "ROLLBACK TO suite".to_owned(),
            Step::Begin => "BEGIN".to_owned(),
            Step::BeginImmediate => "BEGIN IMMEDIATE".to_owned(),
            Step::Commit => "COMMIT".to_owned(),
            Step::RollBack => "ROLLBACK".to_owned(),
            Step::Nested(row, end) => return result(nest(connection, row, end).await),
            Step::ViolateAtCommit => "INSERT INTO references_to VALUES (-1)".to_owned(),
            _ => return StepResult::Unsupported,
        };
        result(execute(connection, &sql).await)
    }

    async fn rows(&self) -> BTreeSet<u32> {
        let mut connection = self.connection().await;
        let rows: Vec<u32> =
            sqlx::query_scalar("SELECT n FROM numbers").fetch_all(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        rows.into_iter().collect()
    }

    async fn statement_errors(&self) -> StatementErrors {
        let [mut holder, mut other] = [self.connection().await, self.connection().await];
        execute(&mut other, "PRAGMA busy_timeout = 0").await.unwrap();
        let mut transient: Vec<StatementError> = Vec::new();
        // The lock is held now, and then was held since the start of the transaction's read.
        execute(&mut holder, "BEGIN IMMEDIATE").await.unwrap();
        transient.push(execute(&mut other, "BEGIN IMMEDIATE").await.unwrap_err().into());
        execute(&mut other, "BEGIN; SELECT * FROM numbers").await.unwrap();
        execute(&mut holder, "INSERT INTO numbers VALUES (50, NULL); COMMIT").await.unwrap();
        transient.push(execute(&mut other, "DELETE FROM numbers WHERE n = 50").await.unwrap_err().into());
        execute(&mut other, "ROLLBACK; DELETE FROM numbers WHERE n = 50").await.unwrap();
        let mut permanent: Vec<StatementError> = Vec::new();
        for sql in
            ["INSERT INTO numbers VALUES (0, NULL)", "SELECT", "INSERT INTO numbers VALUES ('a', NULL)"]
        {
            permanent.push(execute(&mut other, sql).await.unwrap_err().into());
        }
        for connection in [holder, other] {
            connection.close().await.unwrap();
        }
        StatementErrors { transient, permanent }
    }
}

fn result(done: sqlx::Result<()>) -> StepResult {
    done.map_or(StepResult::Refused, |()| StepResult::Done)
}

//! The table in which transactions of the suite insert rows, and the steps that a node takes in its transaction.

use std::collections::BTreeSet;
use std::error::Error as StdError;

use async_trait::async_trait;
use ferrata_store::AnyTransaction;

/// A table of integers in the store's database. Each integer can be in it only once.
///
/// The table always contains the number 0, so that inserting 0 again fails.
#[async_trait]
pub trait TransactionTable: Send + Sync {
    /// Executes a step in the transaction, as the code of a node would, and ignores its error.
    async fn take_step(&self, transaction: &mut AnyTransaction, step: TransactionStep) -> StepResult;

    /// Returns the committed numbers, read over a separate connection.
    async fn rows(&self) -> BTreeSet<u32>;

    /// Makes statements fail in every way that this database supports, and returns the errors.
    async fn statement_errors(&self) -> StatementErrors;
}

/// The error of a statement, as a node gets it from the driver.
pub type StatementError = Box<dyn StdError + Send + Sync>;

/// Errors of statements.
#[derive(Debug)]
pub struct StatementErrors {
    /// Errors after which the same work may succeed in another transaction: the database aborted the transaction in favor of another, or the
    /// connection was lost.
    pub transient: Vec<StatementError>,
    /// Errors after which the same work fails in another transaction, too.
    pub permanent: Vec<StatementError>,
}

/// A step of a node in its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionStep {
    /// Inserts a number.
    Insert(u32),
    /// Inserts the number 0 again, so that the database refuses this statement.
    InsertRefused,
    /// Inserts the number 0 again, so that the database rolls the whole transaction back by itself.
    LoseTransaction,
    /// Inserts a number while the database is full. Afterward the database has room again.
    InsertFull(u32),
    /// Opens a savepoint with a statement.
    Savepoint,
    /// Releases the savepoint.
    Release,
    /// Rolls back to the savepoint.
    RollBackTo,
    /// Sends the statement `BEGIN`.
    Begin,
    /// Sends the statement `BEGIN IMMEDIATE`.
    BeginImmediate,
    /// Sends the statement `COMMIT`.
    Commit,
    /// Sends the statement `ROLLBACK`.
    RollBack,
    /// Begins a transaction of the driver within this transaction, inserts a number in it, and ends it in the given way.
    Nested(u32, NestedEnd),
    /// Inserts a row that violates a constraint which the database checks at the commit.
    ViolateAtCommit,
    /// Loses the connection, as in a restart of the server.
    LoseConnection,
}

/// How a node ends a transaction within its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestedEnd {
    /// The node commits it.
    Commit,
    /// The node rolls it back.
    RollBack,
    /// The node drops it, so that the driver rolls it back.
    Drop,
    /// The node leaves it open.
    Forget,
}

/// The database's result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepResult {
    /// The step succeeded.
    Done,
    /// The database refused the step.
    Refused,
    /// The database has no such step. The suite skips the story.
    Unsupported,
}

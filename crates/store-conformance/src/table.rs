//! The table beside the runs in which transactions of the suite insert rows, and the steps that a node takes in its transaction.

use std::collections::BTreeSet;
use std::error::Error as StdError;

use async_trait::async_trait;
use ferrata_store::AnyTransaction;

/// A table of whole numbers in the database of the store, in which each number stands once.
///
/// The number 0 is in it from the beginning, so that it can be refused.
#[async_trait]
pub trait TransactionTable: Send + Sync {
    /// Takes a step in the transaction, as the code of a node would, and passes its error over.
    async fn take_step(&self, transaction: &mut AnyTransaction, step: TransactionStep) -> StepResult;

    /// Returns the numbers that every reader sees, by a connection of its own.
    async fn rows(&self) -> BTreeSet<u32>;

    /// Has statements fail in each way that this database has, and returns their errors.
    async fn statement_errors(&self) -> StatementErrors;
}

/// An error of a statement, as a node gets it from the driver.
pub type StatementError = Box<dyn StdError + Send + Sync>;

/// Errors of statements.
#[derive(Debug)]
pub struct StatementErrors {
    /// The database gave way to another transaction, or the connection was lost: the same work may succeed in another transaction.
    pub transient: Vec<StatementError>,
    /// The statement fails in another transaction, too.
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
    /// Inserts a number into a database without room, which has room again afterwards.
    InsertFull(u32),
    /// Opens a savepoint by a statement.
    Savepoint,
    /// Releases that savepoint.
    Release,
    /// Rolls back to that savepoint.
    RollBackTo,
    /// Sends the statement `BEGIN`.
    Begin,
    /// Sends the statement `BEGIN IMMEDIATE`.
    BeginImmediate,
    /// Sends the statement `COMMIT`.
    Commit,
    /// Sends the statement `ROLLBACK`.
    RollBack,
    /// Begins a transaction of the driver within this one, inserts a number in it, and ends it so.
    Nested(u32, NestedEnd),
    /// Inserts what a constraint refuses that the database checks at the commit.
    ViolateAtCommit,
    /// Loses the connection, as when the server restarts.
    LoseConnection,
}

/// How a node ends a transaction within its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestedEnd {
    /// It commits it.
    Commit,
    /// It rolls it back.
    RollBack,
    /// It drops it, so that the driver rolls it back.
    Drop,
    /// It leaves it open.
    Forget,
}

/// The database's result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepResult {
    /// The step succeeded.
    Done,
    /// The database refused it.
    Refused,
    /// This database has no such step; the story that it is in is left out.
    Unsupported,
}

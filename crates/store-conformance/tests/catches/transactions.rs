//! Faults of transactions, on a ledger next to the runs.

use std::any::Any;
use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::sync::Arc;

use ferrata_store::{
    AnyTransaction, CheckpointStore, Error, ErrorKind, HeadRef, Result, RunAppend, RunKey, Transactions,
};
use ferrata_store_conformance::{
    NestedEnd, StatementError, StatementErrors, StepResult, TransactionStep as Step, TransactionTable,
};
use ferrata_testing::LedgerTransaction;

use super::liar::Liar;
use super::lie::Lie;
use super::space::Shared;

/// The rows of the ledger whose names are numbers.
pub(crate) struct Numbers(Arc<Shared>);

impl Numbers {
    pub(crate) async fn new(shared: Arc<Shared>) -> Self {
        let mut transaction = shared.ledger.transaction().await.unwrap();
        transaction.set("0", 1);
        shared.ledger.finish(transaction).await.unwrap();
        Self(shared)
    }

    /// Inserts a row outside the transaction.
    async fn insert_at_once(&self, row: u32) {
        let mut transaction = self.0.ledger.transaction().await.unwrap();
        transaction.set(&row.to_string(), 1);
        self.0.ledger.finish(transaction).await.unwrap();
    }
}

#[async_trait::async_trait]
impl TransactionTable for Numbers {
    async fn take_step(&self, transaction: &mut AnyTransaction, step: Step) -> StepResult {
        let lie = self.0.lie;
        let rows = transaction.downcast_mut::<LedgerTransaction>().unwrap();
        match step {
            Step::Insert(row) if lie == Lie::WritesRowsAtOnce => self.insert_at_once(row).await,
            Step::Insert(row) => rows.set(&row.to_string(), 1),
            // The earlier writes are lost, and the commit succeeds.
            Step::InsertRefused if lie == Lie::CommitsHalf => {
                *rows = self.0.ledger.transaction().await.unwrap()
            }
            Step::InsertRefused | Step::Begin | Step::BeginImmediate => return StepResult::Refused,
            // The ledger has no connection that can break.
            Step::LoseConnection if lie != Lie::CommitsAfterRollback => return StepResult::Unsupported,
            Step::LoseTransaction
            | Step::LoseConnection
            | Step::InsertFull(_)
            | Step::Commit
            | Step::RollBack => {
                if lie == Lie::CommitsAfterRollback {
                    *rows = self.0.ledger.transaction().await.unwrap();
                } else {
                    rows.roll_back();
                }
                return StepResult::Refused;
            }
            Step::Savepoint => rows.mark(),
            Step::RollBackTo if lie == Lie::ForgetsSavepoints => {}
            Step::RollBackTo => {
                rows.undo_since_mark();
                rows.mark();
            }
            Step::Release => rows.keep_since_mark(),
            Step::Nested(row, end) => {
                rows.mark();
                rows.set(&row.to_string(), 1);
                match end {
                    NestedEnd::Commit => rows.keep_since_mark(),
                    NestedEnd::RollBack | NestedEnd::Drop => rows.undo_since_mark(),
                    NestedEnd::Forget if lie == Lie::CommitsOpenNested => rows.keep_since_mark(),
                    NestedEnd::Forget => {}
                }
            }
            Step::ViolateAtCommit => rows.set("violation", -1),
            _ => return StepResult::Unsupported,
        }
        StepResult::Done
    }

    async fn rows(&self) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        for row in 0..10_000 {
            if self.0.ledger.row(&row.to_string()).await != 0 {
                found.insert(row);
            }
        }
        found
    }

    async fn statement_errors(&self) -> StatementErrors {
        let error = |kind| Box::new(Error::new(kind, "planted")) as StatementError;
        StatementErrors {
            transient: vec![error(ErrorKind::Unavailable)],
            permanent: vec![error(ErrorKind::Invalid)],
        }
    }
}

#[async_trait::async_trait]
impl Transactions for Liar {
    async fn begin(&self, run: &RunKey) -> Result<AnyTransaction> {
        if self.shared.lie == Lie::RefusesToBegin {
            return Err(Error::new(ErrorKind::Invalid, "no connection came free"));
        }
        self.shared.ledger.begin(run).await
    }

    async fn commit(&self, transaction: AnyTransaction, append: RunAppend) -> Result<HeadRef> {
        let ledger = &self.shared.ledger;
        match self.shared.lie {
            Lie::RecordsWithoutRows => ledger.append(vec![append]).await.remove(0),
            Lie::KeepsRowsAfterConflict => {
                ledger.finish(*transaction.downcast().unwrap()).await?;
                ledger.append(vec![append]).await.remove(0)
            }
            Lie::TakesConstraintsForDamage => {
                ledger.commit(transaction, append).await.map_err(|error| match error.kind() {
                    ErrorKind::Invalid => Error::new(ErrorKind::Corrupt, error.message()),
                    _ => error,
                })
            }
            _ => ledger.commit(transaction, append).await,
        }
    }

    async fn append_in(&self, connection: &mut (dyn Any + Send), append: RunAppend) -> Result<HeadRef> {
        self.shared.ledger.append_in(connection, append).await
    }

    fn is_transient(&self, error: &(dyn StdError + 'static)) -> bool {
        self.shared.lie == Lie::GivesWayToAll || self.shared.ledger.is_transient(error)
    }
}

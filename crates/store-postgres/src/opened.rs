//! A connection with a transaction under way.

use std::ops::{Deref, DerefMut};

use ferrata_store::ErrorKind;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgTransactionManager;
use sqlx::{PgConnection, Postgres};
use sqlx_core::transaction::TransactionManager as _;
use tokio::runtime::Handle;

use crate::db::Db;
use crate::error::{Call, StoreError, fault, is_lost};
use crate::idle::return_within;

/// A connection with a transaction under way, which is rolled back on its way back to the pool unless it was committed.
///
/// One whose `BEGIN` or `COMMIT` was dropped on its way is closed, as is one with a savepoint open: the driver would give it back within a
/// transaction that no client knows of.
pub(crate) struct Opened {
    connection: PoolConnection<Postgres>,
    db: Db,
    runtime: Option<Handle>,
    is_open: bool,
    /// Whether it is known what the connection has under way.
    is_known: bool,
}

impl Db {
    /// Begins a transaction; nothing was written if this fails.
    pub(crate) async fn begin(&self) -> Result<Opened, StoreError> {
        let connection = self.acquire().await?;
        let runtime = Handle::try_current().ok();
        let mut opened = Opened { connection, db: self.clone(), runtime, is_open: true, is_known: false };
        let begun = self.in_time(1, PgTransactionManager::begin(&mut opened.connection, None)).await;
        match begun {
            Ok(()) => {
                opened.is_known = true;
                Ok(opened)
            }
            Err(error) => Err(opened.failed(&error, Call::Read)),
        }
    }
}

impl Opened {
    /// Refuses a transaction that has savepoints open, which would be released and the transaction left open.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match PgTransactionManager::get_transaction_depth(&self.connection) {
            1 => Ok(()),
            _ => Err(StoreError::new(
                ErrorKind::Invalid,
                "the transaction was ended, or a savepoint in it is open; end what was begun in it, and leave its commit to the run",
            )),
        }
    }

    /// Commits.
    pub(crate) async fn commit(&mut self) -> Result<(), StoreError> {
        self.is_known = false;
        match self.db.clone().in_time(1, PgTransactionManager::commit(&mut self.connection)).await {
            Ok(()) => {
                (self.is_open, self.is_known) = (false, true);
                Ok(())
            }
            Err(error) => Err(self.failed(&error, Call::Write).at_commit()),
        }
    }

    /// Gives the connection up if it is dead.
    fn failed(&mut self, error: &sqlx::Error, call: Call) -> StoreError {
        self.is_known = !is_lost(error);
        fault(error, call)
    }
}

impl Deref for Opened {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // The way back is a task, which needs a runtime also where the transaction is dropped outside of one.
        let _runtime = self.runtime.as_ref().map(Handle::enter);
        // The driver would end a savepoint that was left open, and not the transaction.
        let is_plain = !self.is_open || PgTransactionManager::get_transaction_depth(&self.connection) == 1;
        if !(self.is_known && is_plain) {
            // Not polled, it closes the connection.
            drop(self.connection.return_to_pool());
            return;
        }
        if self.is_open {
            PgTransactionManager::start_rollback(&mut self.connection);
        }
        return_within(&mut self.connection, self.db.patience());
    }
}

//! Transactions on the store's file, which commit a node's rows and its record together.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ferrata_store::{
    AnyTransaction, Database, Error, ErrorKind, HeadRef, Result, RunAppend, RunKey, Transactions, causes,
};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteTransactionManager;
use sqlx_core::transaction::TransactionManager as _;

use crate::db::OpenConnection;
use crate::error::{SqliteCallEffect, SqliteStoreError, classify_error};
use crate::store::SqliteStore;

const BEGIN: &str = "store.begin";
const COMMIT: &str = "store.commit";

/// The kind of database of a [`SqliteStore`]. A node uses it to request a transaction: `cx.transaction::<Sqlite>()`.
#[derive(Debug)]
pub enum Sqlite {}

impl Database for Sqlite {
    const NAME: &'static str = "sqlite";
    type Connection = SqliteConnection;
    type Transaction = SqliteTransaction;
}

/// A transaction on the store's file. It holds the only write lock of the file.
///
/// The transaction dereferences to the `sqlx` connection. Dropping the transaction rolls it back.
///
/// The store uses two hooks of the connection. The commit hook refuses every commit except the store's own. The rollback hook detects that the
/// transaction has ended: a statement of the caller may roll back, and SQLite itself may do so after a failed statement. A later savepoint or
/// `BEGIN` opens another transaction, in which the store must not commit the record.
pub struct SqliteTransaction {
    opened: OpenConnection,
    is_over: Arc<AtomicBool>,
}

impl SqliteTransaction {
    /// Sets the hooks of the connection.
    async fn watch(mut opened: OpenConnection) -> Result<Self, SqliteStoreError> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut handle = opened
            .connection
            .lock_handle()
            .await
            .map_err(|error| classify_error(&error, SqliteCallEffect::Read))?;
        handle.set_commit_hook(|| false);
        let hooked = Arc::clone(&is_over);
        handle.set_rollback_hook(move || hooked.store(true, Ordering::Release));
        drop(handle);
        Ok(Self { opened, is_over })
    }

    /// Refuses a transaction that has ended, or in which a transaction of the driver is open.
    async fn check(&mut self) -> Result<(), SqliteStoreError> {
        // The driver rolls a dropped transaction back later, on its thread. Taking the handle waits for that.
        drop(
            self.opened
                .connection
                .lock_handle()
                .await
                .map_err(|error| classify_error(&error, SqliteCallEffect::Read))?,
        );
        let refused = if self.is_over.load(Ordering::Acquire) {
            "the transaction ended before its commit: a statement ended it, or SQLite rolled it back after a failed statement; \
             return statement errors from the node, and let the run commit"
        } else if SqliteTransactionManager::get_transaction_depth(&self.opened.connection) != 1 {
            "a nested transaction is open; commit it or roll it back before the node ends"
        } else {
            return Ok(());
        };
        Err(SqliteStoreError::new(ErrorKind::Invalid, refused))
    }

    /// Commits the transaction, and returns the connection without its hooks.
    async fn commit(mut self) -> Result<OpenConnection, SqliteStoreError> {
        let mut handle = self
            .opened
            .connection
            .lock_handle()
            .await
            .map_err(|error| classify_error(&error, SqliteCallEffect::Read))?;
        handle.remove_commit_hook();
        handle.remove_rollback_hook();
        drop(handle);
        let committed = SqliteTransactionManager::commit(&mut self.opened.connection).await;
        committed.map_err(|error| classify_error(&error, SqliteCallEffect::Write).at_commit())?;
        Ok(self.opened)
    }
}

impl Deref for SqliteTransaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.opened.connection
    }
}

impl DerefMut for SqliteTransaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.opened.connection
    }
}

impl fmt::Debug for SqliteTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTransaction").finish_non_exhaustive()
    }
}

#[async_trait]
impl Transactions for SqliteStore {
    async fn begin(&self, run: &RunKey) -> Result<AnyTransaction> {
        let of_run = |failed: SqliteStoreError| failed.of_run(BEGIN, run);
        let opened = self.db().begin().await.map_err(of_run)?;
        Ok(Box::new(SqliteTransaction::watch(opened).await.map_err(of_run)?))
    }

    async fn commit(&self, transaction: AnyTransaction, append: RunAppend) -> Result<HeadRef> {
        let mut transaction = *transaction.downcast::<SqliteTransaction>().map_err(|_| foreign())?;
        let of_run = |failed: SqliteStoreError| failed.of_run(COMMIT, &append.run);
        transaction.check().await.map_err(of_run)?;
        let head = self.append_in(&mut transaction.opened.connection, append.clone()).await?;
        let opened = transaction.commit().await.map_err(of_run)?;
        if !self.db().is_there(&opened) {
            return Err(of_run(SqliteStoreError::moved_error(self.db().path(), SqliteCallEffect::Write)));
        }
        self.db().keep_writer(opened);
        Ok(head)
    }

    async fn append_in(&self, connection: &mut (dyn Any + Send), append: RunAppend) -> Result<HeadRef> {
        let connection = connection.downcast_mut::<SqliteConnection>().ok_or_else(wrong_connection)?;
        Self::append_in(self, connection, append).await
    }

    fn is_transient(&self, error: &(dyn StdError + 'static)) -> bool {
        let faults = causes(error).filter_map(|error| error.downcast_ref::<sqlx::Error>());
        faults.into_iter().any(|error| classify_error(error, SqliteCallEffect::Read).is_busy())
    }
}

fn wrong_connection() -> Error {
    let message = "the connection is not a `sqlx::SqliteConnection` of sqlx 0.9; of a `sqlx` transaction `tx`, pass `&mut *tx`";
    Error::new(ErrorKind::Invalid, message)
}

fn foreign() -> Error {
    Error::new(ErrorKind::Invalid, "the transaction belongs to another kind of store than `sqlite`")
}

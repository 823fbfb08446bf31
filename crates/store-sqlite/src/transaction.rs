//! Transactions on the store's file: a node's rows and its record in one commit.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::ops::{Deref, DerefMut};

use async_trait::async_trait;
use ferrata_store::{
    AnyTransaction, Database, Error, ErrorKind, HeadRef, Result, RunAppend, RunKey, Transactions, causes,
};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteTransactionManager;
use sqlx_core::transaction::TransactionManager as _;

use crate::db::Opened;
use crate::error::{Call, StoreError, fault};
use crate::store::SqliteStore;

const BEGIN: &str = "store.begin";
const COMMIT: &str = "store.commit";

/// The kind of database of a [`SqliteStore`]: what a node names to get a transaction, `cx.transaction::<Sqlite>()`.
#[derive(Debug)]
pub enum Sqlite {}

impl Database for Sqlite {
    const NAME: &'static str = "sqlite";
    type Connection = SqliteConnection;
    type Transaction = SqliteTransaction;
}

/// A transaction on the store's file, which holds the one lock of the file. It reads as the `sqlx` connection, and is rolled back when it
/// is dropped. SQLite refuses a commit before that of the run, also of a statement that a caller executes after SQLite has rolled the
/// transaction back by itself; that is done by the commit hook of the connection, which is not the caller's to set.
///
/// <!-- held by: transactions::a_transaction_that_sqlite_rolled_back_commits_no_record -->
pub struct SqliteTransaction {
    opened: Opened,
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
        let of_run = |failed: StoreError| failed.of_run(BEGIN, run);
        let mut opened = self.db().begin().await.map_err(of_run)?;
        // Once SQLite has rolled back by itself, each further statement would be a transaction of its own, committed at once.
        let mut handle =
            opened.connection.lock_handle().await.map_err(|error| of_run(fault(&error, Call::Read)))?;
        handle.set_commit_hook(|| false);
        drop(handle);
        Ok(Box::new(SqliteTransaction { opened }))
    }

    async fn commit(&self, transaction: AnyTransaction, append: RunAppend) -> Result<HeadRef> {
        let SqliteTransaction { mut opened } =
            *transaction.downcast::<SqliteTransaction>().map_err(|_| foreign())?;
        let of_run = |failed: StoreError| failed.of_run(COMMIT, &append.run);
        if SqliteTransactionManager::get_transaction_depth(&opened.connection) != 1 {
            let message = "the transaction was ended, or a savepoint in it is open; end what was begun in it, and leave its commit to the run";
            return Err(of_run(StoreError::new(ErrorKind::Invalid, message)));
        }
        // The driver counts what it was told, and is not told of what SQLite rolled back by itself.
        if sqlx::query("BEGIN").execute(&mut opened.connection).await.is_ok() {
            let message = "the transaction is open no more: SQLite rolled it back after an error of a statement, or it was ended by a statement; \
                           return such errors from the node, and leave the commit to the run";
            return Err(of_run(StoreError::new(ErrorKind::Invalid, message)));
        }
        let head = self.append_in(&mut opened.connection, append.clone()).await?;
        let handle = opened.connection.lock_handle().await;
        handle.map_err(|error| of_run(fault(&error, Call::Read)))?.remove_commit_hook();
        let committed = SqliteTransactionManager::commit(&mut opened.connection).await;
        committed.map_err(|error| of_run(fault(&error, Call::Write)))?;
        if !self.db().is_there(&opened) {
            return Err(of_run(StoreError::moved(self.db().path(), Call::Write)));
        }
        self.db().keep_writer(opened);
        Ok(head)
    }

    async fn append_in(&self, connection: &mut (dyn Any + Send), append: RunAppend) -> Result<HeadRef> {
        let connection = connection.downcast_mut::<SqliteConnection>().ok_or_else(foreign)?;
        Self::append_in(self, connection, append).await
    }

    fn gave_way(&self, error: &(dyn StdError + 'static)) -> bool {
        let faults = causes(error).filter_map(|error| error.downcast_ref::<sqlx::Error>());
        faults.into_iter().any(|error| fault(error, Call::Read).is_busy())
    }
}

fn foreign() -> Error {
    Error::new(ErrorKind::Invalid, "the transaction is of another kind of store than `sqlite`")
}

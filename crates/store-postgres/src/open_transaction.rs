//! A connection with an open transaction.

use std::ops::{Deref, DerefMut};

use ferrata_store::ErrorKind;
use sqlx::postgres::PgTransactionManager;
use sqlx::{PgConnection, SqlSafeStr as _};
use sqlx_core::transaction::TransactionManager as _;

use crate::db::PostgresDb;
use crate::detached_connection::DetachedConnection;
use crate::error::{PostgresCallEffect, PostgresStoreError, fault, is_lost};

/// Begins a transaction and marks it with a setting that ends when the transaction ends.
const BEGIN: &str = "BEGIN; SET LOCAL ferrata.transaction = 'open'";

/// Returns whether the current transaction is the marked one.
const IS_OPEN: &str = "SELECT coalesce(current_setting('ferrata.transaction', true) = 'open', false)";

/// A connection with an open transaction. The transaction is rolled back unless it was committed.
#[derive(Debug)]
pub(crate) struct OpenTransaction {
    held: DetachedConnection,
    db: PostgresDb,
}

impl PostgresDb {
    /// Begins a transaction. If this fails, nothing was written.
    pub(crate) async fn begin(&self) -> Result<OpenTransaction, PostgresStoreError> {
        let mut held = self.acquire().await?;
        held.send();
        let begun = self.in_time(1, PgTransactionManager::begin(&mut held, Some(BEGIN.into_sql_str()))).await;
        begun.map_err(|error| fault(&error, PostgresCallEffect::Read))?;
        held.opened();
        Ok(OpenTransaction { held, db: self.clone() })
    }
}

impl OpenTransaction {
    /// Refuses a transaction that has ended. Also refuses one in which a transaction of the driver is open: the driver would release that inner
    /// transaction, and leave the outer transaction open.
    pub(crate) async fn check(&mut self) -> Result<(), PostgresStoreError> {
        let refuse = |message: &str| Err(PostgresStoreError::new(ErrorKind::Invalid, message));
        if PgTransactionManager::get_transaction_depth(&self.held) != 1 {
            return refuse("a nested transaction is open; commit it or roll it back before the node ends");
        }
        let Self { held, db } = self;
        let asked = sqlx::query_scalar(IS_OPEN).persistent(db.options().prepared).fetch_one(&mut **held);
        match db.in_time(1, asked).await.map_err(|error| fault(&error, PostgresCallEffect::Read))? {
            true => Ok(()),
            false => refuse(
                "a statement ended the transaction early, so its rows may be committed without the record; let the run commit",
            ),
        }
    }

    /// Commits the transaction. The next caller can then use the connection.
    pub(crate) async fn commit(self) -> Result<(), PostgresStoreError> {
        let Self { mut held, db } = self;
        held.send();
        match db.in_time(1, PgTransactionManager::commit(&mut held)).await {
            Ok(()) => {
                db.release(held);
                Ok(())
            }
            Err(error) => {
                if !is_lost(&error) {
                    held.opened();
                }
                Err(fault(&error, PostgresCallEffect::Write).at_commit())
            }
        }
    }
}

impl Deref for OpenTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.held
    }
}

impl DerefMut for OpenTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.held
    }
}

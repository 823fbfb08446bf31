//! A connection with a transaction under way.

use std::ops::{Deref, DerefMut};

use ferrata_store::ErrorKind;
use sqlx::PgConnection;
use sqlx::postgres::PgTransactionManager;
use sqlx_core::transaction::TransactionManager as _;

use crate::db::Db;
use crate::error::{Call, StoreError, fault, is_lost};
use crate::held::Held;

/// A connection with a transaction under way, which is rolled back unless it was committed.
#[derive(Debug)]
pub(crate) struct Opened {
    held: Held,
    db: Db,
}

impl Db {
    /// Begins a transaction; nothing was written if this fails.
    pub(crate) async fn begin(&self) -> Result<Opened, StoreError> {
        let mut held = self.hold().await?;
        held.send();
        let begun = self.in_time(1, PgTransactionManager::begin(&mut held, None)).await;
        begun.map_err(|error| fault(&error, Call::Read))?;
        held.opened();
        Ok(Opened { held, db: self.clone() })
    }
}

impl Opened {
    /// Refuses a transaction that has savepoints open, which would be released and the transaction left open.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match PgTransactionManager::get_transaction_depth(&self.held) {
            1 => Ok(()),
            _ => Err(StoreError::new(
                ErrorKind::Invalid,
                "the transaction was ended, or a savepoint in it is open; end what was begun in it, and leave its commit to the run",
            )),
        }
    }

    /// Commits. The connection is at hand for the next caller.
    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        let Self { mut held, db } = self;
        held.send();
        match db.in_time(1, PgTransactionManager::commit(&mut held)).await {
            Ok(()) => {
                db.keep(held);
                Ok(())
            }
            Err(error) => {
                if !is_lost(&error) {
                    held.opened();
                }
                Err(fault(&error, Call::Write).at_commit())
            }
        }
    }
}

impl Deref for Opened {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.held
    }
}

impl DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.held
    }
}

//! Transactions on the store's connections, which commit a node's rows and its record together.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::ops::{Deref, DerefMut};

use async_trait::async_trait;
use ferrata_store::{
    AnyTransaction, Database, Error, ErrorKind, HeadRef, Result, RunAppend, RunKey, Transactions, causes,
};
use sqlx::PgConnection;

use crate::append::AppendRoute;
use crate::error::{PostgresCallEffect, PostgresStoreError, fault, is_lost};
use crate::open_transaction::OpenTransaction;
use crate::store::PostgresStore;

const BEGIN: &str = "store.begin";
const COMMIT: &str = "store.commit";

/// The kind of database of a [`PostgresStore`]. A node uses it to request a transaction: `cx.transaction::<Postgres>()`.
#[derive(Debug)]
pub enum Postgres {}

impl Database for Postgres {
    const NAME: &'static str = "postgres";
    type Connection = PgConnection;
    type Transaction = PostgresTransaction;
}

/// A transaction on one of the store's connections.
///
/// The transaction dereferences to the `sqlx` connection. Dropping the transaction rolls it back. The store marks the transaction with the setting
/// `ferrata.transaction`: if a statement of the caller has ended the transaction, the store refuses the commit.
pub struct PostgresTransaction {
    opened: OpenTransaction,
}

impl Deref for PostgresTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.opened
    }
}

impl DerefMut for PostgresTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.opened
    }
}

impl fmt::Debug for PostgresTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTransaction").finish_non_exhaustive()
    }
}

#[async_trait]
impl Transactions for PostgresStore {
    async fn begin(&self, run: &RunKey) -> Result<AnyTransaction> {
        let opened = self.db().begin().await.map_err(|failed| failed.of_run(BEGIN, run))?;
        Ok(Box::new(PostgresTransaction { opened }))
    }

    async fn commit(&self, transaction: AnyTransaction, append: RunAppend) -> Result<HeadRef> {
        let transaction = transaction.downcast::<PostgresTransaction>().map_err(|_| foreign())?;
        let PostgresTransaction { mut opened } = *transaction;
        let db = self.db();
        let prepared = db.options().prepared;
        let of_run = |failed: PostgresStoreError| failed.of_run(COMMIT, &append.run);
        opened.check().await.map_err(of_run)?;
        let appending = async {
            let via = AppendRoute::Transaction { connection: &mut opened, prepared };
            Ok(self.appending().run(via, std::slice::from_ref(&append)).await.swap_remove(0))
        };
        let appended = db
            .in_time(2, Box::pin(appending))
            .await
            .map_err(|error| of_run(fault(&error, PostgresCallEffect::Read)));
        let head = appended.flatten().map_err(mark_not_written)?;
        opened.commit().await.map_err(of_run)?;
        self.tell(&append.run, head);
        Ok(head)
    }

    async fn append_in(&self, connection: &mut (dyn Any + Send), append: RunAppend) -> Result<HeadRef> {
        let connection = connection.downcast_mut::<PgConnection>().ok_or_else(wrong_connection)?;
        Self::append_in(self, connection, append).await
    }

    fn is_transient(&self, error: &(dyn StdError + 'static)) -> bool {
        let gave_way = |error: &sqlx::Error| match error {
            sqlx::Error::Database(refused) => {
                let code = refused.code().unwrap_or_default();
                matches!(&*code, "40001" | "40P01" | "55P03") || is_lost(error)
            }
            _ => is_lost(error),
        };
        causes(error).filter_map(|error| error.downcast_ref::<sqlx::Error>()).any(gave_way)
    }
}

/// Marks an append in an uncommitted transaction as certainly not written.
fn mark_not_written(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Indeterminate => {
            let message =
                "the transaction was lost before its commit, so nothing was written; start a new one";
            Error::new(ErrorKind::Unavailable, message).with_operation(COMMIT).with_source(error)
        }
        _ => error,
    }
}

fn wrong_connection() -> Error {
    let message = "the connection is not a `sqlx::PgConnection` of sqlx 0.9; of a `sqlx` transaction `tx`, pass `&mut *tx`";
    Error::new(ErrorKind::Invalid, message)
}

fn foreign() -> Error {
    Error::new(ErrorKind::Invalid, "the transaction belongs to another kind of store than `postgres`")
}

//! Transactions: a node's writes to the store's database, and its record, are committed together.

use std::any::Any;
use std::error::Error as StdError;
use std::ops::DerefMut;

use async_trait::async_trait;

use crate::contract::RunAppend;
use crate::error::Result;
use crate::id::{HeadRef, RunKey};

/// A kind of database in which a node can write in the transaction that stores its record: `Postgres`, `Sqlite`.
///
/// A node requests a transaction by this type. The type has no values.
pub trait Database: Send + Sync + 'static {
    /// The name of the stores that use such a database, as in [`Capabilities::name`](crate::Capabilities::name).
    const NAME: &'static str;

    /// The connection through which a node writes.
    type Connection: Any + Send;

    /// An open transaction. Dropping it rolls it back.
    type Transaction: Any + Send + DerefMut<Target = Self::Connection>;
}

/// A [`Database::Transaction`] of any kind of database.
pub type AnyTransaction = Box<dyn Any + Send>;

/// The transactions of a store that keeps its records in a database where applications also have tables.
///
/// # To ensure correctness, implementors must
///
/// - make the writes of the transaction and the records visible together or not at all, to every reader;
/// - compare the run's head within the transaction, as [`append`](crate::CheckpointStore::append) does: if several writers append after the same
///   head, in a transaction or not, exactly one succeeds;
/// - roll back a transaction that is dropped, even while a call is in progress;
/// - refuse to commit a transaction that has already ended, whether a statement of its owner or the database ended it, and even if its connection
///   has begun another transaction since.
#[async_trait]
pub trait Transactions: Send + Sync {
    /// Begins a transaction in which a node of this run can write. Returns a boxed [`Database::Transaction`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable): no connection became free in time; retry.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a transaction that has begun is rolled back.
    async fn begin(&self, run: &RunKey) -> Result<AnyTransaction>;

    /// Appends the records within the transaction, then commits it.
    ///
    /// # Errors
    ///
    /// The errors of [`append`](crate::CheckpointStore::append). The kind is also [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if a constraint
    /// that the database checks at the commit refused the writes, if the transaction has already ended, or if a nested transaction is still open.
    ///
    /// After every error except [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate), the transaction is rolled back: neither the records
    /// nor the other writes exist. After `Indeterminate`, both exist or neither does: check for the records.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: after a dropped future, as after `Indeterminate`, the transaction may or may not be committed.
    async fn commit(&self, transaction: AnyTransaction, append: RunAppend) -> Result<HeadRef>;

    /// Appends within a transaction of the caller. The records exist if and only if the caller commits. `connection` is a [`Database::Connection`].
    ///
    /// # Errors
    ///
    /// The errors of [`append`](crate::CheckpointStore::append), and [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if `connection` belongs to
    /// another kind of database. After an error, roll the transaction back.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: roll the transaction back.
    async fn append_in(&self, connection: &mut (dyn Any + Send), append: RunAppend) -> Result<HeadRef>;

    /// Returns whether an error of a statement in a transaction is transient, so that the same work may succeed in another transaction. An error is
    /// transient if the database aborted the transaction in favor of another (a deadlock, a serialization failure, a lock timeout), or if the
    /// connection was lost. Also checks the causes of the error.
    fn is_transient(&self, error: &(dyn StdError + 'static)) -> bool;
}

/// Iterates over an error and its causes, for [`Transactions::is_transient`].
#[doc(hidden)]
pub fn causes<'e>(error: &'e (dyn StdError + 'static)) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

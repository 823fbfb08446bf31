//! Transactions: what a node writes in tables of the store's database, and its record, in one commit.

use std::any::Any;
use std::error::Error as StdError;
use std::ops::DerefMut;

use async_trait::async_trait;

use crate::contract::RunAppend;
use crate::error::Result;
use crate::id::{HeadRef, RunKey};

/// A kind of database in which a node can write in the transaction that holds its record: `Postgres`, `Sqlite`.
///
/// It is the name by which a node asks for a transaction; there are no values of it.
pub trait Database: Send + Sync + 'static {
    /// The name of the stores that are in such a database, as in [`Capabilities::name`](crate::Capabilities::name).
    const NAME: &'static str;

    /// The connection with which a node writes.
    type Connection: Any + Send;

    /// A transaction that has begun. It is rolled back when it is dropped.
    type Transaction: Any + Send + DerefMut<Target = Self::Connection>;
}

/// A [`Database::Transaction`], whichever it is.
pub type AnyTransaction = Box<dyn Any + Send>;

/// The transactions of a store, for one that keeps its records in a database where applications have tables, too.
///
/// # To ensure correctness, implementors must
///
/// - make the work of the transaction and the records appear together or not at all, to every reader;
/// - compare the run's head within the transaction, as [`append`](crate::CheckpointStore::append) does: of all who append after the
///   same head, in a transaction or not, one succeeds;
/// - roll a transaction back that is dropped, also while a call is under way;
/// - refuse the commit of a transaction that has ended before, by a statement of its owner or by the database itself, whatever was begun on its
///   connection since.
#[async_trait]
pub trait Transactions: Send + Sync {
    /// Begins a transaction for the work of a node of this run: a boxed [`Database::Transaction`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable): no connection came free in time; retry.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what had begun is rolled back.
    async fn begin(&self, run: &RunKey) -> Result<AnyTransaction>;

    /// Appends within the transaction, and commits it.
    ///
    /// # Errors
    ///
    /// As for [`append`](crate::CheckpointStore::append). [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) also if a constraint that is checked at the
    /// commit refused the work, if the transaction has ended before, or if one that was begun within it is open.
    ///
    /// After any but [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) it was rolled
    /// back: neither the records are there nor the other work. After `Indeterminate` both are there or neither: look for the records.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a dropped future leaves the same doubt as `Indeterminate`.
    async fn commit(&self, transaction: AnyTransaction, append: RunAppend) -> Result<HeadRef>;

    /// Appends within a transaction of the caller's: the records are there exactly if it commits. `connection` is a
    /// [`Database::Connection`].
    ///
    /// # Errors
    ///
    /// As for [`append`](crate::CheckpointStore::append), and [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for a connection to another kind of
    /// database. Roll the transaction back.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: roll the transaction back.
    async fn append_in(&self, connection: &mut (dyn Any + Send), append: RunAppend) -> Result<HeadRef>;

    /// Returns whether an error of a statement in a transaction is transient, so that the same work may succeed in another transaction. Either the
    /// database gave way to another transaction (a deadlock, a serialization failure, a lock timeout), or the connection was lost. Also checks the
    /// causes of the error.
    fn is_transient(&self, error: &(dyn StdError + 'static)) -> bool;
}

/// Lists an error and its causes, for [`Transactions::is_transient`].
pub fn causes<'e>(error: &'e (dyn StdError + 'static)) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

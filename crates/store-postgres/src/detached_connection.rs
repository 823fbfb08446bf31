//! A connection outside the pool, and its return to the pool.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use ferrata_store::{Clock as _, SystemClock, within};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgTransactionManager;
use sqlx::{PgConnection, Postgres};
use sqlx_core::transaction::TransactionManager as _;
use tokio::runtime::{Handle, Id};

/// A connection outside the pool. Dropping it returns it to the pool. If a transaction is open on it, the drop rolls the transaction back. If its
/// state is unknown, because an answer is missing or a call was dropped, the drop closes it.
///
/// The driver alone would also return a connection of unknown state: within a transaction that no client knows, or only after an unlimited wait for
/// the answer.
#[derive(Debug)]
pub(crate) struct DetachedConnection {
    connection: PoolConnection<Postgres>,
    /// The time since which the connection is outside the pool.
    pub(crate) since: Duration,
    /// The runtime of the pool's tasks, if there is one.
    runtime: Option<Handle>,
    /// The time limit for checking the connection.
    patience: Duration,
    under_way: UnderWay,
}

/// The work in progress on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnderWay {
    Nothing,
    Transaction,
    Unknown,
}

impl DetachedConnection {
    /// Wraps a connection that just came from the pool.
    pub(crate) fn new(connection: PoolConnection<Postgres>, patience: Duration) -> Self {
        let (since, runtime) = (SystemClock::new().monotonic(), Handle::try_current().ok());
        Self { connection, since, runtime, patience, under_way: UnderWay::Nothing }
    }

    /// Returns the id of the runtime that the connection belongs to.
    pub(crate) fn runtime_id(&self) -> Option<Id> {
        self.runtime.as_ref().map(Handle::id)
    }

    /// Marks the connection as busy; until its state is known again, a drop closes it.
    pub(crate) fn send(&mut self) {
        self.under_way = UnderWay::Unknown;
    }

    /// Marks all requests as answered.
    pub(crate) fn mark_idle(&mut self) {
        self.under_way = UnderWay::Nothing;
    }

    /// Marks all requests as answered, with a transaction open.
    pub(crate) fn opened(&mut self) {
        self.under_way = UnderWay::Transaction;
    }
}

impl Deref for DetachedConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for DetachedConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

impl Drop for DetachedConnection {
    fn drop(&mut self) {
        // The return is a task, which needs a runtime even if the connection is dropped outside of a runtime.
        let _runtime = self.runtime.as_ref().map(Handle::enter);
        let is_known = match self.under_way {
            UnderWay::Nothing => true,
            // If a savepoint is open, the driver would end only the savepoint and not the transaction.
            UnderWay::Transaction => PgTransactionManager::get_transaction_depth(&self.connection) == 1,
            UnderWay::Unknown => false,
        };
        if is_known && self.under_way == UnderWay::Transaction {
            PgTransactionManager::start_rollback(&mut self.connection);
        }
        let returning = self.connection.return_to_pool();
        match Handle::try_current() {
            // The pool checks a returned connection with the server, and waits for the answer without a limit, which blocks one of the pool's
            // slots. So close a connection that does not answer in time.
            Ok(runtime) if is_known => {
                let patience = self.patience;
                runtime.spawn(async move { within(&SystemClock::new(), patience, returning).await });
            }
            // The future is dropped without being polled, which closes the connection.
            _ => drop(returning),
        }
    }
}

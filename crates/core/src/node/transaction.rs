//! Transactions of a node, which commit the node's writes to the store's database together with the node's record.

use std::fmt;
use std::future::{Future as _, poll_fn};
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrata_store::{AnyTransaction, CheckpointStore, Database};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::context::{DriverRequest, NodeContext, NodeScope, RunScope};
use super::error::NodeError;
use super::requests::{BusyGuard, NodeRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::record::effect::Effect;
use crate::state::{HandIn, strict};

/// The permission of the driver to begin a transaction. The run has no unfinished append, and starts no append while the lease exists.
pub(crate) struct TransactionGrant {
    pub(crate) store: Arc<dyn CheckpointStore>,
    pub(crate) lease: TransactionLease,
}

/// The exclusive right of one transaction of the run. The right ends when the lease is dropped.
pub(crate) struct TransactionLease {
    pub(crate) run: Arc<RunScope>,
    pub(crate) number: u64,
}

impl Drop for TransactionLease {
    fn drop(&mut self) {
        // Without a driver, no other transaction waits.
        let _ = self.run.commands.send(DriverRequest::TransactionOver(self.number));
    }
}

/// A transaction that a node has passed to the driver. It commits together with the node's record.
pub(crate) struct HandedIn {
    // The order matters: a dropped transaction must roll back before the lease ends.
    pub(crate) transaction: AnyTransaction,
    pub(crate) lease: TransactionLease,
}

impl fmt::Debug for HandedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandedIn({})", self.lease.number)
    }
}

/// The transactions of an attempt.
#[derive(Default)]
pub(crate) struct AttemptTransactions {
    slot: Mutex<TransactionSlot>,
    /// Whether the attempt must run again because of another transaction. Such an attempt does not count as a failure of the node.
    gave_way: AtomicBool,
    /// Whether the reason was that no transaction could begin, because the store is unavailable or has no free connection.
    not_begun: AtomicBool,
}

#[derive(Default)]
struct TransactionSlot {
    is_open: bool,
    /// Whether the node is in the work of a step that runs in a transaction.
    in_step: bool,
    handed_in: Option<Box<HandedIn>>,
    store: Option<Arc<dyn CheckpointStore>>,
}

impl AttemptTransactions {
    fn slot(&self) -> MutexGuard<'_, TransactionSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the attempt holds a transaction that it has not handed in.
    pub(crate) fn is_open(&self) -> bool {
        let slot = self.slot();
        slot.is_open || slot.in_step
    }

    /// Marks the attempt to run again without counting as a failure of the node.
    pub(crate) fn give_way(&self) {
        self.gave_way.store(true, Ordering::Relaxed);
    }

    /// Takes the transaction that the node has passed with its result.
    pub(crate) fn take(&self) -> Option<Box<HandedIn>> {
        self.slot().handed_in.take()
    }

    /// Checks whether an attempt failed because of another transaction.
    pub(crate) fn check_conflict(&self, error: &NodeError) {
        let store = self.slot().store.take();
        let transactions = store.as_ref().and_then(|store| store.transactions());
        if transactions.is_some_and(|transactions| transactions.is_transient(error.source())) {
            self.gave_way.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_given_way(&self) -> bool {
        self.gave_way.load(Ordering::Relaxed)
    }

    /// Returns whether no transaction could begin.
    pub(crate) fn was_not_begun(&self) -> bool {
        self.not_begun.load(Ordering::Relaxed)
    }
}

/// A guard for the open transaction of an attempt. While it exists, the attempt counts as running.
struct OpenGuard {
    scope: Arc<NodeScope>,
    _busy: BusyGuard,
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.scope.transactions.slot().is_open = false;
    }
}

/// A transaction of a node on the store's database.
///
/// The transaction dereferences to the connection of the database: `sqlx::PgConnection` for `Postgres`, `sqlx::SqliteConnection` for `Sqlite`. To
/// commit, the node passes the transaction to [`Draft::commit_with`](crate::state::Draft::commit_with) or
/// [`Update::commit_with`](crate::state::Update::commit_with) and returns the result. If the transaction is dropped, it is rolled back.
#[must_use = "a dropped transaction is rolled back; pass it to `commit_with`"]
pub struct Transaction<D: Database> {
    // The order matters: the transaction must roll back before the lease ends.
    inner: Box<D::Transaction>,
    open: OpenGuard,
    lease: TransactionLease,
}

impl<D: Database> HandIn for Transaction<D> {
    type Error = NodeError;

    fn hand_in(self) {
        let Self { inner, open, lease } = self;
        let handed_in = Box::new(HandedIn { transaction: inner, lease });
        let before = open.scope.transactions.slot().handed_in.replace(handed_in);
        // An attempt gets another transaction only after it dropped the earlier one.
        drop(before);
    }
}

impl<D: Database> Deref for Transaction<D> {
    type Target = D::Connection;

    fn deref(&self) -> &D::Connection {
        &self.inner
    }
}

impl<D: Database> DerefMut for Transaction<D> {
    fn deref_mut(&mut self) -> &mut D::Connection {
        &mut self.inner
    }
}

impl<D: Database> fmt::Debug for Transaction<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transaction<{}> of {}", D::NAME, self.open.scope.node)
    }
}

impl NodeContext {
    /// Begins a transaction on the store's database, in a node declared [`Effect::Transactional`].
    ///
    /// The database commits the writes of the transaction and the record of the node's end together, or neither of them.
    ///
    /// To commit, the node passes the transaction to [`Draft::commit_with`](crate::state::Draft::commit_with) or
    /// [`Update::commit_with`](crate::state::Update::commit_with) and returns the result. After an error, a timeout, a panic, a cancellation or a
    /// crash of the process, the transaction is rolled back. The node may then run again, by the same rules as any other node. Only the attempt whose
    /// record is in the log changes rows of the database.
    ///
    /// While a transaction is open, the run appends no other records, and other transactions of the run wait. Keep the transaction short, and await
    /// only the database during it. Calls of the node for steps, questions, messages, timers, children and checkpoints fail until the transaction is
    /// committed or dropped.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the node is not declared `Transactional`, the attempt already has a transaction, or the runtime's store does not use
    ///   the database `D`.
    /// - [`ErrorKind::Unavailable`]: no connection became free in time. If the node returns this error, it runs again from the start.
    /// - [`ErrorKind::Closed`]: this process no longer drives the run.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: an unfinished transaction is rolled back.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::{Effect, Graph};
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_testing::{LedgerDatabase, LedgerStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // `LedgerDatabase` is a table in memory, for tests; in an application it is `Postgres` or `Sqlite`.
    /// let graph = Graph::<Context>::builder("transfer")
    ///     .node("move", async |cx, mut s| {
    ///         let mut tx = cx.transaction::<LedgerDatabase>().await?;
    ///         tx.add("ann", -5);
    ///         tx.add("bob", 5);
    ///         s.set("moved", 5)?;
    ///         s.commit_with(tx)
    ///     })
    ///     .effect(Effect::Transactional)
    ///     .entry("move")
    ///     .build()?;
    /// let store = LedgerStore::new();
    /// let runtime = Runtime::builder(store.clone()).build().await?;
    /// runtime.start(&graph, Context::new()).await?.wait().await?;
    /// assert_eq!((store.row("ann").await, store.row("bob").await), (-5, 5));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn transaction<D: Database>(&self) -> Result<Transaction<D>> {
        let effect = self.scope.effect;
        if effect != Effect::Transactional {
            let message = format!(
                "the node is declared `{effect}`, so its record cannot be part of a transaction; declare it `.effect(Effect::Transactional)`"
            );
            return Err(self.misused(message));
        }
        let open = {
            let mut slot = self.scope.transactions.slot();
            if slot.is_open || slot.handed_in.is_some() || slot.in_step {
                let message = "the attempt already has a transaction; do all work in that one, or drop it before you begin another";
                return Err(self.misused(message.to_owned()));
            }
            slot.is_open = true;
            OpenGuard { scope: Arc::clone(&self.scope), _busy: BusyGuard::of(&self.scope) }
        };
        let (inner, lease) = self.begin_transaction::<D>().await?;
        Ok(Transaction { inner, open, lease })
    }

    /// Does work once in a transaction on the store's database, and records its result under a name. The database commits the rows that the work
    /// wrote and the recorded result together.
    ///
    /// As with a [step](Self::step), later runs of the activation return the recorded result instead.
    ///
    /// Use this method if only a part of a node needs a transaction. The node continues after the rows and the result are durable. It may then do
    /// further steps of any kind, and wait between them. If the commit is rejected (because of another transaction or another writer of the run), the
    /// step has no effect. Return the error, and the node runs again from the start. The same holds for the errors of
    /// [`transaction`](Self::transaction).
    ///
    /// # Errors
    ///
    /// - The errors of [`step`](Self::step) and [`transaction`](Self::transaction).
    /// - [`ErrorKind::Invalid`]: the node is declared `Pure` or `Read`, which must not write, or `External`, which must not restart.
    /// - [`ErrorKind::Unsupported`]: the store has no transactions.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before the commit, the transaction is rolled back and the step has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_testing::{LedgerDatabase, LedgerRows, LedgerStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("order")
    ///     .node("pay", async |cx, s| {
    ///         let left: i64 = cx
    ///             .step_in::<LedgerDatabase, _, _, _>("debit", async |tx: &mut LedgerRows| {
    ///                 tx.add("cash", -5);
    ///                 Ok::<_, std::io::Error>(tx.get("cash"))
    ///             })
    ///             .await?;
    ///         assert_eq!(left, -5);
    ///         Ok(s)
    ///     })
    ///     .entry("pay")
    ///     .build()?;
    /// let store = LedgerStore::new();
    /// let runtime = Runtime::builder(store.clone()).build().await?;
    /// runtime.start(&graph, Context::new()).await?.wait().await?;
    /// assert_eq!(store.row("cash").await, -5);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn step_in<D, T, E, F>(&self, name: impl Into<String>, work: F) -> Result<T, NodeError>
    where
        D: Database,
        T: Serialize + DeserializeOwned,
        E: Into<NodeError>,
        F: AsyncFnOnce(&mut D::Connection) -> Result<T, E>,
    {
        let effect = self.scope.effect;
        if matches!(effect, Effect::Pure | Effect::Read | Effect::External) {
            let message = format!(
                "the node is declared `{effect}`, so it cannot do a step in a transaction, which writes and restarts after a conflict; \
                 declare the node `write`"
            );
            return Err(NodeError::new(self.misused(message)).fatal());
        }
        self.check_no_transaction()?;
        let name = self.claim(name.into())?;
        if let Some(result) = self.recalled(&name).await? {
            return Ok(result);
        }
        let _busy = BusyGuard::of(&self.scope);
        let (mut inner, lease) = self.begin_transaction::<D>().await?;
        let result = {
            let mut working = pin!(work(&mut inner));
            poll_fn(|context| {
                // The step's own waits are rejected, but waits next to the step are allowed.
                self.scope.transactions.slot().in_step = true;
                let polled = working.as_mut().poll(context);
                self.scope.transactions.slot().in_step = false;
                polled
            })
            .await
            .map_err(Into::into)?
        };
        let text = strict::to_raw_value(&result).map_err(|error| NodeError::new(error).fatal())?;
        let handed_in = Box::new(HandedIn { transaction: inner, lease });
        self.request(name, NodeRequest::Commit(text, handed_in)).await?;
        Ok(result)
    }

    /// Waits until the driver permits a transaction, and begins it.
    async fn begin_transaction<D: Database>(&self) -> Result<(Box<D::Transaction>, TransactionLease)> {
        let (reply, granted) = oneshot::channel();
        let command = DriverRequest::Transaction { by: self.scope.attempt_key, reply };
        self.scope.run.commands.send(command).map_err(|_| self.driver_gone_error())?;
        let TransactionGrant { store, lease } = granted.await.map_err(|_| self.driver_gone_error())?;
        let name = store.capabilities().name;
        let Some(transactions) = store.transactions() else {
            let message = format!(
                "the store `{name}` has no transactions; keep the runs in PostgreSQL or SQLite, or in `World::with_transactions` in a test"
            );
            return Err(Error::new(ErrorKind::Unsupported, message).with_node(self.node()));
        };
        let begun = transactions.begin(self.run()).await;
        let begun = begun.inspect_err(|error| {
            let transactions = &self.scope.transactions;
            transactions.gave_way.store(error.is_retryable(), Ordering::Relaxed);
            transactions.not_begun.store(error.is_retryable(), Ordering::Relaxed);
        })?;
        let Ok(inner) = begun.downcast::<D::Transaction>() else {
            let message =
                format!("the store is `{name}`, not `{}`; request a transaction of that store", D::NAME);
            return Err(self.misused(message));
        };
        self.scope.transactions.slot().store = Some(store);
        Ok((inner, lease))
    }

    fn misused(&self, message: String) -> Error {
        Error::new(ErrorKind::Invalid, message).with_node(self.node())
    }

    /// Returns an error if the attempt has an open transaction. A wait for a record would never end then, because the run appends no record.
    pub(super) fn check_no_transaction(&self) -> Result<()> {
        if !self.scope.transactions.is_open() {
            return Ok(());
        }
        let message = "the node has an open transaction, and the run can write nothing else until it ends; do this before `cx.transaction()`";
        Err(self.misused(message.to_owned()))
    }
}

//! Transactions of a node: what it writes in the store's database commits with its record.

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

use super::NodeResult;
use super::context::{Command, NodeContext, NodeScope, RunScope};
use super::error::NodeError;
use super::wish::{BusyGuard, NodeRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::record::effect::Effect;
use crate::state::{Draft, State, Update, strict};

/// What the driver gives an attempt that may begin a transaction: nothing else of the run is on its way to the store, nor will be as long
/// as the lease lives.
pub(crate) struct TransactionGrant {
    pub(crate) store: Arc<dyn CheckpointStore>,
    pub(crate) lease: TransactionLease,
}

/// The turn of a transaction. Dropped, it tells the driver that the turn is over.
pub(crate) struct TransactionLease {
    pub(crate) run: Arc<RunScope>,
    pub(crate) number: u64,
}

impl Drop for TransactionLease {
    fn drop(&mut self) {
        // A driver that is gone waits for no turn.
        let _ = self.run.commands.send(Command::TransactionOver(self.number));
    }
}

/// A transaction that a node has handed in, to be committed with its record.
pub(crate) struct HandedIn {
    // In this order: what is dropped is rolled back before the turn is over.
    pub(crate) transaction: AnyTransaction,
    pub(crate) lease: TransactionLease,
}

impl fmt::Debug for HandedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandedIn({})", self.lease.number)
    }
}

/// What an attempt has of transactions.
#[derive(Default)]
pub(crate) struct AttemptTransactions {
    slot: Mutex<Slot>,
    /// Whether another transaction was in the way, so that the attempt is no failure of the node.
    gave_way: AtomicBool,
    /// Whether that was so because none could be begun: the store is away, or has no connection free.
    not_begun: AtomicBool,
}

#[derive(Default)]
struct Slot {
    is_open: bool,
    /// Whether the work of a step in a transaction is being polled.
    in_step: bool,
    handed_in: Option<Box<HandedIn>>,
    store: Option<Arc<dyn CheckpointStore>>,
}

impl AttemptTransactions {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the attempt holds a transaction that it has not handed in.
    pub(crate) fn is_open(&self) -> bool {
        let slot = self.slot();
        slot.is_open || slot.in_step
    }

    /// Says that the attempt is to begin anew, and is no failure of the node.
    pub(crate) fn give_way(&self) {
        self.gave_way.store(true, Ordering::Relaxed);
    }

    /// Takes what was handed in.
    pub(crate) fn take(&self) -> Option<Box<HandedIn>> {
        self.slot().handed_in.take()
    }

    /// Looks whether an attempt failed because another transaction was in the way.
    pub(crate) fn note_failure(&self, error: &NodeError) {
        let store = self.slot().store.take();
        let transactions = store.as_ref().and_then(|store| store.transactions());
        if transactions.is_some_and(|transactions| transactions.gave_way(error.source())) {
            self.gave_way.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_given_way(&self) -> bool {
        self.gave_way.load(Ordering::Relaxed)
    }

    /// Whether none could be begun.
    pub(crate) fn was_not_begun(&self) -> bool {
        self.not_begun.load(Ordering::Relaxed)
    }
}

/// The open transaction of an attempt, counted as its work.
struct Open {
    scope: Arc<NodeScope>,
    _busy: BusyGuard,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.scope.transactions.slot().is_open = false;
    }
}

/// A transaction of a node on the store's database.
///
/// It reads as the connection of that database: `sqlx::PgConnection` for `Postgres`, `sqlx::SqliteConnection` for `Sqlite`. The node hands it
/// in with what it returns, [`Draft::commit_with`] or [`Update::commit_with`]; dropped, it is rolled back.
pub struct Transaction<D: Database> {
    // In this order: it is rolled back before the turn is over.
    inner: Box<D::Transaction>,
    open: Open,
    lease: TransactionLease,
}

impl<D: Database> Transaction<D> {
    /// Leaves the transaction to the driver, to be committed with the record of the attempt.
    fn hand_in(self) {
        let Self { inner, open, lease } = self;
        let handed_in = Box::new(HandedIn { transaction: inner, lease });
        let before = open.scope.transactions.slot().handed_in.replace(handed_in);
        // An attempt is given another only when it has dropped the one before.
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
    /// Begins a transaction on the store's database, in a node declared [`Effect::Transactional`]: what the node writes with it and the
    /// record that the node has ended commit together, or neither does.
    ///
    /// The node hands it in with what it returns: [`Draft::commit_with`] or [`Update::commit_with`]. A transaction that is dropped is
    /// rolled back: by an error, a timeout, a panic, a cancellation, the end of the process. The node then runs again as any other does,
    /// and exactly the attempt whose record is in the log has left its rows.
    ///
    /// As long as a transaction is open, nothing else of this run is written, and another transaction of it waits. So keep it short, and wait
    /// for nothing but the database in it: steps, questions, messages, timers, children and checkpoints are refused until it is handed in.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the node is not declared so, the attempt has one already, or the store is of another kind.
    /// - [`ErrorKind::Unavailable`]: no connection came free in time. Returned by the node, it makes the node begin anew.
    /// - [`ErrorKind::Closed`]: the run is no longer driven here.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what had begun is rolled back.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::{Effect, Graph};
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::{Ledger, LedgerStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // `Ledger` is a table in memory, for tests; in an application it is `Postgres` or `Sqlite`.
    /// let graph = Graph::<Context>::builder("transfer")
    ///     .node("move", async |cx, mut s| {
    ///         let mut tx = cx.transaction::<Ledger>().await?;
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
    ///
    /// <!-- held by: transactions::what_a_node_writes_and_its_record_appear_together, transactions::misuse_is_a_typed_error_that_names_the_remedy -->
    pub async fn transaction<D: Database>(&self) -> Result<Transaction<D>> {
        let effect = self.scope.effect;
        if effect != Effect::Transactional {
            let message = format!(
                "the node is declared `{effect}`, so its record is not part of a transaction; declare it `.effect(Effect::Transactional)`"
            );
            return Err(self.misused(message));
        }
        let open = {
            let mut slot = self.scope.transactions.slot();
            if slot.is_open || slot.handed_in.is_some() || slot.in_step {
                let message = "the attempt has a transaction already; do all of its work in one, or drop it before another is begun";
                return Err(self.misused(message.to_owned()));
            }
            slot.is_open = true;
            Open { scope: Arc::clone(&self.scope), _busy: BusyGuard::of(&self.scope) }
        };
        let (inner, lease) = self.begin_transaction::<D>().await?;
        Ok(Transaction { inner, open, lease })
    }

    /// Does something in a transaction on the store's database, once: its rows and what it comes to commit together, under this name. As a
    /// [step](Self::step) otherwise: whenever the activation runs again, the recorded result is returned instead.
    ///
    /// For a part of a node. The node goes on once both are on stable storage, and may do more such steps, other steps, and wait between
    /// them. If the commit is refused (another transaction was in the way, another writer wrote to the run), nothing of the step was done;
    /// return the error, and the node begins anew. It does so for what [`transaction`](Self::transaction) says, too.
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step) and [`transaction`](Self::transaction), and [`ErrorKind::Invalid`] in a node declared `Pure` or `Read`, which must not
    /// write, or `External`, which must not begin anew. [`ErrorKind::Unsupported`] if the store has no transactions.
    ///
    /// # Cancel safety
    ///
    /// Dropped before its commit, nothing of the step was done.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::{Ledger, LedgerRows, LedgerStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("order")
    ///     .node("pay", async |cx, s| {
    ///         let left: i64 = cx
    ///             .step_in::<Ledger, _, _, _>("debit", async |tx: &mut LedgerRows| {
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
    ///
    /// <!-- held by: transactional_steps::a_step_and_its_rows_commit_together_whatever_dies_when, transactional_steps::misuse_of_a_step_is_a_typed_error -->
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
                "the node is declared `{effect}`, so it cannot do a step in a transaction: that writes, and is begun anew where another was in the \
                 way; declare the node `write`"
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
                // What the step itself would wait for is refused; what goes on beside it is not.
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
        self.wish(name, NodeRequest::Commit(text, handed_in)).await?;
        Ok(result)
    }

    /// Waits for the turn of a transaction, and begins it.
    async fn begin_transaction<D: Database>(&self) -> Result<(Box<D::Transaction>, TransactionLease)> {
        let (reply, granted) = oneshot::channel();
        let command = Command::Transaction { by: self.scope.attempt_key, reply };
        self.scope.run.commands.send(command).map_err(|_| self.gone())?;
        let TransactionGrant { store, lease } = granted.await.map_err(|_| self.gone())?;
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
                format!("the store is `{name}`, and not `{}`; ask for a transaction of its kind", D::NAME);
            return Err(self.misused(message));
        };
        self.scope.transactions.slot().store = Some(store);
        Ok((inner, lease))
    }

    fn misused(&self, message: String) -> Error {
        Error::new(ErrorKind::Invalid, message).with_node(self.node())
    }

    /// Refuses what would wait for a record while the attempt has a transaction open, for no record is written then.
    pub(super) fn check_no_transaction(&self) -> Result<()> {
        if !self.scope.transactions.is_open() {
            return Ok(());
        }
        let message = "the node has a transaction open, and nothing of the run is written until that has ended; do this before \
                       `cx.transaction()`";
        Err(self.misused(message.to_owned()))
    }
}

impl<S: State> Update<S> {
    /// Hands the transaction in: it commits together with the record that the node has ended with this update.
    ///
    /// See [`NodeContext::transaction`].
    #[must_use]
    pub fn commit_with<D: Database>(self, transaction: Transaction<D>) -> Self {
        transaction.hand_in();
        self
    }
}

impl<S: State> Draft<S> {
    /// Hands the transaction in, and the draft back: what a node returns. They commit together, or neither does.
    ///
    /// See [`NodeContext::transaction`].
    ///
    /// # Errors
    ///
    /// None: it is what a node returns.
    ///
    /// <!-- held by: transactions::what_a_node_writes_and_its_record_appear_together -->
    pub fn commit_with<D: Database>(self, transaction: Transaction<D>) -> NodeResult<S> {
        Ok(Update::from(self).commit_with(transaction))
    }
}

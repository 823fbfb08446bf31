//! Transactions of nodes. The driver decides their order, and commits the rows of a node together with its record.
//!
//! **The rule.** While a transaction of a run is open, no other append of the run is pending, and the driver does not call the store. A transaction
//! starts after the store has answered every append that was sent. Records that are created later wait, and commit together with the transaction. So
//! the position of the record in the log is known before the commit. The driver never waits for a connection or a lock that the transaction holds,
//! even with a pool of one connection or a database with one writer. Other nodes continue during the transaction. A signal must not wait for a node,
//! so a signal aborts the transaction and the node starts again.
//!
//! The driver waits only for the commit, so that no other node uses results that may still be rolled back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::task::Id;

use super::RunDriver;
use super::journal::pending_events::{PendingEvent, PendingEventKind};
use super::origin::ActivationOrigin;
use super::waiters::WaitsFor;
use crate::clock::Timestamp;
use crate::engine::frontier::ActivationKey;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::node_set::NodeIx;
use crate::graph::{Effect, Graph};
use crate::id::HeadRef;
use crate::kernel::event::Event as RunEventKind;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tasks::caught;
use crate::node::{HandedIn, ReplySender, TransactionGrant, TransactionLease};
use crate::past::Verdict;
use crate::record::body::RecordEvent;
use crate::record::pause::{ActivationNote, StepRecord};
use crate::record::{Failure, FailureKind};
use crate::state::{State, Update};

/// How often a node starts again because of another transaction before this counts as a failed attempt. The second constant is the first delay, which
/// doubles each time.
const BEGINNINGS: u32 = 8;
const FIRST_DELAY: Duration = Duration::from_millis(10);

/// The queue of the transactions of a run.
#[derive(Default)]
pub(super) struct TransactionQueue {
    waiting: VecDeque<(ActivationKey, oneshot::Sender<TransactionGrant>)>,
    /// The activation with the open transaction, and the number of the transaction.
    open: Option<(ActivationKey, u64)>,
    turns: u64,
    /// The steps whose transactions must be committed next.
    steps: VecDeque<StepCommit>,
    /// How often activations have started again.
    anew: BTreeMap<ActivationKey, RestartCounts>,
}

/// How often an activation has started again because of another transaction, and how often because no transaction could begin.
#[derive(Default)]
struct RestartCounts {
    gave_way: u32,
    not_begun: u32,
}

/// A step whose transaction must be committed together with its result.
pub(super) struct StepCommit {
    pub(super) key: ActivationKey,
    pub(super) name: String,
    pub(super) text: Box<RawValue>,
    pub(super) handed_in: Box<HandedIn>,
    pub(super) reply: ReplySender,
}

/// Returns an error if the graph has transactional nodes and the store has no transactions.
pub(crate) fn check_transactions<S: State>(shared: &RuntimeInner, graph: &Graph<S>) -> Result<()> {
    let mut nodes = graph.plan().nodes.iter();
    let Some(node) = nodes.find(|node| node.effect == Effect::Transactional) else { return Ok(()) };
    if shared.store.transactions().is_some() {
        return Ok(());
    }
    let store = shared.store.capabilities().name;
    let message = format!(
        "the node is declared `transactional`, and the store `{store}` has no transactions; keep the runs in PostgreSQL or SQLite (in a test: in \
         `World::with_transactions`), or declare the node `write` and make repeating it safe"
    );
    Err(Error::new(ErrorKind::Unsupported, message).with_node(&node.name))
}

/// The queue of the transactions of a run.
impl<S: State> RunDriver<S> {
    pub(super) fn await_transaction(&mut self, key: ActivationKey, reply: oneshot::Sender<TransactionGrant>) {
        self.waits.transactions.get_or_insert_default().waiting.push_back((key, reply));
    }

    /// Returns whether a transaction is open.
    pub(super) fn has_transaction(&self) -> bool {
        self.waits.transactions.as_ref().is_some_and(|transactions| transactions.open.is_some())
    }

    /// Allows the next transaction to begin, if no transaction is open and no append is pending.
    pub(super) fn grant_transaction(&mut self) -> Result<()> {
        let Some(transactions) = &mut self.waits.transactions else { return Ok(()) };
        if transactions.open.is_some() {
            return Ok(());
        }
        transactions.waiting.retain(|(_, reply)| !reply.is_closed());
        if transactions.waiting.is_empty() {
            self.journal.outbox().release();
            return Ok(());
        }
        if !self.journal.keeps_ends() {
            // The results of nodes are not kept, so a rollback must not undo them.
            self.flush(true)?;
            if self.journal.pending() > 0 {
                return Ok(());
            }
        }
        self.journal.outbox().suspend();
        let Some(transactions) = self.waits.transactions.as_mut().filter(|_| !self.journal.is_sending())
        else {
            return Ok(());
        };
        let Some((key, reply)) = transactions.waiting.pop_front() else { return Ok(()) };
        transactions.turns += 1;
        transactions.open = Some((key, transactions.turns));
        let lease = TransactionLease { run: Arc::clone(&self.scope), number: transactions.turns };
        // If dropped unread, the lease reports the end of the turn.
        drop(reply.send(TransactionGrant { store: Arc::clone(&self.shared.store), lease }));
        Ok(())
    }

    /// Handles the end of a transaction. Records that were created during it are sent before the next transaction begins.
    pub(super) fn transaction_over(&mut self, number: u64) {
        let Some(transactions) = &mut self.waits.transactions else { return };
        if transactions.open.take_if(|(_, open)| *open == number).is_some() {
            self.journal.outbox().release();
        }
    }

    /// Aborts the open transaction before the driver waits for the store. Its node starts again.
    pub(super) fn break_transaction(&mut self) {
        let Some(transactions) = &mut self.waits.transactions else { return };
        if let Some((key, _)) = transactions.open.take() {
            self.ready_queue.break_off(key);
        }
        self.journal.outbox().release();
    }

    /// Handles the end of a transaction whose attempt is not running any more.
    pub(super) fn reap_transaction(&mut self) {
        let Some(transactions) = &mut self.waits.transactions else { return };
        if transactions.open.take_if(|(key, _)| self.ready_queue.running(*key).is_none()).is_some() {
            self.journal.outbox().release();
        }
    }

    /// Makes an activation ready again after its attempt was aborted and has ended.
    pub(super) fn restart_broken(&mut self, task: Id) {
        let Some(key) = self.ready_queue.broken_activation(task) else { return };
        self.ready_queue.remove_running(key);
        self.waits.forget_activation(key);
        if self.machine.in_flight().contains_key(&key) {
            self.ready_queue.push_again(key);
        }
    }

    /// Starts an activation again because of another transaction, or because no transaction could begin. Returns false if the first reason has
    /// occurred too often. The second reason is not limited, because it is not a fault of the node. If the store stays unavailable, the heartbeat of
    /// the process expires, and the run stops in this process.
    pub(super) fn restart_for_transaction(&mut self, key: ActivationKey, not_begun: bool) -> bool {
        match self.next_beginning(key, not_begun) {
            Some(at) => {
                self.ready_queue.wait_until(at, key);
                true
            }
            None => false,
        }
    }

    fn next_beginning(&mut self, key: ActivationKey, not_begun: bool) -> Option<Timestamp> {
        let all = self.waits.transactions.get_or_insert_default().anew.entry(key).or_default();
        let begun = if not_begun { &mut all.not_begun } else { &mut all.gave_way };
        *begun = begun.saturating_add(1);
        let delay = FIRST_DELAY.saturating_mul(1 << (*begun - 1).min(10));
        if !not_begun && *begun > BEGINNINGS {
            *begun = 0;
            return None;
        }
        tracing::debug!(run = %self.journal.run(), ?delay, "a transaction lost a conflict; its node starts again");
        Some(self.shared.clock.now().plus(delay))
    }
}

/// The end of a transactional node, which must be committed together with its update.
pub(super) struct EndWithin<S: State> {
    pub(super) key: ActivationKey,
    pub(super) update: Update<S>,
    pub(super) took: Duration,
    pub(super) handed_in: Option<Box<HandedIn>>,
}

/// Methods that commit transactions.
impl<S: State> RunDriver<S> {
    /// Handles the end of a transactional node. The rows of the node and its record commit together. If the commit fails, the node has not ended.
    pub(super) async fn end_within(
        &mut self,
        EndWithin { key, update, took, handed_in }: EndWithin<S>,
    ) -> Result<()> {
        let Some(handed_in) = handed_in else {
            let message = "the node is declared `transactional` and returned without its transaction; return `s.commit_with(tx)`, with the `tx` of \
                           `cx.transaction()`, or declare another effect";
            let failure = Failure::new(FailureKind::Update, message);
            return self.apply_end(key, Err(failure), took, false).map(|_| ());
        };
        let HandedIn { transaction, lease } = *handed_in;
        let number = lease.number;
        let is_open = |open: &TransactionQueue| open.open == Some((key, number));
        if !self.waits.transactions.as_deref().is_some_and(is_open) {
            // The attempt was broken off, and its end arrived first.
            self.ready_queue.push_again(key);
            return Ok(());
        }
        let (status, verdict) = (self.machine.status(), update.output().and_then(Verdict::of));
        let origin = ActivationOrigin::of(&self.machine, key);
        self.journal.set_within(true);
        let applied = self.apply_end(key, Ok(update), took, true);
        self.journal.set_within(false);
        if !applied? {
            drop(transaction);
            self.transaction_over(number);
            return Ok(());
        }
        let committed = self.commit(transaction).await;
        let committed = self.journal.outbox().handle_answer(committed);
        self.transaction_over(number);
        match committed {
            Ok(head) => {
                if let Some(transactions) = &mut self.waits.transactions {
                    transactions.anew.remove(&key);
                }
                let (node, visit) = (self.machine.name(key.0).clone(), key.1);
                self.registration.meter.completed(&node);
                self.emit(|| RunEventKind::NodeCompleted { node, visit, took, verdict });
                self.announce(status);
                self.acknowledge(Ok(head)).await
            }
            Err(error) => self.rolled_back((key, origin), error, took).await,
        }
    }

    pub(super) fn await_commit(&mut self, step: StepCommit) {
        self.waits.transactions.get_or_insert_default().steps.push_back(step);
    }

    /// Commits the steps that ran in transactions, with their results.
    pub(super) async fn commit_steps(&mut self) -> Result<()> {
        while let Some(step) = self.waits.transactions.as_mut().and_then(|all| all.steps.pop_front()) {
            Box::pin(self.commit_step(step)).await?;
        }
        Ok(())
    }

    async fn commit_step(&mut self, step: StepCommit) -> Result<()> {
        let StepCommit { key, name, text, handed_in, reply } = step;
        let HandedIn { transaction, lease } = *handed_in;
        let number = lease.number;
        let is_open = self.waits.transactions.as_ref().is_some_and(|all| all.open == Some((key, number)));
        if !is_open || !self.machine.in_flight().contains_key(&key) {
            // The attempt was broken off or no longer follows, so it is dropped.
            return Ok(());
        }
        if let Err(error) = self.check_result(key, &name, &text) {
            reply.send(Err(error));
            return Ok(());
        }
        let first = reply.waits().has_rivals();
        let node = self.machine.name(key.0).clone();
        let what = ActivationNote::Result(text.into());
        let stepped = StepRecord { node: node.clone(), visit: key.1, name: name.clone(), what, first };
        let seq = self.write_event(&RecordEvent::Step(stepped), Some((node, key.1)), false)?;
        let committed = self.commit(transaction).await;
        let committed = self.journal.outbox().handle_answer(committed);
        self.transaction_over(number);
        match committed {
            Ok(head) => {
                self.acknowledge(Ok(head)).await?;
                self.waits.add(key, name, WaitsFor::Step(Some((seq, first))), None, reply);
                Ok(())
            }
            Err(error) => {
                self.return_to_log(&error).await?;
                if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable)
                    && let Some(running) = self.ready_queue.running(key)
                {
                    running.scope().transactions.give_way();
                }
                reply.send(Err(error));
                Ok(())
            }
        }
    }

    /// Commits the transaction together with all records that were not sent to the store yet.
    async fn commit(&mut self, transaction: crate::store::AnyTransaction) -> Result<HeadRef> {
        let append = self.journal.outbox().take();
        let run = append.run.clone();
        if self.shared.registry.stop().term != self.registration.term {
            return Err(self.shared.heartbeat.fenced().with_run(&run));
        }
        let last = append.records.last().map(|record| record.header.head());
        let missing = |what: &str| Error::new(ErrorKind::Unsupported, what.to_owned()).with_run(&run);
        let last = last.ok_or_else(|| missing("a transaction has no record; report this"))?;
        let store = Arc::clone(&self.shared.store);
        let transactions =
            store.transactions().ok_or_else(|| missing("the store no longer has transactions"))?;
        let commit = async {
            caught(&run, Box::pin(transactions.commit(transaction, append))).await.unwrap_or_else(|panic| {
                Err(Error::new(ErrorKind::Indeterminate, "the store panicked in a commit").with_source(panic))
            })
        };
        match self.in_term(commit).await {
            Err(error) if error.kind() == ErrorKind::Indeterminate => {}
            committed => return committed,
        }
        // The log shows whether it committed. A later commit does no harm: of two that expect the same head, one is refused.
        let committer = &self.shared.committer;
        if self.in_term(committer.is_on_record(&run, last)).await? {
            return Ok(last);
        }
        let message = "the reply to a commit was lost, and the commit did not happen";
        Err(Error::new(ErrorKind::Unavailable, message).with_run(&run))
    }

    /// Continues from the log after a rollback. The end of the node has then not happened.
    async fn rolled_back(
        &mut self,
        (key, origin): (ActivationKey, ActivationOrigin),
        error: Error,
        took: Duration,
    ) -> Result<()> {
        use ErrorKind::{Conflict, Invalid, Unavailable};
        self.return_to_log(&error).await?;
        if error.kind() == Conflict || !origin.leads_to(&self.machine, key) {
            return Ok(());
        }
        let at = if error.kind() == Unavailable { self.next_beginning(key, false) } else { None };
        self.ready_queue.remove_ready(key);
        if let Some(at) = at {
            self.ready_queue.wait_until(at, key);
            return Ok(());
        }
        let node = self.plan.node(NodeIx::new(key.0));
        let failure = Failure::from_error(FailureKind::Update, &error).with_node(&node.name);
        let failed = self.machine.in_flight().get(&key).map_or(1, |activation| activation.failed + 1);
        // `Invalid` covers constraint violations at the commit and errors of the node in its transaction: the next attempt may succeed. A record
        // that is too large stays too large.
        let may_succeed = matches!(error.kind(), Unavailable | Invalid);
        let what = if may_succeed && failed < node.retry.attempts() {
            let delay = self.retry_delay(key, failed);
            PendingEventKind::Retry { failed, failure, at: Some(self.shared.clock.now().plus(delay)) }
        } else {
            PendingEventKind::Ended { result: Err(failure), took }
        };
        self.apply_fact(PendingEvent { key, what })
    }

    /// Rebuilds the run from the log after a rollback.
    ///
    /// # Errors
    ///
    /// Returns the cause of the rollback, if the run cannot continue after it.
    pub(super) async fn return_to_log(&mut self, error: &Error) -> Result<()> {
        use ErrorKind::{Conflict, Invalid, TooLarge, Unavailable};
        if !matches!(error.kind(), Conflict | Unavailable | Invalid | TooLarge) {
            return Err(error.clone().with_run(self.journal.run()));
        }
        let (store, run) = (Arc::clone(&self.shared.store), self.journal.run().clone());
        // Be as patient as appends are with an unresponsive store.
        self.in_term(self.shared.committer.read(|| store.head(&run))).await?;
        Box::pin(self.rebase()).await
    }
}

//! Recovers from a write conflict: it loads the records that other writers appended, and creates the unacknowledged records of this driver again
//! after them.

use std::sync::Arc;

use super::RunDriver;
use super::data_loss::DataLoss;
use super::journal::pending_events::{PendingEvent, PendingEventKind};
use super::origin::ActivationOrigin;
use crate::engine::fold::{ReplayedRun, fold};
use crate::engine::frontier::Activation;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Effect;
use crate::graph::node_set::NodeIx;
use crate::kernel::event::Event as RunEventKind;
use crate::record::memo::{Memo, PROGRESS};
use crate::record::pause::ActivationNote;
use crate::record::{Failure, FailureKind, RunStatus};
use crate::state::State;
use crate::store::At;

impl<S: State> RunDriver<S> {
    /// Loads the current log, and creates the records that are missing there again from the kept events.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Fenced`] if another executor claimed the run, or the run was purged.
    /// - [`ErrorKind::Corrupt`] if the store lost records. The driver then releases the run.
    /// - [`ErrorKind::Conflict`] if a refused record cannot be made again.
    pub(super) async fn rebase(&mut self) -> Result<()> {
        let run = self.journal.run().clone();
        let (folded, lost) = self.load_ours().await?;
        if let Some(lost) = lost {
            return Err(Box::pin(self.release_after_loss(folded, lost)).await);
        }
        if !self.journal.can_restart() {
            let message = "another writer wrote to the run while checkpoints were held back; resume it from the last checkpoint";
            return Err(Error::new(ErrorKind::Conflict, message).with_run(&run));
        }
        let found = folded.last.seq;
        let facts = self.replace_run(folded)?;
        // Re-created facts were counted before.
        let meter = self.registration.meter.pause();
        for (origin, fact) in facts {
            // Drop facts that are recorded already or no longer follow: nothing that matters ran ahead.
            if self.still_follows(&origin, &fact) {
                self.apply_fact(fact)?;
            }
            if self.failed_apply.is_some() {
                // Later records would contain the changes that it left in the state.
                break;
            }
        }
        self.registration.meter = meter;
        if self.failed_apply.is_some() {
            let message =
                "cannot apply the results of nodes after the records of another writer; resume the run";
            return Err(Error::new(ErrorKind::Conflict, message).with_run(&run));
        }
        self.flush(false)?;
        self.journal.defer_again();
        let is_bounded = |node| self.plan.most_running(node).is_some();
        self.ready_queue.restart((&self.machine, &self.state), self.shared.clock.now(), is_bounded);
        self.reap_transaction();
        let line = &self.ready_queue;
        self.waits.restart(self.journal.last().unwrap_or(found), |key| line.running(key).is_some());
        Ok(())
    }

    /// Continues from the log after the run failed there. It failed because records were delayed and the state became too large for a record.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`rebase`](Self::rebase).
    pub(super) async fn fall_back(&mut self, error: &Error) -> Result<()> {
        self.break_transaction();
        while self.journal.pending() > 0 {
            let answer = self.acknowledged().await;
            self.acknowledge(answer).await?;
        }
        self.return_to_log(error).await?;
        self.emit(|| RunEventKind::Status { status: self.machine.status() });
        // Attempts that must not be repeated have ended, and the log shows only their intents. The run may be retried while this process drives it.
        let begun = |activation: &Activation| activation.intent && !activation.in_doubt;
        let going = self.machine.in_flight().iter().filter(|(_, activation)| begun(activation));
        let ended = going.filter(|&(&key, _)| self.ready_queue.running(key).is_none());
        let doubts: Vec<_> = ended.map(|(&key, activation)| (key, activation.failed + 1)).collect();
        for (key, failed) in doubts {
            let failure = Failure::from_error(FailureKind::Update, error).with_node(self.machine.name(key.0));
            self.apply_fact(PendingEvent {
                key,
                what: PendingEventKind::Retry { failed, failure, at: None },
            })?;
        }
        Ok(())
    }

    /// Loads the current log, and checks that it belongs to the run of this driver. Also returns acknowledged records that are missing from the log.
    pub(super) async fn load_ours(&mut self) -> Result<(ReplayedRun, Option<DataLoss>)> {
        let run = self.journal.run().clone();
        let records = self.in_term(self.shared.store.load(&run, At::Latest)).await?.ok_or_else(|| {
            Error::new(ErrorKind::Fenced, "the run was purged while this process drove it; the run stopped")
                .with_run(&run)
        })?;
        let folded = fold(&run, &records, Some(&self.plan))?;
        let last = &folded.last;
        if folded.machine.start_id() != self.machine.start_id() {
            let message =
                "the run was purged and started again while this process drove it; the purged run stopped";
            return Err(Error::new(ErrorKind::Fenced, message).with_run(&run).with_seq(last.seq));
        }
        let lost = self.detect_loss(&records, last.seq);
        if last.epoch != self.journal.epoch()
            || last.owner.is_some_and(|owner| owner != self.journal.executor())
        {
            let message = match last.owner {
                Some(owner) => format!("process {owner} has claimed the run; the run continues there"),
                None => "another process has claimed the run; the run continues there".into(),
            };
            return Err(Error::new(ErrorKind::Fenced, message).with_run(&run).with_seq(last.seq));
        }
        Ok((folded, lost))
    }

    /// Replaces the run in the driver by the run from the log. Returns the events that no acknowledged record contains, each with the inputs of its
    /// activation.
    pub(super) fn replace_run(
        &mut self,
        folded: ReplayedRun,
    ) -> Result<impl Iterator<Item = (ActivationOrigin, PendingEvent<S>)> + use<S>> {
        let state =
            S::from_channels(self.graph.migrated(&folded.channels, folded.version)?, self.graph.schema())?;
        let facts = self.journal.restart(&folded);
        (self.machine, self.state) = (folded.machine, Arc::new(state));
        self.deliver_all();
        Ok(facts)
    }

    /// Returns whether an event is missing from the current log and is still possible after it.
    fn still_follows(&self, origin: &ActivationOrigin, fact: &PendingEvent<S>) -> bool {
        let Some(activation) = self.machine.in_flight().get(&fact.key) else { return false };
        if !origin.leads_to(&self.machine, fact.key) {
            return false;
        }
        if self.machine.status() != RunStatus::InProgress {
            // As at any moment after the run failed: the result of an attempt that must not be repeated is recorded.
            let effect = self.plan.node(NodeIx::new(fact.key.0)).effect;
            let is_kept =
                matches!(fact.what, PendingEventKind::Ended { .. } | PendingEventKind::Retry { .. });
            if effect != Effect::External || !is_kept {
                return false;
            }
        }
        match &fact.what {
            // The cleanup of a cancelled run replaces the end.
            PendingEventKind::Ended { .. } => {
                self.machine.cancel().is_none() || !self.machine.requires_cleanup_of(fact.key)
            }
            // A broken-off attempt with nothing done does not count. Its intent stands until the log says otherwise. No later attempt has started,
            // because that waits for its own intent, and for all before it, to be acknowledged.
            PendingEventKind::Retry { failed, failure, .. }
                if failure.not_done && *failed == activation.failed =>
            {
                activation.intent
            }
            PendingEventKind::Retry { failed, .. } => *failed > activation.failed,
            PendingEventKind::Asked { name, .. } => !activation.memos.contains_key(name),
            PendingEventKind::Noted { name, what, .. } => match (what, activation.memos.get(name)) {
                (ActivationNote::Took(number), _) => {
                    self.machine.inbox().iter().any(|message| message.number == *number)
                }
                (ActivationNote::Refused { message, .. }, Some(Memo::Message(taken))) => {
                    taken.number == *message
                }
                (ActivationNote::Refused { .. }, _) => false,
                (ActivationNote::Idle, memo) => matches!(memo, Some(Memo::Until(_))),
                // The last progress value wins.
                (ActivationNote::Result(_), _) if name == PROGRESS => true,
                (ActivationNote::Result(_) | ActivationNote::Until(_), memo) => memo.is_none(),
            },
        }
    }
}

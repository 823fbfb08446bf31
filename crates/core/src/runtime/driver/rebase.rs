//! When another writer came first: back to the last acknowledged record, what is new, and our own records made anew.

use std::sync::Arc;

use super::RunDriver;
use super::journal::facts::{PendingEvent, PendingEventKind};
use super::lost::DataLoss;
use super::origin::ActivationOrigin;
use crate::engine::fold::{ReplayedRun, fold};
use crate::engine::frontier::Activation;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Effect;
use crate::graph::node_set::NodeIx;
use crate::record::memo::{Memo, PROGRESS};
use crate::record::pause::ActivationNote;
use crate::record::{Failure, FailureKind, RunStatus};
use crate::runtime::event::Event as RunEventKind;
use crate::state::State;
use crate::store::At;

impl<S: State> RunDriver<S> {
    /// Loads the log as it is now and makes anew, from what happened, the records that are not in it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Fenced`] if another executor has claimed the run since, or it was purged.
    /// - [`ErrorKind::Corrupt`] if the store has lost records: then the run is let go.
    /// - [`ErrorKind::Conflict`] if something is refused that cannot be made anew.
    pub(super) async fn rebase(&mut self) -> Result<()> {
        let run = self.journal.run().clone();
        let (folded, lost) = self.load_ours().await?;
        if let Some(lost) = lost {
            return Err(Box::pin(self.leave(folded, lost)).await);
        }
        if !self.journal.can_restart() {
            let message = "another writer wrote to the run while checkpoints were held back; resume it from the last checkpoint";
            return Err(Error::new(ErrorKind::Conflict, message).with_run(&run));
        }
        let found = folded.last.seq;
        let facts = self.stand_on(folded)?;
        // What is made again was counted before.
        let meter = self.registration.meter.pause();
        for (origin, fact) in facts {
            // What is recorded already, or does not follow any more, is dropped: nothing that matters ran ahead.
            if self.still_follows(&origin, &fact) {
                self.apply_fact(fact)?;
            }
            if self.failed_apply.is_some() {
                // Records of what comes behind would hold what it left in the state.
                break;
            }
        }
        self.registration.meter = meter;
        if self.failed_apply.is_some() {
            let message =
                "what the nodes returned cannot be applied after what another writer wrote; resume the run";
            return Err(Error::new(ErrorKind::Conflict, message).with_run(&run));
        }
        self.flush(false)?;
        self.journal.owe_again();
        let is_bounded = |node| self.plan.most_running(node).is_some();
        self.line.restart((&self.machine, &self.state), self.shared.clock.now(), is_bounded);
        self.reap_transaction();
        let line = &self.line;
        self.waiters.restart(self.journal.last().unwrap_or(found), |key| line.running(key).is_some());
        Ok(())
    }

    /// Goes back to the log after the run has failed there, because what was held back made it too large for a base.
    ///
    /// # Errors
    ///
    /// As [`rebase`](Self::rebase).
    pub(super) async fn fall_back(&mut self, error: &Error) -> Result<()> {
        self.break_transaction();
        while self.journal.pending() > 0 {
            let answer = self.acknowledged().await;
            self.acknowledge(answer).await?;
        }
        self.return_to_log(error).await?;
        self.emit(|| RunEventKind::Status { status: self.machine.status() });
        // What must not be repeated has ended, and the log tells no more than that it was to begin. The run may be retried while it is
        // driven here.
        let begun = |activation: &Activation| activation.intent && !activation.in_doubt;
        let going = self.machine.in_flight().iter().filter(|(_, activation)| begun(activation));
        let ended = going.filter(|&(&key, _)| self.line.running(key).is_none());
        let doubts: Vec<_> = ended.map(|(&key, activation)| (key, activation.failed + 1)).collect();
        for (key, failed) in doubts {
            let failure = Failure::of(FailureKind::Update, error).with_node(self.machine.name(key.0));
            self.apply_fact(PendingEvent {
                key,
                what: PendingEventKind::Retry { failed, failure, at: None },
            })?;
        }
        Ok(())
    }

    /// Loads the log as it is now, and makes sure that the run in it is the one that goes on here. Tells if acknowledged records are missing.
    pub(super) async fn load_ours(&mut self) -> Result<(ReplayedRun, Option<DataLoss>)> {
        let run = self.journal.run().clone();
        let records = self.in_term(self.shared.store.load(&run, At::Latest)).await?.ok_or_else(|| {
            Error::new(ErrorKind::Fenced, "the run was purged while it went on here; it stops").with_run(&run)
        })?;
        let folded = fold(&run, &records, Some(&self.plan))?;
        let last = &folded.last;
        if folded.machine.life() != self.machine.life() {
            let message = "the run was purged and started anew while it went on here; this life of it stops";
            return Err(Error::new(ErrorKind::Fenced, message).with_run(&run).with_seq(last.seq));
        }
        let lost = self.detect_loss(&records, last.seq);
        if last.epoch != self.journal.epoch()
            || last.owner.is_some_and(|owner| owner != self.journal.executor())
        {
            let message = match last.owner {
                Some(owner) => format!("executor {owner} has claimed the run; it goes on there"),
                None => "another executor has claimed the run".into(),
            };
            return Err(Error::new(ErrorKind::Fenced, message).with_run(&run).with_seq(last.seq));
        }
        Ok((folded, lost))
    }

    /// Takes the place of the run in the log for the one that it has here. Returns what happened here and no acknowledged record holds, each
    /// with what its activation started from.
    pub(super) fn stand_on(
        &mut self,
        folded: ReplayedRun,
    ) -> Result<impl Iterator<Item = (ActivationOrigin, PendingEvent<S>)> + use<S>> {
        let state =
            S::from_channels(self.graph.migrated(&folded.channels, folded.version)?, self.graph.schema())?;
        let facts = self.journal.restart(&folded);
        (self.machine, self.state) = (folded.machine, Arc::new(state));
        self.hand_in_all();
        Ok(facts)
    }

    /// Whether what happened is not in the log as it is now, and still can be.
    fn still_follows(&self, origin: &ActivationOrigin, fact: &PendingEvent<S>) -> bool {
        let Some(activation) = self.machine.in_flight().get(&fact.key) else { return false };
        if !origin.leads_to(&self.machine, fact.key) {
            return false;
        }
        if self.machine.status() != RunStatus::InProgress {
            // As at any other moment after the run has failed: what came of what must not be repeated is recorded.
            let effect = self.plan.node(NodeIx::new(fact.key.0)).effect;
            let is_kept =
                matches!(fact.what, PendingEventKind::Ended { .. } | PendingEventKind::Retry { .. });
            if effect != Effect::External || !is_kept {
                return false;
            }
        }
        match &fact.what {
            PendingEventKind::Ended { .. } => true,
            // An attempt that broke off with nothing done is not counted. Its intent stands until the log says so; no later attempt
            // has begun, for that waits until its own intent, and so all before it, is acknowledged.
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
                // What was said later takes the place of what was said before.
                (ActivationNote::Result(_), _) if name == PROGRESS => true,
                (ActivationNote::Result(_) | ActivationNote::Until(_), memo) => memo.is_none(),
            },
        }
    }
}

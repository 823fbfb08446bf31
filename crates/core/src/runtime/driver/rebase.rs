//! When somebody else wrote first: back to the last acknowledged record, what is new, and our own records made anew.

use tokio::sync::oneshot;

use super::{Driver, Stopped};
use crate::engine::fold::{check_signal, fold};
use crate::error::{Error, ErrorKind, Result};
use crate::record::RunStatus;
use crate::record::body::{Event, Released, Signal, StatusChange};
use crate::state::State;
use crate::store::At;
use std::sync::Arc;

impl<S: State> Driver<S> {
    /// Loads the log as it is now and makes anew, from what happened, the records that are not in it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Fenced`] if another executor has claimed the run since.
    pub(super) async fn rebase(&mut self) -> Result<()> {
        let run = self.log.run.clone();
        let records = self.shared.store.load(&run, At::Latest).await?.ok_or_else(|| {
            Error::new(ErrorKind::Fenced, "the run was purged while it went on here; it stops").with_run(&run)
        })?;
        let folded = fold(&run, &records, Some(&self.plan))?;
        let last = &folded.last;
        if last.epoch != self.log.epoch || last.owner.is_some_and(|owner| owner != self.log.executor) {
            let message = match last.owner {
                Some(owner) => format!("executor {owner} has claimed the run; it goes on there"),
                None => "another executor has claimed the run".into(),
            };
            return Err(Error::new(ErrorKind::Fenced, message).with_run(&run).with_seq(last.seq));
        }
        let nothing_lost = !self.held.any && self.outbox.is_empty();
        if !(self.keeps_facts() || nothing_lost) {
            let message = "somebody wrote to the run while checkpoints were held back; resume it from the last checkpoint";
            return Err(Error::new(ErrorKind::Conflict, message).with_run(&run));
        }
        let state = S::from_channels(folded.channels.clone(), self.graph.schema())?;
        self.log.follow(&folded);
        self.outbox.restart(folded.last.head());
        self.machine = folded.machine;
        self.state = Arc::new(state);
        self.held.any = false;
        self.held.done.clear();
        self.held.patch = crate::state::Patch::default();
        let facts = self.facts.take();
        for fact in facts {
            // What is recorded already, or does not follow any more, is dropped: nothing that matters ran ahead.
            let follows = self.machine.in_flight.get(&fact.key).is_some_and(|activation| match fact.what {
                super::facts::What::Retry { failed, .. } => failed > activation.failed,
                super::facts::What::Ended { .. } => true,
            });
            if follows && self.machine.status == RunStatus::InProgress {
                self.take_in(fact)?;
            }
        }
        if self.spoilt.is_some() {
            let message =
                "what the nodes returned cannot be applied after what somebody else wrote; resume the run";
            return Err(Error::new(ErrorKind::Conflict, message).with_run(&run));
        }
        self.flush(false)?;
        let machine = &self.machine;
        self.running.retain(|key, running| {
            let follows = machine.in_flight.contains_key(key);
            if !follows {
                running.task.abort();
            }
            follows
        });
        self.schedule_all();
        Ok(())
    }

    /// Takes in what somebody in this process says to the run.
    pub(super) async fn signal(&mut self, signal: Signal, reply: oneshot::Sender<Result<()>>) -> Result<()> {
        if let Err(error) = check_signal(&self.machine, &signal.what) {
            let _ = reply.send(Err(error.with_run(&self.log.run)));
            return Ok(());
        }
        let seq = self.note(&Event::Signal(signal), None, false)?;
        self.replies.push_back((seq, reply));
        // Wait for it here, so that a conflict is met before anything rests on the signal.
        while !self.outbox.is_empty() {
            match self.outbox.acknowledged().await {
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    // Whoever sent the signal decides anew on the log as it is now.
                    if let Some((_, reply)) = self.replies.pop_back() {
                        let _ = reply.send(Err(error.with_run(&self.log.run)));
                    }
                    self.rebase().await?;
                    return Ok(());
                }
                answer => self.acknowledge(answer).await?,
            }
        }
        self.schedule_all();
        Ok(())
    }

    /// Brings the run to rest if nothing can move it any more. Returns why the driver stops, if it does.
    pub(super) async fn settle(&mut self) -> Result<Option<Stopped>> {
        if self.machine.cancel.is_some()
            && self.machine.status == RunStatus::InProgress
            && self.grace.is_none()
        {
            self.cancelled.send_replace(true);
            self.grace = Some(self.shared.clock.monotonic() + self.shared.limits.cancel_grace);
        }
        if self.machine.status.is_finished() {
            // What must not be repeated is let finish and recorded; the rest is not waited for.
            self.cancelled.send_replace(true);
            self.running.retain(|_, running| {
                if !running.external {
                    running.task.abort();
                }
                running.external
            });
        }
        if !self.running.is_empty() {
            return Ok(None);
        }
        let stopping = self.is_stopping();
        let none_in_line = self.ready.is_empty() && self.passed.is_empty() && self.waiting.is_empty();
        if !(stopping || none_in_line) {
            return Ok(None);
        }
        if self.machine.status == RunStatus::InProgress {
            if self.machine.cancel.is_some() {
                self.note(&Event::Status(StatusChange::Cancelled), None, false)?;
            } else if self.grace.is_some() {
                self.flush(false)?;
                if self.log.head.is_some() {
                    let reason = "the runtime was shut down".to_owned();
                    self.note(&Event::Release(Released { reason }), None, true)?;
                }
                return self.drain().await.map(|settled| settled.then_some(Stopped::Released));
            } else if !self.timers.is_empty() {
                return Ok(None);
            } else if self.machine.open_questions().next().is_some() {
                let event = Event::Status(StatusChange::Interrupted);
                if self.policy.on_interrupt {
                    self.note(&event, None, false)?;
                } else {
                    self.machine.absorb(&event)?;
                }
            } else {
                return Err(self.stuck());
            }
        }
        if self.writes_status() {
            self.flush(false)?;
        }
        self.drain().await.map(|settled| settled.then_some(Stopped::Settled))
    }

    /// Waits until everything is acknowledged. Returns false if another writer came first and the run is to be looked at anew.
    async fn drain(&mut self) -> Result<bool> {
        while !self.outbox.is_empty() {
            match self.outbox.acknowledged().await {
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    self.rebase().await?;
                    return Ok(false);
                }
                answer => self.acknowledge(answer).await?,
            }
        }
        Ok(true)
    }
}

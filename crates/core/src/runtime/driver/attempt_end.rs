//! Handles the end of an attempt. Either another attempt follows, or the activation ends: its update is applied, its routes are chosen, and the next
//! activations become ready.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::RunDriver;
use super::apply::{AppliedUpdate, FailedApply};
use super::journal::pending_events::{PendingEvent, PendingEventKind};
use super::origin::ActivationOrigin;
use super::transactions::EndWithin;
use crate::engine::decide::ActivationEnd;
use crate::engine::frontier::ActivationKey;
use crate::error::Result;
use crate::graph::Effect;
use crate::graph::node_set::NodeIx;
use crate::kernel::event::Event as RunEventKind;
use crate::past::Verdict;
use crate::record::Failure;
use crate::record::body::{AttemptFailed, RecordEvent};
use crate::record::outbox::OutboxRecord;
use crate::runtime::attempt::{AttemptEnd, EndedAttempt};
use crate::state::{Patch, SentOut, State, Update};

impl<S: State> RunDriver<S> {
    /// Handles the end of an attempt up to the first point where it must wait. [`finish_end`](Self::finish_end) does the remaining work.
    ///
    /// The two functions are separate to save memory: if one function handled the end and waited, the end would be part of the driver's future while
    /// the driver is waiting.
    pub(super) fn handle_end(
        &mut self,
        (by, end, took): EndedAttempt<S>,
    ) -> Result<Option<Box<EndWithin<S>>>> {
        let key = by.activation;
        if matches!(end, AttemptEnd::Failed { .. }) {
            // Handle the attempt's commands before its end, and before the commands of a further attempt.
            self.take_commands()?;
        }
        let running = self.ready_queue.remove_running(key);
        self.waits.forget_activation(key);
        let (mut handed_in, mut gave_way, mut not_begun) = (None, false, false);
        let told = match &running {
            Some(running) if running.is_broken() => {
                // The attempt ended just before it was broken off. None of its work was written.
                self.ready_queue.push_again(key);
                return Ok(None);
            }
            Some(running) => {
                let scope = running.scope();
                (handed_in, gave_way) = (scope.transactions.take(), scope.transactions.has_given_way());
                not_begun = scope.transactions.was_not_begun();
                scope.run.cancelled.get().is_some()
            }
            None => self.stopping.has_notified(),
        };
        let is_failed = matches!(end, AttemptEnd::Failed { fatal: false, .. });
        let anew = gave_way && is_failed && !told && self.restart_for_transaction(key, not_begun);
        let Some(activation) = self.machine.in_flight().get(&key) else {
            // After a write conflict, the activation no longer follows from the log.
            return Ok(None);
        };
        let cleans_up = running.as_ref().is_some_and(|running| running.scope().cleanup.is_cleanup());
        if self.machine.cancel().is_some() && self.machine.requires_cleanup_of(key) && !cleans_up {
            // The cancellation is earlier in the log than this end.
            self.ready_queue.push_again(key);
            return Ok(None);
        }
        let failed = activation.failed + 1;
        match end {
            AttemptEnd::Done(update)
                if self.plan.node(NodeIx::new(key.0)).effect == Effect::Transactional =>
            {
                return Ok(Some(Box::new(EndWithin { key, update, took, handed_in })));
            }
            AttemptEnd::NotBegun => self.ready_queue.push_again(key),
            AttemptEnd::Done(update) => _ = self.apply_end(key, Ok(update), took, false)?,
            AttemptEnd::Failed { failure, unfinished: true, .. } if told => {
                self.handle_abort(key, failure)?
            }
            AttemptEnd::Failed { .. } if anew => {}
            AttemptEnd::Failed { failure, fatal, retry_after, .. } => {
                drop(handed_in);
                let node = self.plan.node(NodeIx::new(key.0));
                let failure = failure.with_node(&node.name);
                let what = if activation.is_doubted(&failure) {
                    PendingEventKind::Retry { failed, failure, at: None }
                } else if fatal || failed >= node.retry.attempts() {
                    PendingEventKind::Ended { result: Err(failure), took }
                } else {
                    let delay = retry_after.unwrap_or_else(|| self.retry_delay(key, failed));
                    PendingEventKind::Retry { failed, failure, at: Some(self.shared.clock.now().plus(delay)) }
                };
                self.apply_fact(PendingEvent { key, what })?;
            }
        }
        Ok(None)
    }

    /// Returns the delay before the next attempt of an activation. The delay is the same after a resume, and differs between runs.
    pub(super) fn retry_delay(&self, key: ActivationKey, failed: u32) -> Duration {
        let (high, low) = self.machine.start_id().as_u64_pair();
        let seed = (u64::from(key.0) << 32 | u64::from(key.1.get())) ^ high ^ low;
        self.plan.node(NodeIx::new(key.0)).retry.delay(failed, seed)
    }

    /// Does the remaining work after the end of an attempt.
    pub(super) async fn finish_end(&mut self, within: Option<Box<EndWithin<S>>>) -> Result<()> {
        if let Some(within) = within {
            Box::pin(self.end_within(*within)).await?;
        }
        if let Some(failed) = self.failed_apply.take() {
            // Rare and large, so boxed like every such future that a driver awaits.
            Box::pin(self.rebuild_state(*failed)).await?;
        }
        if let (None, Some(durable)) = (self.journal.on_its_way(), self.journal.durable()) {
            self.ready_queue.pass_barriers(durable.seq);
        }
        Ok(())
    }

    /// Handles an attempt that stopped before its end because its run stops.
    ///
    /// The activation stays unfinished. If the run is cancelled, nothing more happens. If the run is released, the process that next claims it starts
    /// the activation again or asks about its outcome. If the run has failed, it may be retried while this process still drives it, so an unknown
    /// outcome is recorded at once.
    fn handle_abort(&mut self, key: ActivationKey, failure: Failure) -> Result<()> {
        let Some(activation) = self.machine.in_flight().get(&key) else { return Ok(()) };
        let failure = failure.with_node(&self.plan.node(NodeIx::new(key.0)).name);
        let ends = self.machine.cancel().is_some() || self.stopping.has_grace();
        let (failed, at) = match activation.intent {
            // Without this record, the claimer would ask a question.
            true if failure.not_done => (activation.failed, Some(self.shared.clock.now())),
            true if !ends => (activation.failed + 1, None),
            _ => {
                if !self.is_stopping() {
                    self.ready_queue.push_again(key);
                }
                return Ok(());
            }
        };
        self.apply_fact(PendingEvent { key, what: PendingEventKind::Retry { failed, failure, at } })
    }

    /// Applies an event to the machine and writes a record according to the checkpoint policy. It is also used to create records again after a write
    /// conflict.
    pub(super) fn apply_fact(&mut self, fact: PendingEvent<S>) -> Result<()> {
        let PendingEvent { key, what } = fact;
        match what {
            PendingEventKind::Retry { failed, failure, at } => {
                let (node, visit) = (self.machine.name(key.0).clone(), key.1);
                let delay = at.map(|at| at.since(self.shared.clock.now()));
                let event = AttemptFailed {
                    node: node.clone(),
                    visit,
                    failed,
                    failure: failure.clone(),
                    retry_at: at,
                };
                self.registration.meter.attempt_failed(&node, failure.kind);
                let origin = ActivationOrigin::of(&self.machine, key);
                let seq =
                    self.write_event(&RecordEvent::Attempt(event), Some((node.clone(), visit)), false)?;
                if let Some(at) = at {
                    self.ready_queue.wait_until(at, key);
                }
                self.emit(|| match delay {
                    Some(_) => {
                        RunEventKind::NodeFailed { node, visit, failure: failure.clone(), retry_in: delay }
                    }
                    None => RunEventKind::NodeInDoubt { node, visit, failure: failure.clone() },
                });
                self.journal.remember(
                    PendingEvent { key, what: PendingEventKind::Retry { failed, failure, at } },
                    origin,
                    Some(seq),
                );
                Ok(())
            }
            PendingEventKind::Ended { result, took } => self.apply_end(key, result, took, false).map(|_| ()),
            PendingEventKind::Noted { name, what, first } => {
                self.write_note(key, &name, what, first).map(|_| ())
            }
            PendingEventKind::Asked { name, ask } => self.write_question(key, &name, ask).map(|_| ()),
        }
    }

    /// Handles the end of an activation. `within` is the transaction that will commit the record of this end, if there is one. Returns whether the
    /// activation completed.
    ///
    /// The end of an activation with a transaction counts only after the commit. Before that, it is neither kept for a write conflict nor reported to
    /// subscribers.
    pub(super) fn apply_end(
        &mut self,
        key: ActivationKey,
        result: Result<Update<S>, Failure>,
        took: Duration,
        within: bool,
    ) -> Result<bool> {
        let index = NodeIx::new(key.0);
        let keep = !self.journal.keeps_ends() && self.may_fail_after_apply(index);
        let before = keep.then(|| Arc::clone(&self.state));
        let applied = match &result {
            Ok(update) => self.apply(key, update).and_then(|applied| {
                if applied.overwrites.is_empty() {
                    return Ok(applied);
                }
                let overwrites: Vec<&str> = applied.overwrites.iter().map(String::as_str).collect();
                match self.machine.find_clash(key, &overwrites) {
                    Some(failure) => Err(failure),
                    None => Ok(applied),
                }
            }),
            Err(failure) => Err(failure.clone()),
        };
        let (output, notes) = match &result {
            Ok(update) => (update.shared_output().cloned(), update.notes().map(str::to_owned)),
            Err(_) => (None, None),
        };
        let (ending, patch, overwrites) = match applied {
            Ok(AppliedUpdate { patch, overwrites, fired }) => (Ok(fired), patch, overwrites),
            Err(failure) => {
                let name = &self.plan.node(index).name;
                let failure = if failure.node.is_none() { failure.with_node(name) } else { failure };
                if let Some(before) = before {
                    self.state = before;
                } else if result.is_ok() {
                    let origin = ActivationOrigin::of(&self.machine, key);
                    self.failed_apply = Some(Box::new(FailedApply { key, origin, failure, took }));
                    return Ok(false);
                }
                (Err(failure), Patch::default(), Vec::new())
            }
        };
        let failed = ending.as_ref().err().cloned();
        let overwrites: Vec<&str> = overwrites.iter().map(String::as_str).collect();
        let (graph, state) = (&self.graph, &self.state);
        let unmet = |gate| !catch_unwind(AssertUnwindSafe(|| graph.goal_met(gate, state))).unwrap_or(false);
        let mut done =
            self.machine.decide(ActivationEnd { key, result: ending, overwrites: &overwrites }, unmet);
        done.took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        if failed.is_some() && self.machine.cancel().is_some() && self.machine.requires_cleanup_of(key) {
            // Recorded, because a process without the graph cannot know it.
            done.cleanup = true;
        }
        if failed.is_none() {
            done.output = output;
            if notes.is_some() {
                done.notes = notes;
            }
        }
        if let (None, Ok(update)) = (&failed, &result)
            && !update.sent_messages().is_empty()
        {
            let at = self.shared.clock.now();
            let sent = |letter: &SentOut| OutboxRecord {
                topic: Arc::clone(&letter.topic),
                payload: Arc::clone(&letter.payload),
                at,
            };
            done.letters = update.sent_messages().iter().map(sent).collect();
        }
        if let (None, Ok(update)) = (&failed, &result) {
            if let Some(noted) = update.node_notes() {
                done.noted = noted.clone();
            }
            if update.ends_conversation() {
                done.left = true;
            }
        }
        let sends = !done.letters.is_empty();
        let status = self.machine.status();
        self.ready_queue.drop_input_state(key);
        let keeps = self.journal.keeps_ends() && !(within && failed.is_none());
        let origin =
            if keeps { ActivationOrigin::of(&self.machine, key) } else { ActivationOrigin::default() };
        for &fresh in self.machine.absorb_end(&done)? {
            self.ready_queue.push(fresh, &self.state);
        }
        let (node, visit) = (done.node.clone(), done.visit);
        let (completed, untold) = (failed.is_none(), within && failed.is_none());
        match &failed {
            None if within => {}
            None => self.registration.meter.completed(&node),
            Some(failure) => self.registration.meter.failed(&node, failure.kind),
        }
        if keeps {
            let result = match &failed {
                // Its rows are rolled back, so the activation must not complete.
                Some(failure) if within => Err(failure.clone()),
                _ => result,
            };
            self.journal.remember(
                PendingEvent { key, what: PendingEventKind::Ended { result, took } },
                origin,
                None,
            );
        }
        let told = || match failed {
            None => {
                let verdict = done.output.as_deref().and_then(Verdict::of);
                RunEventKind::NodeCompleted { node, visit, took, verdict }
            }
            Some(failure) => RunEventKind::NodeFailed { node, visit, failure, retry_in: None },
        };
        if !untold {
            self.emit(told);
        }
        let node = self.plan.node(index);
        // Without a record, the process's death would lose the sent messages.
        let must = within || node.effect == Effect::External || sends && !self.journal.encodes_patches();
        let checkpoint = node.checkpoint;
        self.hold_end(done, patch, checkpoint, must)?;
        if !untold {
            self.announce(status);
        }
        Ok(completed)
    }
}

//! The record buffer of an active run. It contains records that are not sent yet, records that are sent but not acknowledged, and replies that wait
//! until records are durable.

pub(super) mod pending_events;
mod pending_records;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use self::pending_events::{PendingEvent, PendingEvents};
use self::pending_records::ConflictPolicy;
pub(crate) use self::pending_records::PendingRecords;
use super::origin::ActivationOrigin;
use super::outbox::OutboxSend;
use crate::clock::Clock;
use crate::engine::fold::ReplayedRun;
use crate::engine::frontier::ActivationKey;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{CheckpointFrequency, CheckpointPolicy, NodeCheckpoint};
use crate::id::{Epoch, ExecutorId, HeadRef, RunKey, Seq};
use crate::kernel::log::{LogWriter, RecordOptions};
use crate::node::{NodeReply, ReplySender};
use crate::record::body::{NodeDone, NodesDone, RecordEvent, StatusChange};
use crate::record::{Failure, FailureKind, RunStatus};
use crate::state::{Patch, State};

/// The number of ended activations whose memory is reused for the next record.
const SPARE: usize = 4;

/// The golden ratio in units of 2^-32. Its multiples, modulo 1, are spread evenly.
const GOLDEN: u32 = 0x9e37_79b9;

/// The content of the first record of a run, if the start of the run has not written it.
pub(crate) struct FirstRecord {
    pub(crate) event: RecordEvent,
    pub(crate) input: Box<RawValue>,
}

/// Events that the machine has absorbed but that are not appended yet, because the checkpoint policy holds them back.
#[derive(Default)]
struct HeldRecords {
    /// Whether an event was absorbed after the last record.
    any: bool,
    done: Vec<NodeDone>,
    patch: Patch,
    /// The time of the last write, by the monotonic clock.
    written: Duration,
    /// Whether the events will never be appended. This is so if the record with the full state was too large. The log then says that the run failed
    /// for this reason.
    dropped: bool,
}

/// A reply that waits until a record is durable.
pub(super) enum DurableReply {
    Done(oneshot::Sender<Result<()>>),
    /// The reply to a request of a node.
    Given {
        reply: ReplySender,
        given: NodeReply,
    },
    /// The expiry of this question.
    Expiry(ExpiredQuestion),
}

/// A question whose deadline has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExpiredQuestion {
    pub(super) key: ActivationKey,
    pub(super) name: String,
}

impl DurableReply {
    /// Sends the reply. Returns an expiry, which the driver handles.
    fn send(self) -> Option<ExpiredQuestion> {
        // The caller may be gone.
        match self {
            Self::Done(reply) => drop(reply.send(Ok(()))),
            Self::Given { reply, given } => reply.send(Ok(given)),
            Self::Expiry(expiry) => return Some(expiry),
        }
        None
    }

    fn refuse(self, error: Error) {
        match self {
            Self::Done(reply) => drop(reply.send(Err(error))),
            Self::Given { reply, .. } => reply.send(Err(error)),
            Self::Expiry(_) => {}
        }
    }
}

/// The records of a run between the driver and the store.
pub(super) struct RecordBuffer<S: State> {
    policy: CheckpointPolicy,
    clock: Arc<dyn Clock>,
    log: LogWriter,
    pending: PendingRecords,
    /// The first record, until it is appended. If checkpoints are disabled, it may never be appended.
    first: Option<Box<FirstRecord>>,
    held: HeldRecords,
    events: PendingEvents<S>,
    /// Whether the current write contains only the end of an activation and is part of the activation's transaction. If the write is refused, the
    /// transaction is rolled back too.
    is_in_transaction: bool,
    /// Replies, each with the record that must be durable first.
    replies: VecDeque<(Seq, DurableReply)>,
    /// Outbox messages in pending records.
    pub(super) sending: Option<Box<OutboxSend>>,
    /// The number of the last record at the time of the last prune or of the claim.
    pruned_at: u64,
    /// The part of a stride that had passed at the claim, in units of 2^-32.
    passed: u32,
}

impl<S: State> RecordBuffer<S> {
    pub(super) fn new(
        policy: CheckpointPolicy,
        clock: Arc<dyn Clock>,
        log: LogWriter,
        outbox: PendingRecords,
        first: Option<FirstRecord>,
    ) -> Self {
        let held = HeldRecords { written: clock.monotonic(), ..HeldRecords::default() };
        let pruned_at = log.head.map_or(0, |head| head.seq.get());
        // No record shows which writer of a run pruned last. Each claim therefore starts at another position of a stride, and the positions of
        // consecutive claims are spread evenly.
        let passed = log.epoch.get().saturating_sub(1).wrapping_mul(GOLDEN);
        Self {
            policy,
            clock,
            log,
            pending: outbox,
            first: first.map(Box::new),
            held,
            events: PendingEvents::default(),
            is_in_transaction: false,
            replies: VecDeque::new(),
            sending: None,
            pruned_at,
            passed,
        }
    }

    pub(super) fn run(&self) -> &RunKey {
        &self.log.run
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.log.epoch
    }

    pub(super) fn executor(&self) -> ExecutorId {
        self.log.executor
    }

    /// Maximum size of a record's body in bytes.
    pub(super) fn max_body(&self) -> usize {
        self.log.max_body
    }

    /// Returns whether any record was created.
    pub(super) fn has_begun(&self) -> bool {
        self.log.head.is_some()
    }

    /// Returns whether ends of activations can be absorbed again after a write conflict.
    ///
    /// If the checkpoint policy holds back records without a limit, ended activations are not retained, because this would need unlimited memory.
    /// With such a policy, a conflict stops the run in this process, and a resume continues from the last checkpoint. Results that an activation
    /// records itself, such as steps, are appended at once, and kept until they are acknowledged, under every policy.
    pub(super) fn keeps_ends(&self) -> bool {
        !matches!(
            self.policy.frequency,
            CheckpointFrequency::Disabled | CheckpointFrequency::StatusChangeOnly
        )
    }

    /// Returns whether the machine has absorbed events that will never be appended.
    pub(super) fn has_dropped(&self) -> bool {
        self.held.dropped
    }

    /// Returns the last record, if it contains all absorbed events.
    pub(super) fn holding_all(&self) -> Option<Seq> {
        self.log.head.filter(|_| !self.held.any).map(|head| head.seq)
    }

    /// Returns whether patches must be encoded. They are not needed if no further record is appended, or if the next record contains the full state.
    pub(super) fn encodes_patches(&self) -> bool {
        self.policy.frequency != CheckpointFrequency::Disabled
    }

    /// Returns whether the policy writes the current status of the run.
    pub(super) fn writes_status(&self, status: RunStatus) -> bool {
        status != RunStatus::InProgress && (self.encodes_patches() || self.has_begun())
    }
}

/// Methods that create records.
impl<S: State> RecordBuffer<S> {
    /// Holds an absorbed end. Returns whether the checkpoint policy asks for a record.
    pub(super) fn hold_end(
        &mut self,
        done: NodeDone,
        patch: Patch,
        checkpoint: NodeCheckpoint,
    ) -> Result<bool> {
        self.held.any = true;
        if self.encodes_patches() {
            self.held.patch = std::mem::take(&mut self.held.patch).merge(patch)?;
            if self.held.done.is_empty() {
                // Mostly the only end: a list that grows by itself starts with room for four.
                self.held.done.reserve_exact(1);
            }
            self.held.done.push(done);
        }
        let since = || self.clock.monotonic().saturating_sub(self.held.written);
        Ok(checkpoint != NodeCheckpoint::None
            && self.policy.frequency.is_due_after(self.held.done.len(), since))
    }

    /// Writes the held records. `whole` forces a checkpoint even if no record was ever written.
    pub(super) fn flush(&mut self, whole: bool, machine: &mut Machine, state: &S) -> Result<()> {
        if !whole && (!self.held.any || self.first.is_some()) {
            return Ok(());
        }
        self.begin(machine)?;
        if !std::mem::take(&mut self.held.any) {
            return Ok(());
        }
        if !self.encodes_patches() {
            // The number of nodes since the last checkpoint is unknown. The full state contains their results.
            self.write(
                &RecordEvent::Base,
                RecordOptions { base: true, ..RecordOptions::default() },
                machine,
                state,
            )?;
            return Ok(());
        }
        let done = std::mem::take(&mut self.held.done);
        let patch = std::mem::take(&mut self.held.patch);
        self.held.written = self.clock.monotonic();
        let options = RecordOptions {
            node: done.last().map(|last| (last.node.clone(), last.visit)),
            ..RecordOptions::default()
        };
        let event = RecordEvent::Node(NodesDone { done, patch });
        let seq = self.write(&event, options, machine, state)?;
        self.events.written(seq);
        if let RecordEvent::Node(NodesDone { mut done, .. }) = event {
            // The next list reuses this memory, unless many ends were held.
            if done.capacity() <= SPARE {
                done.clear();
                self.held.done = done;
            }
        }
        Ok(())
    }

    /// Writes the first record, if it was delayed since the start.
    fn begin(&mut self, machine: &Machine) -> Result<()> {
        let Some(first) = self.first.take() else { return Ok(()) };
        let FirstRecord { event, input } = *first;
        let mut before = Machine::new(machine.plan().cloned());
        before.absorb(&event)?;
        let options = RecordOptions { base: true, ..RecordOptions::default() };
        let record = self.log.record(&event, options, &before, || Ok(input))?;
        self.pending.push(record, self.conflict_policy(&event));
        Ok(())
    }

    /// Writes a record of the event that the machine has just absorbed.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::TooLarge`] if the record is only a base, and too large. The log then says that the run failed, and the machine is ahead
    /// of it by the events that [were dropped](Self::has_dropped).
    pub(super) fn write(
        &mut self,
        event: &RecordEvent,
        options: RecordOptions,
        machine: &mut Machine,
        state: &S,
    ) -> Result<Seq> {
        let anew = self.conflict_policy(event);
        match self.log.record(event, options, machine, || state.to_channels_json()) {
            Ok(record) => {
                let seq = record.header.seq;
                self.pending.push(record, anew);
                Ok(seq)
            }
            // The event is small enough, the base is not: the record omits the base, and the run stops for that reason.
            Err(error) if error.kind() == ErrorKind::TooLarge => {
                let failure = RecordEvent::Status(StatusChange::Failed(Failure::from_error(
                    FailureKind::Update,
                    &error,
                )));
                let anew = match event {
                    // Without its base the record is empty.
                    RecordEvent::Base => anew,
                    event => {
                        let record =
                            self.log.record_without_base(event, RecordOptions::default(), machine)?;
                        self.pending.push(record, anew);
                        // If the previous record is made again, so is this one.
                        self.conflict_policy(&failure)
                    }
                };
                machine.absorb(&failure)?;
                let record = self.log.record_without_base(&failure, RecordOptions::default(), machine)?;
                let seq = record.header.seq;
                self.pending.push(record, anew);
                if matches!(event, RecordEvent::Base) {
                    self.held.dropped = true;
                    return Err(error);
                }
                Ok(seq)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns what to do with an event if its record is refused because of a write conflict.
    fn conflict_policy(&self, event: &RecordEvent) -> ConflictPolicy {
        match event {
            RecordEvent::Node(_) if self.keeps_ends() => ConflictPolicy::Kept,
            RecordEvent::Node(_) | RecordEvent::Base if self.is_in_transaction => ConflictPolicy::Follows,
            RecordEvent::Attempt(_) | RecordEvent::Step(_) | RecordEvent::Status(StatusChange::Asked(_)) => {
                ConflictPolicy::Kept
            }
            // A ready activation asks for its intent again. `try_become_idle`, the deadline and `ring` check for due work.
            RecordEvent::Intent(_) | RecordEvent::Release(_) => ConflictPolicy::Follows,
            RecordEvent::Status(
                StatusChange::Interrupted
                | StatusChange::Failed(_)
                | StatusChange::Cancelled
                | StatusChange::Expired(_)
                | StatusChange::Rested(_),
            ) => ConflictPolicy::Follows,
            RecordEvent::Signal(_) | RecordEvent::Edit(_) => ConflictPolicy::Reported,
            // Results of nodes are not kept. First records and claims belong to a run that another writer has taken.
            RecordEvent::Node(_) | RecordEvent::Base | RecordEvent::Start(_) | RecordEvent::Claim(_) => {
                ConflictPolicy::Never
            }
        }
    }
}

/// Methods for pending records, and for replies that wait until records are durable.
impl<S: State> RecordBuffer<S> {
    /// Returns the last record.
    pub(super) fn last(&self) -> Option<Seq> {
        self.log.head.map(|head| head.seq)
    }

    /// Returns the last record, if it is not durable yet.
    pub(super) fn on_its_way(&self) -> Option<Seq> {
        self.last().filter(|&last| !self.pending.is_durable(last))
    }

    pub(super) fn is_durable(&self, seq: Seq) -> bool {
        self.pending.is_durable(seq)
    }

    /// Sets whether records are collected before they are sent, so that records of concurrent activations are sent together.
    pub(super) fn gather(&mut self, gathers: bool) {
        self.pending.gather(gathers);
    }

    /// Returns whether this memo is in no unacknowledged record.
    pub(super) fn is_noted(&self, key: ActivationKey, name: &str) -> bool {
        !self.events.iter().any(|fact| fact.key == key && fact.is_note(name))
    }

    /// Returns the last acknowledged record.
    pub(super) fn durable(&self) -> Option<HeadRef> {
        self.pending.durable()
    }

    /// Returns the number of unacknowledged records.
    pub(super) fn pending(&self) -> usize {
        self.pending.pending()
    }

    /// Takes an answer of the store that has arrived, without waiting.
    pub(super) fn try_acknowledge(&mut self) -> Option<Result<HeadRef>> {
        self.pending.try_acknowledge()
    }

    /// Sends pending records without waiting, and takes an answer that arrives at once.
    pub(super) fn try_here(&mut self) -> Option<Result<HeadRef>> {
        self.pending.try_here()
    }

    /// Detaches the pending append into a task, because the driver is about to do other work.
    pub(super) fn detach_append(&mut self) {
        self.pending.detach();
    }

    /// Waits for the store's answer to the sent records. If no record was sent, the call never returns.
    ///
    /// Cancel safe: if the future is dropped, the next call returns the answer.
    pub(super) async fn acknowledged(&mut self) -> Result<HeadRef> {
        self.pending.acknowledged().await
    }

    /// Sets whether the next end of an activation is appended as part of a transaction.
    pub(super) fn set_within(&mut self, within: bool) {
        self.is_in_transaction = within && !self.held.any;
    }

    /// Returns the pending records, to hold them back and commit them within a transaction.
    pub(super) fn outbox(&mut self) -> &mut PendingRecords {
        &mut self.pending
    }

    /// Returns whether an answer of the store is pending.
    pub(super) fn is_sending(&self) -> bool {
        self.pending.is_sending()
    }

    /// Keeps an event until its record is acknowledged. This is the record `written`, or else the next record.
    pub(super) fn remember(&mut self, fact: PendingEvent<S>, origin: ActivationOrigin, written: Option<Seq>) {
        self.events.push(fact, origin);
        if let Some(seq) = written {
            self.events.written(seq);
        }
    }

    /// Defers a reply until this record is durable.
    pub(super) fn defer_reply(&mut self, seq: Seq, owed: DurableReply) {
        self.replies.push_back((seq, owed));
    }

    pub(super) fn has_no_deferred_reply(&self) -> bool {
        self.replies.is_empty()
    }

    /// Drops the kept events up to a record that became durable, and sends the replies that waited for it. Returns the questions whose expiry is now
    /// durable.
    pub(super) fn release_durable(&mut self, durable: Seq) -> Vec<ExpiredQuestion> {
        self.events.acknowledged(durable);
        let mut expired = Vec::new();
        while self.replies.front().is_some_and(|(seq, _)| *seq <= durable) {
            expired.extend(self.replies.pop_front().and_then(|(_, owed)| owed.send()));
        }
        expired
    }

    /// Sends an error for all deferred replies, because this process no longer drives the run.
    pub(super) fn refuse_all(&mut self, error: &Error) {
        for (_, owed) in self.replies.drain(..) {
            owed.refuse(error.clone());
        }
    }

    /// Returns whether the log must be pruned again. This happens once for every `stride` records, even if several processes drive the run one after
    /// another and each writes only a few records.
    pub(super) fn is_time_to_prune(&mut self, durable: Seq, stride: u64) -> bool {
        let written = durable.get().saturating_sub(self.pruned_at);
        let passed = (u128::from(stride) * u128::from(self.passed)) >> 32;
        let is_time = u128::from(written) + passed >= u128::from(stride);
        if is_time {
            (self.pruned_at, self.passed) = (durable.get(), 0);
        }
        is_time
    }
}

/// Methods for write conflicts.
impl<S: State> RecordBuffer<S> {
    /// Returns whether every unacknowledged record can be created again after a conflict.
    pub(super) fn can_restart(&self) -> bool {
        !self.pending.is_unique() && (!self.held.any || self.keeps_ends())
    }

    /// Continues after the end of the loaded log, and drops pending records. Returns the events without an acknowledged record, each with the inputs
    /// of its activation. The caller must absorb them again.
    ///
    /// Expiries of questions are dropped. Their records were refused, and an answer may have arrived first.
    pub(super) fn restart(
        &mut self,
        folded: &ReplayedRun,
    ) -> impl Iterator<Item = (ActivationOrigin, PendingEvent<S>)> + use<S> {
        self.log.follow(folded);
        self.pending.restart(folded.last.head());
        self.held = HeldRecords { written: self.held.written, ..HeldRecords::default() };
        self.replies.retain(|(_, owed)| !matches!(owed, DurableReply::Expiry(_)));
        self.events.drain()
    }

    /// Defers the replies to the renumbered records after a restart, or sends them if no record is pending.
    pub(super) fn defer_again(&mut self) {
        let Some(head) = self.log.head else { return };
        self.replies.iter_mut().for_each(|(seq, _)| *seq = head.seq);
        if self.pending.is_empty() {
            self.release_durable(head.seq);
        }
    }
}

#[cfg(test)]
mod tests;

//! The journal of a run that goes on here: what is held back, what is on its way to the store, and what is owed once it is durable.

pub(super) mod facts;
mod outbox;

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use self::facts::{PendingEvent, PendingEvents};
use self::outbox::ConflictPolicy;
pub(crate) use self::outbox::PendingRecords;
use super::letters::OutboxSend;
use super::origin::ActivationOrigin;
use crate::clock::Clock;
use crate::engine::fold::ReplayedRun;
use crate::engine::frontier::ActivationKey;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{CheckpointFrequency, CheckpointPolicy, NodeCheckpoint};
use crate::id::{Epoch, ExecutorId, HeadRef, RunKey, Seq};
use crate::node::{NodeReply, ReplySender};
use crate::record::body::{Event, NodeDone, NodesDone, StatusChange};
use crate::record::{Failure, FailureKind, RunStatus};
use crate::runtime::log::{LogWriter, RecordOptions};
use crate::state::{Patch, State};

/// For how many ends memory is kept from one record to the next.
const SPARE: usize = 4;

/// The golden section as so many parts of 2^32: its multiples are spread evenly over a whole, however many they are.
const GOLDEN: u32 = 0x9e37_79b9;

/// What the first record of a run says, where the start does not write it.
pub(crate) struct FirstRecord {
    pub(crate) event: Event,
    pub(crate) input: Box<RawValue>,
}

/// What was absorbed and is not written yet: coarser checkpoint frequencies hold it back.
#[derive(Default)]
struct HeldRecords {
    /// Whether anything was absorbed since the last record.
    any: bool,
    done: Vec<NodeDone>,
    patch: Patch,
    /// When something was last written, by the monotonic clock.
    written: Duration,
    /// Whether it never is: the base was too large, and the log says that the run failed for that.
    dropped: bool,
}

/// A reply that is owed once a record is durable.
pub(super) enum DurableReply {
    Done(oneshot::Sender<Result<()>>),
    /// What a node waited for.
    Given {
        reply: ReplySender,
        given: NodeReply,
    },
    /// That no answer to this question came in time.
    Expiry(ExpiredQuestion),
}

/// A question of an activation whose deadline is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExpiredQuestion {
    pub(super) key: ActivationKey,
    pub(super) name: String,
}

impl DurableReply {
    /// Pays the reply, and returns an expiry, which its driver pays.
    fn pay(self) -> Option<ExpiredQuestion> {
        // A caller that has gone away needs no reply.
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

/// The records of a run from the driver to the store.
pub(super) struct RecordBuffer<S: State> {
    policy: CheckpointPolicy,
    clock: Arc<dyn Clock>,
    log: LogWriter,
    outbox: PendingRecords,
    /// The first record, until it is written: with checkpoints disabled it may never be.
    first: Option<Box<FirstRecord>>,
    held: HeldRecords,
    facts: PendingEvents<S>,
    /// Whether what is written now holds nothing but the end of an activation whose transaction it is part of: refused, both are undone.
    within: bool,
    /// Replies, each with the record that must be durable before it is sent.
    replies: VecDeque<(Seq, DurableReply)>,
    /// Letters in records on their way.
    pub(super) sending: Option<Box<OutboxSend>>,
    /// The last record when old ones were last pruned, or when the run was taken up.
    pruned_at: u64,
    /// How much of a stride had passed by then, as so many parts of 2^32.
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
        // Which of the writers of a run looked last, no record tells: each claim begins at another place of a stride, and the places of
        // any few claims in a row are spread evenly over it.
        let passed = log.epoch.get().saturating_sub(1).wrapping_mul(GOLDEN);
        Self {
            policy,
            clock,
            log,
            outbox,
            first: first.map(Box::new),
            held,
            facts: PendingEvents::default(),
            within: false,
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

    /// How many bytes the body of a record may have.
    pub(super) fn max_body(&self) -> usize {
        self.log.max_body
    }

    /// Whether any record was made.
    pub(super) fn has_begun(&self) -> bool {
        self.log.head.is_some()
    }

    /// Whether ends of activations can be taken in again after another writer came first.
    ///
    /// Frequencies without a bound on what they hold back do not keep them, since that would hold memory without a bound as well:
    /// then a conflict that meets them ends the run here, and a resume goes on from the last checkpoint. What activations noted is
    /// written at once, and kept until then under every policy.
    pub(super) fn keeps_ends(&self) -> bool {
        !matches!(
            self.policy.frequency,
            CheckpointFrequency::Disabled | CheckpointFrequency::StatusChangeOnly
        )
    }

    /// Whether the machine has absorbed what no record will hold.
    pub(super) fn has_dropped(&self) -> bool {
        self.held.dropped
    }

    /// Returns the last record that was made, if it holds everything that was absorbed.
    pub(super) fn holding_all(&self) -> Option<Seq> {
        self.log.head.filter(|_| !self.held.any).map(|head| head.seq)
    }

    /// Whether patches are encoded: without any record to come there is no use for them, and a later one becomes a base.
    pub(super) fn encodes_patches(&self) -> bool {
        self.policy.frequency != CheckpointFrequency::Disabled
    }

    /// Whether the status that the run has now is to be written.
    pub(super) fn writes_status(&self, status: RunStatus) -> bool {
        status != RunStatus::InProgress && (self.encodes_patches() || self.has_begun())
    }
}

/// Making records.
impl<S: State> RecordBuffer<S> {
    /// Holds an end that was absorbed. Returns whether the checkpoint policy asks for a record now.
    pub(super) fn hold(&mut self, done: NodeDone, patch: Patch, checkpoint: NodeCheckpoint) -> Result<bool> {
        self.held.any = true;
        if self.encodes_patches() {
            self.held.patch = std::mem::take(&mut self.held.patch).merge(patch)?;
            if self.held.done.is_empty() {
                // Mostly it is the only one; a list that grows by itself begins with room for four.
                self.held.done.reserve_exact(1);
            }
            self.held.done.push(done);
        }
        Ok(match self.policy.frequency {
            _ if checkpoint == NodeCheckpoint::None => false,
            CheckpointFrequency::EveryNode => true,
            CheckpointFrequency::EveryNth(n) => {
                u32::try_from(self.held.done.len()).map_or(true, |held| held >= NonZeroU32::get(n))
            }
            CheckpointFrequency::Interval(interval) => {
                self.clock.monotonic().saturating_sub(self.held.written) >= interval
            }
            CheckpointFrequency::StatusChangeOnly | CheckpointFrequency::Disabled => false,
        })
    }

    /// Writes what is held back. `whole` asks for a checkpoint even if nothing has been written at all.
    pub(super) fn flush(&mut self, whole: bool, machine: &mut Machine, state: &S) -> Result<()> {
        if !whole && (!self.held.any || self.first.is_some()) {
            return Ok(());
        }
        self.begin(machine)?;
        if !std::mem::take(&mut self.held.any) {
            return Ok(());
        }
        if !self.encodes_patches() {
            // How many nodes ran since the last checkpoint is unknown; the full state says what they came to.
            self.write(
                &Event::Base,
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
        let event = Event::Node(NodesDone { done, patch });
        let seq = self.write(&event, options, machine, state)?;
        self.facts.written(seq);
        if let Event::Node(NodesDone { mut done, .. }) = event {
            // The next list needs no memory of its own, unless many were held back.
            if done.capacity() <= SPARE {
                done.clear();
                self.held.done = done;
            }
        }
        Ok(())
    }

    /// Writes the first record, if it was held back since the start.
    fn begin(&mut self, machine: &Machine) -> Result<()> {
        let Some(first) = self.first.take() else { return Ok(()) };
        let FirstRecord { event, input } = *first;
        let mut before = Machine::new(machine.plan().cloned());
        before.absorb(&event)?;
        let options = RecordOptions { base: true, ..RecordOptions::default() };
        let record = self.log.record(&event, options, &before, || Ok(input))?;
        self.outbox.push(record, self.anew(&event));
        Ok(())
    }

    /// Writes a record of what the machine has just absorbed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if the record is nothing but a base, which is too large. The log then says that the run has failed, and the
    /// machine is ahead of it by what [was dropped](Self::has_dropped).
    pub(super) fn write(
        &mut self,
        event: &Event,
        options: RecordOptions,
        machine: &mut Machine,
        state: &S,
    ) -> Result<Seq> {
        let anew = self.anew(event);
        match self.log.record(event, options, machine, || state.to_channels_json()) {
            Ok(record) => {
                let seq = record.header.seq;
                self.outbox.push(record, anew);
                Ok(seq)
            }
            // What happened is small enough, the base is not: the record goes without it, and the run stops for the reason.
            Err(error) if error.kind() == ErrorKind::TooLarge => {
                let failure = Event::Status(StatusChange::Failed(Failure::of(FailureKind::Update, &error)));
                let anew = match event {
                    // Without its base it says nothing.
                    Event::Base => anew,
                    event => {
                        let record =
                            self.log.record_without_base(event, RecordOptions::default(), machine)?;
                        self.outbox.push(record, anew);
                        // If the record before it is made anew, so is this one.
                        self.anew(&failure)
                    }
                };
                machine.absorb(&failure)?;
                let record = self.log.record_without_base(&failure, RecordOptions::default(), machine)?;
                let seq = record.header.seq;
                self.outbox.push(record, anew);
                if matches!(event, Event::Base) {
                    self.held.dropped = true;
                    return Err(error);
                }
                Ok(seq)
            }
            Err(error) => Err(error),
        }
    }

    /// Says how what an event tells is decided again if its record is refused.
    fn anew(&self, event: &Event) -> ConflictPolicy {
        match event {
            Event::Node(_) if self.keeps_ends() => ConflictPolicy::Kept,
            Event::Node(_) | Event::Base if self.within => ConflictPolicy::Follows,
            Event::Attempt(_) | Event::Step(_) | Event::Status(StatusChange::Asked(_)) => {
                ConflictPolicy::Kept
            }
            // An activation in line asks for its intent anew; `come_to_rest`, the deadline and `ring` look at what is due.
            Event::Intent(_) | Event::Release(_) => ConflictPolicy::Follows,
            Event::Status(
                StatusChange::Interrupted
                | StatusChange::Failed(_)
                | StatusChange::Cancelled
                | StatusChange::Expired(_)
                | StatusChange::Rested(_),
            ) => ConflictPolicy::Follows,
            Event::Signal(_) | Event::Edit(_) => ConflictPolicy::Reported,
            // What nodes returned is not kept; the first record and claims are of a run that another writer has by now.
            Event::Node(_) | Event::Base | Event::Start(_) | Event::Claim(_) => ConflictPolicy::Never,
        }
    }
}

/// Records on their way, and what is owed once they are durable.
impl<S: State> RecordBuffer<S> {
    /// Returns the last record that was made.
    pub(super) fn last(&self) -> Option<Seq> {
        self.log.head.map(|head| head.seq)
    }

    /// Returns the last record that was made, if it is not durable yet.
    pub(super) fn on_its_way(&self) -> Option<Seq> {
        self.last().filter(|&last| !self.outbox.is_durable(last))
    }

    pub(super) fn is_durable(&self, seq: Seq) -> bool {
        self.outbox.is_durable(seq)
    }

    /// Gathers records, so that those of now leave together, until they are to leave.
    pub(super) fn gather(&mut self, gathers: bool) {
        self.outbox.gather(gathers);
    }

    /// Whether no record that is not acknowledged holds this note.
    pub(super) fn is_noted(&self, key: ActivationKey, name: &str) -> bool {
        !self.facts.iter().any(|fact| fact.key == key && fact.is_note(name))
    }

    /// Returns the last acknowledged record.
    pub(super) fn durable(&self) -> Option<HeadRef> {
        self.outbox.durable()
    }

    /// How many records are not acknowledged.
    pub(super) fn pending(&self) -> usize {
        self.outbox.pending()
    }

    /// Takes an answer of the store that has come already, without waiting.
    pub(super) fn try_acknowledge(&mut self) -> Option<Result<HeadRef>> {
        self.outbox.try_acknowledge()
    }

    /// Sends what is to be sent, as far as that goes without waiting, and takes an answer of the store that comes so.
    pub(super) fn try_here(&mut self) -> Option<Result<HeadRef>> {
        self.outbox.try_here()
    }

    /// Has what was sent go on by itself: the driver is about to do something else than to wait for it.
    pub(super) fn leave(&mut self) {
        self.outbox.leave();
    }

    /// Waits for the store's answer to what was sent; never ends if nothing was.
    ///
    /// Cancel safe: an answer that was not returned is returned by the next call.
    pub(super) async fn acknowledged(&mut self) -> Result<HeadRef> {
        self.outbox.acknowledged().await
    }

    /// Says that an end is about to be held and written which is part of a transaction, or that it was.
    pub(super) fn set_within(&mut self, within: bool) {
        self.within = within && !self.held.any;
    }

    /// The records on their way, for who holds them back and commits them within a transaction.
    pub(super) fn outbox(&mut self) -> &mut PendingRecords {
        &mut self.outbox
    }

    /// Whether an answer of the store is to come.
    pub(super) fn is_sending(&self) -> bool {
        self.outbox.is_sending()
    }

    /// Keeps a fact until its record is acknowledged: one that was written, or the next that is.
    pub(super) fn remember(&mut self, fact: PendingEvent<S>, origin: ActivationOrigin, written: Option<Seq>) {
        self.facts.push(fact, origin);
        if let Some(seq) = written {
            self.facts.written(seq);
        }
    }

    /// Owes a reply until this record is durable.
    pub(super) fn owe(&mut self, seq: Seq, owed: DurableReply) {
        self.replies.push_back((seq, owed));
    }

    pub(super) fn owes_nothing(&self) -> bool {
        self.replies.is_empty()
    }

    /// Forgets the facts up to a record that has become durable, and pays what is owed for it. Returns the questions whose expiry
    /// is on record now.
    pub(super) fn pay(&mut self, durable: Seq) -> Vec<ExpiredQuestion> {
        self.facts.acknowledged(durable);
        let mut expired = Vec::new();
        while self.replies.front().is_some_and(|(seq, _)| *seq <= durable) {
            expired.extend(self.replies.pop_front().and_then(|(_, owed)| owed.pay()));
        }
        expired
    }

    /// Refuses whatever is owed: the run is no longer driven here.
    pub(super) fn refuse_all(&mut self, error: &Error) {
        for (_, owed) in self.replies.drain(..) {
            owed.refuse(error.clone());
        }
    }

    /// Tells whether old records are to be pruned again, once for every `stride` records, also where many writers in turn write a few each.
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

/// When another writer came first.
impl<S: State> RecordBuffer<S> {
    /// Tells whether everything that is not acknowledged can be decided again.
    pub(super) fn can_restart(&self) -> bool {
        !self.outbox.is_unique() && (!self.held.any || self.keeps_ends())
    }

    /// Goes on after the log as it was loaded, and forgets what is on its way. Returns the facts that no acknowledged record holds,
    /// to be taken in again, each with what its activation started from.
    ///
    /// Expiries are no longer owed: their record was lost to a conflict, and an answer may have come first.
    pub(super) fn restart(
        &mut self,
        folded: &ReplayedRun,
    ) -> impl Iterator<Item = (ActivationOrigin, PendingEvent<S>)> + use<S> {
        self.log.follow(folded);
        self.outbox.restart(folded.last.head());
        self.held = HeldRecords { written: self.held.written, ..HeldRecords::default() };
        self.replies.retain(|(_, owed)| !matches!(owed, DurableReply::Expiry(_)));
        self.facts.drain()
    }

    /// Owes the replies for the records as they are numbered after a restart, or pays them if nothing is on its way.
    pub(super) fn owe_again(&mut self) {
        let Some(head) = self.log.head else { return };
        self.replies.iter_mut().for_each(|(seq, _)| *seq = head.seq);
        if self.outbox.is_empty() {
            self.pay(head.seq);
        }
    }
}

#[cfg(test)]
mod tests;

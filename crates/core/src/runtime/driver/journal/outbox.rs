//! Records on their way to the store: in order, one submission at a time, nothing after a hole.

use std::collections::VecDeque;

use crate::error::Result;
use crate::id::{HeadRef, RunKey, Seq};
use crate::record::{Record, RunFacts};
use crate::runtime::committer::{AppendHandle, Committer};
use crate::store::RunAppend;

/// How what a record says is decided again where the log refuses the record, because another writer came first.
///
/// Each record is handed over with it: what is decided, refused and not decided again would be taken for done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConflictPolicy {
    /// It is a fact, which is kept until its record is acknowledged, and taken in again.
    Kept,
    /// It follows from the machine and the time, which the driver looks at again in its next turn.
    Follows,
    /// The signaller is told that it is not on record.
    Reported,
    /// Not at all: the run stops here, and goes on from its last record.
    Never,
}

/// Where there is something that cannot be decided again.
#[derive(Clone, Copy, Debug, Default)]
struct Unique {
    queued: bool,
    sent: bool,
    refused: bool,
}

/// The records of one run that are not acknowledged yet.
pub(crate) struct PendingRecords {
    run: RunKey,
    committer: Committer,
    /// What is said of the run with its first record, until that is sent.
    facts: Option<Box<RunFacts>>,
    queue: VecDeque<Record>,
    sent: Option<(usize, AppendHandle)>,
    /// Whether nothing more is sent for now: a transaction of the run is open, or about to begin.
    held: bool,
    /// Whether more records are about to follow that leave with those in the queue.
    gathers: bool,
    /// Whether any of what is not acknowledged, or was refused, cannot be decided again.
    is_unique: Unique,
    /// The last acknowledged record.
    durable: Option<HeadRef>,
    /// The term of heartbeats in which the run was taken.
    term: u64,
}

impl PendingRecords {
    pub(crate) fn new(
        run: RunKey,
        committer: Committer,
        facts: Option<RunFacts>,
        durable: Option<HeadRef>,
        term: u64,
    ) -> Self {
        let facts = facts.map(Box::new);
        Self {
            run,
            committer,
            facts,
            queue: VecDeque::new(),
            sent: None,
            held: false,
            gathers: false,
            is_unique: Unique::default(),
            durable,
            term,
        }
    }

    /// Forgets everything that is not acknowledged and goes on after `durable`.
    pub(crate) fn restart(&mut self, durable: HeadRef) {
        self.facts = None;
        self.queue.clear();
        self.sent = None;
        self.is_unique = Unique::default();
        self.durable = Some(durable);
    }

    pub(crate) fn push(&mut self, record: Record, anew: ConflictPolicy) {
        self.is_unique.queued |= anew == ConflictPolicy::Never;
        if self.queue.capacity() == 0 {
            // Mostly it is the only one; a list that grows by itself begins with room for four.
            self.queue.reserve_exact(1);
        }
        self.queue.push_back(record);
        self.send();
    }

    /// Tells whether something would be lost if all that is not acknowledged were decided again. What was refused counts until
    /// [`restart`](Self::restart).
    pub(crate) fn is_unique(&self) -> bool {
        let Unique { queued, sent, refused } = self.is_unique;
        queued || sent || refused
    }

    /// How many records are not acknowledged.
    pub(crate) fn pending(&self) -> usize {
        self.queue.len() + self.sent.as_ref().map_or(0, |(count, _)| *count)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending() == 0
    }

    /// Tells whether the record with this number is on stable storage.
    pub(crate) fn is_durable(&self, seq: Seq) -> bool {
        self.durable.is_some_and(|head| head.seq >= seq)
    }

    /// Returns the last acknowledged record.
    pub(crate) fn durable(&self) -> Option<HeadRef> {
        self.durable
    }

    /// Gathers records until they are to leave.
    pub(crate) fn gather(&mut self, gathers: bool) {
        self.gathers = gathers;
        self.send();
    }

    fn send(&mut self) {
        if self.held || self.gathers || self.sent.is_some() || self.queue.is_empty() {
            return;
        }
        let append = self.take();
        self.sent = Some((append.records.len(), self.committer.begin(append, Some(self.term))));
    }

    /// Takes everything that waits, for an append whose answer [`answered`](Self::answered) takes in.
    pub(crate) fn take(&mut self) -> RunAppend {
        let mut records = Vec::with_capacity(self.queue.len());
        records.extend(self.queue.drain(..));
        let facts = if self.durable.is_none() { self.facts.as_deref().cloned() } else { None };
        self.is_unique.sent = std::mem::take(&mut self.is_unique.queued);
        RunAppend { run: self.run.clone(), expected: self.durable, records, facts }
    }

    /// Sends nothing more until [`release`](Self::release).
    pub(crate) fn hold(&mut self) {
        self.held = true;
    }

    pub(crate) fn release(&mut self) {
        self.held = false;
        self.send();
    }

    /// Whether an answer of the store is to come.
    pub(crate) fn is_sending(&self) -> bool {
        self.sent.is_some()
    }

    /// Takes an answer that has come already, without waiting.
    pub(crate) fn try_acknowledge(&mut self) -> Option<Result<HeadRef>> {
        let (_, sending) = self.sent.as_mut()?;
        let result = sending.try_answer()?;
        Some(self.answered(result))
    }

    /// Carries out what was sent as far as that goes without waiting, and takes an answer that comes so.
    pub(crate) fn try_here(&mut self) -> Option<Result<HeadRef>> {
        let (_, sending) = self.sent.as_mut()?;
        let result = sending.try_here()?;
        Some(self.answered(result))
    }

    /// Has what was sent go on by itself: the driver is about to do something else than to wait for it.
    pub(crate) fn leave(&mut self) {
        if let Some((_, sending)) = &mut self.sent {
            sending.leave();
        }
    }

    /// Waits for the answer to what was sent; never ends if nothing was.
    ///
    /// Cancel safe: an answer that was not returned is returned by the next call.
    pub(crate) async fn acknowledged(&mut self) -> Result<HeadRef> {
        match &mut self.sent {
            None => std::future::pending().await,
            Some((_, sending)) => {
                let result = sending.answer().await;
                self.answered(result)
            }
        }
    }

    /// Takes in what the store answered to what was taken.
    pub(crate) fn answered(&mut self, result: Result<HeadRef>) -> Result<HeadRef> {
        self.sent = None;
        let is_unique = std::mem::take(&mut self.is_unique.sent);
        self.is_unique.refused |= is_unique && result.is_err();
        let head = result?;
        self.facts = None;
        self.durable = Some(head);
        self.send();
        Ok(head)
    }
}

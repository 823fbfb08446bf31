//! The records that are sent to the store but not acknowledged. They are sent in order and without gaps, and only one append of the run is pending at
//! a time.

use std::collections::VecDeque;

use crate::error::Result;
use crate::id::{HeadRef, RunKey, Seq};
use crate::kernel::committer::AppendHandle;
use crate::kernel::committer::Committer;
use crate::record::{Record, RunFacts};
use crate::store::RunAppend;

/// The rule for a record that the store refuses because of a write conflict.
///
/// Every record has such a policy, because otherwise a refused record would count as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConflictPolicy {
    /// The event of the record is retained until the record is acknowledged. After a conflict, the driver absorbs the event again.
    Kept,
    /// The record follows from the state of the machine and the time. After a conflict, the driver decides again in its next iteration whether the
    /// record is needed.
    Follows,
    /// After a conflict, the caller that sent the signal is notified that its record was not appended.
    Reported,
    /// After a conflict, the record is not created again. The run stops in this process, and continues from its last record.
    Never,
}

/// The location of the records that cannot be created again after a conflict.
#[derive(Clone, Copy, Debug, Default)]
struct UndecidableRecords {
    queued: bool,
    sent: bool,
    refused: bool,
}

/// The unacknowledged records of one run.
pub(crate) struct PendingRecords {
    run: RunKey,
    committer: Committer,
    /// The facts about the run for its first record. They are present until the first record is sent.
    facts: Option<Box<RunFacts>>,
    queue: VecDeque<Record>,
    sent: Option<(usize, AppendHandle)>,
    /// Whether sending is suspended: a transaction of the run is open or about to start.
    is_suspended: bool,
    /// Whether more records will follow that are sent together with the queued records.
    is_gathering: bool,
    /// Whether an unacknowledged or refused record cannot be created again after a conflict.
    is_unique: UndecidableRecords,
    /// The last acknowledged record.
    durable: Option<HeadRef>,
    /// The heartbeat term of the claim.
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
            is_suspended: false,
            is_gathering: false,
            is_unique: UndecidableRecords::default(),
            durable,
            term,
        }
    }

    /// Drops all unacknowledged records and continues after `durable`.
    pub(crate) fn restart(&mut self, durable: HeadRef) {
        self.facts = None;
        self.queue.clear();
        self.sent = None;
        self.is_unique = UndecidableRecords::default();
        self.durable = Some(durable);
    }

    pub(crate) fn push(&mut self, record: Record, anew: ConflictPolicy) {
        self.is_unique.queued |= anew == ConflictPolicy::Never;
        if self.queue.capacity() == 0 {
            // Mostly the only record: a list that grows by itself starts with room for four.
            self.queue.reserve_exact(1);
        }
        self.queue.push_back(record);
        self.send();
    }

    /// Returns whether some unacknowledged record cannot be created again after a conflict. Refused records count until [`restart`](Self::restart).
    pub(crate) fn is_unique(&self) -> bool {
        let UndecidableRecords { queued, sent, refused } = self.is_unique;
        queued || sent || refused
    }

    /// Returns the number of unacknowledged records.
    pub(crate) fn pending(&self) -> usize {
        self.queue.len() + self.sent.as_ref().map_or(0, |(count, _)| *count)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending() == 0
    }

    /// Returns whether the record with this number is durable.
    pub(crate) fn is_durable(&self, seq: Seq) -> bool {
        self.durable.is_some_and(|head| head.seq >= seq)
    }

    /// Returns the last acknowledged record.
    pub(crate) fn durable(&self) -> Option<HeadRef> {
        self.durable
    }

    /// Sets whether records are collected before they are sent.
    pub(crate) fn gather(&mut self, gathers: bool) {
        self.is_gathering = gathers;
        self.send();
    }

    fn send(&mut self) {
        if self.is_suspended || self.is_gathering || self.sent.is_some() || self.queue.is_empty() {
            return;
        }
        let append = self.take();
        self.sent = Some((append.records.len(), self.committer.begin(append, Some(self.term))));
    }

    /// Takes all waiting records, for an append whose answer goes to [`handle_answer`](Self::handle_answer).
    pub(crate) fn take(&mut self) -> RunAppend {
        let mut records = Vec::with_capacity(self.queue.len());
        records.extend(self.queue.drain(..));
        let facts = if self.durable.is_none() { self.facts.as_deref().cloned() } else { None };
        self.is_unique.sent = std::mem::take(&mut self.is_unique.queued);
        RunAppend { run: self.run.clone(), expected: self.durable, records, facts }
    }

    /// Suspends sending until [`release`](Self::release).
    pub(crate) fn suspend(&mut self) {
        self.is_suspended = true;
    }

    pub(crate) fn release(&mut self) {
        self.is_suspended = false;
        self.send();
    }

    /// Returns whether an answer of the store is pending.
    pub(crate) fn is_sending(&self) -> bool {
        self.sent.is_some()
    }

    /// Takes an answer that has arrived, without waiting.
    pub(crate) fn try_acknowledge(&mut self) -> Option<Result<HeadRef>> {
        let (_, sending) = self.sent.as_mut()?;
        let result = sending.try_answer()?;
        Some(self.handle_answer(result))
    }

    /// Executes the sent append without waiting, and takes an answer that arrives at once.
    pub(crate) fn try_here(&mut self) -> Option<Result<HeadRef>> {
        let (_, sending) = self.sent.as_mut()?;
        let result = sending.try_here()?;
        Some(self.handle_answer(result))
    }

    /// Detaches the sent append into a task, because the driver is about to do other work.
    pub(crate) fn detach(&mut self) {
        if let Some((_, sending)) = &mut self.sent {
            sending.detach();
        }
    }

    /// Waits for the answer to the sent records. If no record was sent, the call never returns.
    ///
    /// Cancel safe: if the future is dropped, the next call returns the answer.
    pub(crate) async fn acknowledged(&mut self) -> Result<HeadRef> {
        match &mut self.sent {
            None => std::future::pending().await,
            Some((_, sending)) => {
                let result = sending.answer().await;
                self.handle_answer(result)
            }
        }
    }

    /// Handles the store's answer to the taken records.
    pub(crate) fn handle_answer(&mut self, result: Result<HeadRef>) -> Result<HeadRef> {
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

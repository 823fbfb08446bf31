//! Records on their way to the store: in order, one submission at a time, nothing after a hole.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{HeadRef, RunKey, Seq};
use crate::record::{Record, RunFacts};
use crate::runtime::committer::Committer;
use crate::store::RunAppend;

/// The records of one run that are not acknowledged yet.
pub(crate) struct Outbox {
    run: RunKey,
    committer: Committer,
    /// What is said of the run with its first record, until that is sent.
    facts: Option<Box<RunFacts>>,
    queue: VecDeque<Record>,
    sent: Option<(usize, oneshot::Receiver<Result<HeadRef>>)>,
    /// The last acknowledged record.
    durable: Option<HeadRef>,
    /// The term of heartbeats in which the run was taken.
    term: u64,
}

impl Outbox {
    pub(crate) fn new(
        run: RunKey,
        committer: Committer,
        facts: Option<RunFacts>,
        durable: Option<HeadRef>,
        term: u64,
    ) -> Self {
        let facts = facts.map(Box::new);
        Self { run, committer, facts, queue: VecDeque::new(), sent: None, durable, term }
    }

    /// Forgets everything that is not acknowledged and goes on after `durable`.
    pub(crate) fn restart(&mut self, durable: HeadRef) {
        self.facts = None;
        self.queue.clear();
        self.sent = None;
        self.durable = Some(durable);
    }

    pub(crate) fn push(&mut self, record: Record) {
        self.queue.push_back(record);
        self.send();
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

    fn send(&mut self) {
        if self.sent.is_some() || self.queue.is_empty() {
            return;
        }
        let records: Vec<Record> = self.queue.drain(..).collect();
        let facts = if self.durable.is_none() { self.facts.as_deref().cloned() } else { None };
        let count = records.len();
        let append = RunAppend { run: self.run.clone(), expected: self.durable, records, facts };
        self.sent = Some((count, self.committer.submit(append, Some(self.term))));
    }

    /// Takes an answer that has come already, without waiting.
    pub(crate) fn try_acknowledge(&mut self) -> Option<Result<HeadRef>> {
        let (_, answer) = self.sent.as_mut()?;
        match answer.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(self.settle(Err(gone()))),
            Ok(result) => Some(self.settle(result)),
        }
    }

    /// Waits for the answer to what was sent; never ends if nothing was.
    ///
    /// Cancel safe: an answer that was not returned is returned by the next call.
    pub(crate) async fn acknowledged(&mut self) -> Result<HeadRef> {
        match &mut self.sent {
            None => std::future::pending().await,
            Some((_, answer)) => {
                let result = answer.await.unwrap_or_else(|_| Err(gone()));
                self.settle(result)
            }
        }
    }

    fn settle(&mut self, result: Result<HeadRef>) -> Result<HeadRef> {
        self.sent = None;
        let head = result?;
        self.facts = None;
        self.durable = Some(head);
        self.send();
        Ok(head)
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Indeterminate, "the append was dropped before its answer; resume the run")
}

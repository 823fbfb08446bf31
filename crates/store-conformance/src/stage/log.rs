//! A run's log as it ought to be stored: what properties write, and compare with what comes back.

use std::sync::Arc;

use bytes::Bytes;
use ferrata_store::testing::SeqIds;
use ferrata_store::{
    CheckpointStore, FORMAT, Record, RecordHeader, RecordKind, RunAppend, RunFacts, RunHead, RunStatus,
};
use ferrata_store::{Epoch, HeadRef, IdSource, RecordId, RunKey, Seq, Timestamp};

use super::calls::appended;
use super::stories::facts;

/// How many records lie from one base to the next unless a property says otherwise: few, so that most logs hold several.
const BASE_EVERY: u64 = 4;

/// When the first record of each log was made, by its writer's clock: 2020-09-13. The others follow, a millisecond apart.
const BEGAN: i64 = 1_600_000_000_000;

/// A run's log as it ought to be stored.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) key: RunKey,
    pub(crate) facts: RunFacts,
    /// The records kept, in order.
    pub(crate) records: Vec<Record>,
    ids: Arc<SeqIds>,
}

impl Log {
    pub(crate) fn new(key: RunKey, ids: Arc<SeqIds>) -> Self {
        Self { key, facts: facts("review", 0), records: Vec::new(), ids }
    }

    /// Sets what is said of the run at its start.
    pub(crate) fn with_facts(mut self, facts: RunFacts) -> Self {
        self.facts = facts;
        self
    }

    /// Returns the head, as the next append must expect it.
    pub(crate) fn head(&self) -> Option<HeadRef> {
        self.records.last().map(|record| record.header.head())
    }

    /// Returns the number of the oldest record kept.
    pub(crate) fn first(&self) -> u64 {
        self.records.first().map_or(0, |record| record.header.seq.get())
    }

    /// Returns what a store must know of the run, if its owner is not alive.
    pub(crate) fn run_head(&self) -> RunHead {
        let last = self.records.last().expect("the log holds records");
        RunHead::after(self.key.clone(), Seq::new(self.first()), &last.header, false, self.facts.clone())
    }

    /// Makes `count` records that follow the head, without writing them.
    pub(crate) fn next(&self, count: usize) -> RunAppend {
        self.next_with(count, |_| {})
    }

    /// Makes `count` records that follow the head, with headers changed by `shape`, without writing them.
    pub(crate) fn next_with(&self, count: usize, shape: impl Fn(&mut RecordHeader)) -> RunAppend {
        self.next_bodies((0..count).map(|_| None), shape)
    }

    /// Makes one record that holds this body, without writing it.
    pub(crate) fn next_body(&self, body: impl Into<Bytes>) -> RunAppend {
        self.next_bodies([Some(body.into())], |_| {})
    }

    fn next_bodies(
        &self,
        bodies: impl IntoIterator<Item = Option<Bytes>>,
        shape: impl Fn(&mut RecordHeader),
    ) -> RunAppend {
        let expected = self.head();
        let mut last = expected;
        let mut records = Vec::new();
        for body in bodies {
            let mut header = self.header(last);
            shape(&mut header);
            let body =
                body.unwrap_or_else(|| format!("{{\"run\":\"{}\",\"seq\":{}}}", self.key, header.seq).into());
            last = Some(header.head());
            records.push(Record::seal(header, body).expect("the suite's bodies are small"));
        }
        let facts = expected.is_none().then(|| self.facts.clone());
        RunAppend { run: self.key.clone(), expected, records, facts }
    }

    /// Makes the header of a record that follows `last`.
    fn header(&self, last: Option<HeadRef>) -> RecordHeader {
        let seq = last.map_or(Seq::new(0), |last| last.seq.next());
        let offset = i64::try_from(seq.get()).expect("the suite's logs are short");
        let at = Timestamp::from_unix_ms(BEGAN + offset);
        RecordHeader {
            format: FORMAT,
            seq,
            id: RecordId::from_uuid(self.ids.next(at)),
            prev: last.map(|last| last.id),
            kind: if last.is_none() { RecordKind::Start } else { RecordKind::Node },
            status: RunStatus::InProgress,
            node: None,
            visit: None,
            epoch: Epoch::new(1),
            owner: None,
            wake_at: None,
            at,
            base: seq.get().is_multiple_of(BASE_EVERY),
            body_len: 0,
            body_crc: 0,
        }
    }

    /// Takes an append as written.
    pub(crate) fn took(&mut self, append: &RunAppend) {
        assert_eq!(append.expected, self.head(), "the suite itself keeps logs linear");
        self.records.extend(append.records.iter().cloned());
    }

    /// Writes `count` records.
    pub(crate) async fn write(&mut self, store: &dyn CheckpointStore, count: usize) {
        self.write_with(store, count, |_| {}).await;
    }

    /// Writes `count` records with headers changed by `shape`.
    pub(crate) async fn write_with(
        &mut self,
        store: &dyn CheckpointStore,
        count: usize,
        shape: impl Fn(&mut RecordHeader),
    ) {
        let append = self.next_with(count, shape);
        appended(store, &append).await;
        self.took(&append);
    }

    /// Returns what loading the record at `seq` must give.
    pub(crate) fn loaded(&self, seq: u64) -> Vec<Record> {
        let end = usize::try_from(seq - self.first()).expect("the suite's logs are short");
        let upto = &self.records[..=end];
        let base = upto.iter().rposition(|record| record.header.base).expect("the log begins with a base");
        upto[base..].to_vec()
    }

    /// Returns the headers, the oldest first.
    pub(crate) fn headers(&self) -> Vec<RecordHeader> {
        self.records.iter().map(|record| record.header.clone()).collect()
    }

    /// Returns the record at `seq`, turned into a base with another body.
    pub(crate) fn as_base(&self, seq: u64) -> Record {
        let record = &self.records[usize::try_from(seq - self.first()).expect("the suite's logs are short")];
        let header = RecordHeader { base: true, ..record.header.clone() };
        let body = format!("{{\"base\":{seq},\"of\":\"{}\"}}", self.key);
        Record::seal(header, body.into()).expect("the suite's bodies are small")
    }

    /// Takes the log as pruned: the record at `seq` is the oldest kept, and a base.
    pub(crate) fn pruned(&mut self, seq: u64, base: Option<Record>) {
        let place = usize::try_from(seq - self.first()).expect("the suite's logs are short");
        self.records.drain(..place);
        if let Some(base) = base.filter(|_| !self.records[0].header.base) {
            self.records[0] = base;
        }
    }
}

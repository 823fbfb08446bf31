//! The expected log of a run. Tests write it to a store, and compare it with what the store returns.

use std::sync::Arc;

use bytes::Bytes;
use ferrata_store::{
    CheckpointStore, Epoch, FORMAT, Fingerprint, HeadRef, IdSource, RandomIds, Record, RecordHeader,
    RecordId, RecordKind, RunAppend, RunFacts, RunHead, RunKey, RunStatus, Seq, Timestamp, WorkflowName,
};

/// The time of each log's first record, by its writer's clock: 2020-09-13. Each further record is a millisecond later.
const BEGAN: i64 = 1_600_000_000_000;

/// The expected log of a run. It creates small records that chain correctly, and holds the records that were written.
///
/// A log is for tests of a store, and panics if the test itself is wrong.
///
/// ```
/// use ferrata_testing::Log;
/// use ferrata_store::{At, CheckpointStore, MemoryStore, RunId, RunStatus};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = MemoryStore::new();
/// let mut log = Log::new(RunId::new("r").unwrap());
/// log.write(&store, 3).await;
/// let end = log.next_with(1, |header| header.status = RunStatus::Completed);
/// store.append(vec![end.clone()]).await.remove(0).unwrap();
/// log.note_append(&end);
/// let loaded = store.load(&log.key, At::Latest).await.unwrap().unwrap();
/// assert_eq!(loaded, log.records);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Log {
    /// The key of the run.
    pub key: RunKey,
    /// The facts of the run's start.
    pub facts: RunFacts,
    /// The records that the store must have, in order.
    pub records: Vec<Record>,
    ids: Arc<dyn IdSource>,
    bases_every: u64,
}

impl Log {
    /// Creates a log without records. Its records will have random ids, and every fourth record will be a base.
    pub fn new(key: impl Into<RunKey>) -> Self {
        Self {
            key: key.into(),
            facts: facts("review", 0),
            records: Vec::new(),
            ids: Arc::new(RandomIds::new()),
            bases_every: 4,
        }
    }

    /// Sets the source of ids. Use it to get the same ids in every execution of a test.
    #[must_use]
    pub fn with_ids(mut self, ids: Arc<dyn IdSource>) -> Self {
        self.ids = ids;
        self
    }

    /// Sets the facts of the run's start.
    #[must_use]
    pub fn with_facts(mut self, facts: RunFacts) -> Self {
        self.facts = facts;
        self
    }

    /// Sets the distance from one base to the next, in records. With zero, only the first record is a base.
    #[must_use]
    pub fn with_bases_every(mut self, records: u64) -> Self {
        self.bases_every = records;
        self
    }

    /// Returns the head, which the next append must expect.
    pub fn head(&self) -> Option<HeadRef> {
        self.records.last().map(|record| record.header.head())
    }

    /// Returns the number of the oldest stored record.
    #[doc(hidden)]
    pub fn first(&self) -> u64 {
        self.records.first().map_or(0, |record| record.header.seq.get())
    }

    /// Returns the head that a store must report for the run if its owner is not alive.
    #[doc(hidden)]
    pub fn run_head(&self) -> RunHead {
        let last = self.records.last().expect("the log holds records");
        RunHead::after(self.key.clone(), Seq::new(self.first()), &last.header, false, self.facts.clone())
    }

    /// Creates `count` records after the head, without writing them.
    pub fn next(&self, count: usize) -> RunAppend {
        self.next_with(count, |_| {})
    }

    /// Creates `count` records after the head, without writing them. `shape` may change their headers.
    pub fn next_with(&self, count: usize, shape: impl Fn(&mut RecordHeader)) -> RunAppend {
        self.next_bodies((0..count).map(|_| None), shape)
    }

    /// Creates `count` records with this body. `shape` may change their headers.
    #[doc(hidden)]
    pub fn next_as(
        &self,
        count: usize,
        body: impl AsRef<[u8]>,
        shape: impl Fn(&mut RecordHeader),
    ) -> RunAppend {
        let body = Bytes::copy_from_slice(body.as_ref());
        self.next_bodies((0..count).map(|_| Some(body.clone())), shape)
    }

    /// Creates one record with this body.
    pub fn next_body(&self, body: impl Into<Bytes>) -> RunAppend {
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
            records.push(Record::seal(header, body).expect("the bodies of tests are small"));
        }
        let facts = expected.is_none().then(|| self.facts.clone());
        RunAppend { run: self.key.clone(), expected, records, facts }
    }

    /// Creates the header of a record that follows `last`.
    fn header(&self, last: Option<HeadRef>) -> RecordHeader {
        let seq = last.map_or(Seq::new(0), |last| last.seq.next());
        let offset = i64::try_from(seq.get()).expect("the logs of tests are short");
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
            base: seq.get().is_multiple_of(self.bases_every),
            body_len: 0,
            body_crc: 0,
        }
    }

    /// Adds the records of an append to the log, after the test has written them.
    #[expect(clippy::missing_panics_doc, reason = "a test whose append does not follow is at fault")]
    pub fn note_append(&mut self, append: &RunAppend) {
        assert_eq!(append.expected, self.head(), "the test itself keeps logs linear");
        self.records.extend(append.records.iter().cloned());
    }

    /// Writes `count` records to a store, and adds them to the log.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the store may have records that the log lacks.
    pub async fn write(&mut self, store: &dyn CheckpointStore, count: usize) {
        self.write_with(store, count, |_| {}).await;
    }

    /// Writes `count` records to a store, and adds them to the log. `shape` may change their headers.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the store may have records that the log lacks.
    #[expect(clippy::missing_panics_doc, reason = "the test fails if the store refuses what follows")]
    pub async fn write_with(
        &mut self,
        store: &dyn CheckpointStore,
        count: usize,
        shape: impl Fn(&mut RecordHeader),
    ) {
        let append = self.next_with(count, shape);
        let what = format!("appending to {} after {:?}", append.run, append.expected);
        let head = store.append(vec![append.clone()]).await.pop().expect("an answer to each entry");
        let head = head.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        self.note_append(&append);
        assert_eq!(Some(head), self.head(), "{what} must return the new head");
    }

    /// Returns the expected result of loading the record at `seq`.
    #[expect(
        clippy::missing_panics_doc,
        reason = "a test that asks for a record that is not kept is at fault"
    )]
    pub fn loaded(&self, seq: u64) -> Vec<Record> {
        let upto = &self.records[..=self.place(seq)];
        let base = upto.iter().rposition(|record| record.header.base).expect("the log begins with a base");
        upto[base..].to_vec()
    }

    /// Returns the headers, oldest first.
    #[doc(hidden)]
    pub fn headers(&self) -> Vec<RecordHeader> {
        self.records.iter().map(|record| record.header.clone()).collect()
    }

    /// Returns the record at `seq` as a base, with another body.
    #[doc(hidden)]
    pub fn as_base(&self, seq: u64) -> Record {
        let header = RecordHeader { base: true, ..self.records[self.place(seq)].header.clone() };
        let body = format!("{{\"base\":{seq},\"of\":\"{}\"}}", self.key);
        Record::seal(header, body.into()).expect("the bodies of tests are small")
    }

    /// Removes the records before `seq` from the log, after the test has pruned them. If the record at `seq` is no base, `base` replaces it.
    #[doc(hidden)]
    pub fn note_pruned(&mut self, seq: u64, base: Option<Record>) {
        self.records.drain(..self.place(seq));
        if let Some(base) = base.filter(|_| !self.records[0].header.base) {
            self.records[0] = base;
        }
    }

    fn place(&self, seq: u64) -> usize {
        usize::try_from(seq - self.first()).expect("the logs of tests are short")
    }
}

/// Creates the facts of a run of `workflow` that was created at this time.
#[expect(clippy::missing_panics_doc, reason = "a test that names no valid workflow is at fault")]
pub fn facts(workflow: &str, created_ms: i64) -> RunFacts {
    let workflow = WorkflowName::new(workflow).expect("the workflows of tests are valid");
    let (graph, input) = (Fingerprint::of(b"graph"), Fingerprint::of(b"input"));
    RunFacts::new(workflow, "1", graph, input, Timestamp::from_unix_ms(created_ms))
        .expect("the versions of tests are valid")
}

//! A writer of logs for tests, and the checks that a log is there.

use std::sync::Arc;

use ferrata_store::testing::SeqIds;
use ferrata_store::{
    At, CheckpointStore, FORMAT, HeaderRange, Page, Record, RecordHeader, RecordKind, RunAppend, RunFacts,
    RunHead, RunQuery, RunStatus,
};
use ferrata_store::{
    Epoch, Error, Fingerprint, HeadRef, IdSource, RecordId, Result, RunId, RunKey, Seq, Timestamp,
    WorkflowName,
};
use ferrata_store_s3::S3Store;

/// A log as it ought to be.
#[derive(Clone)]
pub(crate) struct Author {
    pub(crate) key: RunKey,
    pub(crate) facts: RunFacts,
    pub(crate) records: Vec<Record>,
    ids: Arc<SeqIds>,
}

impl Author {
    pub(crate) fn new(run: &str, seed: u64) -> Self {
        let hash = Fingerprint::of(b"x");
        let created = Timestamp::from_unix_ms(1_700_000_000_000);
        let facts = RunFacts::new(WorkflowName::new("w").unwrap(), "1", hash, hash, created).unwrap();
        let key = RunKey::from(RunId::new(run).unwrap());
        Self { key, facts, records: Vec::new(), ids: Arc::new(SeqIds::new(seed)) }
    }

    pub(crate) fn head(&self) -> Option<HeadRef> {
        self.records.last().map(|record| record.header.head())
    }

    /// Makes an append of this many records; every fourth is a base.
    pub(crate) fn next(&self, count: usize) -> RunAppend {
        self.next_in(count, RunStatus::InProgress)
    }

    pub(crate) fn next_in(&self, count: usize, status: RunStatus) -> RunAppend {
        let expected = self.head();
        let mut records = Vec::new();
        let mut last = expected;
        for _ in 0..count {
            let seq = last.map_or(Seq::new(0), |last| last.seq.next());
            let at = Timestamp::from_unix_ms(1_700_000_000_000);
            let header = RecordHeader {
                format: FORMAT,
                seq,
                id: RecordId::from_uuid(self.ids.next(at)),
                prev: last.map(|last| last.id),
                kind: if last.is_none() { RecordKind::Start } else { RecordKind::Node },
                status,
                node: None,
                visit: None,
                epoch: Epoch::new(1),
                owner: None,
                wake_at: None,
                at,
                base: seq.get().is_multiple_of(4),
                body_len: 0,
                body_crc: 0,
            };
            last = Some(header.head());
            records.push(Record::seal(header, format!("body {seq} of {}", self.key).into()).unwrap());
        }
        let facts = expected.is_none().then(|| self.facts.clone());
        RunAppend { run: self.key.clone(), expected, records, facts }
    }

    pub(crate) fn took(&mut self, append: &RunAppend) {
        self.records.extend(append.records.iter().cloned());
    }

    pub(crate) async fn write(&mut self, store: &S3Store, count: usize) {
        let append = self.next(count);
        append_to(store, &append).await.unwrap();
        self.took(&append);
    }

    /// Makes a log of appends of these lengths.
    pub(crate) async fn written(store: &S3Store, run: &str, counts: &[usize]) -> Self {
        let mut author = Self::new(run, 1);
        for count in counts {
            author.write(store, *count).await;
        }
        author
    }

    pub(crate) fn run_head(&self) -> RunHead {
        let (first, last) = (&self.records[0].header, &self.records[self.records.len() - 1].header);
        RunHead::after(self.key.clone(), first.seq, last, false, self.facts.clone())
    }

    /// Returns the record with this number as a base.
    pub(crate) fn as_base(&self, seq: u64) -> Record {
        let record = self.records.iter().find(|record| record.header.seq.get() == seq).unwrap();
        let header = RecordHeader { base: true, ..record.header.clone() };
        Record::seal(header, format!("base {seq}").into()).unwrap()
    }

    pub(crate) fn pruned(&mut self, seq: u64, base: Option<Record>) {
        self.records.retain(|record| record.header.seq.get() >= seq);
        if let Some(base) = base {
            self.records[0] = base;
        }
    }

    /// Checks that exactly this log is there, however it is asked for.
    pub(crate) async fn is_kept(&self, store: &S3Store, what: &str) {
        let run = &self.key;
        let head = store.head(run).await.unwrap_or_else(|e| panic!("{what}: the head: {e:?}"));
        let listed = every_run(store).await;
        if self.records.is_empty() {
            assert_eq!(head, None, "{what}: there is no such run");
            assert!(listed.iter().all(|head| head.run != *run), "{what}: it is not listed");
            return;
        }
        assert_eq!(head, Some(self.run_head()), "{what}: the head");
        let listed: Vec<_> = listed.into_iter().filter(|head| head.run == *run).collect();
        assert_eq!(listed, [self.run_head()], "{what}: listed once, as it is");
        let range = HeaderRange::oldest(1_000);
        let history =
            store.headers(run, range).await.unwrap_or_else(|e| panic!("{what}: the history: {e:?}")).items;
        let headers: Vec<_> = self.records.iter().map(|record| record.header.clone()).collect();
        assert_eq!(history, headers, "{what}: the history");
        for (place, record) in self.records.iter().enumerate() {
            let base = self.records[..=place].iter().rposition(|record| record.header.base).unwrap();
            let loaded = store.load(run, At::Seq(record.header.seq)).await;
            let loaded = loaded.unwrap_or_else(|e| panic!("{what}: loading {}: {e:?}", record.header.seq));
            assert_eq!(loaded.unwrap(), self.records[base..=place], "{what}: loaded at {place}");
        }
    }
}

pub(crate) async fn append_to(store: &S3Store, append: &RunAppend) -> Result<HeadRef, Error> {
    store.append(vec![append.clone()]).await.remove(0)
}

pub(crate) async fn every_run(store: &S3Store) -> Vec<RunHead> {
    let (mut all, mut page) = (Vec::new(), Page::first(1_000));
    loop {
        let listed = store.runs(&RunQuery::default(), page.clone()).await.unwrap();
        all.extend(listed.items);
        match listed.next {
            Some(next) => page = page.with_cursor(next),
            None => return all,
        }
    }
}

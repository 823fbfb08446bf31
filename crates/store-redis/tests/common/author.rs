//! Somebody who writes to one run and remembers all of it: records that say little, but chain as they must.

use ferrata_store::testing::every_header;
use std::sync::LazyLock;

use ferrata_store::{
    At, CheckpointStore, Clock, Epoch, ErrorKind, FORMAT, Fingerprint, HeadRef, IdSource, Page, RandomIds,
    Record, RecordHeader, RecordId, RecordKind, Result, RunAppend, RunFacts, RunId, RunKey, RunQuery,
    RunStatus, Seq, SystemClock, Timestamp, WorkflowName,
};
use std::time::Duration;

static IDS: LazyLock<RandomIds> = LazyLock::new(RandomIds::new);

pub fn fresh_id() -> RecordId {
    RecordId::from_uuid(IDS.next(Timestamp::from_unix_ms(1_763_700_000_000)))
}

pub fn facts() -> RunFacts {
    let print = Fingerprint::of(b"graph");
    let workflow = WorkflowName::new("review").unwrap();
    RunFacts::new(workflow, "1", print, print, Timestamp::from_unix_ms(1_763_700_000_000)).unwrap()
}

#[derive(Clone, Debug)]
pub struct Author {
    pub run: RunKey,
    pub facts: RunFacts,
    /// What was acknowledged.
    pub log: Vec<Record>,
}

impl Author {
    pub fn new(name: &str) -> Self {
        Self { run: RunId::new(name).unwrap().into(), facts: facts(), log: Vec::new() }
    }

    pub fn head(&self) -> Option<HeadRef> {
        self.log.last().map(|record| record.header.head())
    }

    /// The next append, of `count` records that this shapes.
    pub fn next_with(&self, count: usize, body: &[u8], shape: impl Fn(&mut RecordHeader)) -> RunAppend {
        let mut head = self.head();
        let mut records = Vec::new();
        for _ in 0..count {
            let seq = head.map_or(Seq::new(0), |head| head.seq.next());
            let mut header = RecordHeader {
                format: FORMAT,
                seq,
                id: fresh_id(),
                prev: head.map(|head| head.id),
                kind: if seq.get() == 0 { RecordKind::Start } else { RecordKind::Node },
                status: RunStatus::InProgress,
                node: None,
                visit: None,
                epoch: Epoch::new(1),
                owner: None,
                wake_at: None,
                at: Timestamp::from_unix_ms(1_763_700_000_001),
                base: seq.get() == 0,
                body_len: 0,
                body_crc: 0,
            };
            shape(&mut header);
            let record = Record::seal(header, body.to_vec().into()).unwrap();
            head = Some(record.header.head());
            records.push(record);
        }
        let facts = self.log.is_empty().then(|| self.facts.clone());
        RunAppend { run: self.run.clone(), expected: self.head(), records, facts }
    }

    pub fn next(&self, count: usize) -> RunAppend {
        self.next_with(count, b"{\"k\":1}", |_| {})
    }

    /// What stands in a request of this append, and in no other.
    pub fn mark(append: &RunAppend) -> Vec<u8> {
        append.records[0].header.id.as_uuid().as_bytes().to_vec()
    }

    pub fn took(&mut self, append: RunAppend) {
        self.log.extend(append.records);
    }

    pub async fn write(&mut self, store: &dyn CheckpointStore, count: usize) {
        self.write_with(store, count, |_| {}).await;
    }

    pub async fn write_with(
        &mut self,
        store: &dyn CheckpointStore,
        count: usize,
        shape: impl Fn(&mut RecordHeader),
    ) {
        let append = self.next_with(count, b"{\"k\":1}", shape);
        append_one(store, &append).await.unwrap();
        self.took(append);
    }

    /// Checks that exactly what was acknowledged is stored, and that the run is listed, where it stands and nowhere else.
    pub async fn is_kept(&self, store: &dyn CheckpointStore) {
        let head = store.head(&self.run).await.unwrap();
        assert_eq!(head.as_ref().map(ferrata_store::RunHead::head), self.head(), "the head of {}", self.run);
        let loaded = store.load(&self.run, At::Latest).await.unwrap().unwrap_or_default();
        assert_eq!(loaded.last(), self.log.last(), "the last record of {}", self.run);
        if let Some(head) = head {
            let headers = every_header(store, &self.run).await.unwrap();
            let expected: Vec<_> = self.log.iter().map(|record| record.header.clone()).collect();
            assert_eq!(
                headers,
                expected[usize::try_from(head.first.get()).unwrap()..],
                "the history of {}",
                self.run
            );
            let mut of_status = RunQuery::default();
            of_status.statuses = vec![head.status];
            for query in [RunQuery::default(), of_status] {
                let listed = store.runs(&query, Page::first(1_000)).await.unwrap().items;
                let found: Vec<_> = listed.iter().filter(|listed| listed.run == self.run).collect();
                assert_eq!(found, [&head], "{} in the listing {query:?}", self.run);
            }
        }
    }
}

pub async fn append_one(store: &dyn CheckpointStore, append: &RunAppend) -> Result<HeadRef> {
    store.append(vec![append.clone()]).await.pop().unwrap()
}

/// Appends as the committer does: the same records again while the error says that this may help.
pub async fn append_surely(store: &dyn CheckpointStore, append: &RunAppend) -> Result<HeadRef> {
    let patience = Patience::new();
    loop {
        match append_one(store, append).await {
            Err(error) if error.is_retryable() => patience.pause(&error).await,
            result => return result,
        }
    }
}

/// How long a test waits for what must come, in small steps.
struct Patience(SystemClock, Duration);

impl Patience {
    fn new() -> Self {
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + Duration::from_secs(60);
        Self(clock, deadline)
    }

    async fn pause(&self, still: &(impl std::fmt::Debug + Sync)) {
        assert!(self.0.monotonic() < self.1, "still {still:?}");
        self.0.sleep(Duration::from_millis(10)).await;
    }
}

/// Calls until the answer is no error that a retry may mend.
pub async fn surely<T>(call: impl AsyncFn() -> Result<T>) -> Result<T> {
    let patience = Patience::new();
    loop {
        match call().await {
            Err(error) if error.is_retryable() => patience.pause(&error).await,
            result => return result,
        }
    }
}

/// Looks until it is so.
pub async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let patience = Patience::new();
    while !is_so().await {
        patience.pause(&format!("waiting for {what}")).await;
    }
}

#[track_caller]
pub fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("an error").kind()
}

/// Lets a task of the test run beside it.
pub fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::runtime::Handle::current().spawn(task)
}

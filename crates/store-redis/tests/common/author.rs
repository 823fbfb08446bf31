//! Writes logs, and checks that they are stored.

use ferrata_testing::{Log, every_header};
use std::time::Duration;

use ferrata_store::{
    At, CheckpointStore, Clock, ErrorKind, HeadRef, IdSource, Page, RandomIds, RecordId, Result, RunAppend,
    RunId, RunQuery, SystemClock, Timestamp,
};

pub fn fresh_id() -> RecordId {
    RecordId::from_uuid(RandomIds::new().next(Timestamp::from_unix_ms(1_763_700_000_000)))
}

/// Starts a log whose only base is its first record.
pub fn log_of(name: &str) -> Log {
    Log::new(RunId::new(name).unwrap()).with_bases_every(0)
}

/// Bytes that occur only in the request of this append.
pub fn mark(append: &RunAppend) -> Vec<u8> {
    append.records[0].header.id.as_uuid().as_bytes().to_vec()
}

/// Checks that exactly the acknowledged records are stored, and that listings show the run with its current status only.
pub async fn is_kept(log: &Log, store: &dyn CheckpointStore) {
    let head = store.head(&log.key).await.unwrap();
    assert_eq!(head.as_ref().map(ferrata_store::RunHead::head), log.head(), "the head of {}", log.key);
    let loaded = store.load(&log.key, At::Latest).await.unwrap().unwrap_or_default();
    assert_eq!(loaded.last(), log.records.last(), "the last record of {}", log.key);
    if let Some(head) = head {
        let headers = every_header(store, &log.key).await.unwrap();
        let expected = log.headers();
        assert_eq!(
            headers,
            expected[usize::try_from(head.first.get()).unwrap()..],
            "the history of {}",
            log.key
        );
        let mut of_status = RunQuery::default();
        of_status.statuses = vec![head.status];
        for query in [RunQuery::default(), of_status] {
            let listed = store.runs(&query, Page::first(1_000)).await.unwrap().items;
            let found: Vec<_> = listed.iter().filter(|listed| listed.run == log.key).collect();
            assert_eq!(found, [&head], "{} in the listing {query:?}", log.key);
        }
    }
}

pub async fn append_one(store: &dyn CheckpointStore, append: &RunAppend) -> Result<HeadRef> {
    store.append(vec![append.clone()]).await.pop().unwrap()
}

/// Appends like the committer: repeats the same records while the error is retryable.
pub async fn append_surely(store: &dyn CheckpointStore, append: &RunAppend) -> Result<HeadRef> {
    let patience = Patience::new();
    loop {
        match append_one(store, append).await {
            Err(error) if error.is_retryable() => patience.pause(&error).await,
            result => return result,
        }
    }
}

/// The time limit of a test's wait, with small steps.
struct Patience(SystemClock, Duration);

impl Patience {
    fn new() -> Self {
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + Duration::from_secs(300);
        Self(clock, deadline)
    }

    async fn pause(&self, still: &(impl std::fmt::Debug + Sync)) {
        assert!(self.0.monotonic() < self.1, "still {still:?}");
        self.0.sleep(Duration::from_millis(10)).await;
    }
}

/// Calls until the error is not retryable.
pub async fn surely<T>(call: impl AsyncFn() -> Result<T>) -> Result<T> {
    let patience = Patience::new();
    loop {
        match call().await {
            Err(error) if error.is_retryable() => patience.pause(&error).await,
            result => return result,
        }
    }
}

/// Polls until the condition holds.
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

/// Runs a task of the test concurrently.
pub fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::runtime::Handle::current().spawn(task)
}

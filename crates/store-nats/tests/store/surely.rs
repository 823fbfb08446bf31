//! Calls with the runtime's retries, and a check of the stored log.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::time::Duration;

use ferrata_store::{
    At, CheckpointStore, Clock, Error, ErrorKind, HeadRef, Page, Record, Result, RunAppend, RunHead, RunId,
    RunKey, RunQuery, SystemClock,
};
use ferrata_store_nats::NatsStore;
use ferrata_testing::{Log, every_header};

/// Maximum time on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Starts a log whose only base is its first record.
pub(crate) fn log_of(name: &str) -> Log {
    Log::new(RunId::new(name).unwrap()).with_bases_every(0)
}

pub(crate) async fn append_one(store: &NatsStore, append: &RunAppend) -> Result<HeadRef> {
    store.append(vec![append.clone()]).await.pop().unwrap()
}

/// Calls until the error is not retryable.
pub(crate) async fn surely<T>(call: impl AsyncFn() -> Result<T>) -> Result<T> {
    let patience = Patience::new();
    loop {
        match call().await {
            Err(error) if error.is_retryable() => patience.pause(&error).await,
            result => return result,
        }
    }
}

/// Appends until the outcome is known.
pub(crate) async fn append_surely(store: &NatsStore, append: &RunAppend) -> Result<HeadRef> {
    let patience = Patience::new();
    loop {
        match append_one(store, append).await {
            Err(error) if error.is_retryable() => patience.pause(&error).await,
            result => return result,
        }
    }
}

/// Loads until there is an answer.
pub(crate) async fn load_surely(store: &NatsStore, run: &RunKey) -> Vec<Record> {
    let patience = Patience::new();
    loop {
        match store.load(run, At::Latest).await {
            Err(error) if error.is_retryable() => patience.pause(&error).await,
            result => return result.unwrap().unwrap_or_default(),
        }
    }
}

/// Waits in small steps, up to a time limit.
struct Patience(SystemClock, Duration);

impl Patience {
    fn new() -> Self {
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + PATIENCE;
        Self(clock, deadline)
    }

    async fn pause(&self, still: &Error) {
        assert!(self.0.monotonic() < self.1, "still {still:?}");
        self.0.sleep(Duration::from_millis(10)).await;
    }
}

/// Checks that exactly these records are stored, and that the run is listed with its current status.
pub(crate) async fn is_kept(log: &Log, store: &NatsStore) {
    let head = surely(async || store.head(&log.key).await).await.unwrap();
    assert_eq!(head.as_ref().map(RunHead::head), log.head(), "the head of {}", log.key);
    let loaded = surely(async || store.load(&log.key, At::Latest).await).await.unwrap().unwrap_or_default();
    assert_eq!(loaded.last(), log.records.last(), "the last record of {}", log.key);
    let listed = surely(async || store.runs(&RunQuery::default(), Page::first(1_000)).await).await.unwrap();
    let found: Vec<_> = listed.items.into_iter().filter(|listed| listed.run == log.key).collect();
    assert_eq!(found, head.clone().into_iter().collect::<Vec<_>>(), "{} in the listing", log.key);
    if let Some(head) = head {
        let headers = surely(async || every_header(store, &log.key).await).await.unwrap();
        let first = usize::try_from(head.first.get()).unwrap();
        assert_eq!(headers, log.headers()[first..], "the history of {}", log.key);
    }
}

#[track_caller]
pub(crate) fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("an error").kind()
}

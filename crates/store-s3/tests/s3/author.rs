//! Writes logs, and checks that they are stored.

use std::sync::Arc;

use ferrata_store::{
    At, CheckpointStore, Error, HeadRef, HeaderRange, Page, Result, RunAppend, RunHead, RunId, RunQuery,
    RunStatus,
};
use ferrata_store_s3::S3Store;
use ferrata_testing::{Log, SeqIds};

/// Starts a log whose ids count up from this seed.
pub(crate) fn log_of(run: &str, seed: u64) -> Log {
    Log::new(RunId::new(run).unwrap()).with_ids(Arc::new(SeqIds::new(seed)))
}

/// Writes a log with appends of these lengths.
pub(crate) async fn written(store: &S3Store, run: &str, counts: &[usize]) -> Log {
    let mut log = log_of(run, 1);
    for count in counts {
        log.write(store, *count).await;
    }
    log
}

/// Creates records that end with this status.
pub(crate) fn next_in(log: &Log, count: usize, status: RunStatus) -> RunAppend {
    log.next_with(count, |header| header.status = status)
}

/// Checks that every kind of read returns exactly this log.
pub(crate) async fn is_kept(log: &Log, store: &S3Store, what: &str) {
    let run = &log.key;
    let head = store.head(run).await.unwrap_or_else(|e| panic!("{what}: the head: {e:?}"));
    let listed = every_run(store).await;
    if log.records.is_empty() {
        assert_eq!(head, None, "{what}: the run does not exist");
        assert!(listed.iter().all(|head| head.run != *run), "{what}: it is not listed");
        return;
    }
    assert_eq!(head, Some(log.run_head()), "{what}: the head");
    let listed: Vec<_> = listed.into_iter().filter(|head| head.run == *run).collect();
    assert_eq!(listed, [log.run_head()], "{what}: listed once, with its current state");
    let range = HeaderRange::oldest(1_000);
    let history =
        store.headers(run, range).await.unwrap_or_else(|e| panic!("{what}: the history: {e:?}")).items;
    assert_eq!(history, log.headers(), "{what}: the history");
    for (place, record) in log.records.iter().enumerate() {
        let loaded = store.load(run, At::Seq(record.header.seq)).await;
        let loaded = loaded.unwrap_or_else(|e| panic!("{what}: loading {}: {e:?}", record.header.seq));
        assert_eq!(loaded.unwrap(), log.loaded(record.header.seq.get()), "{what}: loaded at {place}");
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

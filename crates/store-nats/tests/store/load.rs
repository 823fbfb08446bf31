//! Writes during server failures: six writers with separate runs, and two writers on one run.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ferrata_store::{CheckpointStore, Clock, ErrorKind, RecordId, SystemClock};
use ferrata_store_nats::NatsStore;
use ferrata_testing::{Log, every_header};

use crate::surely::{PATIENCE, append_surely, is_kept, load_surely, log_of, surely};

/// Appends to a run, and returns the acknowledged records in order.
pub(crate) async fn write(
    store: NatsStore,
    mut log: Log,
    is_over: Arc<AtomicBool>,
    written: Arc<AtomicUsize>,
) -> Log {
    while !is_over.load(Ordering::Relaxed) {
        let append = log.next(1 + log.records.len() % 2);
        append_surely(&store, &append).await.unwrap();
        log.note_append(&append);
        written.fetch_add(1, Ordering::Relaxed);
    }
    log
}

/// Writes to a run that other writers use, too. Returns the acknowledged records.
async fn contend(
    store: NatsStore,
    name: &'static str,
    is_over: Arc<AtomicBool>,
    written: Arc<AtomicUsize>,
) -> Vec<RecordId> {
    let mut acknowledged = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let mut log = log_of(name);
        log.records = load_surely(&store, &log.key).await;
        let append = log.next(1);
        match append_surely(&store, &append).await {
            Ok(head) => {
                acknowledged.push(head.id);
                written.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}"),
        }
    }
    acknowledged
}

/// Waits until `more` further records are acknowledged.
pub(crate) async fn until_written(written: &AtomicUsize, more: usize) {
    let (clock, before) = (SystemClock::new(), written.load(Ordering::Relaxed));
    let deadline = clock.monotonic() + PATIENCE;
    while written.load(Ordering::Relaxed) < before + more {
        assert!(clock.monotonic() < deadline, "the writers do not make progress");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

/// Six writers use separate runs, and two writers share one, until `fell` has finished with the servers. All acknowledged records exist once.
pub(crate) async fn is_kept_under_load(open: impl Fn() -> NatsStore, fell: impl AsyncFnOnce(&AtomicUsize)) {
    surely(async || open().setup().await).await.unwrap();
    let (is_over, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let runtime = tokio::runtime::Handle::current();
    let writers: Vec<_> = (0..6)
        .map(|n| {
            let log = log_of(&format!("r-{n}"));
            runtime.spawn(write(open(), log, Arc::clone(&is_over), Arc::clone(&written)))
        })
        .collect();
    let contested = Arc::new(AtomicUsize::new(0));
    let contenders: Vec<_> = (0..2)
        .map(|_| {
            let contested = Arc::clone(&contested);
            runtime.spawn(contend(open(), "shared", Arc::clone(&is_over), contested))
        })
        .collect();
    fell(&written).await;
    // Wait for enough contested records.
    until_written(&contested, 8_usize.saturating_sub(contested.load(Ordering::Relaxed))).await;
    is_over.store(true, Ordering::Relaxed);
    let store = open();
    for writer in writers {
        let log = writer.await.unwrap();
        is_kept(&log, &store).await;
    }
    let mut acknowledged = Vec::new();
    for contender in contenders {
        acknowledged.extend(contender.await.unwrap());
    }
    let shared = log_of("shared");
    let headers = surely(async || every_header(&store, &shared.key).await).await.unwrap();
    for (before, after) in headers.iter().zip(&headers[1..]) {
        assert_eq!(after.prev, Some(before.id), "the log must have a single history");
    }
    for id in &acknowledged {
        let found = headers.iter().filter(|header| header.id == *id).count();
        assert_eq!(found, 1, "{id} was acknowledged and is in the log {found} times");
    }
}

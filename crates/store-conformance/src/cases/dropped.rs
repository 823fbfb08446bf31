//! Calls that are dropped before they finish. They are executed completely or not at all, and calling again gives the outcome.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use ferrata_store::{PruneCut, Seq};

use crate::stage::{Log, TestStage, appended, is_kept, is_kept_at_head, ok};

/// Polls a call this many times, lets other tasks run in between, and drops the call.
pub(crate) async fn drop_after<T>(polls: usize, call: impl Future<Output = T>) {
    let mut call = pin!(call);
    for _ in 0..polls {
        let is_ready = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
        if is_ready {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// The maximum number of polls before a call is dropped. A store that needs more polls waits for the same event repeatedly.
const POLLS: usize = 12;

/// A dropped append is stored completely or not at all. Appending the same records again gives the outcome.
pub(crate) async fn a_dropped_append_is_done_or_not_done(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 1).await;
    for polls in 0..POLLS {
        let append = log.next(3);
        drop_after(polls, store.append(vec![append.clone()])).await;
        let head = ok(store.head(&log.key).await, "reading the head").map(|head| head.head());
        let ends = [log.head(), append.records.last().map(|record| record.header.head())];
        assert!(ends.contains(&head), "a dropped append is there whole or not at all: {head:?}");
        appended(&*store, &append).await;
        log.note_append(&append);
        is_kept_at_head(&*store, &log).await;
    }
    is_kept(&*store, &log).await;
}

/// A dropped start, or a dropped batch, is stored completely or not at all. Sending the same records again gives the outcome.
pub(crate) async fn a_dropped_start_is_done_or_not_done(stage: TestStage) {
    let store = stage.store();
    for polls in 0..POLLS {
        let mut logs: Vec<Log> = (0..3).map(|n| stage.log(&format!("r-{polls}-{n}"))).collect();
        let batch: Vec<_> = logs.iter().map(|log| log.next(2)).collect();
        drop_after(polls, store.append(batch.clone())).await;
        for (log, entry) in logs.iter().zip(&batch) {
            let head = ok(store.head(&log.key).await, "reading the head").map(|head| head.head());
            let ends = [None, entry.records.last().map(|record| record.header.head())];
            assert!(ends.contains(&head), "a dropped start is there whole or not at all: {head:?}");
        }
        for result in store.append(batch.clone()).await {
            ok(result, "the same start again");
        }
        for (log, entry) in logs.iter_mut().zip(&batch) {
            log.note_append(entry);
            is_kept(&*store, log).await;
        }
    }
}

/// After a dropped prune, the caller can prune again. The log is then the same as after a single prune.
pub(crate) async fn a_dropped_prune_can_be_called_again(stage: TestStage) {
    let store = stage.store();
    for polls in 0..POLLS {
        let mut log = stage.written(&format!("r-{polls}"), 11).await;
        let (at, base) = if polls % 2 == 0 { (8, None) } else { (6, Some(log.as_base(6))) };
        let cut = PruneCut { at: Seq::new(at), base: base.clone() };
        drop_after(polls, store.prune(&log.key, cut.clone())).await;
        ok(store.prune(&log.key, cut).await, "pruning again");
        log.note_pruned(at, base);
        is_kept(&*store, &log).await;
        log.write(&*store, 1).await;
        is_kept(&*store, &log).await;
    }
}

/// After a dropped purge, the caller can purge again, and then reuse the id.
pub(crate) async fn a_dropped_purge_can_be_called_again(stage: TestStage) {
    let store = stage.store();
    for polls in 0..POLLS {
        let run = format!("r-{polls}");
        let mut log = stage.written(&run, 11).await;
        drop_after(polls, store.purge(&log.key, None)).await;
        ok(store.purge(&log.key, None).await, "purging again");
        log.records.clear();
        is_kept_at_head(&*store, &log).await;
        log.write(&*store, 2).await;
        is_kept(&*store, &log).await;
    }
}

/// If a purge with an expected head is dropped and executes later, it removes nothing of a new run with the same id.
pub(crate) async fn a_dropped_purge_that_expects_a_head_spares_the_next_generation(stage: TestStage) {
    let store = stage.store();
    for polls in 0..POLLS {
        let mut log = stage.written(&format!("r-{polls}"), 11).await;
        let expected = log.head();
        drop_after(polls, store.purge(&log.key, expected)).await;
        ok(store.purge(&log.key, expected).await, "purging again");
        log.records.clear();
        is_kept_at_head(&*store, &log).await;
        for _ in 0..2 {
            log.write(&*store, 2).await;
            for _ in 0..POLLS {
                tokio::task::yield_now().await;
            }
            is_kept(&*store, &log).await;
        }
    }
}

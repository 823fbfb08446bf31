//! Lost replies: appending the same records again is `Ok`, and they are stored once. Any other append is refused.

use ferrata_store::{ErrorKind, PruneCut, Record, RunAppend, RunStatus, Seq};

use super::conflict::is_a_conflict;
use crate::stage::{TestStage, append_one, appended, expect_refusal, is_kept, ok, together};

/// If the log already ends with an append, a repeat is `Ok` and stores nothing.
///
/// Guarantees: DURABLE-8.
pub(crate) async fn a_repeated_append_is_ok_and_written_once(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 2).await;
    for count in [1, 3, 6] {
        let append = log.next(count);
        appended(&*store, &append).await;
        log.note_append(&append);
        for _ in 0..3 {
            appended(&*store, &append).await;
            is_kept(&*store, &log).await;
        }
    }
    log.write(&*store, 1).await;
    is_kept(&*store, &log).await;
}

/// If the first append of a run is repeated, the repeat is `Ok` and stores nothing.
pub(crate) async fn a_repeated_start_is_ok_and_written_once(stage: TestStage) {
    let store = stage.store();
    for (run, count) in [("r-1", 1), ("r-2", 4)] {
        let mut log = stage.log(run);
        let append = log.next(count);
        appended(&*store, &append).await;
        log.note_append(&append);
        for _ in 0..2 {
            appended(&*store, &append).await;
            is_kept(&*store, &log).await;
        }
    }
}

/// An append that repeats only the last records of an earlier append is `Ok`, too.
pub(crate) async fn the_end_of_the_log_is_ok_however_it_is_cut(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 2).await;
    let append = log.next(4);
    appended(&*store, &append).await;
    let before = log.clone();
    log.note_append(&append);
    for skipped in 1..4 {
        let mut part = before.clone();
        part.records.extend(append.records[..skipped].iter().cloned());
        let rest = RunAppend {
            expected: part.head(),
            records: append.records[skipped..].to_vec(),
            ..append.clone()
        };
        appended(&*store, &rest).await;
        is_kept(&*store, &log).await;
    }
}

/// After another writer has appended, the repeated records are not the end of the log any more, so the append is a conflict.
pub(crate) async fn a_repeat_after_a_later_append_is_a_conflict(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.log("r-1");
    for count in [2, 3] {
        let append = log.next(count);
        appended(&*store, &append).await;
        log.note_append(&append);
        log.write(&*store, 1).await;
        is_a_conflict(&*store, &append, log.head(), "a repeat after a later append").await;
        is_kept(&*store, &log).await;
    }
}

/// An id belongs to one record. An append with the same id and another body is refused.
pub(crate) async fn a_repeat_with_another_body_is_refused(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 1).await;
    let append = log.next(3);
    appended(&*store, &append).await;
    log.note_append(&append);
    for place in 0..3 {
        let mut changed = append.clone();
        let record = &mut changed.records[place];
        let mut body = record.body.to_vec();
        body[0] ^= 1;
        *record = Record::seal(record.header.clone(), body.into()).expect("the body is small");
        let kinds = [ErrorKind::Conflict, ErrorKind::AlreadyExists];
        expect_refusal(append_one(&*store, &changed).await, &kinds, "a repeat with another body");
        is_kept(&*store, &log).await;
    }
}

/// An append with the same id and another header is refused, too.
pub(crate) async fn a_repeat_with_another_header_is_refused(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 1).await;
    let append = log.next(2);
    appended(&*store, &append).await;
    log.note_append(&append);
    for place in 0..2 {
        let mut changed = append.clone();
        changed.records[place].header.status = RunStatus::Completed;
        let kinds = [ErrorKind::Conflict, ErrorKind::AlreadyExists];
        expect_refusal(append_one(&*store, &changed).await, &kinds, "a repeat with another status");
        is_kept(&*store, &log).await;
    }
}

/// A repeat with an additional record is another append, and does not expect the actual head.
pub(crate) async fn a_repeat_that_adds_a_record_is_a_conflict(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 1).await;
    let append = log.next(2);
    appended(&*store, &append).await;
    log.note_append(&append);
    let mut longer = append.clone();
    longer.records.extend(log.next(1).records);
    is_a_conflict(&*store, &longer, log.head(), "a repeat that adds a record").await;
    is_kept(&*store, &log).await;
}

/// A prune between the lost reply and the retry does not change the result of the retry.
pub(crate) async fn a_repeat_after_pruning_is_ok(stage: TestStage) {
    let store = stage.store();
    // The cut is in the middle of the append, at a record that was already a base.
    let mut log = stage.written("r-1", 2).await;
    let append = log.next(4);
    appended(&*store, &append).await;
    log.note_append(&append);
    ok(store.prune(&log.key, PruneCut { at: Seq::new(4), base: None }).await, "pruning at a base");
    log.note_pruned(4, None);
    appended(&*store, &append).await;
    is_kept(&*store, &log).await;

    // The head itself became a base.
    let mut log = stage.written("r-2", 1).await;
    let append = log.next(2);
    appended(&*store, &append).await;
    log.note_append(&append);
    let base = log.as_base(2);
    ok(
        store.prune(&log.key, PruneCut { at: Seq::new(2), base: Some(base.clone()) }).await,
        "pruning at the head",
    );
    log.note_pruned(2, Some(base));
    appended(&*store, &append).await;
    is_kept(&*store, &log).await;
}

/// A caller can repeat a batch whose reply was lost. The store confirms the stored entries and writes the others.
pub(crate) async fn a_repeated_batch_settles_each_entry(stage: TestStage) {
    let store = stage.store();
    let mut logs = [stage.written("r-1", 1).await, stage.log("r-2"), stage.written("r-3", 2).await];
    let batch: Vec<_> = logs.iter().map(|log| log.next(2)).collect();
    for entry in &batch[..2] {
        appended(&*store, entry).await;
    }
    for _ in 0..2 {
        let results = store.append(batch.clone()).await;
        assert_eq!(results.len(), 3, "one result for each entry: {results:?}");
        for (result, entry) in results.into_iter().zip(&batch) {
            let head = ok(result, "an entry of a repeated batch");
            assert_eq!(Some(head), entry.records.last().map(|record| record.header.head()));
        }
    }
    for (log, entry) in logs.iter_mut().zip(&batch) {
        log.note_append(entry);
        is_kept(&*store, log).await;
    }
}

/// A retry may come from another instance.
pub(crate) async fn a_repeat_from_another_instance_is_ok(stage: TestStage) {
    let (store, other) = (stage.store(), stage.another().await);
    let mut log = stage.log("r-1");
    for count in [1, 3] {
        let append = log.next(count);
        appended(&*store, &append).await;
        log.note_append(&append);
        appended(&*other, &append).await;
        is_kept(&*store, &log).await;
        is_kept(&*other, &log).await;
    }
}

/// If several instances send the same records at the same time, the store writes them once and returns `Ok` to all.
pub(crate) async fn repeats_at_the_same_time_are_written_once(stage: TestStage) {
    let mut log = stage.log("r-1");
    let mut stores = vec![stage.store()];
    for _ in 0..3 {
        stores.push(stage.another().await);
    }
    for count in [1, 2, 1, 3, 1, 1] {
        let append = log.next(count);
        let tasks: Vec<_> = stores.iter().chain(&stores).cloned().collect();
        together(tasks.into_iter().map(|store| {
            let append = append.clone();
            async move { appended(&*store, &append).await }
        }))
        .await;
        log.note_append(&append);
        is_kept(&*stores[0], &log).await;
    }
}

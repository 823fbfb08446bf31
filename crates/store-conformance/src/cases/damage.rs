//! Damaged runs. A damaged run is never read as empty, causes no panic, and does not affect other runs. A newer format does not count as damage.

use ferrata_store::{At, Error, ErrorKind, HeaderRange, Order, Page, Record, Result, RunQuery, Seq};

use crate::factory::Damage;
use crate::stage::{
    Log, TestStage, append_one, every_run, expect_refusal, is_kept, is_kept_at_head, ok, query,
};

/// Writes three logs. The middle one is for damage: it has nine records, with bases at 0, 4 and 8.
async fn three(stage: &TestStage) -> [Log; 3] {
    [stage.written("a", 9).await, stage.written("b", 9).await, stage.written("c", 9).await]
}

/// Checks that the store refused a load, and that the error names the run and no record except `seq`.
fn is_refused(result: Result<Option<Vec<Record>>>, kind: ErrorKind, log: &Log, seq: u64, what: &str) {
    let error = expect_refusal(result, &[kind], what);
    assert_eq!(error.run(), Some(&log.key), "the refusal of {what} names the run: {error:?}");
    if let Some(named) = error.seq() {
        assert_eq!(named, Seq::new(seq), "the refusal of {what} names the record: {error:?}");
    }
}

/// Checks that the other runs exist and can be read, written and listed.
async fn others_go_on(stage: &TestStage, others: [&mut Log; 2]) {
    let store = stage.store();
    for log in others {
        is_kept(&*store, log).await;
        log.write(&*store, 2).await;
        is_kept(&*store, log).await;
        for order in [Order::NewestFirst, Order::OldestFirst] {
            for limit in [1, 10] {
                let listed = every_run(&*store, &RunQuery::default(), order, limit).await;
                let found: Vec<_> = listed.iter().filter(|head| head.run == log.key).collect();
                assert_eq!(found, [&log.run_head()], "{} is listed beside a damaged run", log.key);
            }
        }
    }
}

/// Checks that a caller can purge an unreadable run and reuse its id.
async fn can_be_purged(stage: &TestStage, log: &Log) {
    let store = stage.store();
    ok(store.purge(&log.key, None).await, "purging a run that cannot be read");
    let mut log = log.clone();
    log.records.clear();
    is_kept_at_head(&*store, &log).await;
    log.write(&*store, 3).await;
    is_kept(&*store, &log).await;
}

/// Checks each call on an unreadable run. It returns the reason or the readable part, and never says that the run does not exist.
async fn is_not_empty(stage: &TestStage, log: &Log, kind: ErrorKind) {
    let store = stage.store();
    let is_reason = |error: &Error| assert_eq!(error.kind(), kind, "{error:?}");
    match store.head(&log.key).await {
        Ok(head) => assert!(head.is_some(), "a run that cannot be read exists"),
        Err(error) => is_reason(&error),
    }
    match store.headers(&log.key, HeaderRange::newest(100)).await {
        Ok(history) => assert!(!history.items.is_empty(), "the history of a run that cannot be read"),
        Err(error) => is_reason(&error),
    }
    match store.load(&log.key, At::Latest).await {
        Ok(loaded) => assert_eq!(loaded, Some(log.loaded(8)), "what can be read is right"),
        Err(error) => is_reason(&error),
    }
    match store.runs(&query(|query| query.complete = true), Page::default()).await {
        Ok(listed) => assert!(
            listed.items.iter().any(|head| head.run == log.key),
            "a complete listing has a run that cannot be read, or fails: {listed:?}"
        ),
        Err(error) => is_reason(&error),
    }
}

/// Checks that a purge with an expected head removes all of an unreadable run, or fails and removes nothing.
async fn is_purged_or_kept(stage: &TestStage, log: &Log, kind: ErrorKind) {
    let store = stage.store();
    let [.., before, last] = &log.records[..] else { panic!("the log is long enough") };
    let other = store.purge(&log.key, Some(before.header.head())).await;
    let what = "a purge that expects another head than that of a run that cannot be read";
    expect_refusal(other, &[ErrorKind::Conflict, kind], what);
    is_not_empty(stage, log, kind).await;
    match store.purge(&log.key, Some(last.header.head())).await {
        Ok(_) => {}
        Err(error) => {
            assert_eq!(error.kind(), kind, "a purge that expects the head: {error:?}");
            is_not_empty(stage, log, kind).await;
        }
    }
    can_be_purged(stage, log).await;
}

/// Checks that an append to an unreadable run is complete, or fails and writes nothing.
async fn is_written_or_refused(stage: &TestStage, log: &Log, kind: ErrorKind) {
    let store = stage.store();
    let mut behind = log.clone();
    behind.records.pop();
    // A start, and an append after a record that is not the head.
    for refused in [stage.log(log.key.run.as_str()).next(1), behind.next(1)] {
        let result = append_one(&*store, &refused).await;
        expect_refusal(result, &[ErrorKind::Conflict, kind], "an append with another head than the run's");
    }
    let mut most = log.records.len();
    match append_one(&*store, &log.next(2)).await {
        Ok(_) => most += 2,
        Err(error) => assert_eq!(error.kind(), kind, "an append that expects the head: {error:?}"),
    }
    // If the other records of the run are unreadable, only this result shows how many records there were.
    let removed = ok(store.purge(&log.key, None).await, "purging a run that cannot be read");
    assert!(
        removed.records <= most as u64,
        "a refused append writes nothing: {removed:?} of {most} records at most"
    );
}

/// Checks that an unreadable run in the middle of a batch does not affect the other entries.
async fn others_are_written_beside(stage: &TestStage, [a, log, b]: [&mut Log; 3], kind: ErrorKind) {
    let store = stage.store();
    let batch = vec![a.next(2), log.next(1), b.next(1), stage.log("new").next(1)];
    let results = store.append(batch.clone()).await;
    assert_eq!(results.len(), batch.len(), "one result for each entry: {results:?}");
    for (place, (result, entry)) in results.into_iter().zip(&batch).enumerate() {
        match result {
            Err(error) if place == 1 => {
                assert_eq!(error.kind(), kind, "the run that cannot be read: {error:?}")
            }
            result => {
                ok(result, &format!("the entry of {} beside that of a run that cannot be read", entry.run));
            }
        }
    }
    a.note_append(&batch[0]);
    b.note_append(&batch[2]);
    others_go_on(stage, [a, b]).await;
}

/// If a record's body was changed, every call that needs the record fails with `Corrupt`.
pub(crate) async fn a_changed_body_is_corrupt(mut stage: TestStage) {
    // The head, a record in the middle, and bases.
    for (n, seq) in [8_u64, 6, 4, 0].into_iter().enumerate() {
        let log = stage.written(&format!("r-{n}"), 9).await;
        stage = stage.damaged(&log, Damage::Body(Seq::new(seq))).await;
        let store = stage.store();
        is_not_empty(&stage, &log, ErrorKind::Corrupt).await;
        let last_that_needs_it = log
            .records
            .iter()
            .map(|record| record.header.seq.get())
            .filter(|at| log.loaded(*at).iter().any(|needed| needed.header.seq.get() == seq));
        for at in last_that_needs_it {
            let id = log.records[usize::try_from(at).expect("the log is short")].header.id;
            for at in [At::Seq(Seq::new(at)), At::Record(id)] {
                let what = format!("loading {at} with damage at {seq}");
                is_refused(store.load(&log.key, at).await, ErrorKind::Corrupt, &log, seq, &what);
            }
        }
    }
}

/// Damage to one run does not affect others: the store reads, writes and lists them.
pub(crate) async fn a_changed_body_harms_no_other_run(stage: TestStage) {
    let [mut before, log, mut after] = three(&stage).await;
    let stage = stage.damaged(&log, Damage::Body(Seq::new(8))).await;
    others_go_on(&stage, [&mut before, &mut after]).await;
}

/// A damaged run can be purged.
pub(crate) async fn a_damaged_run_can_be_purged(stage: TestStage) {
    let [mut before, log, mut after] = three(&stage).await;
    let stage = stage.damaged(&log, Damage::Body(Seq::new(4))).await;
    can_be_purged(&stage, &log).await;
    others_go_on(&stage, [&mut before, &mut after]).await;
}

/// A purge that expects the head of a damaged run removes the run, or fails and removes nothing.
pub(crate) async fn a_refused_purge_of_a_damaged_run_removes_nothing(stage: TestStage) {
    let log = stage.written("r-1", 9).await;
    let stage = stage.damaged(&log, Damage::Body(Seq::new(8))).await;
    is_purged_or_kept(&stage, &log, ErrorKind::Corrupt).await;
}

/// An append to a damaged run fails and writes nothing, or succeeds if the head is readable.
pub(crate) async fn a_refused_append_to_a_damaged_run_writes_nothing(stage: TestStage) {
    let log = stage.written("r-1", 9).await;
    let stage = stage.damaged(&log, Damage::Body(Seq::new(8))).await;
    is_written_or_refused(&stage, &log, ErrorKind::Corrupt).await;
}

/// A damaged run in a batch does not affect the other entries.
pub(crate) async fn a_damaged_run_in_a_batch_harms_no_other_entry(stage: TestStage) {
    let [mut before, mut log, mut after] = three(&stage).await;
    let stage = stage.damaged(&log, Damage::Body(Seq::new(8))).await;
    others_are_written_beside(&stage, [&mut before, &mut log, &mut after], ErrorKind::Corrupt).await;
}

/// If a record is missing, a load fails with `Corrupt` and never returns a shorter log.
pub(crate) async fn a_missing_record_is_corrupt(stage: TestStage) {
    let [mut before, log, mut after] = three(&stage).await;
    let stage = stage.damaged(&log, Damage::Gone(Seq::new(6))).await;
    let store = stage.store();
    is_not_empty(&stage, &log, ErrorKind::Corrupt).await;
    for at in [6, 7] {
        let loaded = store.load(&log.key, At::Seq(Seq::new(at))).await;
        let error = expect_refusal(loaded, &[ErrorKind::Corrupt], "loading across a hole");
        assert_eq!(error.run(), Some(&log.key), "the refusal names the run: {error:?}");
    }
    others_go_on(&stage, [&mut before, &mut after]).await;
    can_be_purged(&stage, &log).await;
}

/// If the needed base of a run is missing, a load fails with `Corrupt` and never returns an empty run.
///
/// Guarantees: FORMAT-8.
pub(crate) async fn a_missing_base_is_corrupt(stage: TestStage) {
    let mut log = stage.log("r-1");
    log.write_with(&*stage.store(), 5, |header| header.base = header.seq.get() == 0).await;
    let stage = stage.damaged(&log, Damage::Gone(Seq::new(0))).await;
    let store = stage.store();
    for at in [At::Latest, At::Seq(Seq::new(1)), At::Seq(Seq::new(4))] {
        let loaded = store.load(&log.key, at).await;
        let error = expect_refusal(loaded, &[ErrorKind::Corrupt], "loading a run without a base");
        assert_eq!(error.run(), Some(&log.key), "the refusal names the run: {error:?}");
    }
    can_be_purged(&stage, &log).await;
}

/// If the last record is incomplete, the log ends before it, or a load fails with `Corrupt`.
pub(crate) async fn a_torn_tail_is_cut_off_or_corrupt(stage: TestStage) {
    let [mut before, mut log, mut after] = three(&stage).await;
    let stage = stage.damaged(&log, Damage::Torn).await;
    let store = stage.store();
    match store.load(&log.key, At::Latest).await {
        Err(error) => {
            assert_eq!((error.kind(), error.run()), (ErrorKind::Corrupt, Some(&log.key)), "{error:?}");
            can_be_purged(&stage, &log).await;
        }
        Ok(_) => {
            log.records.pop();
            is_kept(&*store, &log).await;
            log.write(&*store, 2).await;
            is_kept(&*store, &log).await;
        }
    }
    others_go_on(&stage, [&mut before, &mut after]).await;
}

/// A record of a newer format causes `Unsupported`. The store neither misreads it nor reports damage.
///
/// Guarantees: FORMAT-8.
pub(crate) async fn a_newer_format_is_unsupported(mut stage: TestStage) {
    for (run, seq) in [("r-1", 8), ("r-2", 6)] {
        let mut log = stage.log(run);
        log.write_with(&*stage.store(), 9, |header| header.base = [0, 4].contains(&header.seq.get())).await;
        stage = stage.damaged(&log, Damage::NewerFormat(Seq::new(seq))).await;
        let store = stage.store();
        is_not_empty(&stage, &log, ErrorKind::Unsupported).await;
        for at in [At::Seq(Seq::new(seq)), At::Latest] {
            let what = format!("loading {at} with a newer format at {seq}");
            is_refused(store.load(&log.key, at).await, ErrorKind::Unsupported, &log, seq, &what);
        }
    }
}

/// A run of a newer format does not affect other runs, and can be purged.
pub(crate) async fn a_newer_format_harms_no_other_run(stage: TestStage) {
    let [mut before, log, mut after] = three(&stage).await;
    let stage = stage.damaged(&log, Damage::NewerFormat(Seq::new(8))).await;
    others_go_on(&stage, [&mut before, &mut after]).await;
    can_be_purged(&stage, &log).await;
    others_go_on(&stage, [&mut before, &mut after]).await;
}

/// A purge that expects the head of a run of a newer format removes the run, or fails and removes nothing.
pub(crate) async fn a_refused_purge_of_a_newer_format_removes_nothing(stage: TestStage) {
    let log = stage.written("r-1", 9).await;
    let stage = stage.damaged(&log, Damage::NewerFormat(Seq::new(8))).await;
    is_purged_or_kept(&stage, &log, ErrorKind::Unsupported).await;
}

/// An append to a run of a newer format fails and writes nothing, or succeeds if the head is readable.
pub(crate) async fn a_refused_append_to_a_newer_format_writes_nothing(stage: TestStage) {
    let log = stage.written("r-1", 9).await;
    let stage = stage.damaged(&log, Damage::NewerFormat(Seq::new(8))).await;
    is_written_or_refused(&stage, &log, ErrorKind::Unsupported).await;
}

/// A run of a newer format in a batch does not affect the other entries.
pub(crate) async fn a_newer_format_in_a_batch_harms_no_other_entry(stage: TestStage) {
    let [mut before, mut log, mut after] = three(&stage).await;
    let stage = stage.damaged(&log, Damage::NewerFormat(Seq::new(8))).await;
    others_are_written_beside(&stage, [&mut before, &mut log, &mut after], ErrorKind::Unsupported).await;
}

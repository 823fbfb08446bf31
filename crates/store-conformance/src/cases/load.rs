//! Loads of a run: the newest base at or before a position, and the records up to that position.

use ferrata_store::{At, ErrorKind, PruneCut, RecordHeader, RecordId, Seq, is_news};

use crate::stage::{Log, TestStage, expect_refusal, is_kept, is_kept_at_head, key, ok};

/// Writes a log with bases at these positions, in appends of different sizes.
async fn with_bases(stage: &TestStage, run: &str, bases: &[u64]) -> Log {
    let mut log = stage.log(run);
    for count in [1, 2, 3, 1, 4] {
        let shape = |header: &mut RecordHeader| header.base = bases.contains(&header.seq.get());
        log.write_with(&*stage.store(), count, shape).await;
    }
    log
}

/// Positions of bases for different cases: none, all, neighbors, and in the middle and at the end of an append.
const BASES: [&[u64]; 6] =
    [&[0], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], &[0, 5], &[0, 1, 9, 10], &[0, 2, 3, 6], &[0, 10]];

/// A run that does not exist loads as `None`, at every position.
pub(crate) async fn a_missing_run_loads_as_none(stage: TestStage) {
    let other = stage.written("other", 2).await;
    let id = other.records[0].header.id;
    for at in [At::Latest, At::Seq(Seq::new(0)), At::Seq(Seq::new(7)), At::Record(id)] {
        let loaded = ok(stage.store().load(&key("missing"), at).await, "loading a run that does not exist");
        assert_eq!(loaded, None, "a run that does not exist, at {at}");
    }
}

/// A run that does not exist has no head.
pub(crate) async fn a_missing_run_has_no_head(stage: TestStage) {
    stage.written("other", 2).await;
    let head = ok(stage.store().head(&key("missing")).await, "reading the head of a missing run");
    assert_eq!(head, None, "the head of a run that does not exist");
}

/// The head is the last record, after each append.
pub(crate) async fn the_head_follows_each_append(stage: TestStage) {
    let mut log = stage.log("r-1");
    for count in [1, 1, 3, 2, 1] {
        log.write(&*stage.store(), count).await;
        let head = ok(stage.store().head(&log.key).await, "reading the head");
        assert_eq!(head, Some(log.run_head()), "the head after an append");
    }
}

/// A load at the head begins at the newest base.
pub(crate) async fn loading_the_latest_starts_at_the_newest_base(stage: TestStage) {
    for (n, bases) in BASES.into_iter().enumerate() {
        let log = with_bases(&stage, &format!("r-{n}"), bases).await;
        is_kept_at_head(&*stage.store(), &log).await;
    }
}

/// A load at a number begins at the newest base at or before it, and ends with that record.
pub(crate) async fn every_record_can_be_loaded_by_its_number(stage: TestStage) {
    for (n, bases) in BASES.into_iter().enumerate() {
        let log = with_bases(&stage, &format!("r-{n}"), bases).await;
        for seq in 0..log.records.len() as u64 {
            let loaded = ok(stage.store().load(&log.key, At::Seq(Seq::new(seq))).await, "loading by number");
            assert_eq!(loaded, Some(log.loaded(seq)), "record {seq} with bases at {bases:?}");
        }
    }
}

/// A load at an id returns the same as a load at the record's number.
pub(crate) async fn every_record_can_be_loaded_by_its_id(stage: TestStage) {
    for (n, bases) in BASES.into_iter().enumerate() {
        let log = with_bases(&stage, &format!("r-{n}"), bases).await;
        for (seq, record) in log.records.iter().enumerate() {
            let loaded =
                ok(stage.store().load(&log.key, At::Record(record.header.id)).await, "loading by id");
            assert_eq!(loaded, Some(log.loaded(seq as u64)), "record {seq} with bases at {bases:?}");
        }
    }
}

/// A load after a known record returns the records after it, or the result of a complete load.
pub(crate) async fn what_came_since_is_loaded(stage: TestStage) {
    for (n, bases) in BASES.into_iter().enumerate() {
        let log = with_bases(&stage, &format!("r-{n}"), bases).await;
        for (seq, record) in log.records.iter().enumerate() {
            let known = record.header.head();
            let since = ok(stage.store().load_since(&log.key, known).await, "loading what came since");
            let Some(since) = since else { panic!("there is no run r-{n} any more") };
            match is_news(known, &since) {
                true => {
                    assert_eq!(since, log.records[seq + 1..], "after record {seq} with bases at {bases:?}")
                }
                false => {
                    let all = log.loaded(log.records.len() as u64 - 1);
                    assert_eq!(since, all, "all, for one who knows record {seq}, with bases at {bases:?}");
                }
            }
        }
    }
    let known = stage.written("other", 2).await.records[0].header.head();
    let since = ok(stage.store().load_since(&key("missing"), known).await, "loading what came since");
    assert_eq!(since, None, "a run that does not exist, for one who knows a record");
}

/// A load after a record that the run never had, or that is gone, returns a complete load or the records after it.
pub(crate) async fn of_what_is_not_known_any_more_all_is_loaded(stage: TestStage) {
    let store = stage.store();
    // A new generation of the same length, then a shorter and a longer one.
    for (n, count) in [3, 1, 5].into_iter().enumerate() {
        let old = stage.written(&format!("r-{n}"), 3).await;
        ok(store.purge(&old.key, None).await, "purging a run");
        let new = stage.written(&format!("r-{n}"), count).await;
        for record in &old.records {
            let since = store.load_since(&new.key, record.header.head()).await;
            let since = ok(since, "loading what came since a record of an earlier generation");
            assert_eq!(since, Some(new.loaded(count as u64 - 1)), "a new generation of {count} records");
        }
    }
    let log = with_bases(&stage, "pruned", &[0, 5]).await;
    let cut = PruneCut { at: Seq::new(5), base: None };
    ok(store.prune(&log.key, cut).await, "pruning a run at a base");
    let all = log.loaded(log.records.len() as u64 - 1);
    for seq in 0..5 {
        let known = log.records[seq].header.head();
        let since = ok(store.load_since(&log.key, known).await, "loading what came since a pruned record");
        let Some(since) = since else { panic!("there is no run any more") };
        let is_whole = is_news(known, &since) && since == log.records[seq + 1..];
        assert!(is_whole || since == all, "after record {seq}, which is pruned: {since:?}");
    }
}

/// A load at a number beyond the head is an error, unlike a load of a missing run.
pub(crate) async fn a_number_beyond_the_head_is_not_found(stage: TestStage) {
    let log = stage.written("r-1", 3).await;
    for seq in [3, 4, 1_000, u64::from(u32::MAX) + 1, i64::MAX as u64, u64::MAX] {
        let loaded = stage.store().load(&log.key, At::Seq(Seq::new(seq))).await;
        expect_refusal(loaded, &[ErrorKind::NotFound], "loading beyond the head");
    }
    is_kept(&*stage.store(), &log).await;
}

/// A load at an id that no record of this run has is an error, even if another run has a record with that id.
pub(crate) async fn an_id_of_no_record_is_not_found(stage: TestStage) {
    let (log, other) = (stage.written("r-1", 3).await, stage.written("r-2", 3).await);
    let never = RecordId::from_uuid(*stage.executor().as_uuid());
    for id in [never, other.records[0].header.id, other.records[2].header.id] {
        let loaded = stage.store().load(&log.key, At::Record(id)).await;
        expect_refusal(loaded, &[ErrorKind::NotFound], "loading at an id of no record");
    }
}

/// Reads change nothing, however many there are.
pub(crate) async fn reading_changes_nothing(stage: TestStage) {
    let log = stage.written("r-1", 6).await;
    for _ in 0..3 {
        is_kept(&*stage.store(), &log).await;
    }
}

/// A load returns all of three hundred records after a base.
pub(crate) async fn a_long_way_from_the_base_is_loaded_whole(stage: TestStage) {
    let mut log = stage.log("r-1");
    for count in [1, 100, 100, 100] {
        log.write_with(&*stage.store(), count, |header| header.base = header.seq.get() == 0).await;
    }
    is_kept_at_head(&*stage.store(), &log).await;
}

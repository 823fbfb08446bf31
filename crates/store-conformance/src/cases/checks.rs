//! Entries that a store must refuse before it writes: empty, not dense, not chained, not sealed, or without facts.

use ferrata_store::{ErrorKind, FORMAT, RunAppend, Seq, check_append};

use crate::stage::{Log, TestStage, append_one, expect_refusal, is_kept};

/// Checks that the store refuses an entry with the same kind as `check_append`, and writes nothing.
async fn is_refused(stage: &TestStage, log: &Log, entry: RunAppend, what: &str) {
    let store = stage.store();
    let kind = check_append(&entry).expect_err("the suite itself breaks a rule here").kind();
    let mut kinds = vec![kind];
    if kind != ErrorKind::Unsupported {
        // A store that makes the check by itself returns the kind that the contract defines for the whole call.
        kinds.push(ErrorKind::Invalid);
    }
    let error = expect_refusal(append_one(&*store, &entry).await, &kinds, what);
    assert_eq!(error.run(), Some(&entry.run), "the refusal of {what} names the run: {error:?}");
    is_kept(&*store, log).await;
}

/// An entry must have at least one record.
pub(crate) async fn an_entry_without_records_is_refused(stage: TestStage) {
    let log = stage.written("r-1", 2).await;
    is_refused(&stage, &log, log.next(0), "an append of nothing").await;
    let new = stage.log("r-2");
    is_refused(&stage, &new, new.next(0), "a start of nothing").await;
}

/// The first append of a run must have facts, and no other append may have them.
pub(crate) async fn facts_belong_to_the_first_append(stage: TestStage) {
    let log = stage.written("r-1", 2).await;
    let entry = RunAppend { facts: Some(log.facts.clone()), ..log.next(1) };
    is_refused(&stage, &log, entry, "an append with facts").await;
    let new = stage.log("r-2");
    is_refused(&stage, &new, RunAppend { facts: None, ..new.next(1) }, "a start without facts").await;
}

/// The numbers of the records continue from the expected head, without a gap.
///
/// Guarantees: FORMAT-2.
pub(crate) async fn records_must_be_numbered_densely(stage: TestStage) {
    let log = stage.written("r-1", 3).await;
    for place in 0..3 {
        for shift in [-1, 1, 7] {
            let mut entry = log.next(3);
            let header = &mut entry.records[place].header;
            header.seq = Seq::new(header.seq.get().saturating_add_signed(shift));
            is_refused(&stage, &log, entry, "a record with a number out of line").await;
        }
    }
    let new = stage.log("r-2");
    let mut entry = new.next(1);
    entry.records[0].header.seq = Seq::new(1);
    is_refused(&stage, &new, entry, "a first record that is not number 0").await;
}

/// Each record names the previous record.
///
/// Guarantees: FORMAT-2.
pub(crate) async fn records_must_name_the_one_before(stage: TestStage) {
    let log = stage.written("r-1", 3).await;
    let strange = log.records[0].header.id;
    for place in 0..3 {
        for prev in [None, Some(strange)] {
            let mut entry = log.next(3);
            entry.records[place].header.prev = prev;
            is_refused(&stage, &log, entry, "a record that does not name the one before").await;
        }
    }
    let new = stage.log("r-2");
    let mut entry = new.next(1);
    entry.records[0].header.prev = Some(strange);
    is_refused(&stage, &new, entry, "a first record that names one before").await;
}

/// The length and the checksum in the header match the body.
///
/// Guarantees: FORMAT-2.
pub(crate) async fn records_must_be_sealed(stage: TestStage) {
    let log = stage.written("r-1", 3).await;
    for place in 0..2 {
        let mut entry = log.next(2);
        entry.records[place].header.body_crc ^= 0x8000_0000;
        is_refused(&stage, &log, entry, "a record with another checksum").await;
        let mut entry = log.next(2);
        entry.records[place].header.body_len -= 1;
        is_refused(&stage, &log, entry, "a record with another length").await;
    }
}

/// A run must begin with a base.
pub(crate) async fn a_run_must_begin_with_a_base(stage: TestStage) {
    let new = stage.log("r-1");
    let entry = new.next_with(2, |header| header.base = header.seq.get() == 1);
    is_refused(&stage, &new, entry, "a first record that is no base").await;
}

/// The store does not write a format that this version cannot read.
pub(crate) async fn a_newer_format_is_not_written(stage: TestStage) {
    let log = stage.written("r-1", 2).await;
    let entry = log.next_with(1, |header| header.format = FORMAT + 1);
    is_refused(&stage, &log, entry, "a record of a newer format").await;
}

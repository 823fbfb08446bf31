//! The central rule of the contract: an append succeeds only if the head is exactly the expected head.

use ferrata_store::{CheckpointStore, ErrorKind, HeadRef, RunAppend};

use crate::stage::{Log, TestStage, append_one, expect_refusal, is_kept};

/// Checks that the store refuses an append because of its expected head, and that the error has the actual head.
pub(super) async fn is_a_conflict(
    store: &dyn CheckpointStore,
    append: &RunAppend,
    actual: Option<HeadRef>,
    what: &str,
) {
    let error = expect_refusal(append_one(store, append).await, &[ErrorKind::Conflict], what);
    assert_eq!(error.actual_head(), Some(actual), "the refusal of {what} names the head there is: {error:?}");
    assert_eq!(error.run(), Some(&append.run), "the refusal of {what} names the run: {error:?}");
}

/// The store refuses an append after a record that is not the last any more.
pub(crate) async fn an_append_behind_the_head_is_a_conflict(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.log("r-1");
    let mut behind = vec![log.next(1)];
    for _ in 0..4 {
        log.write(&*store, 1).await;
        behind.push(log.next(2));
    }
    behind.pop();
    for append in &behind {
        is_a_conflict(&*store, append, log.head(), "an append behind the head").await;
        is_kept(&*store, &log).await;
    }
}

/// The position alone is not enough: the record there must have the expected id.
pub(crate) async fn an_append_after_another_record_of_that_number_is_a_conflict(stage: TestStage) {
    let store = stage.store();
    let log = stage.written("r-1", 3).await;
    // Another history up to this record: the same numbers with other ids.
    let mut other = stage.log("r-1");
    other.note_append(&other.next(3));
    let append = other.next(1);
    assert_eq!(append.expected.map(|head| head.seq), log.head().map(|head| head.seq));
    is_a_conflict(&*store, &append, log.head(), "an append after a record that was never written").await;
    is_kept(&*store, &log).await;
}

/// The store refuses an append after a record that does not exist yet, because that would leave a gap.
pub(crate) async fn an_append_beyond_the_head_is_a_conflict(stage: TestStage) {
    let store = stage.store();
    let log = stage.written("r-1", 3).await;
    let mut ahead: Log = log.clone();
    ahead.note_append(&ahead.next(2));
    is_a_conflict(&*store, &ahead.next(1), log.head(), "an append beyond the head").await;
    is_kept(&*store, &log).await;
}

/// The store refuses an append to a run that does not exist, and the error says that the run does not exist.
pub(crate) async fn an_append_to_a_missing_run_is_a_conflict(stage: TestStage) {
    let store = stage.store();
    let mut never = stage.log("r-1");
    never.note_append(&never.next(3));
    is_a_conflict(&*store, &never.next(1), None, "an append to a run that does not exist").await;
    never.records.clear();
    is_kept(&*store, &never).await;
}

/// The store refuses to start a run that exists.
pub(crate) async fn starting_a_run_that_exists_is_a_conflict(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.log("r-1");
    for _ in 0..2 {
        log.write(&*store, 1).await;
        let again = stage.log("r-1").with_facts(crate::stage::facts("another", 7));
        is_a_conflict(&*store, &again.next(1), log.head(), "a start of a run that exists").await;
        is_a_conflict(&*store, &again.next(3), log.head(), "a longer start of a run that exists").await;
        is_kept(&*store, &log).await;
    }
}

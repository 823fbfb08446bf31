//! Runs that need an owner: orphaned runs, and runs whose wake-up time has come.

use std::time::Duration;

use ferrata_store::{ExecutorId, Order, RecordHeader, RunFilter, RunKey, RunStatus, Timestamp};

use super::heartbeat::{LONG, SHORT, owned};
use crate::stage::{Log, TestStage, every_run, key, ok, query};

/// A time in the past and a time in the future, for any plausible clock of the store: 1970 and the year 9999.
const PAST: i64 = 1_000;
const FUTURE: i64 = 253_370_764_800_000;

async fn listed(stage: &TestStage, filter: RunFilter) -> Vec<RunKey> {
    let query = query(|query| query.filter = filter);
    let heads = every_run(&*stage.store(), &query, Order::OldestFirst, 2).await;
    heads.into_iter().map(|head| head.run).collect()
}

/// Checks that a filter lists exactly these runs, in order.
async fn lists(stage: &TestStage, filter: RunFilter, expected: &[&str]) {
    let expected: Vec<_> = expected.iter().map(|run| key(run)).collect();
    assert_eq!(listed(stage, filter).await, expected, "the runs that are {filter:?}");
}

/// Starts a run with a second record, whose header `shape` changes.
async fn shaped(stage: &TestStage, run: &str, shape: impl Fn(&mut RecordHeader)) -> Log {
    let mut log = stage.log(run);
    log.write_with(&*stage.store(), 1, shape).await;
    log
}

async fn living(stage: &TestStage) -> ExecutorId {
    let executor = stage.executor();
    ok(stage.store().heartbeat(&executor, LONG).await, "a heartbeat");
    executor
}

/// A run in progress is orphaned if it has no owner or its owner's heartbeat has expired.
pub(crate) async fn a_run_without_living_owner_is_orphaned(stage: TestStage) {
    let alive = living(&stage).await;
    owned(&stage, "a", Some(alive)).await;
    owned(&stage, "b", Some(stage.executor())).await;
    owned(&stage, "c", None).await;
    lists(&stage, RunFilter::Orphaned, &["b", "c"]).await;
    lists(&stage, RunFilter::Any, &["a", "b", "c"]).await;
}

/// A run that is not in progress waits for a caller and not for an executor, so it is not orphaned.
pub(crate) async fn only_a_run_in_progress_is_orphaned(stage: TestStage) {
    for status in RunStatus::ALL {
        shaped(&stage, &format!("{status}"), |header| header.status = status).await;
    }
    lists(&stage, RunFilter::Orphaned, &["in_progress"]).await;
}

/// A run with a wake-up time is not orphaned. It becomes due at that time.
pub(crate) async fn a_run_to_be_woken_is_not_orphaned(stage: TestStage) {
    for (run, wake) in [("a", None), ("b", Some(PAST)), ("c", Some(FUTURE))] {
        shaped(&stage, run, |header| header.wake_at = wake.map(Timestamp::from_unix_ms)).await;
    }
    lists(&stage, RunFilter::Orphaned, &["a"]).await;
}

/// A run is due if its wake-up time has come, by the store's clock.
pub(crate) async fn a_run_whose_time_has_come_is_due(stage: TestStage) {
    for (run, wake) in
        [("a", None), ("b", Some(PAST)), ("c", Some(FUTURE)), ("d", Some(0)), ("e", Some(-PAST))]
    {
        shaped(&stage, run, |header| header.wake_at = wake.map(Timestamp::from_unix_ms)).await;
    }
    lists(&stage, RunFilter::Due, &["b", "d", "e"]).await;
}

/// A run in any status is due when its wake-up time has come. For example, a run that waits for an answer has a deadline, and a finished run still
/// has deliveries to make.
pub(crate) async fn a_run_in_any_status_may_be_due(stage: TestStage) {
    let mut expected = Vec::new();
    for status in RunStatus::ALL {
        let shape = |header: &mut RecordHeader| {
            header.status = status;
            header.wake_at = Some(Timestamp::from_unix_ms(PAST));
        };
        shaped(&stage, status.as_str(), shape).await;
        expected.push(status.as_str());
    }
    expected.sort_unstable();
    lists(&stage, RunFilter::Due, &expected).await;
    lists(&stage, RunFilter::Any, &expected).await;
}

/// A finished run without a wake-up time has nothing left to deliver, and is not due.
pub(crate) async fn a_finished_run_that_has_delivered_is_not_due(stage: TestStage) {
    let shape = |wake: Option<i64>| {
        move |header: &mut RecordHeader| {
            header.status = RunStatus::Completed;
            header.wake_at = wake.map(Timestamp::from_unix_ms);
        }
    };
    let mut log = shaped(&stage, "a", shape(Some(PAST))).await;
    lists(&stage, RunFilter::Due, &["a"]).await;
    log.write_with(&*stage.store(), 1, shape(None)).await;
    lists(&stage, RunFilter::Due, &[]).await;
    lists(&stage, RunFilter::Any, &["a"]).await;
}

/// A run with a living owner is not due, because its owner wakes it.
pub(crate) async fn a_run_of_a_living_owner_is_not_due(stage: TestStage) {
    let alive = living(&stage).await;
    for (run, owner) in [("a", Some(alive)), ("b", Some(stage.executor())), ("c", None)] {
        let shape = |header: &mut RecordHeader| {
            header.owner = owner;
            header.wake_at = Some(Timestamp::from_unix_ms(PAST));
        };
        shaped(&stage, run, shape).await;
    }
    lists(&stage, RunFilter::Due, &["b", "c"]).await;
}

/// When an owner's heartbeat expires, its runs become orphaned or due.
pub(crate) async fn an_owner_that_expires_leaves_its_runs(stage: TestStage) {
    let owner = stage.executor();
    ok(stage.store().heartbeat(&owner, LONG).await, "a heartbeat");
    let orphan = owned(&stage, "a", Some(owner)).await;
    let shape = |header: &mut RecordHeader| {
        header.owner = Some(owner);
        header.wake_at = Some(Timestamp::from_unix_ms(PAST));
    };
    let due = shaped(&stage, "b", shape).await;
    lists(&stage, RunFilter::Orphaned, &[]).await;
    lists(&stage, RunFilter::Due, &[]).await;
    ok(stage.store().heartbeat(&owner, SHORT).await, "a heartbeat");
    stage
        .until(SHORT, "the end of a heartbeat", async || {
            listed(&stage, RunFilter::Orphaned).await == [orphan.key.clone()]
                && listed(&stage, RunFilter::Due).await == [due.key.clone()]
        })
        .await;
}

/// A released run has no owner, so it is orphaned at once, although its former owner is alive.
pub(crate) async fn a_released_run_is_orphaned_at_once(stage: TestStage) {
    let owner = living(&stage).await;
    let mut log = owned(&stage, "a", Some(owner)).await;
    lists(&stage, RunFilter::Orphaned, &[]).await;
    log.write_with(&*stage.store(), 1, |header| header.owner = None).await;
    lists(&stage, RunFilter::Orphaned, &["a"]).await;
    let other = living(&stage).await;
    log.write_with(&*stage.store(), 1, |header| header.owner = Some(other)).await;
    lists(&stage, RunFilter::Orphaned, &[]).await;
}

/// Only the last record counts: the store ignores owner and wake-up time of older records.
pub(crate) async fn only_the_head_says_who_owns_and_when_to_wake(stage: TestStage) {
    let mut log = shaped(&stage, "a", |header| header.wake_at = Some(Timestamp::from_unix_ms(PAST))).await;
    lists(&stage, RunFilter::Due, &["a"]).await;
    log.write_with(&*stage.store(), 1, |header| header.wake_at = Some(Timestamp::from_unix_ms(FUTURE))).await;
    lists(&stage, RunFilter::Due, &[]).await;
    log.write(&*stage.store(), 1).await;
    lists(&stage, RunFilter::Due, &[]).await;
    lists(&stage, RunFilter::Orphaned, &["a"]).await;
}

/// A run becomes due when the store's clock reaches its wake-up time, not earlier.
pub(crate) async fn a_run_becomes_due_when_its_time_comes(stage: TestStage) {
    let now = stage.advance(Duration::ZERO).await;
    let wake = now.plus(Duration::from_secs(60));
    shaped(&stage, "a", |header| header.wake_at = Some(wake)).await;
    lists(&stage, RunFilter::Due, &[]).await;
    stage.advance(Duration::from_millis(59_999)).await;
    lists(&stage, RunFilter::Due, &[]).await;
    stage.advance(Duration::from_millis(1)).await;
    lists(&stage, RunFilter::Due, &["a"]).await;
}

//! Heartbeats: which owners are alive, and until when.

use std::time::Duration;

use ferrata_store::{CheckpointStore, ExecutorId};

use crate::stage::{Log, Store, TestStage, key_in, ok};

/// A time to live that is longer than any property takes.
pub(super) const LONG: Duration = Duration::from_secs(3_600);

/// A time to live for which a property waits if the store's clock cannot be moved. It is longer than any single call takes.
pub(super) const SHORT: Duration = Duration::from_millis(300);

/// Starts a run with this owner.
pub(super) async fn owned(stage: &TestStage, run: &str, owner: Option<ExecutorId>) -> Log {
    let mut log = stage.log(run);
    log.write_with(&*stage.store(), 1, |header| header.owner = owner).await;
    log
}

async fn beat(store: &dyn CheckpointStore, executor: ExecutorId, ttl: Duration) {
    ok(store.heartbeat(&executor, ttl).await, "a heartbeat");
}

/// Returns whether the store reports the run's owner as alive, both in the head and by executor.
async fn is_alive(store: &Store, log: &Log) -> bool {
    let head = async || ok(store.head(&log.key).await, "reading the head").expect("the run exists");
    let before = head().await;
    if let Some(owner) = before.owner {
        let is_alive = ok(store.is_alive(&owner).await, "asking for an executor");
        // The heartbeat may expire between two calls.
        let heads = [before.owner_alive, head().await.owner_alive];
        assert!(
            heads.contains(&is_alive),
            "the executor is alive: {is_alive}; as the owner of a run: {heads:?}"
        );
    }
    before.owner_alive
}

/// After its heartbeat, an owner is alive in the run's head and in listings.
pub(crate) async fn an_owner_is_alive_after_its_heartbeat(stage: TestStage) {
    let store = stage.store();
    let owner = stage.executor();
    beat(&*store, owner, LONG).await;
    let log = owned(&stage, "r-1", Some(owner)).await;
    assert!(is_alive(&store, &log).await, "the heartbeat came before the run");
    let other = stage.executor();
    let late = owned(&stage, "r-2", Some(other)).await;
    beat(&*store, other, LONG).await;
    assert!(is_alive(&store, &late).await, "the heartbeat came after the run");
    let listed = crate::stage::every_run(&*store, &<_>::default(), <_>::default(), 10).await;
    assert!(listed.iter().all(|head| head.owner_alive), "alive in a listing, too: {listed:?}");
}

/// An owner that never sent a heartbeat is not alive.
pub(crate) async fn an_owner_without_heartbeat_is_not_alive(stage: TestStage) {
    let log = owned(&stage, "r-1", Some(stage.executor())).await;
    assert!(!is_alive(&stage.store(), &log).await, "no executor sent a heartbeat");
}

/// A heartbeat counts only for its own executor.
pub(crate) async fn a_heartbeat_is_for_its_executor_alone(stage: TestStage) {
    let (owner, other) = (stage.executor(), stage.executor());
    let log = owned(&stage, "r-1", Some(owner)).await;
    beat(&*stage.store(), other, LONG).await;
    assert!(!is_alive(&stage.store(), &log).await, "another executor sent the heartbeat");
}

/// The store reports no live owner for a run without an owner.
pub(crate) async fn a_run_without_owner_has_none_alive(stage: TestStage) {
    let owner = stage.executor();
    beat(&*stage.store(), owner, LONG).await;
    let mut log = owned(&stage, "r-1", Some(owner)).await;
    log.write(&*stage.store(), 1).await;
    assert!(!is_alive(&stage.store(), &log).await, "the run was released");
    let never = owned(&stage, "r-2", None).await;
    assert!(!is_alive(&stage.store(), &never).await, "the run never had an owner");
}

/// A heartbeat counts for every run of its executor, whatever the tenant.
pub(crate) async fn a_heartbeat_counts_for_every_run_of_its_executor(stage: TestStage) {
    let store = stage.store();
    let owner = stage.executor();
    let mut logs = Vec::new();
    for (tenant, run) in [("a", "r-1"), ("a", "r-2"), ("b", "r-1")] {
        let mut log = stage.log_of(key_in(tenant, run));
        log.write_with(&*store, 1, |header| header.owner = Some(owner)).await;
        logs.push(log);
    }
    beat(&*store, owner, LONG).await;
    for log in &logs {
        assert!(is_alive(&store, log).await, "the owner of {} is alive", log.key);
    }
}

/// A heartbeat expires after its time to live, by the store's clock.
pub(crate) async fn a_heartbeat_expires(stage: TestStage) {
    let store = stage.store();
    let owner = stage.executor();
    let log = owned(&stage, "r-1", Some(owner)).await;
    beat(&*store, owner, SHORT).await;
    stage.until(SHORT, "the end of a heartbeat", async || !is_alive(&store, &log).await).await;
}

/// A later heartbeat starts a new time to live, so an owner that continues to send heartbeats stays alive.
pub(crate) async fn a_later_heartbeat_replaces_a_shorter_one(stage: TestStage) {
    let store = stage.store();
    let (owner, witness) = (stage.executor(), stage.executor());
    let log = owned(&stage, "r-1", Some(owner)).await;
    let short = owned(&stage, "r-2", Some(witness)).await;
    beat(&*store, owner, SHORT).await;
    beat(&*store, owner, LONG).await;
    beat(&*store, witness, SHORT).await;
    // When the run for comparison has lost its owner, the owner's first heartbeat would have expired, too.
    stage.until(SHORT, "the end of a heartbeat", async || !is_alive(&store, &short).await).await;
    assert!(is_alive(&store, &log).await, "the second heartbeat counts");
}

/// A later heartbeat replaces an earlier one, even if it expires sooner.
pub(crate) async fn a_later_heartbeat_replaces_a_longer_one(stage: TestStage) {
    let store = stage.store();
    let owner = stage.executor();
    let log = owned(&stage, "r-1", Some(owner)).await;
    beat(&*store, owner, LONG).await;
    beat(&*store, owner, SHORT).await;
    stage.until(SHORT, "the end of the second heartbeat", async || !is_alive(&store, &log).await).await;
}

/// A time to live of zero ends the executor, and a later heartbeat revives it.
pub(crate) async fn a_heartbeat_of_zero_ends_the_executor(stage: TestStage) {
    let store = stage.store();
    let owner = stage.executor();
    let log = owned(&stage, "r-1", Some(owner)).await;
    beat(&*store, owner, Duration::ZERO).await;
    assert!(!is_alive(&store, &log).await, "ended before it began");
    for _ in 0..2 {
        beat(&*store, owner, LONG).await;
        assert!(is_alive(&store, &log).await, "alive");
        beat(&*store, owner, Duration::ZERO).await;
        assert!(!is_alive(&store, &log).await, "ended at once");
    }
}

/// A time to live may have any representable length.
pub(crate) async fn a_heartbeat_may_be_of_any_length(stage: TestStage) {
    let store = stage.store();
    for (run, ttl) in [
        ("r-1", Duration::MAX),
        ("r-2", Duration::from_secs(u64::MAX)),
        ("r-3", Duration::from_millis(60_001)),
    ] {
        let owner = stage.executor();
        let log = owned(&stage, run, Some(owner)).await;
        beat(&*store, owner, ttl).await;
        assert!(is_alive(&store, &log).await, "alive for {ttl:?}");
    }
}

/// Every instance agrees which executors are alive.
pub(crate) async fn a_heartbeat_counts_for_every_instance(stage: TestStage) {
    let (store, other) = (stage.store(), stage.another().await);
    let owner = stage.executor();
    let log = owned(&stage, "r-1", Some(owner)).await;
    beat(&*other, owner, LONG).await;
    assert!(is_alive(&store, &log).await && is_alive(&other, &log).await, "alive for both");
    beat(&*store, owner, Duration::ZERO).await;
    assert!(!is_alive(&store, &log).await && !is_alive(&other, &log).await, "ended for both");
}

/// A heartbeat lasts exactly as long as its time to live, to the millisecond of the store's clock.
pub(crate) async fn a_heartbeat_lasts_exactly_as_long_as_said(stage: TestStage) {
    let store = stage.store();
    let owner = stage.executor();
    let log = owned(&stage, "r-1", Some(owner)).await;
    let ttl = Duration::from_secs(30);
    for _ in 0..2 {
        beat(&*store, owner, ttl).await;
        stage.advance(ttl - Duration::from_millis(1)).await;
        assert!(is_alive(&store, &log).await, "alive a millisecond before the end");
    }
    stage.advance(Duration::from_millis(1)).await;
    assert!(!is_alive(&store, &log).await, "not alive at the end");
}

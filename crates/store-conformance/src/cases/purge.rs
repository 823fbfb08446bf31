//! Purges: a run is removed with all its data, and nothing else changes.

use ferrata_store::{At, ErrorKind, HeaderRange, Order, Parent, PruneCut, Removed, RunKey, RunQuery, Seq};

use super::conflict::is_a_conflict;
use crate::stage::{
    Log, TestStage, appended, every_run, expect_refusal, facts, is_kept, is_kept_at_head, key, key_in, label,
    ok,
};

fn size(log: &Log) -> Removed {
    Removed {
        records: log.records.len() as u64,
        bytes: log.records.iter().map(|record| record.body.len() as u64).sum(),
    }
}

/// Purges, which must succeed, and empties the expected log.
async fn purged(stage: &TestStage, log: &mut Log) -> Removed {
    let purged = ok(stage.store().purge(&log.key, None).await, "purging");
    log.records.clear();
    purged
}

async fn listed(stage: &TestStage) -> Vec<RunKey> {
    let heads = every_run(&*stage.store(), &RunQuery::default(), Order::OldestFirst, 10).await;
    heads.into_iter().map(|head| head.run).collect()
}

/// After a purge, the run does not exist for any call.
pub(crate) async fn purging_leaves_no_trace(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 6).await;
    let records = log.records.clone();
    purged(&stage, &mut log).await;
    is_kept_at_head(&*store, &log).await;
    for record in records {
        for at in [At::Seq(record.header.seq), At::Record(record.header.id)] {
            let loaded = ok(store.load(&log.key, at).await, "loading a purged run");
            assert_eq!(loaded, None, "a purged run, at {at}");
        }
    }
    let history = store.headers(&log.key, HeaderRange::newest(50)).await;
    expect_refusal(history, &[ErrorKind::NotFound], "the history of a purged run");
    let cut = PruneCut { at: Seq::new(4), base: None };
    expect_refusal(store.prune(&log.key, cut).await, &[ErrorKind::NotFound], "pruning a purged run");
    assert_eq!(listed(&stage).await, [], "a purged run is not listed");
}

/// A purge returns the number of records that it removed.
pub(crate) async fn purging_says_what_it_removed(stage: TestStage) {
    let mut whole = stage.written("r-1", 6).await;
    let expected = size(&whole);
    assert_eq!(purged(&stage, &mut whole).await, expected, "a whole log");
    let mut pruned = stage.written("r-2", 11).await;
    let cut = PruneCut { at: Seq::new(8), base: None };
    ok(stage.store().prune(&pruned.key, cut).await, "pruning");
    pruned.note_pruned(8, None);
    let expected = size(&pruned);
    assert_eq!(purged(&stage, &mut pruned).await, expected, "a log that was pruned");
}

/// A purge of a missing run is `Ok` and removes nothing.
pub(crate) async fn purging_a_missing_run_removes_nothing(stage: TestStage) {
    let mut log = stage.written("r-1", 2).await;
    let never = ok(stage.store().purge(&key("missing"), None).await, "purging a run that never was");
    assert_eq!(never, Removed::default());
    purged(&stage, &mut log).await;
    assert_eq!(purged(&stage, &mut log).await, Removed::default(), "the second time nothing is left");
}

/// A purge leaves other runs: runs of other tenants, runs whose names begin alike, forks of the run, and runs with the same labels.
pub(crate) async fn purging_one_run_leaves_others(stage: TestStage) {
    let store = stage.store();
    let said = || label(facts("w", 5), "k", "v");
    let mut log = stage.log("r-1").with_facts(said());
    log.write(&*store, 5).await;
    let at = log.head().expect("the log was written");
    let mut others: Vec<Log> =
        [key("r-10"), key("r-1.x"), key("r-"), key("r-1:0"), key_in("other", "r-1"), key_in("defaul", "t")]
            .map(|key| stage.log_of(key).with_facts(said()))
            .into();
    let fork = said().with_parent(Parent { run: log.key.clone(), at });
    others.push(stage.log("fork").with_facts(fork));
    for other in &mut others {
        other.write(&*store, 5).await;
    }
    purged(&stage, &mut log).await;
    for other in &others {
        is_kept(&*store, other).await;
    }
    let mut expected: Vec<_> = others.iter().map(|other| other.key.clone()).collect();
    expected.sort();
    assert_eq!(listed(&stage).await, expected, "all others are listed");
}

/// The id of a purged run can be used again. The new run has nothing of the old one.
pub(crate) async fn a_purged_id_can_be_used_again(stage: TestStage) {
    let store = stage.store();
    for (round, workflow) in (0..).zip(["first", "second", "third"]) {
        let said = label(facts(workflow, 100 - round), workflow, "yes");
        let mut log = stage.log("r-1").with_facts(said);
        log.write(&*store, 5).await;
        if round == 1 {
            let cut = PruneCut { at: Seq::new(4), base: None };
            ok(store.prune(&log.key, cut).await, "pruning");
            log.note_pruned(4, None);
        }
        is_kept(&*store, &log).await;
        let heads = every_run(&*store, &RunQuery::default(), Order::OldestFirst, 10).await;
        assert_eq!(heads, [log.run_head()], "one run is listed, the new one");
        purged(&stage, &mut log).await;
        is_kept_at_head(&*store, &log).await;
    }
}

/// The store refuses a writer of the old generation, before and after the new generation begins, because the writer expects a record that does not
/// exist.
pub(crate) async fn a_writer_of_the_old_generation_is_refused(stage: TestStage) {
    let store = stage.store();
    let mut old = stage.written("r-1", 3).await;
    let late = old.next(1);
    purged(&stage, &mut old).await;
    is_a_conflict(&*store, &late, None, "a late append to a purged run").await;
    is_kept_at_head(&*store, &old).await;

    let mut new = stage.log("r-1");
    for count in [1, 1, 1, 2] {
        new.write(&*store, count).await;
        is_a_conflict(&*store, &late, new.head(), "a late append to another generation").await;
        is_kept(&*store, &new).await;
    }
}

/// The new generation refuses a late start of the old one. It also refuses a repeat of an append that was acknowledged in the old one.
pub(crate) async fn a_start_of_the_old_generation_is_refused_in_the_new(stage: TestStage) {
    let store = stage.store();
    let mut old = stage.log("r-1");
    let start = old.next(1);
    appended(&*store, &start).await;
    old.note_append(&start);
    let more = old.next(1);
    appended(&*store, &more).await;
    old.note_append(&more);
    purged(&stage, &mut old).await;
    let mut new = stage.log("r-1");
    new.write(&*store, 2).await;
    is_a_conflict(&*store, &start, new.head(), "a late start").await;
    is_a_conflict(&*store, &more, new.head(), "a late repeat").await;
    is_kept(&*store, &new).await;
}

/// Every instance sees a purge by another instance, and the run that is started again.
pub(crate) async fn a_purge_counts_for_every_instance(stage: TestStage) {
    let (store, other) = (stage.store(), stage.another().await);
    let mut old = stage.written("r-1", 5).await;
    is_kept(&*other, &old).await;
    let late = old.next(1);
    purged(&stage, &mut old).await;
    is_kept_at_head(&*other, &old).await;
    is_a_conflict(&*other, &late, None, "a late append of another instance").await;
    let mut new = stage.log("r-1").with_facts(facts("another", 3));
    new.write(&*store, 5).await;
    is_kept(&*other, &new).await;
    is_a_conflict(&*other, &late, new.head(), "a late append of another instance").await;
    new.write(&*other, 1).await;
    is_kept(&*store, &new).await;
}

/// A purge that expects another head fails and removes nothing: a record before the head, a record after it, or another record with its number.
pub(crate) async fn a_purge_that_expects_another_head_is_a_conflict(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 2).await;
    let behind = log.head();
    log.write(&*store, 2).await;
    let mut ahead = log.clone();
    ahead.note_append(&ahead.next(1));
    let mut other = stage.log("r-1");
    other.note_append(&other.next(4));
    assert_eq!(other.head().map(|head| head.seq), log.head().map(|head| head.seq));
    for (expected, what) in [(behind, "before"), (ahead.head(), "after"), (other.head(), "of the number of")]
    {
        let what = format!("a purge that expects a record {what} the head");
        let error = expect_refusal(store.purge(&log.key, expected).await, &[ErrorKind::Conflict], &what);
        assert_eq!(error.actual_head(), Some(log.head()), "{what} is told the head there is: {error:?}");
        assert_eq!(error.run(), Some(&log.key), "{what} is told the run: {error:?}");
        is_kept(&*store, &log).await;
    }
}

/// A purge that expects the actual head removes the run, whether or not it was pruned. A second purge has nothing left to remove.
pub(crate) async fn a_purge_that_expects_the_head_removes_the_run(stage: TestStage) {
    let store = stage.store();
    for (name, cut) in [("r-1", 0), ("r-2", 4)] {
        let mut log = stage.written(name, 6).await;
        if cut > 0 {
            ok(store.prune(&log.key, PruneCut { at: Seq::new(cut), base: None }).await, "pruning");
            log.note_pruned(cut, None);
        }
        let (expected, head) = (size(&log), log.head());
        assert_eq!(ok(store.purge(&log.key, head).await, "purging at the head"), expected);
        let again = ok(store.purge(&log.key, head).await, "purging again, at the head that there was");
        assert_eq!(again, Removed::default(), "the second time nothing is left");
        log.records.clear();
        is_kept_at_head(&*store, &log).await;
        let mut new = stage.log(name);
        new.write(&*store, 2).await;
        let late = store.purge(&new.key, head).await;
        expect_refusal(late, &[ErrorKind::Conflict], "a late purge of the old generation");
        is_kept(&*store, &new).await;
    }
}

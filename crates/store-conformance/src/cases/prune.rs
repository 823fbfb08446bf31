//! Prunes: a record becomes a base and the oldest stored record. Earlier records are removed, and nothing else changes.

use ferrata_store::{
    At, CheckpointStore, ErrorKind, HeaderRange, Order, PruneCut, Record, Removed, Result, RunKey, RunStatus,
    Seq,
};

use super::conflict::is_a_conflict;
use crate::stage::{Log, TestStage, appended, expect_refusal, facts, is_kept, key, label, ok, query};

async fn prune(store: &dyn CheckpointStore, run: &RunKey, at: u64, base: Option<Record>) -> Result<Removed> {
    store.prune(run, PruneCut { at: Seq::new(at), base }).await
}

/// Prunes, which must succeed, and updates the expected log.
async fn pruned(store: &dyn CheckpointStore, log: &mut Log, at: u64, base: Option<Record>) -> Removed {
    let what = format!("pruning {} at {at}", log.key);
    let pruned = ok(prune(store, &log.key, at, base.clone()).await, &what);
    log.note_pruned(at, base);
    pruned
}

/// Returns the expected result of a prune at `at`.
fn removed(log: &Log, at: u64) -> Removed {
    let gone = log.records.iter().take_while(|record| record.header.seq.get() < at);
    gone.fold(Removed::default(), |sum, record| Removed {
        records: sum.records + 1,
        bytes: sum.bytes + record.body.len() as u64,
    })
}

/// A prune at a base removes the earlier records and returns how much it removed.
pub(crate) async fn pruning_at_a_base_drops_what_is_before_it(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 11).await;
    let other = stage.written("other", 11).await;
    let expected = removed(&log, 4);
    assert_eq!(pruned(&*store, &mut log, 4, None).await, expected, "what was removed");
    is_kept(&*store, &log).await;
    is_kept(&*store, &other).await;
}

/// A prune at another record replaces it by the given base.
pub(crate) async fn pruning_with_a_base_turns_the_record_into_it(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 11).await;
    let base = log.as_base(6);
    let done = pruned(&*store, &mut log, 6, Some(base.clone())).await;
    assert_eq!(done.records, 6, "how many records were removed");
    is_kept(&*store, &log).await;
    let loaded = ok(store.load(&log.key, At::Seq(Seq::new(6))).await, "loading the cut");
    assert_eq!(loaded, Some(vec![base]), "the record at the cut is the base given");
}

/// After a prune at the head, the head is the same and is the only stored record.
pub(crate) async fn pruning_at_the_head_keeps_the_head(stage: TestStage) {
    let store = stage.store();
    for (run, count, needs_base) in [("r-1", 9, false), ("r-2", 8, true)] {
        let mut log = stage.written(run, count).await;
        let before = ok(store.head(&log.key).await, "reading the head").expect("the run exists");
        let at = count as u64 - 1;
        let base = needs_base.then(|| log.as_base(at));
        let done = pruned(&*store, &mut log, at, base).await;
        assert_eq!(done.records, at, "how many records were removed");
        is_kept(&*store, &log).await;
        let mut after = ok(store.head(&log.key).await, "reading the head").expect("the run exists");
        assert_eq!(after.first, Seq::new(at), "the oldest record kept");
        after.first = before.first;
        assert_eq!(after, before, "the rest of the head is as it was");
        log.write(&*store, 3).await;
        is_kept(&*store, &log).await;
    }
}

/// A second prune at the same record is `Ok` and changes nothing.
pub(crate) async fn pruning_again_removes_nothing(stage: TestStage) {
    let store = stage.store();
    for (run, at, needs_base) in [("r-1", 4, false), ("r-2", 6, true)] {
        let mut log = stage.written(run, 11).await;
        let base = needs_base.then(|| log.as_base(at));
        pruned(&*store, &mut log, at, base.clone()).await;
        for again in [base, None] {
            let done = ok(prune(&*store, &log.key, at, again).await, "the same cut again");
            assert_eq!(done, Removed::default(), "nothing is left to remove");
            is_kept(&*store, &log).await;
        }
    }
}

/// A prune at a record that is already pruned is `Ok`, too.
pub(crate) async fn pruning_what_is_pruned_is_ok(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 11).await;
    let whole = log.clone();
    pruned(&*store, &mut log, 8, None).await;
    for (at, base) in [(4, None), (0, None), (7, None), (6, Some(whole.as_base(6)))] {
        let done = ok(prune(&*store, &log.key, at, base).await, "a cut before the one made");
        assert_eq!(done, Removed::default(), "nothing is left to remove");
        is_kept(&*store, &log).await;
    }
}

/// A prune at the first record removes nothing.
pub(crate) async fn pruning_at_the_first_record_removes_nothing(stage: TestStage) {
    let store = stage.store();
    let log = stage.written("r-1", 3).await;
    let done = ok(prune(&*store, &log.key, 0, None).await, "a cut at the first record");
    assert_eq!(done, Removed::default());
    is_kept(&*store, &log).await;
}

/// A growing log can be pruned again and again.
pub(crate) async fn pruning_goes_on_as_the_log_grows(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 3).await;
    for at in [2, 4, 5, 9, 16] {
        log.write(&*store, 4).await;
        let expected = removed(&log, at).records;
        let base = log.as_base(at);
        assert_eq!(pruned(&*store, &mut log, at, Some(base)).await.records, expected, "removed at {at}");
        is_kept(&*store, &log).await;
    }
}

/// Pruned records are not found, and the history starts at the cut.
pub(crate) async fn what_was_pruned_is_not_found(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 11).await;
    let gone = log.records[..8].to_vec();
    pruned(&*store, &mut log, 8, None).await;
    for record in gone {
        for at in [At::Seq(record.header.seq), At::Record(record.header.id)] {
            let loaded = store.load(&log.key, at).await;
            expect_refusal(loaded, &[ErrorKind::NotFound], "loading what was pruned");
        }
    }
    let history = ok(store.headers(&log.key, HeaderRange::oldest(1)).await, "listing the headers");
    assert_eq!(history.items[0].seq, Seq::new(8), "the history starts at the cut");
}

/// The facts of a run's start remain after its first record is pruned.
///
/// Guarantees: FORMAT-3.
pub(crate) async fn facts_outlive_pruning(stage: TestStage) {
    let store = stage.store();
    let said = label(facts("w", 77), "k", "v").with_user("somebody").expect("the user is valid");
    let mut log = stage.log("r-1").with_facts(said);
    log.write(&*store, 9).await;
    pruned(&*store, &mut log, 8, None).await;
    is_kept(&*store, &log).await;
    let query = query(|query| query.labels = vec![("k".to_owned(), "v".to_owned())]);
    let listed = crate::stage::every_run(&*store, &query, Order::OldestFirst, 10).await;
    assert_eq!(listed, [log.run_head()], "the run is found by what was said at its start");
}

/// After a prune, appends continue, but only after the same head.
pub(crate) async fn appends_go_on_after_pruning(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 6).await;
    let behind = log.next(1);
    log.write(&*store, 3).await;
    let next = log.next(2);
    pruned(&*store, &mut log, 8, None).await;
    is_a_conflict(&*store, &behind, log.head(), "an append after a record that was pruned").await;
    appended(&*store, &next).await;
    log.note_append(&next);
    is_kept(&*store, &log).await;
}

/// A prune needs an existing run and an existing record.
pub(crate) async fn pruning_where_nothing_is_is_not_found(stage: TestStage) {
    let store = stage.store();
    let log = stage.written("r-1", 3).await;
    let missing = prune(&*store, &key("missing"), 0, None).await;
    expect_refusal(missing, &[ErrorKind::NotFound], "pruning a run that does not exist");
    for at in [3, 4, u64::MAX] {
        let beyond = prune(&*store, &log.key, at, None).await;
        expect_refusal(beyond, &[ErrorKind::NotFound], "pruning beyond the head");
    }
    is_kept(&*store, &log).await;
}

/// A prune at a record that is no base needs a base from the caller.
pub(crate) async fn pruning_at_no_base_needs_one(stage: TestStage) {
    let store = stage.store();
    let log = stage.written("r-1", 7).await;
    for at in [1, 3, 5, 6] {
        let refused = prune(&*store, &log.key, at, None).await;
        expect_refusal(refused, &[ErrorKind::Invalid], "a cut at a record that is no base");
        is_kept(&*store, &log).await;
    }
}

/// The given base must be the record at the cut as a base, and it must be sealed.
pub(crate) async fn pruning_with_another_record_is_refused(stage: TestStage) {
    let store = stage.store();
    let log = stage.written("r-1", 8).await;
    let (at, good) = (6, log.as_base(6));
    let mut strange = good.clone();
    strange.header.id = log.records[5].header.id;
    let mut moved = good.clone();
    moved.header.seq = Seq::new(5);
    let mut finished = good.clone();
    finished.header.status = RunStatus::Completed;
    let mut no_base = good.clone();
    no_base.header.base = false;
    let mut unsealed = good.clone();
    unsealed.header.body_crc ^= 1;
    let cases = [
        ("another id", strange),
        ("another number", moved),
        ("another status", finished),
        ("no base", no_base),
        ("no seal", unsealed),
        ("the next record", log.as_base(7)),
    ];
    for (what, base) in cases {
        let refused = prune(&*store, &log.key, at, Some(base)).await;
        expect_refusal(refused, &[ErrorKind::Invalid, ErrorKind::Corrupt], &format!("a base with {what}"));
        is_kept(&*store, &log).await;
    }
}

/// A stored base stays unchanged, even if the caller gives one.
pub(crate) async fn a_base_stays_the_base_it_is(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 7).await;
    let base = log.as_base(4);
    pruned(&*store, &mut log, 4, Some(base)).await;
    is_kept(&*store, &log).await;
}

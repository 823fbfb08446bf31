//! Records under another run's name, and logs that have lost their end. Each call returns the right answer or an error, and never another run's log
//! or a shortened log.

use ferrata_store::{
    At, CheckpointStore, ErrorKind, HeaderRange, Order, Page, PruneCut, RunHead, RunQuery, Seq, is_news,
};

use crate::factory::Damage;
use crate::stage::{
    Log, TestStage, append_one, every_run, expect_refusal, is_kept, is_kept_at_head, ok, query,
};

/// The allowed errors for a run with such damage.
const REFUSALS: [ErrorKind; 1] = [ErrorKind::Corrupt];

/// Checks that every call that reads the run fails with damage, or returns the right answer.
async fn reads_are_true(store: &dyn CheckpointStore, log: &Log) {
    let run = &log.key;
    let last = log.records.len() as u64 - 1;
    match store.head(run).await {
        Ok(head) => assert_eq!(head, Some(log.run_head()), "the head of {run}"),
        refused => drop(expect_refusal(refused, &REFUSALS, &format!("reading the head of {run}"))),
    }
    let mut places = vec![(At::Latest, last)];
    for seq in 0..=last {
        let id = log.records[usize::try_from(seq).expect("the log is short")].header.id;
        places.extend([(At::Seq(Seq::new(seq)), seq), (At::Record(id), seq)]);
    }
    for (at, seq) in places {
        match store.load(run, at).await {
            Ok(loaded) => assert_eq!(loaded, Some(log.loaded(seq)), "what is loaded of {run} at {at}"),
            refused => drop(expect_refusal(refused, &REFUSALS, &format!("loading {run} at {at}"))),
        }
    }
    for known in log.records.iter().map(|record| record.header.head()) {
        match store.load_since(run, known).await {
            Ok(Some(loaded)) if is_news(known, &loaded) => {
                let from = usize::try_from(known.seq.get()).expect("the log is short") + 1;
                assert_eq!(loaded, log.records[from..], "what came to {run} after {known}");
            }
            Ok(loaded) => assert_eq!(loaded, Some(log.loaded(last)), "what is loaded of {run} after {known}"),
            refused => drop(expect_refusal(refused, &REFUSALS, &format!("loading {run} after {known}"))),
        }
    }
    for range in [HeaderRange::newest(100), HeaderRange::oldest(100), HeaderRange::newest(1)] {
        match store.headers(run, range).await {
            Ok(found) => {
                let from = log.records.len().saturating_sub(range.limit() as usize);
                assert_eq!(found.items, log.headers()[from..], "the headers of {run}, {range:?}");
            }
            refused => drop(expect_refusal(refused, &REFUSALS, &format!("listing headers of {run}"))),
        }
    }
}

/// Checks that a listing shows only true facts about these runs, and that a complete listing lacks none of them.
async fn listings_are_true(store: &dyn CheckpointStore, logs: &[&Log]) {
    let check = |listed: &[RunHead]| {
        for head in listed {
            let log = logs.iter().find(|log| log.key == head.run);
            assert_eq!(Some(head), log.map(|log| log.run_head()).as_ref(), "a head that is listed");
        }
    };
    for order in [Order::NewestFirst, Order::OldestFirst] {
        check(&every_run(store, &RunQuery::default(), order, 10).await);
    }
    match store.runs(&query(|query| query.complete = true), Page::default()).await {
        Ok(listed) => {
            check(&listed.items);
            assert_eq!(listed.items.len(), logs.len(), "a complete listing has every run, or fails");
        }
        refused => drop(expect_refusal(refused, &REFUSALS, "a listing that must be complete")),
    }
}

/// Checks that a call that changes the run fails, because the stored data does not belong to the run. An append that expects the true head may
/// succeed: it removes nothing, and becomes the end of the log.
async fn changes_are_refused(store: &dyn CheckpointStore, log: &mut Log) {
    let run = log.key.clone();
    let run = &run;
    let kinds = [ErrorKind::Corrupt, ErrorKind::Conflict];
    let mut behind = log.clone();
    behind.records.pop();
    for entry in [behind.next(1), behind.next(2), Log::new(run.clone()).next(1)] {
        let what = format!("an append to {run} after {:?}", entry.expected);
        expect_refusal(append_one(store, &entry).await, &kinds, &what);
    }
    for seq in [4, 8] {
        let pruned = store.prune(run, PruneCut { at: Seq::new(seq), base: None }).await;
        expect_refusal(pruned, &REFUSALS, &format!("a prune of {run} at {seq}"));
    }
    for head in [log.head(), behind.head()] {
        let purged = store.purge(run, head).await;
        expect_refusal(purged, &kinds, &format!("a purge of {run} that expects {head:?}"));
    }
    let entry = log.next(1);
    match append_one(store, &entry).await {
        Ok(_) => log.note_append(&entry),
        refused => drop(expect_refusal(refused, &kinds, &format!("an append to {run}"))),
    }
}

/// Writes two logs of nine records and swaps them, and one log between them that stays in its place.
async fn swapped(stage: TestStage) -> (TestStage, [Log; 2], Log) {
    let first = stage.written("a", 9).await;
    let other = stage.written("b", 9).await;
    let second = stage.written("c", 9).await;
    let stage = stage.damaged(&first, Damage::Swapped(second.key.clone())).await;
    (stage, [first, second], other)
}

/// No call uses records that are stored under another run's name.
///
/// Guarantees: SQLITE-11.
pub(crate) async fn swapped_runs_answer_no_call_falsely(stage: TestStage) {
    let (stage, mut logs, other) = swapped(stage).await;
    let store = stage.store();
    for log in &logs {
        reads_are_true(&*store, log).await;
    }
    listings_are_true(&*store, &[&logs[0], &other, &logs[1]]).await;
    for log in &mut logs {
        changes_are_refused(&*store, log).await;
    }
    // A refused call has changed nothing, not even a part.
    for log in &logs {
        reads_are_true(&*store, log).await;
    }
}

/// Swapped runs do not affect other runs.
pub(crate) async fn swapped_runs_harm_no_other_run(stage: TestStage) {
    let (stage, [first, _], mut other) = swapped(stage).await;
    let store = stage.store();
    is_kept(&*store, &other).await;
    let batch = vec![first.next(1), other.next(2)];
    let mut results = store.append(batch.clone()).await;
    ok(results.remove(1), "an entry beside that of a damaged run");
    other.note_append(&batch[1]);
    is_kept(&*store, &other).await;
    let listed = every_run(&*store, &RunQuery::default(), Order::OldestFirst, 1).await;
    assert!(listed.contains(&other.run_head()), "{} is listed beside damaged runs", other.key);
}

/// Swapped runs can be purged without effect on other runs, and their ids can be used again.
///
/// Guarantees: SQLITE-12.
pub(crate) async fn swapped_runs_can_be_purged(stage: TestStage) {
    let (stage, logs, other) = swapped(stage).await;
    let store = stage.store();
    for log in &logs {
        ok(store.purge(&log.key, None).await, "purging a run that stands under another name");
        is_kept(&*store, &other).await;
    }
    for mut log in logs {
        log.records.clear();
        is_kept_at_head(&*store, &log).await;
        log.write(&*store, 3).await;
        is_kept(&*store, &log).await;
    }
    is_kept(&*store, &other).await;
}

/// If the last record of a log is missing, a load never returns a shorter log.
///
/// Guarantees: SQLITE-11.
pub(crate) async fn missing_tail_is_never_a_shorter_log(mut stage: TestStage) {
    // Cases: the last record is a base, is no base, or is the second record.
    for (run, count) in [("a", 9), ("b", 7), ("c", 2)] {
        let log = stage.written(run, count).await;
        stage = stage.damaged(&log, Damage::Tail).await;
        let store = stage.store();
        reads_are_true(&*store, &log).await;
        let gone = store.load(&log.key, At::Seq(Seq::new(count as u64 - 1))).await;
        expect_refusal(gone, &REFUSALS, "loading the record that is gone");
        match store.runs(&query(|query| query.complete = true), Page::default()).await {
            Ok(listed) => assert!(listed.items.contains(&log.run_head()), "a complete listing: {listed:?}"),
            refused => drop(expect_refusal(refused, &REFUSALS, "a listing that must be complete")),
        }
    }
}

/// If damage made an earlier record the last one, the store appends nothing after it, and reports no false head.
pub(crate) async fn missing_tail_takes_no_other_end(stage: TestStage) {
    let [mut before, mut log] = [stage.written("a", 9).await, stage.written("b", 9).await];
    let stage = stage.damaged(&log, Damage::Tail).await;
    let store = stage.store();
    let mut shorter = log.clone();
    shorter.records.pop();
    let kinds = [ErrorKind::Corrupt, ErrorKind::Conflict];
    for entry in [shorter.next(1), shorter.next(2)] {
        expect_refusal(append_one(&*store, &entry).await, &kinds, "an append behind what is left of a log");
    }
    expect_refusal(store.purge(&log.key, shorter.head()).await, &kinds, "a purge that expects what is left");
    reads_are_true(&*store, &log).await;
    before.write(&*store, 1).await;
    is_kept(&*store, &before).await;
    ok(store.purge(&log.key, None).await, "purging a run whose end is gone");
    log.records.clear();
    is_kept_at_head(&*store, &log).await;
    log.write(&*store, 3).await;
    is_kept(&*store, &log).await;
}

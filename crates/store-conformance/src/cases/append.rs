//! Cases about appends: a batch returns one result for each entry, and an entry stores all of its records or none.

use ferrata_store::ErrorKind;

use crate::stage::{Log, TestStage, append_one, expect_refusal, is_kept, is_kept_at_head, ok};

/// The first append creates a run with its head and its facts.
pub(crate) async fn a_run_begins_with_its_first_append(stage: TestStage) {
    let mut log = stage.log("r-1");
    is_kept_at_head(&*stage.store(), &log).await;
    log.write(&*stage.store(), 1).await;
    is_kept(&*stage.store(), &log).await;
}

/// Each append adds its records after the head, and adds nothing else.
pub(crate) async fn records_follow_each_other(stage: TestStage) {
    let mut log = stage.log("r-1");
    for count in [1, 1, 2, 1, 5, 3] {
        log.write(&*stage.store(), count).await;
        is_kept(&*stage.store(), &log).await;
    }
}

/// A batch has one result for each entry, in the order of the entries.
pub(crate) async fn each_entry_has_its_result_in_order(stage: TestStage) {
    let store = stage.store();
    let old = stage.written("old", 2).await;
    let stale = stage.written("stale", 1).await;
    let behind = stale.next(1);
    let mut stale = stale;
    stale.write(&*store, 1).await;
    let (first, last) = (stage.log("first"), stage.log("last"));
    let missing = stage.log("missing");
    let mut lost = missing.next(1);
    lost.expected = old.head();
    lost.facts = None;
    lost.records[0] = old.next(1).records.remove(0);

    let batch = vec![first.next(1), behind, old.next(3), lost, last.next(2)];
    let ends: Vec<_> = batch.iter().map(|entry| entry.records.last().map(|r| r.header.head())).collect();
    let results = store.append(batch).await;
    assert_eq!(results.len(), 5, "one result for each entry: {results:?}");
    for place in [0, 2, 4] {
        assert_eq!(
            results[place].as_ref().ok().copied(),
            ends[place],
            "entry {place} is Ok with its own head"
        );
    }
    for (place, actual) in [(1, stale.head()), (3, None)] {
        let error = results[place].as_ref().expect_err("the entry expects another head");
        assert_eq!(error.kind(), ErrorKind::Conflict, "entry {place}: {error:?}");
        assert_eq!(error.actual_head(), Some(actual), "entry {place} names the head of its own run");
    }
}

/// A refused entry of one run never harms another run of the same batch.
pub(crate) async fn a_refused_entry_harms_no_other(stage: TestStage) {
    let store = stage.store();
    let mut kept = stage.written("kept", 1).await;
    let mut begun = stage.log("begun");
    let refused = stage.written("refused", 2).await;
    let mut behind = stage.written("other", 2).await.next(1);
    behind.run = refused.key.clone();
    let mut unsealed = stage.log("unsealed").next(1);
    unsealed.records[0].header.body_crc ^= 1;

    let (add, start) = (kept.next(2), begun.next(2));
    let results = store.append(vec![behind, add.clone(), unsealed, start.clone()]).await;
    let is_ok: Vec<_> = results.iter().map(Result::is_ok).collect();
    assert_eq!(is_ok, [false, true, false, true], "the good entries are written: {results:?}");
    kept.note_append(&add);
    begun.note_append(&start);
    for log in [&kept, &begun, &refused, &stage.log("unsealed")] {
        is_kept(&*store, log).await;
    }
}

/// When the store refuses an entry, it writes none of its records.
pub(crate) async fn a_refused_entry_is_not_written_in_part(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 3).await;
    let behind = log.next(4);
    log.write(&*store, 1).await;
    expect_refusal(append_one(&*store, &behind).await, &[ErrorKind::Conflict], "an append behind the head");
    is_kept(&*store, &log).await;

    let mut unsealed = log.next(4);
    unsealed.records[3].header.body_len += 1;
    append_one(&*store, &unsealed).await.expect_err("an append whose last record is not sealed is refused");
    is_kept(&*store, &log).await;

    let mut new = stage.log("r-2").next(4);
    new.records[2].header.prev = None;
    append_one(&*store, &new).await.expect_err("a start whose third record is not chained is refused");
    is_kept(&*store, &stage.log("r-2")).await;
}

/// If a run has two entries in a batch, the store executes the first and refuses the second and every further entry.
pub(crate) async fn a_run_twice_in_a_batch_counts_once(stage: TestStage) {
    let store = stage.store();
    let mut old = stage.written("old", 1).await;
    let mut new = stage.log("new");
    let (add, start) = (old.next(1), new.next(1));
    old.note_append(&add);
    new.note_append(&start);
    let batch = vec![add, start, old.next(1), new.next(1), old.next(1)];
    let results = store.append(batch).await;
    assert_eq!(results.len(), 5, "one result for each entry: {results:?}");
    for (place, result) in results.into_iter().enumerate() {
        if place < 2 {
            ok(result, "the first entry of a run");
        } else {
            expect_refusal(result, &[ErrorKind::Invalid], "the second entry of a run");
        }
    }
    is_kept(&*store, &old).await;
    is_kept(&*store, &new).await;
}

/// The store refuses the second entry of a run even if it refused the first.
pub(crate) async fn a_run_refused_in_a_batch_has_no_second_try(stage: TestStage) {
    let store = stage.store();
    let mut behind = stage.written("old", 1).await;
    let late = behind.next(1);
    behind.write(&*store, 1).await;
    let new = stage.log("new");
    let mut unsealed = new.next(1);
    unsealed.records[0].header.body_crc ^= 1;

    let results = store.append(vec![late, unsealed, behind.next(1), new.next(1)]).await;
    assert_eq!(results.len(), 4, "one result for each entry: {results:?}");
    assert!(results[..2].iter().all(Result::is_err), "the first entries are refused: {results:?}");
    for result in results.into_iter().skip(2) {
        expect_refusal(result, &[ErrorKind::Invalid], "the second entry of a run");
    }
    is_kept(&*store, &behind).await;
    is_kept(&*store, &new).await;
}

/// A batch without entries returns no results.
pub(crate) async fn an_empty_batch_has_no_results(stage: TestStage) {
    let results = stage.store().append(Vec::new()).await;
    assert!(results.is_empty(), "no entry, no result: {results:?}");
}

/// An entry may have a thousand records. The store keeps all of them, in order.
pub(crate) async fn an_entry_of_a_thousand_records_is_kept_whole(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.log("long");
    log.write(&*store, 1_000).await;
    log.write(&*store, 1_000).await;
    is_kept_at_head(&*store, &log).await;
    let headers =
        crate::stage::every_header(&*store, &log.key, ferrata_store::HeaderRange::oldest(1_000)).await;
    assert_eq!(headers, log.headers(), "the headers of two thousand records");
}

/// A batch may have two hundred runs. The store keeps all of them.
pub(crate) async fn a_batch_of_two_hundred_runs_is_kept(stage: TestStage) {
    let store = stage.store();
    let mut logs: Vec<Log> = (0..stage.times(200, 40)).map(|n| stage.log(&format!("r-{n}"))).collect();
    for count in [1, 2] {
        let batch: Vec<_> = logs.iter().map(|log| log.next(count)).collect();
        let results = store.append(batch.clone()).await;
        assert_eq!(results.len(), batch.len(), "one result for each entry");
        for ((log, entry), result) in logs.iter_mut().zip(&batch).zip(results) {
            ok(result, "an entry of a large batch");
            log.note_append(entry);
        }
    }
    for log in &logs {
        is_kept_at_head(&*store, log).await;
    }
}

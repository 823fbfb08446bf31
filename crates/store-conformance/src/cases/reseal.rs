//! Reseals, for stores that support them: a record with another body replaces the same record, and nothing else changes.
//!
//! If [`resealing`](CheckpointStore::resealing) returns `None`, the store passes these properties.

use std::sync::Arc;

use ferrata_store::{
    At, CheckpointStore, ErrorKind, HeaderRange, PruneCut, Record, RecordId, Resealing, RunKey, Seq,
};
use tokio::task::JoinSet;

use crate::stage::{Log, TestStage, every_header, expect_refusal, is_kept, key, ok};

/// Returns a record of the log in another envelope, which has another length.
fn anew(log: &Log, seq: u64) -> Record {
    let first = log.records[0].header.seq.get();
    let record = &log.records[usize::try_from(seq - first).expect("the log is short")];
    let body = match seq % 2 {
        0 => format!("{{\"anew\":\"{}\"}}", "x".repeat(300)),
        _ => "{}".to_owned(),
    };
    Record::seal(record.header.clone(), body.into()).expect("the bodies of tests are small")
}

/// Replaces records, checks that all were replaced, and updates the log.
async fn resealed(resealing: &dyn Resealing, log: &mut Log, seqs: &[u64]) {
    let given: Vec<Record> = seqs.iter().map(|seq| anew(log, *seq)).collect();
    let replaced = ok(resealing.reseal(&log.key, &given).await, "putting records in other envelopes");
    assert_eq!(replaced, given.len() as u64, "how many were replaced");
    for record in given {
        let kept = log.records.iter_mut().find(|kept| kept.header.seq == record.header.seq);
        *kept.expect("it is one of the log") = record;
    }
}

/// After a reseal, every reader gets the same record, and the log can continue. Tests bases, the first record, the head, and others.
pub(crate) async fn the_same_record_in_another_envelope_takes_its_place(stage: TestStage) {
    let store = stage.store();
    let Some(resealing) = store.resealing() else { return };
    let mut log = stage.log("r-1");
    for count in [1, 3, 5, 2] {
        log.write(&*store, count).await;
    }
    let other = stage.written("other", 11).await;
    resealed(resealing, &mut log, &[0, 3, 4, 5, 10]).await;
    is_kept(&*store, &log).await;
    // Reseal some records again, together with others, then all records.
    resealed(resealing, &mut log, &[0, 1, 4, 9]).await;
    resealed(resealing, &mut log, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]).await;
    is_kept(&*store, &log).await;
    is_kept(&*store, &other).await;
    log.write(&*store, 3).await;
    is_kept(&*store, &log).await;
    let base = log.as_base(6);
    ok(store.prune(&log.key, PruneCut { at: Seq::new(6), base: Some(base.clone()) }).await, "pruning");
    log.note_pruned(6, Some(base));
    // The oldest stored record, which is a base by now, and the head.
    resealed(resealing, &mut log, &[6, 7, 13]).await;
    log.write(&*store, 2).await;
    is_kept(&*store, &log).await;
}

/// The store skips a record that does not match the stored record: another id, a base instead of no base, a pruned record, or a record that was
/// never written.
pub(crate) async fn what_is_another_record_by_now_is_passed_over(stage: TestStage) {
    let store = stage.store();
    let Some(resealing) = store.resealing() else { return };
    let mut log = stage.written("r-1", 11).await;
    let mut strange = anew(&log, 6);
    strange.header.id = RecordId::from_uuid(*log.records[5].header.id.as_uuid());
    let mut base = anew(&log, 6);
    base.header.base = true;
    let mut no_base = anew(&log, 8);
    no_base.header.base = false;
    let mut beyond = anew(&log, 10);
    beyond.header.seq = Seq::new(11);
    for (what, record) in
        [("another id", strange), ("a base", base), ("no base", no_base), ("beyond the head", beyond)]
    {
        let replaced = ok(resealing.reseal(&log.key, &[record]).await, what);
        assert_eq!(replaced, 0, "{what} is another record");
        is_kept(&*store, &log).await;
    }
    let (gone, mut wrong, right) = (anew(&log, 3), anew(&log, 7), anew(&log, 9));
    wrong.header.id = gone.header.id;
    ok(store.prune(&log.key, PruneCut { at: Seq::new(4), base: None }).await, "pruning");
    log.note_pruned(4, None);
    let replaced = ok(resealing.reseal(&log.key, &[gone, wrong, right.clone()]).await, "some of each");
    assert_eq!(replaced, 1, "one of them is the record that is there");
    log.records[5] = right;
    is_kept(&*store, &log).await;
}

/// The store refuses records that are out of order, given twice or not sealed, and a run that does not exist.
pub(crate) async fn what_is_out_of_order_or_not_sealed_is_refused(stage: TestStage) {
    let store = stage.store();
    let Some(resealing) = store.resealing() else { return };
    let log = stage.written("r-1", 5).await;
    let mut unsealed = anew(&log, 2);
    unsealed.header.body_crc ^= 1;
    for records in [[anew(&log, 3), anew(&log, 1)], [anew(&log, 1), anew(&log, 1)], [anew(&log, 1), unsealed]]
    {
        let refused = resealing.reseal(&log.key, &records).await;
        expect_refusal(refused, &[ErrorKind::Invalid], "records that cannot be kept");
        is_kept(&*store, &log).await;
    }
    assert_eq!(ok(resealing.reseal(&log.key, &[]).await, "no records"), 0, "nothing is replaced");
    let missing = resealing.reseal(&key("missing"), &[anew(&log, 1)]).await;
    expect_refusal(missing, &[ErrorKind::NotFound], "a run that does not exist");
}

/// Appends of other instances continue during a reseal, and no record is lost.
///
/// Guarantees: AT-REST-8.
pub(crate) async fn appends_go_on_while_records_are_resealed(stage: TestStage) {
    if stage.store().resealing().is_none() {
        return;
    }
    let mut log = stage.written("r-1", 6).await;
    let (key, sealed, other): (RunKey, _, Arc<dyn CheckpointStore>) =
        (log.key.clone(), log.clone(), stage.another().await);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        for _ in 0..5 {
            for seq in [0, 2, 4, 5] {
                let given = [anew(&sealed, seq)];
                let done = other.resealing().expect("it can").reseal(&key, &given).await;
                assert_eq!(ok(done, "putting a record in another envelope"), 1, "it is there");
            }
        }
    });
    for _ in 0..10 {
        log.write(&*stage.store(), 1).await;
        tokio::task::yield_now().await;
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("nothing is lost");
    }
    for seq in [0, 2, 4, 5] {
        log.records[seq] = anew(&log, seq as u64);
    }
    is_kept(&*stage.store(), &log).await;
}

/// During a reseal, a reader in another instance finds each record, in the old or the new envelope.
///
/// Guarantees: AT-REST-9, NATS-15.
pub(crate) async fn readers_find_every_record_while_it_is_resealed(stage: TestStage) {
    if stage.store().resealing().is_none() {
        return;
    }
    let log = stage.written("r-1", 9).await;
    let (key, sealed, other): (RunKey, _, Arc<dyn CheckpointStore>) =
        (log.key.clone(), log.clone(), stage.another().await);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        for _ in 0..6 {
            for seqs in [&[4][..], &[0, 1, 2], &[8], &[0, 1, 2, 3, 4, 5, 6, 7]] {
                let given: Vec<Record> = seqs.iter().map(|seq| anew(&sealed, *seq)).collect();
                let done = other.resealing().expect("it can").reseal(&key, &given).await;
                assert_eq!(
                    ok(done, "putting records in other envelopes"),
                    given.len() as u64,
                    "all are there"
                );
            }
        }
    });
    let ids = |records: &[Record]| records.iter().map(|record| record.header.id).collect::<Vec<_>>();
    let store = stage.store();
    loop {
        for (at, seq) in
            [(At::Latest, 8), (At::Seq(Seq::new(2)), 2), (At::Record(log.records[5].header.id), 5)]
        {
            let loaded = ok(store.load(&log.key, at).await, &format!("loading at {at}"));
            let loaded = loaded.expect("the run is there");
            assert_eq!(ids(&loaded), ids(&log.loaded(seq)), "what is loaded at {at}");
        }
        let headers = every_header(&*store, &log.key, HeaderRange::oldest(1_000)).await;
        let headers: Vec<_> = headers.iter().map(|header| header.id).collect();
        assert_eq!(headers, ids(&log.records), "the headers");
        match tasks.try_join_next() {
            Some(done) => return done.expect("nothing is lost"),
            None => tokio::task::yield_now().await,
        }
    }
}

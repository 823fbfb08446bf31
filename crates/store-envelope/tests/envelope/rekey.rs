//! `rekey` encrypts data under old keys again, and loses nothing.

use ferrata_store::{At, CheckpointStore, ErrorKind, MemoryStore, Record, RunKey, TenantId, for_each_record};
use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore, RekeyOptions, RekeyReport, key_usage};
use ferrata_testing::{Fault, FaultPlan, FaultStore, Log};
use proptest::prelude::*;

use super::stirred::{Stirred, World};
use super::{all, encrypting, wrapped, written};

fn log(tenant: &str, run: &str) -> Log {
    let tenant = TenantId::new(tenant).unwrap();
    Log::new(RunKey::new(tenant, run.parse().unwrap())).with_bases_every(3)
}

/// Rekeys all runs, in pages of this size.
async fn rekeyed<S: CheckpointStore>(
    store: &EnvelopeStore<S>,
    runs: u32,
    options: RekeyOptions,
) -> RekeyReport {
    let mut all = RekeyReport::default();
    let mut options = options.with_runs(runs);
    loop {
        let done = store.rekey(options.clone()).await.unwrap();
        assert!(done.runs <= u64::from(runs));
        all.runs += done.runs;
        all.records += done.records;
        all.bytes += done.bytes;
        all.changed += done.changed;
        all.failed.extend(done.failed);
        match done.next {
            Some(next) => options = options.with_cursor(next),
            None => return all,
        }
    }
}

/// The required keys, as `TENANT/KEY RECORDS`.
async fn keys_of(store: &dyn CheckpointStore) -> Vec<String> {
    let usage = key_usage(store, None).await.unwrap();
    let shown = |key: Option<String>| key.unwrap_or_else(|| "-".into());
    usage.into_iter().map(|one| format!("{}/{} {}", one.tenant, shown(one.key), one.records)).collect()
}

async fn records_of(store: &dyn CheckpointStore, run: &RunKey) -> Vec<Record> {
    let head = store.head(run).await.unwrap().unwrap();
    let mut records = Vec::new();
    let take = |record: &Record| {
        records.push(record.clone());
        Ok(())
    };
    assert!(for_each_record(store, &head, take).await.unwrap());
    records.sort_by_key(|record| record.header.seq);
    records
}

/// Guarantees: AT-REST-8.
#[tokio::test]
async fn rekey_moves_every_record_to_current_key() {
    let inner = MemoryStore::new();
    let under = |options: EnvelopeOptions| EnvelopeStore::new(inner.clone(), options);
    let (mut ann, mut bob) = (log("ann", "r"), log("bob", "r"));
    ann.write(&under(EnvelopeOptions::default()), 2).await;
    ann.write(&under(EnvelopeOptions::default().with_compress_from(Some(0))), 2).await;
    ann.write(&under(encrypting(&["old"]).with_compress_from(Some(0))), 7).await;
    ann.write(&under(encrypting(&["new"])), 4).await;
    bob.write(&under(encrypting(&["older"])), 5).await;
    let before = keys_of(&inner).await;
    assert_eq!(before, ["ann/- 4", "ann/new 4", "ann/old 7", "bob/older 5"]);

    let both = || encrypting(&["new", "old", "older"]);
    let said =
        rekeyed(&under(both().with_accept_plain(true)), 1, RekeyOptions::default().with_dry_run(true)).await;
    assert_eq!((said.runs, said.records, said.changed, said.failed.len()), (2, 16, 0, 0));
    assert!(said.bytes > 0);
    assert_eq!(keys_of(&inner).await, before, "a dry run must change nothing");

    // Rekey one tenant only. Unencrypted records are rejected, and fail only their own run.
    let tenant = Some(TenantId::new("bob").unwrap());
    let done = rekeyed(&under(both()), 100, RekeyOptions::default().with_tenant(tenant)).await;
    assert_eq!((done.runs, done.records), (1, 5));
    let done = rekeyed(&under(both()), 1, RekeyOptions::default()).await;
    let [(run, error)] = &done.failed[..] else { panic!("{done:?}") };
    assert!(*run == ann.key && error.kind() == ErrorKind::Corrupt, "{error}");
    assert_eq!(done.runs, 2);

    rekeyed(&under(both().with_accept_plain(true)), 1, RekeyOptions::default()).await;
    assert_eq!(keys_of(&inner).await, ["ann/new 15", "bob/new 5"]);
    let only = under(encrypting(&["new"]));
    for log in [&ann, &bob] {
        assert_eq!(records_of(&only, &log.key).await, log.records);
    }
    let again = rekeyed(&only, 100, RekeyOptions::default()).await;
    assert_eq!((again.runs, again.records, again.bytes), (2, 0, 0));
    // Writers continue from their heads.
    ann.write(&only, 2).await;
    assert_eq!(records_of(&only, &ann.key).await, ann.records);
}

#[tokio::test]
async fn a_run_that_cannot_be_opened_fails_alone() {
    let (inner, store) = wrapped(all());
    let (broken, whole) = (written(&store, "a", 3).await, written(&store, "b", 3).await);
    inner.tamper(&broken.key, |records| {
        let mut body = records[1].body.to_vec();
        *body.last_mut().unwrap() ^= 1;
        records[1] = Record::seal(records[1].header.clone(), body.into()).unwrap();
    });
    let newer = EnvelopeStore::new(inner.clone(), encrypting(&["newest", "new"]));
    let done = rekeyed(&newer, 100, RekeyOptions::default()).await;
    assert_eq!((done.runs, done.records, done.failed.len()), (2, 3, 1));
    assert_eq!((&done.failed[0].0, done.failed[0].1.kind()), (&broken.key, ErrorKind::Corrupt));
    assert_eq!(records_of(&newer, &whole.key).await, whole.records);
    // A key that is missing in the ring is named.
    let lacking = EnvelopeStore::new(inner.clone(), encrypting(&["newer"]));
    let done = rekeyed(&lacking, 100, RekeyOptions::default()).await;
    assert_eq!((done.records, done.failed.len()), (0, 2));
    assert!(done.failed[1].1.to_string().contains("`newest`"), "{:?}", done.failed);
}

#[tokio::test]
async fn rekey_refuses_missing_keys_and_unsupported_store() {
    let without_keys = EnvelopeStore::new(MemoryStore::new(), EnvelopeOptions::default());
    let error = without_keys.rekey(RekeyOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let cannot = EnvelopeStore::new(Stirred::fixed(MemoryStore::new()), all());
    let error = cannot.rekey(RekeyOptions::default()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("prune"), "{error}");
    assert!(cannot.resealing().is_none());
}

/// Guarantees: AT-REST-8.
#[tokio::test]
async fn interrupted_rekey_can_be_repeated() {
    let (old, both) = (encrypting(&["old"]), || encrypting(&["new", "old"]));
    let world = async || {
        let inner = MemoryStore::new();
        let store = EnvelopeStore::new(inner.clone(), old.clone());
        let mut logs = [log("ann", "r"), log("ann", "s")];
        for log in &mut logs {
            log.write(&store, 8).await;
        }
        (inner, logs)
    };
    let (inner, _) = world().await;
    let calm = EnvelopeStore::new(FaultStore::new(inner, FaultPlan::new()), both());
    rekeyed(&calm, 1, RekeyOptions::default()).await;
    let writes = calm.inner().operations();
    assert_eq!(writes, 6, "one key for each base and its successors");
    for at in 0..writes {
        for fault in Fault::ALL {
            let (inner, logs) = world().await;
            let failing = FaultStore::new(inner.clone(), FaultPlan::new().with_fault(at, fault));
            let cut_off = EnvelopeStore::new(failing, both()).rekey(RekeyOptions::default()).await;
            assert!(cut_off.is_err() || !cut_off.unwrap().failed.is_empty(), "{fault:?} at {at}");
            let store = EnvelopeStore::new(inner.clone(), both());
            for log in &logs {
                assert_eq!(records_of(&store, &log.key).await, log.records, "{fault:?} at {at}");
            }
            let done = rekeyed(&store, 100, RekeyOptions::default()).await;
            assert!(done.failed.is_empty() && done.records < 16 || at == 0, "{fault:?} at {at}: {done:?}");
            assert_eq!(keys_of(&inner).await, ["ann/new 16"], "{fault:?} at {at}");
            let only = EnvelopeStore::new(inner, encrypting(&["new"]));
            for log in &logs {
                assert_eq!(records_of(&only, &log.key).await, log.records, "{fault:?} at {at}");
            }
        }
    }
}

/// Guarantees: AT-REST-5.
#[tokio::test]
async fn append_with_lost_reply_repeats_after_rekey() {
    let inner = MemoryStore::new();
    let mut log = log("ann", "r");
    log.write(&EnvelopeStore::new(inner.clone(), encrypting(&["old"])), 2).await;
    let append = log.next(2);
    let lost = FaultStore::new(inner.clone(), FaultPlan::new().with_fault(0, Fault::After));
    let writer = EnvelopeStore::new(lost, encrypting(&["new", "old"]));
    assert!(writer.append(vec![append.clone()]).await.remove(0).is_err());
    let newest = EnvelopeStore::new(inner.clone(), encrypting(&["newest", "new", "old"]));
    assert_eq!(rekeyed(&newest, 100, RekeyOptions::default()).await.records, 4);
    let again = newest.append(vec![append.clone()]).await.remove(0).unwrap();
    assert_eq!(again, append.records.last().unwrap().header.head());
    let loaded = newest.load(&log.key, At::Latest).await.unwrap().unwrap();
    assert_eq!(loaded.last(), append.records.last());
}

/// Before each read or write of a rekey, another operation runs on the store, and some writes of the rekey fail.
async fn at_random(seed: u64) {
    let world = World::new(seed);
    for _ in 0..30 {
        world.stir().await;
    }
    for _ in 0..4 {
        world.rotate().await;
        let plan = match world.below(2).await {
            0 => FaultPlan::new(),
            _ => {
                let fault = Fault::ALL[world.below(Fault::ALL.len()).await];
                FaultPlan::new().with_fault(world.below(4).await as u64, fault)
            }
        };
        let stirred = FaultStore::new(Stirred::by(&world), plan);
        // It fails, or some of its runs do, because of the planned faults.
        let _ended = EnvelopeStore::new(stirred, world.options().await).rekey(RekeyOptions::default()).await;
        world.check().await;
    }
    // Without concurrent operations, every record is encrypted with the current key, and needs no other.
    let quiet = EnvelopeStore::new(world.store.clone(), world.options().await);
    let done = rekeyed(&quiet, 3, RekeyOptions::default()).await;
    assert!(done.failed.is_empty() && done.changed == 0, "{done:?}");
    let current = world.forget_old_keys().await;
    for used in key_usage(&world.store, None).await.unwrap() {
        assert_eq!(used.key.as_deref(), Some(&*current), "{used:?}");
    }
    world.check().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// Guarantees: AT-REST-8.
    #[test]
    fn nothing_is_lost_whatever_happens_beside_it(seed: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(at_random(seed));
    }
}

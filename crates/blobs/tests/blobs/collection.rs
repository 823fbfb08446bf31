//! Collection removes exactly the values that no record names, even with concurrent writers and failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ferrata_blobs::{Blobs, CollectOptions, CollectionReport};
use ferrata_store::{
    CheckpointStore, ErrorKind, FORMAT, MemoryStore, Page, RunAppend, RunId, RunKey, RunQuery, Seq,
    for_each_record,
};
use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore};
use ferrata_store_fs::FsStore;
use ferrata_testing::{Log, facts};
use futures_util::FutureExt as _;
use object_store::ObjectStoreExt as _;
use proptest::prelude::*;

use super::keys;
use super::world::{Acting, World};

/// No grace period, so that each step is due at once.
fn now() -> CollectOptions {
    CollectOptions::default().with_grace(Duration::ZERO)
}

async fn collect(blobs: &Blobs, store: &MemoryStore) -> CollectionReport {
    blobs.collect(&[store], now()).await.unwrap()
}

/// A run with one record, which contains `body`.
async fn run(store: &dyn CheckpointStore, name: &str, body: String) -> Log {
    run_of(store, name, 0, body).await
}

/// The same with a creation time.
async fn run_of(store: &dyn CheckpointStore, name: &str, created: i64, body: String) -> Log {
    let mut log = Log::new(RunId::new(name).unwrap()).with_facts(facts("review", created));
    let append = log.next_body(Bytes::from(body));
    store.append(vec![append.clone()]).await.remove(0).unwrap();
    log.note_append(&append);
    log
}

/// The append that starts a run with all records of this log.
fn whole(log: &Log) -> RunAppend {
    let facts = Some(log.facts.clone());
    RunAppend { run: log.key.clone(), expected: None, records: log.records.clone(), facts }
}

/// Guarantees: BLOB-5.
#[tokio::test]
async fn what_no_record_names_goes_and_nothing_else() {
    let (store, blobs) = (MemoryStore::new(), Blobs::in_memory());
    let [named, unnamed] = [blobs.put("named").await.unwrap(), blobs.put("unnamed").await.unwrap()];
    let log = run(&store, "r", format!("{{\"doc\":\"{named}\"}}")).await;
    // Within the grace period, nothing is removed.
    let patient = blobs.collect(&[&store], CollectOptions::default()).await.unwrap();
    assert_eq!((patient.runs, patient.named, patient.waiting, patient.condemned), (1, 1, 1, 0));
    // A dry run reports the same plan each time.
    for _ in 0..2 {
        let dry = blobs.collect(&[&store], now().with_dry_run(true)).await.unwrap();
        assert_eq!((dry.named, dry.waiting, dry.condemned, dry.removed), (1, 1, 1, 0));
    }
    // The first step removes nothing. From then on, no put returns that name.
    let first = collect(&blobs, &store).await;
    assert_eq!((first.named, first.condemned, first.removed), (1, 1, 0));
    assert_eq!(blobs.get(&unnamed).await.unwrap(), "unnamed");
    let again = blobs.put("unnamed").await.unwrap();
    assert_ne!(again, unnamed);
    let of_again = run(&store, "s", format!("[\"{again}\"]")).await;
    let second = collect(&blobs, &store).await;
    assert_eq!((second.named, second.condemned, second.removed, second.waiting), (2, 0, 1, 0));
    assert!(second.removed_bytes > 7);
    assert_eq!(blobs.get(&unnamed).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(blobs.get(&named).await.unwrap(), "named");
    // When its run is purged, a value is removed in two steps.
    for log in [log, of_again] {
        store.purge(&log.key, None).await.unwrap();
    }
    assert_eq!(collect(&blobs, &store).await.condemned, 2);
    assert_eq!(collect(&blobs, &store).await.removed, 2);
    assert_eq!(collect(&blobs, &store).await, CollectionReport::default());
}

/// Guarantees: BLOB-4.
#[tokio::test]
async fn reference_between_collection_steps_saves_value() {
    let (store, blobs) = (MemoryStore::new(), Blobs::in_memory());
    let blob = blobs.put("slow").await.unwrap();
    assert_eq!(collect(&blobs, &store).await.condemned, 1);
    let log = run(&store, "r", format!("\"{blob}\"")).await;
    for _ in 0..3 {
        let collected = collect(&blobs, &store).await;
        assert_eq!((collected.named, collected.removed), (1, 0));
    }
    // When its run is purged, both steps start again.
    store.purge(&log.key, None).await.unwrap();
    assert_eq!(collect(&blobs, &store).await.condemned, 1);
    assert_eq!(collect(&blobs, &store).await.removed, 1);
}

/// Guarantees: BLOB-5.
#[tokio::test]
async fn value_stored_after_condemnation_restarts_both_steps() {
    let (store, place) = (MemoryStore::new(), Arc::new(object_store::memory::InMemory::new()));
    let blobs = Blobs::new(Arc::<object_store::memory::InMemory>::clone(&place));
    let blob = blobs.put("slow").await.unwrap();
    assert_eq!(collect(&blobs, &store).await.condemned, 1);
    // Write the index entry as a put does that was suspended between the value and its entry.
    let text = blob.to_string();
    let entry = format!("default/index/hash/{}", text.split([':', '.']).nth(1).unwrap());
    place.put(&entry.into(), Bytes::new().into()).await.unwrap();
    let again = collect(&blobs, &store).await;
    assert_eq!((again.condemned, again.removed), (1, 0));
    assert_eq!(blobs.get(&blob).await.unwrap(), "slow");
    assert_eq!(collect(&blobs, &store).await.removed, 1);
}

/// Guarantees: BLOB-4.
#[tokio::test]
async fn values_named_by_old_records_stay() {
    let (store, blobs) = (MemoryStore::new(), Blobs::in_memory());
    let blob = blobs.put("of old").await.unwrap();
    let mut log = run(&store, "r", format!("\"{blob}\"")).await;
    // Append enough records for two more bases.
    log.write(&store, 9).await;
    for _ in 0..2 {
        assert_eq!(collect(&blobs, &store).await.named, 1);
    }
    let cut = ferrata_store::PruneCut { at: Seq::new(8), base: None };
    store.prune(&log.key, cut).await.unwrap();
    assert_eq!(collect(&blobs, &store).await.condemned, 1);
    assert_eq!(collect(&blobs, &store).await.removed, 1);
}

/// Guarantees: BLOB-4.
#[tokio::test]
async fn every_given_store_protects_its_values() {
    let ([one, other], blobs) = ([MemoryStore::new(), MemoryStore::new()], Blobs::in_memory());
    let blob = blobs.put("shared").await.unwrap();
    run(&other, "r", format!("\"{blob}\"")).await;
    for _ in 0..2 {
        let collected = blobs.collect(&[&one, &other], now()).await.unwrap();
        assert_eq!((collected.runs, collected.named), (1, 1));
    }
}

/// Guarantees: BLOB-7.
#[tokio::test]
async fn unreadable_run_stops_collection() {
    let (store, blobs) = (MemoryStore::new(), Blobs::in_memory());
    let blob = blobs.put("unnamed").await.unwrap();
    collect(&blobs, &store).await;
    let mut log = run(&store, "r", "{}".into()).await;
    log.write(&store, 2).await;
    store.tamper(&log.key, |records| records[1].body = Bytes::from_static(b"another"));
    let error = blobs.collect(&[&store], now()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(error.run(), Some(&log.key));
    assert_eq!(blobs.get(&blob).await.unwrap(), "unnamed");
}

/// Guarantees: BLOB-7.
#[tokio::test]
async fn unlistable_run_stops_collection() {
    let (store, blobs) = (MemoryStore::new(), Blobs::in_memory());
    let blob = blobs.put("named").await.unwrap();
    let log = run(&store, "r", format!("\"{blob}\"")).await;
    store.tamper(&log.key, |records| records[0].header.format = FORMAT + 1);
    for _ in 0..2 {
        let error = blobs.collect(&[&store], now()).await.unwrap_err();
        assert_eq!((error.kind(), error.run()), (ErrorKind::Unsupported, Some(&log.key)));
    }
    assert_eq!(blobs.get(&blob).await.unwrap(), "named");
}

/// A link to itself replaces the folder of a tenant, or the log of one run.
///
/// Guarantees: BLOB-7.
#[tokio::test]
async fn a_file_that_is_refused_stops_a_collection() {
    let directory = tempfile::tempdir().unwrap();
    let (store, blobs) = (FsStore::open(directory.path()).unwrap(), Blobs::in_memory());
    store.setup().await.unwrap();
    let blob = blobs.put("named").await.unwrap();
    run(&store, "r", format!("\"{blob}\"")).await;
    for refused in ["runs/default", "runs/default/r.jsonl"] {
        let (path, kept) = (directory.path().join(refused), directory.path().join("kept"));
        std::fs::rename(&path, &kept).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        // Other listings ignore it.
        assert!(store.runs(&RunQuery::default(), Page::default()).await.unwrap().items.is_empty());
        for _ in 0..2 {
            let error = blobs.collect(&[&store], now()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(refused), "{error}");
        }
        assert_eq!(blobs.get(&blob).await.unwrap(), "named");
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&kept, &path).unwrap();
        assert_eq!(blobs.collect(&[&store], now()).await.unwrap().named, 1);
    }
    // A file in the folder of runs does not belong to the store.
    std::fs::write(directory.path().join("runs/notes"), "").unwrap();
    assert_eq!(blobs.collect(&[&store], now()).await.unwrap().named, 1);
}

/// A collection that reads encrypted records without keys is refused, because it would find no names in them.
///
/// Guarantees: BLOB-7.
#[tokio::test]
async fn collection_refuses_inner_store_of_envelope() {
    for options in [
        EnvelopeOptions::default().with_keys(keys(&[1])),
        EnvelopeOptions::default().with_compress_from(Some(0)),
    ] {
        let (inner, blobs) = (MemoryStore::new(), Blobs::in_memory());
        let store = EnvelopeStore::new(inner.clone(), options);
        let blob = blobs.put("named").await.unwrap();
        let mut log = Log::new(RunId::new("r").unwrap());
        let append = log.next_body(format!("[\"{}\",\"{blob}\"]", "the same ".repeat(50)));
        store.append(vec![append.clone()]).await.remove(0).unwrap();
        log.note_append(&append);
        let error = blobs.collect(&[&inner], now()).await.unwrap_err();
        assert_eq!((error.kind(), error.run()), (ErrorKind::Invalid, Some(&log.key)));
        assert!(error.to_string().contains("`EnvelopeStore`"), "{error}");
        // No value was condemned, so a put returns the same name.
        assert_eq!(blobs.put("named").await.unwrap(), blob);
        assert_eq!(blobs.collect(&[&store], now()).await.unwrap().named, 1);
    }
}

/// Whenever the collection is about to read the run with the name, the name is copied to the next run, and the run is purged. This happens a fixed
/// number of times. The id may be reused at once by a run without names.
async fn collect_from_runs_that_pass_a_name_on(
    times: u32,
    is_begun_anew: bool,
) -> (Blobs, Result<CollectionReport, ferrata_store::Error>) {
    let (store, blobs) = (MemoryStore::new(), Blobs::in_memory());
    let blob = blobs.put("passed on").await.unwrap();
    // The first step is done, so that only the record protects the value.
    collect(&blobs, &store).await;
    let body = format!("\"{blob}\"");
    run_of(&store, "r0", 0, body.clone()).await;
    let act = {
        let (store, passed) = (store.clone(), Arc::new(AtomicU32::new(0)));
        move |asked: Option<RunKey>| {
            let (store, passed, body) = (store.clone(), Arc::clone(&passed), body.clone());
            async move {
                let Some(asked) = asked else { return };
                let number: u32 = asked.run.as_str()[1..].parse().unwrap();
                if number < times && passed.load(Ordering::Relaxed) == number {
                    passed.store(number + 1, Ordering::Relaxed);
                    run_of(&store, &format!("r{}", number + 1), i64::from(number) + 1, body).await;
                    store.purge(&asked, None).await.unwrap();
                    if is_begun_anew {
                        run_of(&store, asked.run.as_str(), i64::from(number), "{}".into()).await;
                    }
                }
            }
            .boxed()
        }
    };
    let acting = Acting { store, page: 1_000, act: Box::new(act) };
    let collected = blobs.collect(&[&acting], now()).await;
    assert_eq!(blobs.get(&blob).await.unwrap(), "passed on");
    (blobs, collected)
}

/// Guarantees: BLOB-4.
#[tokio::test]
async fn reference_passed_on_before_read_is_found() {
    for is_begun_anew in [false, true] {
        for times in 0..9 {
            let (_, collected) = collect_from_runs_that_pass_a_name_on(times, is_begun_anew).await;
            assert_eq!(collected.unwrap().named, 1, "{times}");
        }
        // If this never ends, nothing is removed, and the caller gets an error.
        let (_, collected) = collect_from_runs_that_pass_a_name_on(u32::MAX, is_begun_anew).await;
        assert_eq!(collected.unwrap_err().kind(), ErrorKind::Unavailable);
    }
}

/// A run is purged between two reads of its parts, and its id is reused.
///
/// Guarantees: BLOB-4.
#[tokio::test]
async fn collection_separates_generations_of_rerun_id() {
    for records in [3, 4, 9] {
        let store = MemoryStore::new();
        let mut log = Log::new(RunId::new("r").unwrap()).with_bases_every(2);
        log.write(&store, 4).await;
        let head = store.head(&log.key).await.unwrap().unwrap();
        for piece in 0..2 {
            let act = {
                let (store, loads) = (store.clone(), AtomicU32::new(0));
                move |asked: Option<RunKey>| {
                    let is_now = loads.fetch_add(1, Ordering::Relaxed) == piece;
                    let (store, asked) = (store.clone(), asked.unwrap());
                    async move {
                        if is_now {
                            store.purge(&asked, None).await.unwrap();
                            Log::new(asked).with_bases_every(2).write(&store, records).await;
                        }
                    }
                    .boxed()
                }
            };
            let acting = Acting { store: store.clone(), page: 1_000, act: Box::new(act) };
            let is_whole = for_each_record(&acting, &head, |_| Ok(())).await.unwrap();
            assert!(!is_whole, "{records} records before piece {piece}");
            store.purge(&log.key, None).await.unwrap();
            store.append(vec![whole(&log)]).await.remove(0).unwrap();
            assert!(for_each_record(&store, &head, |_| Ok(())).await.unwrap());
        }
    }
}

/// A run is imported into the store that is read first, and purged in the other one. This happens while that store is listed, or just before its runs
/// are read.
///
/// Guarantees: BLOB-4.
#[tokio::test]
async fn run_moved_between_stores_keeps_values() {
    for is_listed in [false, true] {
        let ([one, other], blobs) = ([MemoryStore::new(), MemoryStore::new()], Blobs::in_memory());
        let blob = blobs.put("moved").await.unwrap();
        collect(&blobs, &one).await;
        let log = run(&other, "r", format!("\"{blob}\"")).await;
        let act = {
            let (one, other) = (one.clone(), other.clone());
            move |asked: Option<RunKey>| {
                let (one, other, log) = (one.clone(), other.clone(), log.clone());
                async move {
                    if asked.is_some() == is_listed && other.head(&log.key).await.unwrap().is_some() {
                        one.append(vec![whole(&log)]).await.remove(0).unwrap();
                        other.purge(&log.key, None).await.unwrap();
                    }
                }
                .boxed()
            }
        };
        let acting = Acting { store: other, page: 1_000, act: Box::new(act) };
        let collected = blobs.collect(&[&one, &acting], now()).await.unwrap();
        assert_eq!((collected.named, collected.removed), (1, 0), "after it was listed: {is_listed}");
    }
}

/// Guarantees: BLOB-4.
#[tokio::test]
async fn collection_includes_run_with_wrong_clock() {
    let (store, blobs) = (MemoryStore::new(), Blobs::in_memory());
    let blob = blobs.put("copied").await.unwrap();
    collect(&blobs, &store).await;
    let body = format!("\"{blob}\"");
    run_of(&store, "first", 10, "{}".into()).await;
    let second = run_of(&store, "second", 20, body.clone()).await.key;
    // Between two pages, the name of the second run is copied to a run with an earlier creation time than the first, and the second run is purged.
    let act = {
        let store = store.clone();
        let pages = AtomicU32::new(0);
        move |asked: Option<RunKey>| {
            let is_second_page = asked.is_none() && pages.fetch_add(1, Ordering::Relaxed) == 1;
            let (store, body, second) = (store.clone(), body.clone(), second.clone());
            async move {
                if is_second_page {
                    run_of(&store, "late", 0, body).await;
                    store.purge(&second, None).await.unwrap();
                }
            }
            .boxed()
        }
    };
    let acting = Acting { store, page: 1, act: Box::new(act) };
    assert_eq!(blobs.collect(&[&acting], now()).await.unwrap().named, 1);
    assert_eq!(blobs.get(&blob).await.unwrap(), "copied");
}

/// Runs are started, copy names, are pruned and are purged, while collections start, fail at any write and are repeated. No value that a record names
/// is lost. Afterwards, no value without a record remains.
async fn at_random(seed: u64) {
    let world = Arc::new(World::new(seed));
    let stirred = Acting::stirred(&world);
    for _ in 0..4 {
        for _ in 0..world.below(12).await {
            world.stir().await;
        }
        let luck = match world.below(2).await {
            0 => u64::MAX,
            _ => world.below(8).await as u64,
        };
        // The grace period guarantees that each name has its record before the next step.
        world.settle().await;
        world.luck.store(luck, Ordering::Relaxed);
        match world.blobs.collect(&[&stirred], now()).await {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        world.luck.store(u64::MAX, Ordering::Relaxed);
        world.check().await;
    }
    world.settle().await;
    for _ in 0..2 {
        collect(&world.blobs, &world.store).await;
    }
    let named = world.check().await as u64;
    let quiet = collect(&world.blobs, &world.store).await;
    assert_eq!((quiet.named, quiet.waiting, quiet.removed), (named, 0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Guarantees: BLOB-4.
    #[test]
    fn collection_removes_exactly_unnamed_values(seed: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(at_random(seed));
    }
}

//! Suspended writers: their view is outdated, and its keys are free again.

use std::time::Duration;

use ferrata_store::{CheckpointStore as _, ErrorKind, HeadRef, PruneCut, Seq};
use ferrata_store_s3::S3Store;

use crate::author::{append_to, is_kept, log_of, written};
use crate::memory::{Fault, Memory};
use crate::raw::Raw;

const HOURS: Duration = Duration::from_secs(2 * 60 * 60);

struct Scene {
    memory: Memory,
    sleeper: S3Store,
    other: S3Store,
}

async fn scene() -> Scene {
    let memory = Memory::start().await;
    let (sleeper, other) = (Raw::on(&memory).store(), Raw::on(&memory).store());
    sleeper.setup().await.unwrap();
    other.setup().await.unwrap();
    Scene { memory, sleeper, other }
}

/// Durations of the suspension.
const NAPS: [Duration; 2] = [Duration::ZERO, HOURS];

/// The objects of the log, without the markers of removed ones.
fn log_objects(scene: &Scene) -> Vec<String> {
    let mut keys = scene.memory.keys("some/prefix/log");
    keys.retain(|key| scene.memory.objects()[key].bytes != "ferrata-s3 1 gone\n");
    keys
}

/// Checks that an append is refused with the current head, and leaves nothing.
///
/// Below the start of the log, a writer cannot tell whether others had continued from its records before the prune. So the first outcome is unknown.
async fn is_refused(scene: &Scene, append: &ferrata_store::RunAppend, actual: Option<HeadRef>, what: &str) {
    let keys = log_objects(scene);
    let mut refused = append_to(&scene.sleeper, append).await.unwrap_err();
    if actual.is_some() && refused.kind() == ErrorKind::Indeterminate {
        refused = append_to(&scene.sleeper, append).await.unwrap_err();
    }
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{what}: {refused:?}");
    assert_eq!(refused.actual_head(), Some(actual), "{what}: {refused:?}");
    assert_eq!(log_objects(scene), keys, "{what}: nothing of it may remain");
}

/// A writer is suspended while others append, and prune the records that it would conflict with.
///
/// Guarantees: S3-5.
#[tokio::test]
async fn writer_delayed_past_prune_is_refused() {
    for nap in NAPS {
        let scene = scene().await;
        let mut log = written(&scene.sleeper, "r", &[1, 1]).await;
        let late = log.next(1);
        for _ in 0..8 {
            log.write(&scene.other, 1).await;
        }
        for _ in 0..2 {
            // The second prune removes records that were too recent for the first one.
            scene.other.prune(&log.key, PruneCut { at: Seq::new(8), base: None }).await.unwrap();
            scene.memory.advance(nap);
        }
        log.note_pruned(8, None);
        let what = format!("after a nap of {nap:?}");
        is_refused(&scene, &late, log.head(), &what).await;
        is_kept(&log, &scene.sleeper, &what).await;
    }
}

/// A writer is suspended while others purge the run, and possibly restart its id.
///
/// Guarantees: S3-5.
#[tokio::test]
async fn writer_delayed_past_purge_is_refused() {
    for (nap, is_reused) in NAPS.into_iter().flat_map(|nap| [(nap, false), (nap, true)]) {
        let scene = scene().await;
        let mut log = written(&scene.sleeper, "r", &[1, 1]).await;
        let late = log.next(1);
        for _ in 0..3 {
            log.write(&scene.other, 1).await;
        }
        for _ in 0..2 {
            scene.other.purge(&log.key, None).await.unwrap();
            scene.memory.advance(nap);
        }
        log.records.clear();
        let what = format!("after a nap of {nap:?}, reused: {is_reused}");
        if is_reused {
            // In the new generation, the head that the suspended writer saw is another record.
            log = written(&scene.other, "r", &[1, 1]).await;
            log.records.clear();
            log = log_of("r", 9);
            scene.other.purge(&log.key, None).await.unwrap();
            log.write(&scene.other, 1).await;
            log.write(&scene.other, 1).await;
        }
        is_refused(&scene, &late, log.head(), &what).await;
        is_kept(&log, &scene.sleeper, &what).await;
    }
}

/// The same with a write in flight, which was decided before and arrives afterwards.
///
/// Guarantees: S3-5.
#[tokio::test]
async fn a_write_that_arrives_late_is_refused() {
    for (nap, is_purge) in NAPS.into_iter().flat_map(|nap| [(nap, false), (nap, true)]) {
        let scene = scene().await;
        let mut log = written(&scene.sleeper, "r", &[1, 1]).await;
        let late = log.next(1);
        let gate = scene.memory.hold();
        let what = format!("after a nap of {nap:?}, purged: {is_purge}");
        let meanwhile = async {
            gate.arrived().await;
            for _ in 0..6 {
                log.write(&scene.other, 1).await;
            }
            for _ in 0..2 {
                if is_purge {
                    scene.other.purge(&log.key, None).await.unwrap();
                } else {
                    scene.other.prune(&log.key, PruneCut { at: Seq::new(4), base: None }).await.unwrap();
                }
                scene.memory.advance(nap);
            }
            gate.open();
        };
        let (said, ()) = tokio::join!(append_to(&scene.sleeper, &late), meanwhile);
        if is_purge {
            log.records.clear();
        } else {
            log.note_pruned(4, None);
        }
        let error = said.unwrap_err();
        if !is_purge && !nap.is_zero() {
            assert_eq!(error.kind(), ErrorKind::Indeterminate, "{what}: {error:?}");
        } else {
            assert_eq!(
                (error.kind(), error.actual_head()),
                (ErrorKind::Conflict, Some(log.head())),
                "{what}"
            );
        }
        is_kept(&log, &scene.sleeper, &what).await;
    }
}

/// The marker of a purge arrives after other appends and a prune. Its key is free again, or contains a marker of the prune. The purge removes the
/// current run, or is refused.
///
/// Guarantees: S3-6.
#[tokio::test]
async fn late_purge_ends_run_or_is_refused() {
    let ways = [(false, false), (false, true), (true, false), (true, true)];
    for (nap, (expects, is_busy)) in NAPS.into_iter().flat_map(|nap| ways.map(|way| (nap, way))) {
        let scene = scene().await;
        let mut log = written(&scene.sleeper, "r", &[1, 1]).await;
        let (key, expected) = (log.key.clone(), log.head().filter(|_| expects));
        let mut is_first = is_busy;
        scene.memory.plan(move |asked| {
            let is_meant = asked.is_conditional && std::mem::take(&mut is_first);
            is_meant.then_some(Fault::Refuse(503, "SlowDown"))
        });
        let gate = scene.memory.hold();
        let meanwhile = async {
            gate.arrived().await;
            for _ in 0..8 {
                log.write(&scene.other, 1).await;
            }
            for _ in 0..2 {
                // The second prune removes records that were too recent for the first one.
                scene.other.prune(&log.key, PruneCut { at: Seq::new(8), base: None }).await.unwrap();
                scene.memory.advance(nap);
            }
            gate.open();
        };
        let (said, ()) = tokio::join!(scene.sleeper.purge(&key, expected), meanwhile);
        log.note_pruned(8, None);
        let what = format!("after a nap of {nap:?}, expects: {expects}, busy: {is_busy}: {said:?}");
        if expects {
            let error = said.expect_err(&what);
            assert_eq!(
                (error.kind(), error.actual_head()),
                (ErrorKind::Conflict, Some(log.head())),
                "{what}"
            );
        } else {
            assert!(said.unwrap().records > 0, "{what}");
            log.records.clear();
        }
        is_kept(&log, &scene.other, &what).await;
    }
}

/// A foreign object is first under the prefix of a run in its second generation: a purge still removes this generation.
///
/// Guarantees: S3-6.
#[tokio::test]
async fn purge_ends_later_generation_despite_stray_object() {
    for strays in 1..3 {
        let scene = scene().await;
        let before = written(&scene.sleeper, "r", &[1]).await;
        scene.sleeper.purge(&before.key, None).await.unwrap();
        let log = written(&scene.sleeper, "r", &[1, 1]).await;
        for stray in 0..strays {
            scene.memory.set(&format!("some/prefix/log/default/r/.{stray}"), "x");
        }
        let error = scene.other.head(&log.key).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{strays} strays: {error:?}");
        let purged = scene.other.purge(&log.key, None).await.unwrap();
        assert_eq!(scene.other.head(&log.key).await.unwrap(), None, "{strays} strays");
        assert_eq!((purged.records, log_objects(&scene)), (2, vec![]), "{strays} strays");
    }
}

/// A start arrives after another process started and purged the run. The run is new then, or the start is refused. It is never acknowledged and
/// missing.
///
/// Guarantees: S3-7.
#[tokio::test]
async fn a_start_that_arrives_late_is_not_lost() {
    for nap in NAPS {
        let scene = scene().await;
        let late = log_of("r", 5);
        let start = late.next(2);
        let gate = scene.memory.hold();
        let meanwhile = async {
            gate.arrived().await;
            let log = written(&scene.other, "r", &[1, 1]).await;
            for _ in 0..2 {
                scene.other.purge(&log.key, None).await.unwrap();
                scene.memory.advance(nap);
            }
            gate.open();
        };
        let (said, ()) = tokio::join!(append_to(&scene.sleeper, &start), meanwhile);
        let what = format!("after a nap of {nap:?}: {said:?}");
        let mut log = late.clone();
        match said {
            Ok(_) => log.note_append(&start),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{what}"),
        }
        is_kept(&log, &scene.other, &what).await;
    }
}

/// Once the other keys need no protection, a purge leaves two markers: one at the end and one at the start of the generation.
#[tokio::test]
async fn two_marks_are_left_of_a_purged_run() {
    let scene = scene().await;
    let log = written(&scene.sleeper, "r", &[1, 2, 1]).await;
    scene.memory.advance(HOURS);
    scene.other.purge(&log.key, None).await.unwrap();
    let marks = |run: &str, count: usize, what: &str| {
        let keys = scene.memory.keys(&format!("some/prefix/log/default/{run}/"));
        assert_eq!(keys.len(), count, "{what}: {keys:?}");
        for key in &keys {
            let is_mark = scene.memory.objects()[key].bytes == "ferrata-s3 1 gone\n";
            assert!(is_mark, "{what}: {key} must contain nothing of the run");
        }
        assert!(keys.contains(&format!("some/prefix/log/default/{run}/{}", FIRST)), "{what}: {keys:?}");
    };
    marks("r", 2, "of an old run");
    assert_eq!(scene.memory.keys("some/prefix/index").len(), 0, "the index must contain nothing of it");

    let young = written(&scene.sleeper, "young", &[1, 2, 1]).await;
    scene.other.purge(&young.key, None).await.unwrap();
    marks("young", 4, "the keys of a young run stay taken");
    scene.memory.advance(HOURS);
    let mended = scene.other.repair().await.unwrap();
    assert_eq!((mended.runs, mended.cleared), (0, 2), "{mended:?}");
    marks("young", 2, "when they need not be taken any more");
}

/// The key of the first record in the first generation.
const FIRST: &str = "ffffffff/ffffffffffffffff";

/// A start does not check whether its id was used before, because the first key is never free again. This holds for every history of the run, and for
/// a process that does not know it.
///
/// Guarantees: S3-7.
#[tokio::test]
async fn start_after_purge_begins_new_generation() {
    for (lost_first, generations) in [(false, 1), (false, 3), (true, 1)] {
        let scene = scene().await;
        let what = format!("after {generations} generations, the first object lost: {lost_first}");
        for generation in 0..generations {
            let log = written(&scene.sleeper, "r", &[1, 2, 1]).await;
            if lost_first {
                scene.memory.objects().remove(&format!("some/prefix/log/default/r/{FIRST}")).unwrap();
            }
            scene.memory.advance(HOURS);
            scene.other.purge(&log.key, None).await.unwrap();
            assert_eq!(
                scene.memory.keys("some/prefix/index").len(),
                usize::from(lost_first),
                "{what}: {generation}"
            );
        }
        scene.memory.advance(HOURS);
        let stranger = Raw::on(&scene.memory).store();
        let mut log = log_of("r", 7);
        log.write(&stranger, 2).await;
        log.write(&stranger, 1).await;
        is_kept(&log, &stranger, &what).await;
        is_kept(&log, &scene.other, &what).await;
        let index = scene.memory.keys("some/prefix/index");
        let of_generation = format!("/{generations:08x}.");
        assert!(index.iter().any(|entry| entry.contains(&of_generation)), "{what}: {index:?}");
        // The entry of a generation whose first object is missing stays until a listing finds it old enough.
        let stale = usize::from(lost_first);
        assert_eq!(
            index.len() - stale,
            1,
            "{what}: the entry of the generation that it first tried must be gone: {index:?}"
        );
    }
}

/// The first object of a run is removed, and a start reuses its key: readers do not mix the older records with those of the new run.
#[tokio::test]
async fn start_at_lost_first_object_is_corrupt() {
    let scene = scene().await;
    let old = written(&scene.sleeper, "r", &[1, 2, 1]).await;
    scene.memory.objects().remove(&format!("some/prefix/log/default/r/{FIRST}")).unwrap();
    let new = log_of("r", 5).next(1);
    let started = append_to(&scene.other, &new).await;
    let reader = Raw::on(&scene.memory).store();
    for store in [&reader, &scene.sleeper, &scene.other] {
        let found = store.head(&old.key).await.unwrap_err();
        assert_eq!(found.kind(), ErrorKind::Corrupt, "started: {started:?}; {found:?}");
    }
    let purged = scene.other.purge(&old.key, None).await.unwrap();
    assert!(purged.records > 0, "it can be purged: {purged:?}");
    let mut log = log_of("r", 6);
    log.write(&reader, 1).await;
    is_kept(&log, &scene.sleeper, "in a new generation").await;
}

/// A reader requests the first and the newest object at once, and the run starts between the two answers.
#[tokio::test]
async fn run_starting_during_read_is_whole() {
    for appends in [&[1][..], &[1, 1]] {
        let scene = scene().await;
        let log = written(&scene.other, "r", appends).await;
        let mut is_early = true;
        scene.memory.plan(move |asked| {
            let is_first = asked.method == "GET" && asked.path.contains(FIRST);
            (is_first && std::mem::take(&mut is_early)).then_some(Fault::Refuse(404, "NoSuchKey"))
        });
        let head = scene.sleeper.head(&log.key).await.unwrap();
        assert_eq!(head.map(|head| head.head()), log.head(), "after {appends:?}");
    }
}

/// A start succeeds although others continued the run and pruned its first record before its reply.
#[tokio::test]
async fn a_start_that_was_pruned_meanwhile_was_written() {
    let scene = scene().await;
    let mut log = log_of("r", 1);
    let start = log.next(1);
    let gate = scene.memory.hold();
    let meanwhile = async {
        // Hours pass between its entry and its first object, so it checks again. Before the check, other writers continue.
        gate.arrived().await;
        scene.memory.advance(HOURS);
        let entry = scene.memory.hold_next(|asked| asked.method == "PUT" && asked.path.contains("/index/"));
        gate.open();
        entry.arrived().await;
        log.note_append(&start);
        for _ in 0..5 {
            log.write(&scene.other, 1).await;
        }
        scene.other.prune(&log.key, PruneCut { at: Seq::new(4), base: None }).await.unwrap();
        log.note_pruned(4, None);
        entry.open();
    };
    let (said, ()) = tokio::join!(append_to(&scene.sleeper, &start), meanwhile);
    assert_eq!(
        said.unwrap(),
        start.records[0].header.head(),
        "the start was written, and others continued from it"
    );
    is_kept(&log, &scene.other, "after the look").await;
}

/// A listing treats the entry of a slow start as abandoned, and the reply of the start is lost. The run is still listed.
///
/// Guarantees: S3-7.
#[tokio::test]
async fn delayed_start_with_lost_reply_is_listed() {
    let scene = scene().await;
    let mut log = log_of("r", 1);
    let start = log.next(1);
    let mut is_first = true;
    scene.memory.plan(move |asked| {
        (asked.is_conditional && std::mem::take(&mut is_first)).then_some(Fault::LoseReply)
    });
    let gate = scene.memory.hold();
    let meanwhile = async {
        gate.arrived().await;
        scene.memory.advance(HOURS);
        is_kept(&log, &scene.other, "before it arrives").await;
        assert_eq!(scene.memory.keys("some/prefix/index").len(), 0, "its entry was treated as abandoned");
        gate.open();
    };
    let (said, ()) = tokio::join!(append_to(&scene.sleeper, &start), meanwhile);
    assert_eq!(said.unwrap(), start.records[0].header.head());
    log.note_append(&start);
    is_kept(&log, &scene.other, "after the lost answer").await;
}

/// A writer that reads again after its write finds that a prune has cut within its object. Its records are in the log.
///
/// Guarantees: S3-5.
#[tokio::test]
async fn prune_inside_rechecked_write_preserves_records() {
    for beyond in [false, true] {
        let scene = scene().await;
        let mut log = written(&scene.sleeper, "r", &[1, 2]).await;
        let append = log.next(2);
        scene.memory.advance(Duration::from_secs(11 * 60));
        let look = scene.memory.hold_next(|asked| asked.method == "GET" && asked.path.contains(FIRST));
        let meanwhile = async {
            look.arrived().await;
            log.note_append(&append);
            if beyond {
                log.write(&scene.other, 1).await;
            }
            let at = if beyond { 5 } else { 4 };
            let base = Some(log.as_base(at));
            let cut = PruneCut { at: Seq::new(at), base: base.clone() };
            scene.other.prune(&log.key, cut).await.unwrap();
            log.note_pruned(at, base);
            look.open();
        };
        let (said, ()) = tokio::join!(append_to(&scene.sleeper, &append), meanwhile);
        if beyond {
            let error = said.unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::Indeterminate,
                "the record was in the log, and is pruned: {error:?}"
            );
        } else {
            assert_eq!(said.unwrap(), append.records[1].header.head(), "the record is in the log");
        }
        is_kept(&log, &scene.other, "after the prune").await;
        log.write(&scene.other, 1).await;
        is_kept(&log, &scene.sleeper, "going on").await;
    }
}

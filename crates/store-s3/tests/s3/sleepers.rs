//! Writers that were asleep: what they saw is long past, and its keys are free again.

use std::time::Duration;

use ferrata_core::store::{CheckpointStore as _, PruneCut};
use ferrata_core::{ErrorKind, HeadRef, Seq};
use ferrata_store_s3::S3Store;

use crate::author::{Author, append_to};
use crate::memory::Memory;
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

/// How long the sleeper sleeps.
const NAPS: [Duration; 2] = [Duration::ZERO, HOURS];

/// Checks that an append is refused with the head that is there, and that it left nothing.
async fn is_refused(
    scene: &Scene,
    append: &ferrata_core::store::RunAppend,
    actual: Option<HeadRef>,
    what: &str,
) {
    let keys = scene.memory.keys("some/prefix/log");
    let refused = append_to(&scene.sleeper, append).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{what}: {refused:?}");
    assert_eq!(refused.actual_head(), Some(actual), "{what}: {refused:?}");
    assert_eq!(scene.memory.keys("some/prefix/log"), keys, "{what}: nothing is left of it");
}

/// A writer slept while others appended, and pruned away what it would have met.
#[tokio::test]
async fn a_writer_that_slept_through_a_prune_is_refused() {
    for nap in NAPS {
        let scene = scene().await;
        let mut log = Author::written(&scene.sleeper, "r", &[1, 1]).await;
        let late = log.next(1);
        for _ in 0..8 {
            log.write(&scene.other, 1).await;
        }
        for _ in 0..2 {
            // The second time what was too young the first time goes.
            scene.other.prune(&log.key, PruneCut { at: Seq::new(8), base: None }).await.unwrap();
            scene.memory.advance(nap);
        }
        log.pruned(8, None);
        let what = format!("after a nap of {nap:?}");
        is_refused(&scene, &late, log.head(), &what).await;
        log.is_kept(&scene.sleeper, &what).await;
    }
}

/// A writer slept while others purged the run, and perhaps began another under its id.
#[tokio::test]
async fn a_writer_that_slept_through_a_purge_is_refused() {
    for (nap, is_reused) in NAPS.into_iter().flat_map(|nap| [(nap, false), (nap, true)]) {
        let scene = scene().await;
        let mut log = Author::written(&scene.sleeper, "r", &[1, 1]).await;
        let late = log.next(1);
        for _ in 0..3 {
            log.write(&scene.other, 1).await;
        }
        for _ in 0..2 {
            scene.other.purge(&log.key).await.unwrap();
            scene.memory.advance(nap);
        }
        log.records.clear();
        let what = format!("after a nap of {nap:?}, reused: {is_reused}");
        if is_reused {
            // The very head that the sleeper saw is in the new life another record.
            log = Author::written(&scene.other, "r", &[1, 1]).await;
            log.records.clear();
            log = Author::new("r", 9);
            scene.other.purge(&log.key).await.unwrap();
            log.write(&scene.other, 1).await;
            log.write(&scene.other, 1).await;
        }
        is_refused(&scene, &late, log.head(), &what).await;
        log.is_kept(&scene.sleeper, &what).await;
    }
}

/// The same with a write that was on its way: it had been decided upon before, and arrives after.
#[tokio::test]
async fn a_write_that_arrives_late_is_refused() {
    for (nap, is_purge) in NAPS.into_iter().flat_map(|nap| [(nap, false), (nap, true)]) {
        let scene = scene().await;
        let mut log = Author::written(&scene.sleeper, "r", &[1, 1]).await;
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
                    scene.other.purge(&log.key).await.unwrap();
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
            log.pruned(4, None);
        }
        let error = said.unwrap_err();
        assert_eq!((error.kind(), error.actual_head()), (ErrorKind::Conflict, Some(log.head())), "{what}");
        log.is_kept(&scene.sleeper, &what).await;
    }
}

/// A start that arrives after the run was started by another, and purged: the run is new then, or the start is refused; it
/// never is acknowledged and gone.
#[tokio::test]
async fn a_start_that_arrives_late_is_not_lost() {
    for nap in NAPS {
        let scene = scene().await;
        let late = Author::new("r", 5);
        let start = late.next(2);
        let gate = scene.memory.hold();
        let meanwhile = async {
            gate.arrived().await;
            let log = Author::written(&scene.other, "r", &[1, 1]).await;
            for _ in 0..2 {
                scene.other.purge(&log.key).await.unwrap();
                scene.memory.advance(nap);
            }
            gate.open();
        };
        let (said, ()) = tokio::join!(append_to(&scene.sleeper, &start), meanwhile);
        let what = format!("after a nap of {nap:?}: {said:?}");
        let mut log = late.clone();
        match said {
            Ok(_) => log.took(&start),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{what}"),
        }
        log.is_kept(&scene.other, &what).await;
    }
}

/// What a purge leaves: one mark, once the keys need not be taken any more.
#[tokio::test]
async fn one_mark_is_left_of_a_purged_run() {
    let scene = scene().await;
    let log = Author::written(&scene.sleeper, "r", &[1, 2, 1]).await;
    scene.memory.advance(HOURS);
    scene.other.purge(&log.key).await.unwrap();
    let keys = scene.memory.keys("some/prefix/log");
    assert_eq!(keys.len(), 1, "of an old run: {keys:?}");
    assert_eq!(scene.memory.keys("some/prefix/index").len(), 0, "nothing of it in the index");

    let young = Author::written(&scene.sleeper, "young", &[1, 2, 1]).await;
    scene.other.purge(&young.key).await.unwrap();
    let held = scene.memory.keys("some/prefix/log/default/young/");
    assert_eq!(held.len(), 4, "the keys of a young run stay taken: {held:?}");
    for key in &held {
        assert_eq!(
            scene.memory.objects()[key].bytes,
            "ferrata-s3 1 gone\n",
            "with nothing of the run in them"
        );
    }
    scene.memory.advance(HOURS);
    let mended = scene.other.mend().await.unwrap();
    assert_eq!((mended.runs, mended.cleared), (0, 2), "{mended:?}");
    assert_eq!(scene.memory.keys("some/prefix/log/default/young/").len(), 1);
}

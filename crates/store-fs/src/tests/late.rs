//! Work that a thread starts only after its caller is gone, while others have purged the run or created it again.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ferrata_store::{CheckpointStore, PruneCut, RunKey, Seq, SystemClock};

use super::author::Author;
use super::{append, folder, ids, purge, reopened};
use crate::caller::CallerGuard;
use crate::config::FsOptions;
use crate::disk::RealDisk;
use crate::error::FsStoreError;
use crate::store::FsStore;

/// Polls a call of a store once and drops it. Its thread continues only after `meanwhile` has run, which simulates another process. Returns when
/// the thread has ended.
fn late<T>(root: &Path, run: &RunKey, call: impl AsyncFnOnce(FsStore) -> T, meanwhile: impl FnOnce()) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (disk, clock) = (Arc::new(RealDisk), Arc::new(SystemClock::new()));
    let store = FsStore::with_disk(root.into(), FsOptions::default(), disk, clock);
    let folder = store.inner();
    let slot = folder.slots.slot_of(run);
    let turn = slot.lock_turn();
    {
        let _entered = runtime.enter();
        let mut call = pin!(call(store));
        assert!(matches!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
        // The cache, this test, and the thread that waits for its turn.
        while Arc::strong_count(&slot) < 3 {
            std::thread::yield_now();
        }
    }
    meanwhile();
    drop(turn);
    // Dropping the runtime waits for threads that have started.
    drop(runtime);
}

/// Makes a call in the first generation of a run that executes late, in the second generation. Checks that the second generation is unchanged.
fn late_in_the_second_generation<T>(call: impl AsyncFnOnce(&FsStore, &RunKey) -> T) {
    let directory = tempfile::tempdir().unwrap();
    let (root, other, mut first) = (directory.path(), reopened(directory.path()), Author::new("r"));
    let (run, mut second) = (first.run.clone(), Author::new("r"));
    other.set_up().unwrap();
    let live = |author: &mut Author| {
        append(&other, &author.write(&["0", "1"])).unwrap();
        append(&other, &author.write_base("{}")).unwrap();
    };
    live(&mut first);
    let made_anew = || {
        purge(&other, &run).unwrap();
        live(&mut second);
    };
    late(root, &run, async |store: FsStore| call(&store, &run).await, made_anew);
    let left = ids(&reopened(root), &run).unwrap().unwrap();
    assert_eq!((left.len(), left.last()), (3, second.head.map(|head| head.id).as_ref()));
}

#[test]
fn late_purge_spares_restarted_run() {
    late_in_the_second_generation(async |store, run| store.purge(run, None).await);
}

#[test]
fn late_prune_spares_restarted_run() {
    let cut = PruneCut { at: Seq::new(2), base: None };
    late_in_the_second_generation(async move |store, run| store.prune(run, cut).await);
}

#[test]
fn late_start_does_not_restore_purged_run() {
    let directory = tempfile::tempdir().unwrap();
    let (root, mut author) = (directory.path(), Author::new("r"));
    let run = author.run.clone();
    let other = reopened(root);
    other.set_up().unwrap();
    let start = author.write(&["0", "1"]);
    let folder = folder(root, Arc::new(RealDisk));
    let slot = folder.slots.slot_of(&run);
    let (turn, waiting) = (slot.lock_turn(), CallerGuard::new());
    let caller = waiting.caller();
    std::thread::scope(|threads| {
        let late = threads.spawn(|| folder.append(&start, &caller));
        // The cache, this test, and the thread that waits for its turn.
        while Arc::strong_count(&slot) < 3 {
            std::thread::yield_now();
        }
        append(&other, &start).unwrap();
        purge(&other, &run).unwrap();
        drop((waiting, turn));
        assert!(matches!(late.join().unwrap(), Err(FsStoreError::GivenUp)));
    });
    assert_eq!(ids(&reopened(root), &run).unwrap(), None);
    assert!(!other.layout.unnamed_log(&run).exists());
}

//! A purge and a new start of the same id, combined with each external resource of the run.

use std::sync::atomic::Ordering;

use ferrata_core::ErrorKind;
use ferrata_core::record::RunStatus;
use ferrata_core::state::Context;
use ferrata_core::store::RunHead;

use super::things::Thing;
use super::world::{Process, World, key};

/// Crashes a run at each of its writes, purges it, and starts its id again. A run that cannot be purged is cancelled first. `check` gets the children
/// of the purged run.
async fn at_each_record(thing: Thing, check: impl AsyncFn(&World, &Process, &[RunHead])) {
    let mut restarts = 0;
    for write in 0.. {
        let world = World::new(thing, format!("purged at write {write}"));
        if !world.live_until(write).await {
            break;
        }
        if world.head("r").await.is_none() {
            continue;
        }
        let process = world.process().await;
        let mut started = world.started_by("r").await;
        if let Err(error) = process.runtime.purge(&key("r")).await {
            assert_eq!(error.kind(), ErrorKind::WrongStatus, "{}: {error}", world.label);
            world.serve(&process);
            process.runtime.cancel(&key("r"), "it starts again").await.unwrap();
            world.until("r", RunStatus::Cancelled).await;
            let delivered = async {
                while world.head("r").await.is_some_and(|head| head.is_delivering()) {
                    tokio::task::yield_now().await;
                }
            };
            world.pass(delivered).await;
            started = world.started_by("r").await;
            process.runtime.purge(&key("r")).await.unwrap();
        } else {
            world.serve(&process);
        }
        let _run = process.runtime.start(&thing.graph(), Context::new()).id("r").await.unwrap();
        world.finish(&process, "r").await;
        world.settle(&process).await;
        check(&world, &process, &started).await;
        restarts += 1;
    }
    assert!(restarts >= 4, "{thing:?}: {restarts} restarts");
}

/// The new run does not know the child of the purged run. That child is cancelled, unless it had completed.
#[tokio::test]
async fn restart_starts_own_child() {
    at_each_record(Thing::Child, async |world, process, before| {
        let after = world.started_by("r").await;
        assert_eq!(after.len(), before.len() + 1, "{}", world.label);
        let own = after.iter().filter(|child| !before.iter().any(|of| of.run == child.run));
        assert!(own.into_iter().all(|child| child.status == RunStatus::Completed), "{}", world.label);
        let used: Option<String> = world.state(process, "r").await.get("used").unwrap();
        assert_eq!(used.as_deref(), Some("42"), "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn restart_starts_own_left_child() {
    at_each_record(Thing::Left, async |world, _process, before| {
        let after = world.started_by("r").await;
        assert_eq!(after.len(), before.len() + 1, "{}", world.label);
        assert!(after.iter().all(|child| child.status == RunStatus::Completed), "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn restart_spawns_own_run() {
    at_each_record(Thing::Spawned, async |world, _process, before| {
        let after = world.started_by("r").await;
        assert_eq!(after.len(), before.len() + 1, "{}", world.label);
        assert!(after.iter().all(|run| run.status == RunStatus::Completed), "{}", world.label);
    })
    .await;
}

/// A run with undelivered messages is not purged. The next run sends its own, under its own keys.
#[tokio::test]
async fn restart_sends_own_letters() {
    at_each_record(Thing::Letter, async |world, _process, _before| {
        let letters = world.letters_of("r");
        let count = |text: &str| letters.iter().filter(|letter| *letter == text).count();
        assert_eq!(count("end"), 1, "{}: {letters:?}", world.label);
        assert!((1..=2).contains(&count("use")), "{}: {letters:?}", world.label);
    })
    .await;
}

#[tokio::test]
async fn restart_names_new_blob() {
    at_each_record(Thing::Blob, async |world, process, _before| {
        let used: String = world.state(process, "r").await.get("used").unwrap().unwrap();
        let log = process.runtime.export(&key("r")).await.unwrap();
        let named = (0..world.outside.puts.load(Ordering::SeqCst)).map(|put| format!("blob-{put}"));
        let named: Vec<_> = named.filter(|name| log.contains(name)).collect();
        assert_eq!(named, [used], "{}: the records must not name a value of the purged run", world.label);
    })
    .await;
}

#[tokio::test]
async fn restart_takes_cached_result() {
    at_each_record(Thing::Cached, async |world, process, _before| {
        let used: String = world.state(process, "r").await.get("used").unwrap().unwrap();
        assert_eq!(used, "looked", "{}", world.label);
        assert!(world.outside.looks.load(Ordering::SeqCst) <= 2, "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn restart_streams_from_start() {
    at_each_record(Thing::Stream, async |world, process, _before| {
        assert_eq!(world.stream_of(process, "r").await, "It depends.", "{}", world.label);
    })
    .await;
}

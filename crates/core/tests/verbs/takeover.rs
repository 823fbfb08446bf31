//! A takeover from a dead or a living owner, combined with each external resource of the run.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferrata_core::record::RunStatus;
use ferrata_testing::FaultPlan;

use super::things::Thing;
use super::world::{Process, World, key};

/// Takes a run over at each of its writes.
async fn at_each_record(thing: Thing, check: impl AsyncFn(&World, &Process)) {
    let mut takeovers = [0, 0];
    for write in 0.. {
        let world = World::new(thing, format!("its process died at write {write}"));
        if !world.live_until(write).await {
            break;
        }
        if world.head("r").await.is_none() {
            continue;
        }
        let process = world.process().await;
        world.serve(&process);
        world.finish(&process, "r").await;
        world.settle(&process).await;
        check(&world, &process).await;
        takeovers[0] += 1;
    }
    for write in 0.. {
        let world = World::new(thing, format!("taken from a living process at write {write}"));
        let (first, second) = (world.process().await, world.process_with(FaultPlan::new()).await);
        world.serve(&first);
        world.serve(&second);
        let (runtime, graph) = (second.runtime.clone(), thing.graph());
        let taken = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let has_taken = Arc::clone(&taken);
        first.store.after(write, async move {
            // The takeover does nothing if the run does not exist yet, has ended, or is idle.
            let resumed = runtime.resume(&graph, "r").take_over().await;
            has_taken.store(resumed.is_ok_and(|run| run.is_driven_here()), Ordering::SeqCst);
        });
        world.live(&first).await;
        if first.store.operations() <= write {
            break;
        }
        world.finish(&second, "r").await;
        world.settle(&second).await;
        check(&world, &second).await;
        takeovers[1] += usize::from(taken.load(Ordering::SeqCst));
    }
    assert!(takeovers[0] >= 4 && takeovers[1] >= 3, "{thing:?}: {takeovers:?} takeovers");
}

#[tokio::test]
async fn takeover_finds_same_child() {
    at_each_record(Thing::Child, async |world, process| {
        let children = world.started_by("r").await;
        assert_eq!(children.len(), 1, "{}", world.label);
        assert_eq!(children[0].status, RunStatus::Completed, "{}", world.label);
        let used: Option<String> = world.state(process, "r").await.get("used").unwrap();
        assert_eq!(used.as_deref(), Some("42"), "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn takeover_finds_same_left_child() {
    at_each_record(Thing::Left, async |world, _process| {
        let children = world.started_by("r").await;
        assert_eq!(children.len(), 1, "{}", world.label);
        assert_eq!(children[0].status, RunStatus::Completed, "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn takeover_spawns_no_second_run() {
    at_each_record(Thing::Spawned, async |world, process| {
        let spawned = world.started_by("r").await;
        assert_eq!(spawned.len(), 1, "{}", world.label);
        let used: String = world.state(process, "r").await.get("used").unwrap().unwrap();
        assert_eq!(used, spawned[0].run.run.as_str(), "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn takeover_sends_letters_once() {
    at_each_record(Thing::Letter, async |world, _process| {
        assert_eq!(world.letters_of("r"), ["end", "use"], "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn takeover_names_one_blob() {
    at_each_record(Thing::Blob, async |world, process| {
        let used: String = world.state(process, "r").await.get("used").unwrap().unwrap();
        let log = process.runtime.export(&key("r")).await.unwrap();
        let named = (0..world.outside.puts.load(Ordering::SeqCst)).map(|put| format!("blob-{put}"));
        let named: Vec<_> = named.filter(|name| log.contains(name)).collect();
        assert_eq!(named, [used], "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn takeover_takes_cached_result() {
    at_each_record(Thing::Cached, async |world, process| {
        let used: String = world.state(process, "r").await.get("used").unwrap().unwrap();
        assert_eq!(used, "looked", "{}", world.label);
        assert!(world.outside.looks.load(Ordering::SeqCst) <= 2, "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn takeover_streams_from_start() {
    at_each_record(Thing::Stream, async |world, process| {
        assert_eq!(world.stream_of(process, "r").await, "It depends.", "{}", world.label);
    })
    .await;
}

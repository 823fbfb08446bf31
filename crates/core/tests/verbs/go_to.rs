//! `go_to`, combined with each external resource of the run.

use std::sync::atomic::Ordering;

use ferrata_core::ErrorKind;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Position;

use super::things::Thing;
use super::world::{Process, World, key};

/// Moves a run back to the node that uses the resource, at each of its writes, after its process crashed or the run failed there. If a child blocks
/// the move, the run is moved once the child has ended. `check` gets the number of uses by the node.
async fn at_each_record(thing: Thing, check: impl AsyncFn(&World, &Process, usize)) {
    let mut moves = [0, 0];
    for write in 0.. {
        let world = World::new(thing, format!("paused and moved at write {write}"));
        if !world.live_until(write).await {
            break;
        }
        if world.head("r").await.is_none() {
            continue;
        }
        let process = world.process().await;
        process.runtime.pause(&key("r"), "a move").await.unwrap();
        world.serve(&process);
        world.until("r", RunStatus::Interrupted).await;
        if !move_back(&world, &process).await {
            // The child is paused with its parent, so it does not end on its own.
            let child = world.started_by("r").await.remove(0).run;
            process.runtime.cancel(&child, "its parent moves").await.unwrap();
            world.until(child.run.as_str(), RunStatus::Cancelled).await;
            assert!(move_back(&world, &process).await, "{}", world.label);
        }
        process.runtime.unpause(&key("r")).await.unwrap();
        end(&world, &process, &check).await;
        moves[0] += 1;
    }
    for write in 0.. {
        let world = World::new(thing, format!("failed and moved at write {write}"));
        let Some(process) = world.fail_at(write).await else { break };
        if !move_back(&world, &process).await {
            let child = world.started_by("r").await.remove(0).run;
            world.until(child.run.as_str(), RunStatus::Completed).await;
            assert!(move_back(&world, &process).await, "{}", world.label);
        }
        end(&world, &process, &check).await;
        moves[1] += 1;
    }
    assert!(moves[0] >= 4 && moves[1] >= 4, "{thing:?}: {moves:?} moves");
}

/// Moves the run. Returns false if its child blocks the move.
async fn move_back(world: &World, process: &Process) -> bool {
    match process.runtime.go_to(&key("r"), ["use", "beside"], "once more").await {
        Ok(()) => true,
        Err(error) => {
            let kind = (world.thing, error.kind());
            assert_eq!(kind, (Thing::Child, ErrorKind::WrongStatus), "{}: {error}", world.label);
            false
        }
    }
}

async fn end(world: &World, process: &Process, check: &impl AsyncFn(&World, &Process, usize)) {
    world.finish(process, "r").await;
    world.settle(process).await;
    let checkpoint = process.runtime.checkpoint(&key("r"), Position::Latest).await.unwrap();
    let used = checkpoint.history.iter().filter(|past| past.node.as_str() == "use").count();
    assert!(used > 0, "{}", world.label);
    check(world, process, used).await;
}

/// An active child blocks the move of its parent. After the child has ended in any way, the parent can be moved, and starts another child.
///
/// Guarantees: CONTROL-8.
#[tokio::test]
async fn go_to_starts_another_child() {
    at_each_record(Thing::Child, async |world, process, _used| {
        let children = world.started_by("r").await;
        assert!((1..=2).contains(&children.len()), "{}: {children:?}", world.label);
        assert!(children.iter().any(|child| child.status == RunStatus::Completed), "{}", world.label);
        let used: Option<String> = world.state(process, "r").await.get("used").unwrap();
        assert_eq!(used.as_deref(), Some("42"), "{}", world.label);
    })
    .await;
}

/// The left child of a dropped activation stays active.
#[tokio::test]
async fn go_to_leaves_left_child() {
    at_each_record(Thing::Left, async |world, _process, used| {
        let children = world.started_by("r").await;
        assert!(children.len() >= used && children.len() <= 2, "{}: {children:?}", world.label);
        assert!(children.iter().all(|child| child.status == RunStatus::Completed), "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn go_to_spawns_another_run() {
    at_each_record(Thing::Spawned, async |world, process, used| {
        let spawned = world.started_by("r").await;
        assert!(spawned.len() >= used && spawned.len() <= 2, "{}: {spawned:?}", world.label);
        let last: String = world.state(process, "r").await.get("used").unwrap().unwrap();
        assert_eq!(world.head(&last).await.unwrap().status, RunStatus::Completed, "{}", world.label);
    })
    .await;
}

/// Each ended activation has sent its message once, and the dropped activation has sent none.
#[tokio::test]
async fn go_to_sends_letter_for_each_end() {
    at_each_record(Thing::Letter, async |world, _process, used| {
        let mut expected = vec!["end"];
        expected.extend(std::iter::repeat_n("use", used));
        assert_eq!(world.letters_of("r"), expected, "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn go_to_names_new_blob() {
    at_each_record(Thing::Blob, async |world, process, _used| {
        let used: String = world.state(process, "r").await.get("used").unwrap().unwrap();
        let log = process.runtime.export(&key("r")).await.unwrap();
        assert!(log.contains(&used), "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn go_to_takes_cached_result() {
    at_each_record(Thing::Cached, async |world, process, used| {
        let found: String = world.state(process, "r").await.get("used").unwrap().unwrap();
        assert_eq!(found, "looked", "{}", world.label);
        // At most once in each of the two processes, whatever the number of visits.
        assert!(world.outside.looks.load(Ordering::SeqCst) <= 2, "{}: {used}", world.label);
    })
    .await;
}

#[tokio::test]
async fn go_to_streams_from_start() {
    at_each_record(Thing::Stream, async |world, process, _used| {
        assert_eq!(world.stream_of(process, "r").await, "It depends.", "{}", world.label);
    })
    .await;
}

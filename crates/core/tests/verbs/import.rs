//! Export and import, combined with each external resource of the run: into another store, and into the same store under another id.

use std::sync::atomic::Ordering;

use ferrata_core::record::RunStatus;
use ferrata_core::store::RunQuery;

use super::things::Thing;
use super::world::{Moment, Process, World, key};

/// Crashes a run at each of its writes, and moves it with its children to another store. `check` gets the worlds before and after.
async fn to_another_store(thing: Thing, check: impl AsyncFn(&World, &World, &Process)) {
    let mut imports = 0;
    for write in 0.. {
        let before = World::new(thing, format!("exported at write {write}"));
        if !before.live_until(write).await {
            break;
        }
        if before.head("r").await.is_none() {
            continue;
        }
        let exporting = before.process().await;
        let after = World::new(thing, format!("imported as of write {write}"));
        let process = after.process().await;
        // Import the children first.
        let mut runs = before.runs(&RunQuery::default()).await;
        runs.sort_by_key(|head| head.run == key("r"));
        for head in runs {
            let text = exporting.runtime.export(&head.run).await.unwrap();
            process.runtime.import(&text, None).await.unwrap();
            let imported = after.head(head.run.run.as_str()).await.unwrap();
            assert_eq!(imported.owner, None, "{}: {}", after.label, head.run);
        }
        after.serve(&process);
        after.finish(&process, "r").await;
        after.settle(&process).await;
        check(&before, &after, &process).await;
        imports += 1;
    }
    assert!(imports >= 4, "{thing:?}: {imports} imports");
}

/// Crashes a run at each of its writes, imports it under another id in the same store, and continues both.
async fn under_another_id(thing: Thing, check: impl AsyncFn(&World, &Process, &Moment)) {
    let mut imports = 0;
    for write in 0.. {
        let world = World::new(thing, format!("copied at write {write}"));
        if !world.live_until(write).await {
            break;
        }
        if world.head("r").await.is_none() {
            continue;
        }
        let process = world.process().await;
        let source = Moment::of(&world, &process, None).await;
        process.runtime.import(&source.log, Some(key("copy"))).await.unwrap();
        assert_eq!(world.head("copy").await.unwrap().owner, None, "{}", world.label);
        world.serve(&process);
        for run in ["r", "copy"] {
            world.finish(&process, run).await;
        }
        world.settle(&process).await;
        check(&world, &process, &source).await;
        imports += 1;
    }
    assert!(imports >= 4, "{thing:?}: {imports} imports");
}

#[tokio::test]
async fn import_goes_on_with_child() {
    to_another_store(Thing::Child, async |_before, world, process| {
        let children = world.started_by("r").await;
        assert_eq!(children.len(), 1, "{}", world.label);
        assert_eq!(children[0].status, RunStatus::Completed, "{}", world.label);
        let used: Option<String> = world.state(process, "r").await.get("used").unwrap();
        assert_eq!(used.as_deref(), Some("42"), "{}", world.label);
    })
    .await;
}

/// The run and its copy do not share a child. Each starts its own.
///
/// Guarantees: CHILD-13.
#[tokio::test]
async fn copy_starts_own_child() {
    under_another_id(Thing::Child, async |world, process, source| {
        for (run, expected) in [("r", 1), ("copy", usize::from(!source.notes("#told1.kid")))] {
            let children = world.started_by(run).await;
            assert_eq!(children.len(), expected, "{}: {run}", world.label);
            assert!(children.iter().all(|child| child.status == RunStatus::Completed), "{}", world.label);
            let used: Option<String> = world.state(process, run).await.get("used").unwrap();
            assert_eq!(used.as_deref(), Some("42"), "{}: {run}", world.label);
        }
    })
    .await;
}

#[tokio::test]
async fn import_goes_on_with_left_child() {
    to_another_store(Thing::Left, async |_before, world, _process| {
        let children = world.started_by("r").await;
        assert_eq!(children.len(), 1, "{}", world.label);
        assert_eq!(children[0].status, RunStatus::Completed, "{}", world.label);
    })
    .await;
}

/// Guarantees: CHILD-13.
#[tokio::test]
async fn copy_starts_own_left_child() {
    under_another_id(Thing::Left, async |world, _process, source| {
        for (run, expected) in [("r", 1), ("copy", usize::from(!source.used))] {
            let children = world.started_by(run).await;
            assert_eq!(children.len(), expected, "{}: {run}", world.label);
            assert!(children.iter().all(|child| child.status == RunStatus::Completed), "{}", world.label);
        }
    })
    .await;
}

#[tokio::test]
async fn import_spawns_no_second_run() {
    to_another_store(Thing::Spawned, async |_before, world, process| {
        let spawned = world.started_by("r").await;
        assert_eq!(spawned.len(), 1, "{}", world.label);
        let used: String = world.state(process, "r").await.get("used").unwrap().unwrap();
        assert_eq!(used, spawned[0].run.run.as_str(), "{}", world.label);
    })
    .await;
}

/// A run that was spawned before the copy stays spawned, once. Otherwise the run and the copy each spawn their own.
///
/// Guarantees: CHILD-13.
#[tokio::test]
async fn copy_keeps_spawned_run() {
    under_another_id(Thing::Spawned, async |world, _process, source| {
        let is_kept = source.used || source.notes("#began1.kid");
        for (run, expected) in [("r", 1), ("copy", usize::from(!is_kept))] {
            let spawned = world.started_by(run).await;
            assert_eq!(spawned.len(), expected, "{}: {run}", world.label);
            assert!(spawned.iter().all(|run| run.status == RunStatus::Completed), "{}", world.label);
        }
    })
    .await;
}

/// Undelivered messages are delivered afterwards. A message that was delivered without a record is delivered once more, under the same key.
///
/// Guarantees: COPY-1.
#[tokio::test]
async fn import_delivers_letters() {
    to_another_store(Thing::Letter, async |before, world, _process| {
        let mut letters: Vec<_> = before.letters_of("r");
        for letter in world.letters_of("r") {
            if !letters.contains(&letter) {
                letters.push(letter);
            }
        }
        letters.sort();
        assert_eq!(letters, ["end", "use"], "{}", world.label);
    })
    .await;
}

/// Receivers cannot distinguish the copy from its source: its messages have the same keys.
///
/// Guarantees: COPY-1.
#[tokio::test]
async fn copy_sends_letters_under_same_keys() {
    under_another_id(Thing::Letter, async |world, _process, _source| {
        assert_eq!(world.letters_of("r"), ["end", "use"], "{}", world.label);
        let letters = world.outside.letters.lock().unwrap();
        let keys = |run: &str| -> Vec<_> {
            letters.iter().filter(|(of, ..)| of == run).map(|(_, key, _)| key.clone()).collect()
        };
        assert!(keys("copy").iter().all(|key| keys("r").contains(key)), "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn import_names_same_blob() {
    to_another_store(Thing::Blob, async |before, world, process| {
        let used: String = world.state(process, "r").await.get("used").unwrap().unwrap();
        let log = process.runtime.export(&key("r")).await.unwrap();
        assert!(log.contains(&used), "{}", world.label);
        // The names of stored values are kept.
        let source = Moment::of(before, &before.process().await, None).await;
        let named = (0..before.outside.puts.load(Ordering::SeqCst)).map(|put| format!("blob-{put}"));
        assert!(named.filter(|name| source.log.contains(name)).all(|name| name == used), "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn import_takes_cached_result() {
    to_another_store(Thing::Cached, async |_before, world, process| {
        let used: String = world.state(process, "r").await.get("used").unwrap().unwrap();
        assert_eq!(used, "looked", "{}", world.label);
        assert!(world.outside.looks.load(Ordering::SeqCst) <= 1, "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn import_streams_from_start() {
    to_another_store(Thing::Stream, async |_before, world, process| {
        assert_eq!(world.stream_of(process, "r").await, "It depends.", "{}", world.label);
    })
    .await;
}

//! A fork, combined with each external resource of its source.

use std::sync::atomic::Ordering;

use ferrata_core::Seq;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Position;
use ferrata_core::store::{CheckpointStore as _, HeaderRange};

use super::things::Thing;
use super::world::{Moment, Process, World, key};

/// Crashes a run at each of its writes, forks it there, and continues both. Then forks an ended run at each of its records. `check` gets the fork and
/// the state of its source at that moment.
async fn at_each_record(thing: Thing, check: impl AsyncFn(&World, &Process, &str, &Moment)) {
    let mut forks = 0;
    for write in 0.. {
        let world = World::new(thing, format!("forked at write {write}"));
        if !world.live_until(write).await {
            break;
        }
        if world.head("r").await.is_none() {
            continue;
        }
        let process = world.process().await;
        let source = Moment::of(&world, &process, None).await;
        process.runtime.fork(&key("r"), Position::Latest).id("f").await.unwrap();
        assert_eq!(world.head("f").await.unwrap().owner, None);
        assert_eq!(process.runtime.export(&key("r")).await.unwrap(), source.log, "{}", world.label);
        world.serve(&process);
        for run in ["r", "f"] {
            world.finish(&process, run).await;
        }
        world.settle(&process).await;
        check(&world, &process, "f", &source).await;
        forks += 1;
    }
    assert!(forks >= 4, "{thing:?}: {forks} forks");
    let world = World::new(thing, "forked when it has ended");
    assert!(!world.live_until(u64::MAX).await);
    let process = world.process().await;
    world.serve(&process);
    world.settle(&process).await;
    let log = process.runtime.export(&key("r")).await.unwrap();
    let started = world.started_by("r").await;
    let headers = world.store.headers(&key("r"), HeaderRange::newest(1_000)).await.unwrap().items;
    for header in headers.iter().filter(|header| !header.status.is_finished()) {
        let seq = header.seq.get();
        let fork = format!("f{seq}");
        let source = Moment::of(&world, &process, Some(seq + 1)).await;
        process.runtime.fork(&key("r"), Seq::new(seq)).id(&fork).await.unwrap();
        world.finish(&process, &fork).await;
        world.settle(&process).await;
        check(&world, &process, &fork, &source).await;
    }
    // The fork changed neither the source nor the source's children.
    assert_eq!(process.runtime.export(&key("r")).await.unwrap(), log);
    assert_eq!(world.started_by("r").await, started);
}

/// A fork starts its own child, unless the source's child had completed. Then the fork has its result.
///
/// Guarantees: CHILD-13.
#[tokio::test]
async fn fork_starts_own_child() {
    at_each_record(Thing::Child, async |world, process, fork, source| {
        for (run, expected) in [("r", 1), (fork, usize::from(!source.notes("#told1.kid")))] {
            let children = world.started_by(run).await;
            assert_eq!(children.len(), expected, "{}: {run}", world.label);
            assert!(children.iter().all(|child| child.status == RunStatus::Completed), "{}", world.label);
            let used: Option<String> = world.state(process, run).await.get("used").unwrap();
            assert_eq!(used.as_deref(), Some("42"), "{}: {run}", world.label);
        }
    })
    .await;
}

/// One of the fork points must be between the note of the child and its start.
#[tokio::test]
async fn fork_meets_unstarted_child() {
    let mut met = 0;
    for write in 0.. {
        let world = World::new(Thing::Child, format!("write {write}"));
        if !world.live_until(write).await {
            break;
        }
        if world.head("r").await.is_some() {
            let source = Moment::of(&world, &world.process().await, None).await;
            met += usize::from(source.notes("#child1.kid") && world.started_by("r").await.is_empty());
        }
    }
    assert!(met > 0);
}

/// A fork starts its own left child, unless the node that starts it has ended.
///
/// Guarantees: CHILD-13.
#[tokio::test]
async fn fork_starts_own_left_child() {
    at_each_record(Thing::Left, async |world, process, fork, source| {
        for (run, expected) in [("r", 1), (fork, usize::from(!source.used))] {
            let children = world.started_by(run).await;
            assert_eq!(children.len(), expected, "{}: {run}", world.label);
            assert!(children.iter().all(|child| child.status == RunStatus::Completed), "{}", world.label);
            let used: String = world.state(process, run).await.get("used").unwrap().unwrap();
            let left = world.head(&used).await.unwrap();
            assert_eq!(left.status, RunStatus::Completed, "{}: {run}", world.label);
        }
    })
    .await;
}

/// A run that its source has spawned is not spawned again by a fork.
///
/// Guarantees: CHILD-13.
#[tokio::test]
async fn fork_keeps_spawned_run() {
    at_each_record(Thing::Spawned, async |world, process, fork, source| {
        let is_kept = source.used || source.notes("#began1.kid");
        for (run, expected) in [("r", 1), (fork, usize::from(!is_kept))] {
            let spawned = world.started_by(run).await;
            assert_eq!(spawned.len(), expected, "{}: {run}", world.label);
        }
        let mut used = Vec::new();
        for run in ["r", fork] {
            let spawned: String = world.state(process, run).await.get("used").unwrap().unwrap();
            assert_eq!(world.head(&spawned).await.unwrap().status, RunStatus::Completed, "{}", world.label);
            used.push(spawned);
        }
        assert_eq!(used[0] == used[1], is_kept, "{}", world.label);
    })
    .await;
}

/// The source delivers the messages of its nodes. A fork sends those of its own nodes, under its own keys.
#[tokio::test]
async fn fork_sends_own_letters() {
    at_each_record(Thing::Letter, async |world, _process, fork, source| {
        assert_eq!(world.letters_of("r"), ["end", "use"], "{}", world.label);
        let expected: &[_] = if source.used { &["end"] } else { &["end", "use"] };
        assert_eq!(world.letters_of(fork), expected, "{}", world.label);
        let letters = world.outside.letters.lock().unwrap();
        let keys = |run: &str| -> Vec<_> {
            letters.iter().filter(|(of, ..)| of == run).map(|(_, key, _)| key.clone()).collect()
        };
        assert!(keys(fork).iter().all(|key| !keys("r").contains(key)), "{}", world.label);
    })
    .await;
}

/// A fork names the stored values in its own records, so that they stay when the source is purged.
#[tokio::test]
async fn fork_names_blobs_itself() {
    at_each_record(Thing::Blob, async |world, process, fork, source| {
        let own: String = world.state(process, "r").await.get("used").unwrap().unwrap();
        let forked: String = world.state(process, fork).await.get("used").unwrap().unwrap();
        assert_eq!(own == forked, source.notes(&own), "{}", world.label);
        for (run, name) in [("r", own), (fork, forked)] {
            let log = process.runtime.export(&key(run)).await.unwrap();
            assert!(log.contains(&name), "{}: {run} does not name {name}", world.label);
        }
    })
    .await;
}

/// A fork uses cached results like any other run.
#[tokio::test]
async fn fork_takes_cached_result() {
    at_each_record(Thing::Cached, async |world, process, fork, _source| {
        for run in ["r", fork] {
            let used: String = world.state(process, run).await.get("used").unwrap().unwrap();
            assert_eq!(used, "looked", "{}: {run}", world.label);
        }
        // Once in each process, and once more if the run and its fork miss the cache at the same time.
        assert!(world.outside.looks.load(Ordering::SeqCst) <= 3, "{}", world.label);
    })
    .await;
}

/// A fork streams the chunks of its own attempt, from the start.
#[tokio::test]
async fn fork_streams_from_start() {
    at_each_record(Thing::Stream, async |world, process, fork, source| {
        assert_eq!(world.stream_of(process, "r").await, "It depends.", "{}", world.label);
        let expected = if source.used { "" } else { "It depends." };
        assert_eq!(world.stream_of(process, fork).await, expected, "{}", world.label);
    })
    .await;
}

//! A retry, combined with each external resource of the run.

use std::sync::atomic::Ordering;

use ferrata_core::record::RunStatus;

use super::things::Thing;
use super::world::{Process, World, key};

/// Lets the run fail at each of its writes, next to the node that uses the resource. Retries it in the same process and in another.
async fn at_each_record(thing: Thing, check: impl AsyncFn(&World, &Process)) {
    let mut retries = 0;
    for elsewhere in [false, true] {
        for write in 0.. {
            let world = World::new(thing, format!("failed at write {write}, retried elsewhere: {elsewhere}"));
            let Some(mut process) = world.fail_at(write).await else { break };
            if elsewhere {
                process.store.crash();
                process = world.process().await;
                world.serve(&process);
            }
            process.runtime.retry(&key("r")).await.unwrap();
            world.finish(&process, "r").await;
            world.settle(&process).await;
            check(&world, &process).await;
            retries += 1;
        }
    }
    assert!(retries >= 8, "{thing:?}: {retries} retries");
}

/// A retry continues with an active child, and reads the result of an ended one.
#[tokio::test]
async fn retry_finds_same_child() {
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
async fn retry_finds_same_left_child() {
    at_each_record(Thing::Left, async |world, _process| {
        let children = world.started_by("r").await;
        assert_eq!(children.len(), 1, "{}", world.label);
        assert_eq!(children[0].status, RunStatus::Completed, "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn retry_spawns_no_second_run() {
    at_each_record(Thing::Spawned, async |world, process| {
        let spawned = world.started_by("r").await;
        assert_eq!(spawned.len(), 1, "{}", world.label);
        let used: String = world.state(process, "r").await.get("used").unwrap().unwrap();
        assert_eq!(used, spawned[0].run.run.as_str(), "{}", world.label);
    })
    .await;
}

/// The messages of a completed node are sent once, and those of an aborted attempt are not sent.
#[tokio::test]
async fn retry_sends_letters_once() {
    at_each_record(Thing::Letter, async |world, _process| {
        assert_eq!(world.letters_of("r"), ["end", "use"], "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn retry_names_same_blob() {
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
async fn retry_takes_cached_result() {
    at_each_record(Thing::Cached, async |world, process| {
        let used: String = world.state(process, "r").await.get("used").unwrap().unwrap();
        assert_eq!(used, "looked", "{}", world.label);
        assert_eq!(world.outside.looks.load(Ordering::SeqCst), 1, "{}", world.label);
    })
    .await;
}

#[tokio::test]
async fn retry_streams_from_start() {
    at_each_record(Thing::Stream, async |world, process| {
        assert_eq!(world.stream_of(process, "r").await, "It depends.", "{}", world.label);
    })
    .await;
}

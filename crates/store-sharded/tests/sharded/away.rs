//! An unavailable shard affects only its own runs, and errors name the shard.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrata_core::store::{At, CheckpointStore, HeaderRange, Page, RunFilter, RunQuery};
use ferrata_core::{Error, ErrorKind, ExecutorId, IdSource, RandomIds, Timestamp};

use crate::world::{World, append, every, key, next, start};

const TTL: Duration = Duration::from_secs(3_600);

fn executor() -> ExecutorId {
    ExecutorId::from_uuid(RandomIds::new().next(Timestamp::default()))
}

fn names_b(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("shard `b`"), "{error}");
}

/// Guarantees: SHARD-7.
#[tokio::test]
async fn absent_shard_affects_only_its_runs() {
    let world = World::default();
    let store = world.open(&["abc"]);
    store.setup().await.unwrap();
    let runs = start(&store, "run", 60).await;
    let mut of_b = Vec::new();
    for run in &runs {
        of_b.push(store.shard_of(&key(run)).await.unwrap() == Some("b"));
    }
    let mut heads = Vec::new();
    for run in &runs {
        heads.push(store.head(&key(run)).await.unwrap().unwrap().head());
    }
    world.store("b").away(true);

    let batch = runs.iter().zip(&heads).map(|(run, head)| next(run, Some(*head), 0, None)).collect();
    for (result, of_b) in store.append(batch).await.into_iter().zip(&of_b) {
        match of_b {
            true => names_b(&result.unwrap_err()),
            false => _ = result.unwrap(),
        }
    }
    for (run, of_b) in runs.iter().zip(&of_b) {
        let loaded = store.load(&key(run), At::Latest).await;
        match of_b {
            true => {
                names_b(&loaded.unwrap_err());
                names_b(&store.head(&key(run)).await.unwrap_err());
                names_b(&store.headers(&key(run), HeaderRange::newest(1)).await.unwrap_err());
                names_b(&store.purge(&key(run), None).await.unwrap_err());
            }
            false => assert_eq!(loaded.unwrap().unwrap().len(), 2),
        }
    }
    // A listing is complete or fails. A sweep still finds runs in the other shards.
    names_b(&every(&store, &RunQuery::default(), Page::first(10)).await.unwrap_err());
    let mut orphaned = RunQuery::default();
    orphaned.filter = RunFilter::Orphaned;
    let found = every(&store, &orphaned, Page::first(10)).await.unwrap();
    assert_eq!(found.len(), of_b.iter().filter(|of_b| !**of_b).count());
    names_b(&store.setup().await.unwrap_err());

    world.stores.iter().for_each(|store| store.away(true));
    assert_eq!(every(&store, &orphaned, Page::first(10)).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(store.heartbeat(&executor(), TTL).await.unwrap_err().kind(), ErrorKind::Unavailable);

    world.stores.iter().for_each(|store| store.away(false));
    assert_eq!(every(&store, &orphaned, Page::first(10)).await.unwrap().len(), 60);
}

/// Guarantees: SHARD-2.
#[tokio::test]
async fn old_run_is_found_during_newer_home_outage() {
    let world = World::default();
    start(&world.open(&["a"]), "run", 1).await;
    let store = world.open(&["a", "b"]);
    world.store("b").away(true);
    assert!(store.head(&key("run-0")).await.unwrap().is_some());
    // A run that is in no other shard may be in the unavailable one.
    names_b(&store.head(&key("none")).await.unwrap_err());
    world.store("b").away(false);
    world.store("a").away(true);
    let error = append(&store, next("new", None, 0, None)).await.unwrap_err();
    assert!(error.to_string().contains("shard `a`"), "the run could be started there: {error}");
    assert!(world.content().await[1].is_empty(), "nothing must be written: {:?}", world.content().await);
}

/// Guarantees: SHARD-8.
#[tokio::test]
async fn missed_heartbeat_precedes_next_append_to_shard() {
    let world = World::default();
    let store = world.open(&["ab"]);
    let runs = start(&store, "run", 10).await;
    let owner = executor();
    let b = world.store("b");
    b.is_deaf.store(true, Ordering::Relaxed);
    store.heartbeat(&owner, TTL).await.expect("shard `a` must have it");

    let (mut at_a, mut at_b) = (0, 0);
    for run in &runs {
        let head = store.head(&key(run)).await.unwrap().unwrap().head();
        let appended = append(&store, next(run, Some(head), 0, Some(owner))).await;
        if store.shard_of(&key(run)).await.unwrap() == Some("b") {
            names_b(&appended.unwrap_err());
            assert_eq!(store.head(&key(run)).await.unwrap().unwrap().head(), head, "nothing must be written");
            // A writer that owns no run can append.
            append(&store, next(run, Some(head), 0, None)).await.unwrap();
            at_b += 1;
        } else {
            appended.unwrap();
            at_a += 1;
        }
    }
    assert!(at_a > 0 && at_b > 0, "{at_a} {at_b}");

    b.is_deaf.store(false, Ordering::Relaxed);
    let beats = b.beats.load(Ordering::Relaxed);
    for run in &runs {
        let head = store.head(&key(run)).await.unwrap().unwrap().head();
        append(&store, next(run, Some(head), 0, Some(owner))).await.unwrap();
        assert!(store.head(&key(run)).await.unwrap().unwrap().owner_alive, "{run}");
    }
    assert_eq!(b.beats.load(Ordering::Relaxed), beats + 1, "the heartbeat must be sent again once");

    // The end of a process must reach every shard.
    b.is_deaf.store(true, Ordering::Relaxed);
    assert!(store.heartbeat(&owner, Duration::ZERO).await.unwrap_err().to_string().contains("shard `b`"));
}

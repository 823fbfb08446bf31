//! A run has one log, whichever generations its starters know. Contradictory maps are refused.

use std::sync::{Arc, Mutex};

use ferrata_core::store::{At, CheckpointStore, HeaderRange, Page, RunQuery};
use ferrata_core::{ErrorKind, WorkflowName};
use ferrata_store_sharded::ShardedStore;

use crate::world::{World, append, every, key, next, start};

/// The maps of processes with more and fewer generations. One map removes the newest shard again.
const MAPS: [&[&str]; 4] = [&["a"], &["a", "b"], &["a", "b", "bc"], &["a", "b", "bc", "a"]];

const SEEDS: u64 = 300;

/// Four processes start the same run at the same time. Every call yields at random.
///
/// Guarantees: SHARD-1.
#[tokio::test]
async fn concurrent_starts_of_run_create_one_log() {
    let seed = std::env::var("SHARD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = seed.map_or(1..=SEEDS, |seed| seed..=seed);
    let mut winners = std::collections::BTreeSet::new();
    for seed in seeds {
        let dice = Arc::new(Mutex::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        let mut world = World::default();
        world.stores.iter_mut().for_each(|store| store.dice = Some(Arc::clone(&dice)));
        let stores = MAPS.map(|map| Arc::new(world.open(map)));
        let starts = stores.iter().map(|store| {
            let store = Arc::clone(store);
            async move { append(&*store, next("run", None, 0, None)).await }
        });
        let mut tasks = tokio::task::JoinSet::new();
        for (process, start) in starts.enumerate() {
            tasks.spawn(async move { (process, start.await) });
        }
        let mut started = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            match ended.unwrap() {
                (process, Ok(_)) => started.push(process),
                (_, Err(error)) => assert!(
                    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unsupported),
                    "SHARD_SEED={seed}: {error:?}"
                ),
            }
        }
        let logs = world.content().await.concat().into_iter().filter(|row| row.1 == "w").count();
        assert_eq!((started.len(), logs), (1, 1), "SHARD_SEED={seed}: started by {started:?}");
        winners.extend(started);
        // A process that knows the generation finds the run. The others get an error.
        assert!(stores[3].head(&key("run")).await.unwrap().is_some(), "SHARD_SEED={seed}");
        for store in &stores {
            match store.head(&key("run")).await {
                Ok(head) => assert!(head.is_some(), "SHARD_SEED={seed}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unsupported, "SHARD_SEED={seed}: {error:?}")
                }
            }
        }
    }
    if seed.is_none() {
        assert!(winners.len() > 1, "every process must win sometimes: {winners:?}");
    }
}

/// The newest generation uses the home `a` again, so a start there checks no other shard.
const BACK: &[&str] = &["a", "b", "a"];

/// Restarts `run-0` through `store` just before the shard removes its records.
fn starts_before_a_purge(world: &World, shard: &str, store: ShardedStore) {
    world.store(shard).before_purge.set(async move {
        start(&store, "run", 1).await;
    });
}

/// Another process has purged the run, and its id was used again.
///
/// Guarantees: SHARD-6.
#[tokio::test]
async fn purge_spares_later_generation_in_other_shard() {
    let run = key("run-0");
    for expected in [true, false] {
        let world = World::default();
        let (before, now) = (world.open(&BACK[..2]), world.open(BACK));
        start(&before, "run", 1).await;
        let head = now.head(&run).await.unwrap().unwrap().head();
        let other = world.open(BACK);
        world.store("b").before_purge.set(async move {
            other.purge(&key("run-0"), Some(head)).await.unwrap();
            start(&other, "run", 1).await;
        });
        now.purge(&run, expected.then_some(head)).await.unwrap();
        assert!(
            now.head(&run).await.unwrap().is_some(),
            "the run of the new generation, expected {expected}"
        );
    }
}

/// Guarantees: SHARD-6.
#[tokio::test]
async fn start_during_purge_keeps_signposts() {
    let run = key("run-0");
    for expected in [true, false] {
        let world = World::default();
        let (before, now) = (world.open(&BACK[..2]), world.open(BACK));
        start(&before, "run", 1).await;
        let head = now.head(&run).await.unwrap().unwrap().head();
        // The start meets the marker and continues in `b`.
        starts_before_a_purge(&world, "a", world.open(&BACK[..2]));
        now.purge(&run, expected.then_some(head)).await.unwrap();
        assert_eq!(before.shard_of(&run).await.unwrap(), Some("b"));
        let error = append(&now, next("run-0", None, 0, None)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "the run exists already, expected {expected}");
        // A purge of the run removes its marker, too.
        now.purge(&run, None).await.unwrap();
        assert!(world.content().await.iter().all(Vec::is_empty));
    }
}

/// A shard that was empty when the purge checked it may have a marker later.
///
/// Guarantees: SHARD-6.
#[tokio::test]
async fn empty_purge_spares_signpost_of_concurrent_start() {
    let world = World::default();
    let store = world.open(&["a", "b"]);
    // `b` is purged first, and `a` last.
    starts_before_a_purge(&world, "a", world.open(&["a", "b"]));
    store.purge(&key("run-0"), None).await.unwrap();
    assert_eq!(store.shard_of(&key("run-0")).await.unwrap(), Some("b"));
    let error = append(&world.open(BACK), next("run-0", None, 0, None)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn repeated_start_is_same_start() {
    let world = World::default();
    for map in MAPS {
        let store = world.open(map);
        let run = format!("run-{}", map.len());
        let start = next(&run, None, 0, None);
        let head = append(&store, start.clone()).await.unwrap();
        for store in [&store, &world.open(map)] {
            assert_eq!(append(store, start.clone()).await.unwrap(), head, "{map:?}");
            let error = append(store, next(&run, None, 0, None)).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.actual_head()),
                (ErrorKind::Conflict, Some(Some(head))),
                "{map:?}"
            );
        }
    }
}

#[tokio::test]
async fn what_would_be_refused_leaves_no_signposts() {
    let world = World::default();
    let mut start = next("run", None, 0, None);
    start.records[0].header.base = false;
    let error = append(&world.open(&["a", "b"]), start).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(world.content().await.iter().all(Vec::is_empty));
}

/// Guarantees: SHARD-4.
#[tokio::test]
async fn process_with_old_map_generation_is_refused() {
    let world = World::default();
    let (old, new) = (world.open(&["a"]), world.open(&["a", "b"]));
    start(&new, "run", 1).await;
    let run = key("run-0");
    let before = world.content().await;
    assert_eq!(old.head(&run).await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(old.load(&run, At::Latest).await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(old.headers(&run, HeaderRange::newest(5)).await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(old.purge(&run, None).await.unwrap_err().kind(), ErrorKind::Unsupported);
    let error = append(&old, next("run-0", None, 0, None)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("newest generations"), "{error}");
    assert!(every(&old, &<_>::default(), Page::first(5)).await.unwrap().is_empty());
    assert_eq!(world.content().await, before);
}

fn refusal(store: ferrata_core::Result<ShardedStore>) -> String {
    let error = store.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    error.to_string()
}

/// Guarantees: SHARD-5.
#[tokio::test]
async fn setup_refuses_maps_that_contradict_what_is_stored() {
    let world = World::default();
    let [a, b, _] = &world.stores;
    world.open(&["ab"]).setup().await.unwrap();
    // The same map, a longer one, and then the shorter one again.
    for map in [&["ab"][..], &["ab", "abc"], &["ab"]] {
        world.open(map).setup().await.unwrap();
    }
    for map in [&["ba", "abc"][..], &["a", "ab"], &["ab", "b"]] {
        let error = world.open(map).setup().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{map:?}");
        assert!(error.to_string().contains("never change one"), "{error}");
    }
    let exchanged = ShardedStore::builder().shard("a", b.clone()).shard("b", a.clone()).build().unwrap();
    let error = exchanged.setup().await.unwrap_err();
    assert!(error.to_string().contains("shard `a`: its store was set up as the shard `b`"), "{error}");
    // The map is no run of a user.
    let store = world.open(&["ab", "abc"]);
    assert!(every(&store, &<_>::default(), Page::first(5)).await.unwrap().is_empty());
    assert!(store.head(&key("ferrata:shards")).await.unwrap().is_none());
    assert_eq!(
        append(&store, next("ferrata:shards", None, 0, None)).await.unwrap_err().kind(),
        ErrorKind::Invalid
    );
    store.purge(&key("ferrata:shards"), None).await.unwrap();
    store.setup().await.unwrap();
}

#[test]
fn mistakes_of_a_map_are_named() {
    let world = World::default();
    let [a, b, _] = &world.stores;
    let one = || ShardedStore::builder().shard("a", a.clone());
    assert!(refusal(ShardedStore::builder().build()).contains("the map has no generation"));
    assert!(refusal(one().shard("a", b.clone()).build()).contains("two shards are named `a`"));
    assert!(refusal(one().shard("b c", b.clone()).build()).contains("\"b c\""));
    assert!(
        refusal(one().shard("b", b.clone()).generation(["a"]).build()).contains("`b` is in no generation")
    );
    assert!(refusal(one().generation(["a", "x"]).build()).contains("`x`, which has no store"));
    assert!(refusal(one().generation(["a", "a"]).build()).contains("twice"));
    assert!(refusal(one().generation(Vec::<String>::new()).build()).contains("has no shard"));
}

/// A workflow with a reserved name is refused. A run that already has such a name is listed, so that it can be recovered.
#[tokio::test]
async fn reserved_workflow_name_is_refused_existing_is_listed() {
    let world = World::default();
    let store = world.open(&["ab"]);
    store.setup().await.unwrap();
    let mut reserved = next("mine", None, 0, None);
    let facts = reserved.facts.as_mut().unwrap();
    facts.workflow = WorkflowName::new("ferrata:elsewhere").unwrap();
    let refused = append(&store, reserved.clone()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused:?}");
    // The run was written before such names were refused.
    let shard = if store.part(&key("mine")) == 0 { "a" } else { "b" };
    append(&world.store(shard).inner, reserved).await.unwrap();
    let listed = every(&store, &RunQuery::default(), Page::first(10)).await.unwrap();
    assert_eq!(listed.iter().map(|head| head.run.to_string()).collect::<Vec<_>>(), ["default/mine"]);
}

//! A shard that never answers does not delay the other shards.
//!
//! A shard that refuses calls is a different case. A call that is never answered occupies a commit lane or a heartbeat until its time limit.

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeResult};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, RunHandle, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, MemoryStore, Page, RunQuery};
use ferrata_core::{Clock, ExecutorId, IdSource, RandomIds, Timestamp};
use ferrata_store_sharded::ShardedStore;
use ferrata_testing::{FaultPlan, FaultStore, ManualClock};
use tokio::sync::Semaphore;

use crate::world::{Shaky, Silence, World, append, key, next, start};

/// Releases the nodes of the silent shard.
#[derive(Clone)]
struct Gate(Arc<Semaphore>);

async fn gated(cx: NodeContext, s: Draft<Context>) -> NodeResult<Context> {
    cx.resource::<Gate>().0.acquire().await.unwrap().forget();
    Ok(s.into())
}

async fn slow(cx: NodeContext, s: Draft<Context>) -> NodeResult<Context> {
    cx.resource::<Arc<ManualClock>>().sleep(Duration::from_secs(40)).await;
    Ok(s.into())
}

async fn quick(_cx: NodeContext, s: Draft<Context>) -> NodeResult<Context> {
    Ok(s.into())
}

fn open(shards: &[Shaky; 2], clock: &Arc<ManualClock>) -> ShardedStore {
    let builder = ShardedStore::builder().shard("a", shards[0].clone()).shard("b", shards[1].clone());
    builder.clock(Arc::clone(clock) as _).build().unwrap()
}

/// Names of runs in each of the two shards.
async fn names(count: usize) -> [Vec<String>; 2] {
    let world = World::default();
    let store = world.open(&["ab"]);
    let mut names = [Vec::new(), Vec::new()];
    for name in start(&store, "run", count).await {
        let shard = store.shard_of(&key(&name)).await.unwrap().unwrap();
        names[usize::from(shard == "b")].push(name);
    }
    names
}

/// Advances the clock until `done` is ready, for at most `most`.
async fn pass<T>(clock: &ManualClock, most: Duration, done: impl Future<Output = T>) -> Option<T> {
    let mut done = std::pin::pin!(done);
    for turn in 0..most.as_millis() * 2 / 5 {
        tokio::select! {
            biased;
            result = &mut done => return Some(result),
            () = tokio::task::yield_now() => {
                if turn % 20 == 0 {
                    clock.advance(Duration::from_millis(50));
                }
            }
        }
    }
    None
}

async fn stops_no_other(silence: Silence) {
    let [of_a, of_b] = names(60).await;
    let shards = [Shaky::default(), Shaky::default()];
    let clock = Arc::new(ManualClock::default());
    let gate = Gate(Arc::new(Semaphore::new(0)));
    let builder = Runtime::builder(open(&shards, &clock)).clock(Arc::clone(&clock) as _);
    let runtime = builder.resource(gate.clone()).resource(Arc::clone(&clock)).build().await.unwrap();
    let graph = |name: &str| Graph::<Context>::builder(name);
    let gated = graph("gated").node("one", gated).entry("one").build().unwrap();
    let long = graph("slow").node("one", slow).entry("one").build().unwrap();
    let quick = graph("quick").node("one", quick).node("two", self::quick).node("three", self::quick);
    let quick = quick.entry("one").edge("one", "two").edge("two", "three").build().unwrap();

    let mut stuck = Vec::new();
    for name in &of_b[..12] {
        stuck.push(runtime.start(&gated, Context::new()).id(name.as_str()).await.unwrap());
    }
    let long = runtime.start(&long, Context::new()).id(of_a[0].as_str()).await.unwrap();
    *shards[1].silence.lock().unwrap() = silence;
    gate.0.add_permits(12);
    let well = async {
        let mut handles: Vec<RunHandle<Context>> = Vec::new();
        for name in &of_a[1..21] {
            handles.push(runtime.start(&quick, Context::new()).id(name.as_str()).await.unwrap());
        }
        for handle in handles {
            assert!(matches!(handle.wait().await, Ok(Outcome::Completed(_))));
        }
    };
    pass(&clock, Duration::from_secs(10), well)
        .await
        .expect("runs of the healthy shard must not wait for the other shard");
    // Longer than a heartbeat of this process is valid.
    let outcome = pass(&clock, Duration::from_secs(60), long.wait()).await.unwrap();
    assert!(matches!(outcome, Ok(Outcome::Completed(_))), "{outcome:?}");

    *shards[1].silence.lock().unwrap() = Silence::Answers;
    let end = async {
        for handle in stuck {
            assert!(matches!(handle.wait().await, Ok(Outcome::Completed(_))));
        }
    };
    pass(&clock, Duration::from_secs(300), end)
        .await
        .expect("runs of the silent shard must continue when it answers again");
}

/// Guarantees: SHARD-7.
#[tokio::test]
async fn a_shard_that_answers_nothing_stops_no_other() {
    stops_no_other(Silence::AnswersNothing).await;
}

/// Guarantees: SHARD-7.
#[tokio::test]
async fn shard_answering_only_heartbeats_blocks_no_other() {
    stops_no_other(Silence::AnswersHeartbeats).await;
}

/// Recovery lists and claims the shards independently, so that a silent shard does not delay the orphans of others.
///
/// Guarantees: SHARD-7.
#[tokio::test]
async fn silent_shard_delays_no_other_recovery() {
    for silence in [Silence::AnswersNothing, Silence::AnswersHeartbeats, Silence::AnswersListings] {
        let [of_a, of_b] = names(60).await;
        let clock = Arc::new(ManualClock::default());
        let shard = || Shaky { inner: MemoryStore::with_clock(Arc::clone(&clock) as _), ..Shaky::default() };
        let shards = [shard(), shard()];
        let gate = Gate(Arc::new(Semaphore::new(0)));
        let dying = Arc::new(FaultStore::new(open(&shards, &clock), FaultPlan::new()));
        let runtime = async |store: Arc<dyn CheckpointStore>| {
            let builder = Runtime::builder_with(store).clock(Arc::clone(&clock) as _);
            builder.resource(gate.clone()).build().await.unwrap()
        };
        let first = runtime(Arc::clone(&dying) as _).await;
        let graph = Graph::<Context>::builder("gated").node("one", gated).entry("one").build().unwrap();
        for name in of_a[..20].iter().chain(&of_b[..20]) {
            first.start(&graph, Context::new()).id(name.as_str()).await.unwrap();
        }
        dying.crash();
        clock.advance(Duration::from_secs(20));
        *shards[1].silence.lock().unwrap() = Silence::Answers;
        let second = runtime(Arc::new(open(&shards, &clock))).await;
        *shards[1].silence.lock().unwrap() = silence;
        gate.0.add_permits(1_000);
        second.serve(&graph).unwrap();
        let completed = async |shard: &Shaky| {
            let mut query = RunQuery::default();
            query.statuses = vec![RunStatus::Completed];
            while shard.inner.runs(&query, Page::first(100)).await.unwrap().items.len() < 20 {
                tokio::task::yield_now().await;
            }
        };
        let well = pass(&clock, Duration::from_secs(30), completed(&shards[0])).await;
        assert!(
            well.is_some(),
            "orphans of the healthy shard must not wait for the other shard: {silence:?}"
        );
        *shards[1].silence.lock().unwrap() = Silence::Answers;
        let all = pass(&clock, Duration::from_secs(600), completed(&shards[1])).await;
        assert!(
            all.is_some(),
            "orphans of the silent shard must be claimed when it answers again: {silence:?}"
        );
        drop(first);
    }
}

/// A part is a shard, or the common part of starts that write markers to other shards. So a start that waits for a silent shard does not delay
/// appends to a healthy shard.
#[tokio::test]
async fn store_part_is_shard_or_cross_shard() {
    let world = World::default();
    let store = world.open(&["ab", "abc"]);
    let mut parts = [const { Vec::new() }; 4];
    for n in 0..200 {
        let run = key(&format!("run-{n}"));
        let part = store.part(&run);
        append(&store, next(&format!("run-{n}"), None, 0, None)).await.unwrap();
        let shard = store.shard_of(&run).await.unwrap().unwrap();
        let index = ["a", "b", "c"].iter().position(|name| *name == shard).unwrap();
        assert_eq!(store.part(&run), index as u64, "after it was found");
        let place = if part < 3 { index } else { 3 };
        parts[place].push(part);
    }
    assert!(parts[0].iter().all(|part| *part == 0) && parts[1].iter().all(|part| *part == 1));
    assert!(parts[2].is_empty() && parts[3].len() > 20, "runs with another earlier shard: {parts:?}");
    parts[3].sort_unstable();
    parts[3].dedup();
    assert_eq!(parts[3].len(), 2, "a and c, b and c");
}

/// A shard without relays may encrypt its runs, so chunks must not leave through another shard.
#[test]
fn chunks_stop_if_any_shard_refuses_them() {
    let plain = MemoryStore::new;
    let both = ShardedStore::builder().shard("a", plain()).shard("b", plain()).build().unwrap();
    assert!(both.relay().is_some());
    let silent = Shaky::default();
    assert!(silent.relay().is_none());
    for is_eldest in [false, true] {
        let (first, second): (Arc<dyn CheckpointStore>, Arc<dyn CheckpointStore>) = match is_eldest {
            true => (Arc::new(silent.clone()), Arc::new(plain())),
            false => (Arc::new(plain()), Arc::new(silent.clone())),
        };
        let mixed = ShardedStore::builder().shard("a", first).shard("b", second).build().unwrap();
        assert!(mixed.relay().is_none(), "the silent shard is the first: {is_eldest}");
    }
}

/// If the caller drops a heartbeat, the shard may have missed it, so it is repeated before an append.
#[tokio::test]
async fn abandoned_heartbeat_is_repeated_before_append() {
    let (shards, clock) = ([Shaky::default(), Shaky::default()], Arc::new(ManualClock::default()));
    let store = open(&shards, &clock);
    let executor = ExecutorId::from_uuid(RandomIds::new().next(Timestamp::default()));
    let [_, of_b] = names(20).await;
    *shards[1].silence.lock().unwrap() = Silence::AnswersNothing;
    let ttl = Duration::from_secs(15);
    // Shorter than the shard's own time limit.
    assert!(pass(&clock, Duration::from_secs(1), store.heartbeat(&executor, ttl)).await.is_none());
    *shards[1].silence.lock().unwrap() = Silence::Answers;
    let before = shards[1].beats.load(std::sync::atomic::Ordering::Relaxed);
    append(&store, next(&of_b[0], None, 0, Some(executor))).await.unwrap();
    let after = shards[1].beats.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(after - before, 1, "the heartbeat must precede the append");
}

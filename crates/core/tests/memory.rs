//! Memory of a run while it is active, waits, or is released, and the number of allocations per activation. Every allocation is counted.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::alloc::System;
use std::sync::{Arc, Mutex, PoisonError};

use ferrata_core::ask::Ask;
use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph};
use ferrata_core::runtime::{Outcome, RunHandle, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::MemoryStore;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::sync::Semaphore;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The tests of a program share its allocator, so they run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Number of runs.
const RUNS: usize = 1_000;

/// Memory that the memory store uses for a run with a few records, including spare capacity of its maps. It does not count as memory of the run.
const STORED: usize = 2_700;

/// Number of allocated bytes.
fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Runs a test in one thread, so that allocations are repeatable.
fn alone(test: impl Future<Output = ()>) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
}

async fn start(runtime: &Runtime, graph: &Graph<Context>, runs: usize) -> Vec<RunHandle<Context>> {
    let mut handles = Vec::with_capacity(runs);
    for _ in 0..runs {
        handles.push(runtime.start(graph, Context::new()).await.unwrap());
    }
    handles
}

async fn rest(handles: &[RunHandle<Context>]) {
    for handle in handles {
        assert!(matches!(handle.wait().await.unwrap(), Outcome::Interrupted { .. }));
    }
}

async fn purge(runtime: &Runtime, handles: Vec<RunHandle<Context>>) {
    for handle in handles {
        runtime.purge(handle.run()).await.unwrap();
    }
}

/// Starts runs that are all active in a node after `before` other nodes. Returns the bytes per run, including those of the store.
async fn at_work(before: usize) -> usize {
    let (there, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let node = (Arc::clone(&there), Arc::clone(&go));
    let hold = move |_cx, s: Draft<Context>| {
        let (there, go) = node.clone();
        async move {
            there.add_permits(1);
            go.acquire().await.unwrap().forget();
            Ok(s)
        }
    };
    let last = format!("n{before}");
    let mut builder = Graph::<Context>::builder("hold").entry("n0").node(last, hold).effect(Effect::Pure);
    for at in 0..before {
        builder = builder.node(format!("n{at}"), async |_cx, s: Draft<Context>| Ok(s)).effect(Effect::Pure);
        builder = builder.edge(format!("n{at}"), format!("n{}", at + 1));
    }
    let graph = builder.build().unwrap();
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let warm = start(&runtime, &graph, 100).await;
    there.acquire_many(100).await.unwrap().forget();
    let before = live();
    let handles = start(&runtime, &graph, RUNS).await;
    there.acquire_many(1_000).await.unwrap().forget();
    let each = live().saturating_sub(before) / RUNS;
    go.add_permits(100 + RUNS);
    for handle in warm.iter().chain(&handles) {
        assert!(matches!(handle.wait().await.unwrap(), Outcome::Completed(_)));
    }
    each
}

/// An active run takes little memory: its buffers have no spare capacity for unused features.
#[test]
fn a_run_at_work_is_small() {
    alone(async {
        let each = at_work(0).await;
        println!("{each} bytes for each run at work");
        assert!(each < 4_600 + STORED, "each active run takes {each} bytes");
    });
}

/// Lists with one item have no spare capacity, so an active run stays small after its first node.
#[test]
fn active_run_is_small_after_first_node() {
    alone(async {
        let (first, second) = (at_work(0).await, at_work(1).await);
        println!("{first} bytes for each run at its first node, {second} at the second");
        assert!(
            second < first + 1_500,
            "{second} bytes for each run at its second node, {first} at the first"
        );
    });
}

/// An idle run exists only in the store and in the handles of callers. The runtime keeps nothing of it.
#[test]
fn idle_run_frees_memory() {
    alone(async {
        let gate = |_s: &Context| Ask::<String>::new("go on?");
        let graph = Graph::<Context>::builder("ask")
            .gate("approve", gate, |s: &mut Context, answer| drop(s.set("answer", answer)))
            .entry("approve")
            .build()
            .unwrap();
        let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
        // Structures that all runs share grow with the first runs.
        let warm = start(&runtime, &graph, RUNS).await;
        rest(&warm).await;
        purge(&runtime, warm).await;
        let before = live();
        let handles = start(&runtime, &graph, RUNS).await;
        rest(&handles).await;
        let each = live().saturating_sub(before) / RUNS;
        println!("{each} bytes for each run that waits");
        assert!(each < 2_500, "each idle run takes {each} bytes");
        purge(&runtime, handles).await;
        let each = live().saturating_sub(before) / RUNS;
        println!("{each} bytes left of each run that was purged");
        assert!(each < 20, "each purged run leaves {each} bytes");
    });
}

fn chain(nodes: usize, effect: Effect) -> Graph<Context> {
    let mut builder = Graph::<Context>::builder("chain");
    for at in 0..nodes {
        builder = builder.node(format!("n{at}"), async |_cx, _s| Ok(())).effect(effect);
        builder = if at == 0 {
            builder.entry("n0")
        } else {
            builder.edge(format!("n{}", at - 1), format!("n{at}"))
        };
    }
    builder.build().unwrap()
}

/// Counts the allocations of a run of a chain.
async fn asks(runtime: &Runtime, graph: &Graph<Context>, frequency: CheckpointFrequency) -> usize {
    let count = || ALLOCATOR.stats().allocations + ALLOCATOR.stats().reallocations;
    let before = count();
    let policy = CheckpointPolicy::default().with_frequency(frequency);
    let run = runtime.start(graph, Context::new()).checkpoints(policy).await.unwrap();
    run.completed().await.unwrap();
    count() - before
}

/// A feature that few nodes use must not cost the others: no text is built per activation for possible children.
#[test]
fn an_activation_asks_for_memory_a_few_times() {
    const NODES: usize = 100;
    alone(async {
        let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
        let bounds = [
            (Effect::Pure, CheckpointFrequency::Disabled, 2),
            (Effect::Pure, CheckpointFrequency::EveryNode, 2),
            // Each record waits for its own append, which is not shared.
            (Effect::Write, CheckpointFrequency::EveryNode, 12),
        ];
        for (effect, frequency, most) in bounds {
            let (short, long) = (chain(NODES, effect), chain(2 * NODES, effect));
            let (mut few, mut many) = (usize::MAX, usize::MAX);
            // Structures that all runs share grow now and then, so take the minimum.
            for _ in 0..5 {
                few = few.min(asks(&runtime, &short, frequency).await);
                many = many.min(asks(&runtime, &long, frequency).await);
            }
            let each = (many - few) / NODES;
            println!("{effect:?}, {frequency:?}: {each} for each activation ({few}, {many})");
            assert!(
                each <= most,
                "{effect:?}, {frequency:?}: each activation makes {each} allocations, and may make {most}"
            );
        }
    });
}

fn fan_out(width: usize) -> Graph<Context> {
    let mut builder = Graph::<Context>::builder("fan").node("split", async |_cx, _s| Ok(())).entry("split");
    builder = builder.node("join", async |_cx, _s| Ok(())).effect(Effect::Pure);
    for at in 0..width {
        builder = builder.node(format!("n{at}"), async |_cx, _s| Ok(())).effect(Effect::Pure);
        builder = builder.edge("split", format!("n{at}")).edge(format!("n{at}"), "join");
    }
    builder.build().unwrap()
}

/// The memory for the end of an activation does not depend on the number of active siblings.
#[test]
fn activation_end_memory_is_independent_of_siblings() {
    alone(async {
        let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
        let mut each = Vec::new();
        for width in [50, 100, 400] {
            let graph = fan_out(width);
            let mut least = usize::MAX;
            for _ in 0..3 {
                least = least.min(asks(&runtime, &graph, CheckpointFrequency::Disabled).await);
            }
            each.push(least / width);
        }
        println!("{each:?} for each of 50, 100 and 400");
        assert!(
            each[2] <= each[0] + 2,
            "{} allocations for each of 400 activations, {} for each of 50",
            each[2],
            each[0]
        );
    });
}

/// A runtime without subscribers allocates no event buffer.
#[test]
fn runtime_without_subscribers_allocates_no_event_buffer() {
    alone(async {
        let build = async || Runtime::builder(MemoryStore::new()).build().await.unwrap();
        let _warm = build().await;
        let before = live();
        let runtime = build().await;
        let idle = live().saturating_sub(before);
        let events = runtime.events();
        let told = live().saturating_sub(before);
        println!("{idle} bytes for a runtime, {told} with a subscriber");
        assert!(idle < 100_000, "a runtime takes {idle} bytes");
        assert!(told > 2 * idle, "{told} bytes with a subscriber: the event buffer is missing");
        drop(events);
    });
}

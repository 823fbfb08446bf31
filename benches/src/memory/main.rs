//! Measures the memory of runs in a process. The program counts every allocation. The counting would slow down the timed workloads, so this is a
//! separate program.
#![expect(clippy::print_stdout, reason = "its answer to the program that started it")]

use std::alloc::System;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use ferrata::graph::{Effect, Graph};
use ferrata::{Ask, Outcome, RunHandle, Runtime, State, Update};
use serde::{Deserialize, Serialize};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Number of runs that are started concurrently.
const AT_ONCE: usize = 64;

#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
struct Small {
    answer: String,
    #[state(sum)]
    count: u64,
}

/// Returns the number of bytes in use.
fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Reads the number of bytes in use all the time, and keeps the maximum.
fn watch(most: &Arc<AtomicUsize>, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let (most, stop) = (Arc::clone(most), Arc::clone(stop));
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            most.fetch_max(live(), Ordering::Relaxed);
            std::thread::yield_now();
        }
    })
}

/// Starts `runs` runs.
async fn start(runtime: &Runtime, graph: &Graph<Small>, runs: usize) -> Result<Vec<RunHandle<Small>>> {
    let (mut tasks, mut handles) = (JoinSet::new(), Vec::with_capacity(runs));
    for _ in 0..runs {
        if tasks.len() == AT_ONCE {
            handles.push(tasks.join_next().await.context("a task")???);
        }
        let (runtime, graph) = (runtime.clone(), graph.clone());
        tasks.spawn(async move { runtime.start(&graph, Small::default()).await });
    }
    while let Some(handle) = tasks.join_next().await {
        handles.push(handle??);
    }
    Ok(handles)
}

/// Measures runs that wait for an answer that never comes.
async fn waiting(runtime: &Runtime, runs: usize) -> Result<[f64; 2]> {
    let graph = Graph::<Small>::builder("ask")
        .gate("approve", |_s: &Small| Ask::<String>::new("go on?"), |s: &mut Small, answer| s.answer = answer)
        .entry("approve")
        .build()?;
    rest(start(runtime, &graph, AT_ONCE).await?).await?;
    let before = live();
    let handles = rest(start(runtime, &graph, runs).await?).await?;
    let listed = live().saturating_sub(before);
    drop(handles);
    let released = live().saturating_sub(before);
    Ok([listed, released].map(|bytes| bytes as f64 / runs as f64))
}

/// Waits until every run is idle.
async fn rest(handles: Vec<RunHandle<Small>>) -> Result<Vec<RunHandle<Small>>> {
    for handle in &handles {
        let outcome = handle.wait().await?;
        ensure!(matches!(outcome, Outcome::Interrupted { .. }), "a run did not wait: {outcome:?}");
    }
    Ok(handles)
}

/// Measures runs that are all in a node at the same time. Returns the bytes of each run at that time, and at the worst moment before.
async fn in_progress(runtime: &Runtime, runs: usize) -> Result<[f64; 2]> {
    let (there, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let node = (Arc::clone(&there), Arc::clone(&go));
    let graph = Graph::<Small>::builder("hold")
        .node("hold", move |_cx: ferrata::NodeContext, _s: ferrata::Draft<Small>| {
            let (there, go) = node.clone();
            async move {
                there.add_permits(1);
                if let Ok(permit) = go.acquire().await {
                    permit.forget();
                }
                Ok(Update::<Small>::from(Small::update().count(1u64)))
            }
        })
        .effect(Effect::Pure)
        .entry("hold")
        .build()?;
    let warm = start(runtime, &graph, AT_ONCE).await?;
    go.add_permits(AT_ONCE);
    done(warm).await?;
    there.acquire_many(u32::try_from(AT_ONCE)?).await?.forget();

    let (most, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let before = live();
    let watcher = watch(&most, &stop);
    let handles = start(runtime, &graph, runs).await?;
    there.acquire_many(u32::try_from(runs)?).await?.forget();
    stop.store(true, Ordering::Relaxed);
    let held = live().saturating_sub(before);
    ensure!(watcher.join().is_ok(), "the watcher panicked");
    let peak = most.load(Ordering::Relaxed).saturating_sub(before);
    go.add_permits(runs);
    done(handles).await?;
    Ok([held, peak].map(|bytes| bytes as f64 / runs as f64))
}

async fn done(handles: Vec<RunHandle<Small>>) -> Result<()> {
    for handle in handles {
        let outcome = handle.wait().await?;
        ensure!(matches!(outcome, Outcome::Completed(_)), "a run did not complete: {outcome:?}");
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let runs = std::env::args().nth(1).context("say how many runs")?.parse()?;
    let store = std::env::var("FERRATA_BENCH_STORES").context("no store; use `cargo xtask bench memory/`")?;
    let runtime = Runtime::builder_with(ferrata::connect(&store)?).build().await?;
    let [waiting, released] = waiting(&runtime, runs).await?;
    let [held, peak] = in_progress(&runtime, runs).await?;
    let figures =
        BTreeMap::from([("waiting", waiting), ("released", released), ("in-progress", held), ("peak", peak)]);
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

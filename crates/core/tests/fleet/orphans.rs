//! Many orphans at once: the remaining processes claim all of them, even if some are unreadable.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, Page, RunFilter, RunQuery};
use ferrata_core::{Error, ErrorKind};

use super::world::{Heart, Line, World, key};

/// Number and process of the node ends of each run.
#[derive(Default)]
struct Ledger {
    ended: Mutex<BTreeMap<String, u32>>,
    is_open: AtomicU32,
    began: AtomicU32,
}

/// A workflow whose node waits until the ledger is open.
fn graph(ledger: &Arc<Ledger>) -> Graph<Context> {
    let ledger = Arc::clone(ledger);
    Graph::<Context>::builder("g")
        .node("note", move |cx: NodeContext, _s: Draft<Context>| {
            let ledger = Arc::clone(&ledger);
            async move {
                ledger.began.fetch_add(1, Ordering::SeqCst);
                if ledger.is_open.load(Ordering::SeqCst) == 0 {
                    std::future::pending::<()>().await;
                }
                *ledger.ended.lock().unwrap().entry(cx.run().run.to_string()).or_default() += 1;
                Ok(())
            }
        })
        .entry("note")
        .build()
        .unwrap()
}

/// Creates orphans by starting runs in a process that dies.
async fn orphans(world: &World, ledger: &Arc<Ledger>, count: u32) {
    let (line, dead) = world.process(|b| b).await;
    for number in 0..count {
        dead.start(&graph(ledger), Context::new()).id(format!("r{number}")).await.unwrap();
    }
    while ledger.began.load(Ordering::SeqCst) < count {
        tokio::task::yield_now().await;
    }
    line.set_heart(Heart::Fails);
    line.set_down(true);
    world.pass_for(Duration::from_secs(20)).await;
    let left = world.store.runs(&orphaned(), Page::first(1)).await.unwrap();
    assert_eq!(left.items.len(), 1, "the runs are orphans");
    ledger.is_open.store(1, Ordering::SeqCst);
}

fn orphaned() -> RunQuery {
    let mut query = RunQuery::default();
    query.filter = RunFilter::Orphaned;
    query
}

/// Waits until `count` runs have ended.
async fn ended(ledger: &Ledger, count: usize) {
    while ledger.ended.lock().unwrap().len() < count {
        tokio::task::yield_now().await;
    }
}

/// Guarantees: FLEET-9.
#[tokio::test]
async fn ten_thousand_orphans_are_shared_by_the_fleet() {
    const RUNS: u32 = 10_000;
    const EXECUTORS: u32 = 4;
    let (world, ledger) = (World::new(), Arc::new(Ledger::default()));
    orphans(&world, &ledger, RUNS).await;
    let mut fleet: Vec<(Arc<Line>, Runtime)> = Vec::new();
    for _ in 0..EXECUTORS {
        let process = world.process(|b| b).await;
        process.1.serve(&graph(&ledger)).unwrap();
        fleet.push(process);
    }
    world.pass(ended(&ledger, RUNS as usize)).await;
    let ended = ledger.ended.lock().unwrap();
    assert!(ended.values().all(|&times| times == 1), "each run must run once");
    let mut reads = 0;
    for (line, _) in &fleet {
        let (calls, appends) = (line.take_calls(), line.appends.load(Ordering::SeqCst));
        println!("{appends} appends, calls: {calls:?}");
        // Two per claimed run: the claim and the end.
        assert!(appends > RUNS / 10, "each process must get a share");
        reads += calls.get("load").copied().unwrap_or_default();
    }
    // The processes must not read the same logs in vain.
    assert!(reads < u64::from(RUNS) * 5 / 4, "{reads} logs were read for {RUNS} runs");
}

/// Unreadable rows, unserved workflows and unfit graphs do not delay the recovery of other runs.
///
/// Guarantees: FLEET-8.
#[tokio::test]
async fn bad_rows_never_hold_up_the_rest() {
    let (world, ledger) = (World::new(), Arc::new(Ledger::default()));
    let (line, dead) = world.process(|b| b).await;
    let stuck = |name: &str, node: &str| {
        Graph::<Context>::builder(name)
            .node(node, async |_cx, _s| {
                std::future::pending::<()>().await;
                Ok(())
            })
            .entry(node)
            .build()
            .unwrap()
    };
    // Create more than a page of each, older than the runs that can be claimed.
    let (other, misfit) = (stuck("unserved", "note"), stuck("g", "elsewhere"));
    for number in 0..600 {
        dead.start(&other, Context::new()).id(format!("unserved{number}")).await.unwrap();
        dead.start(&misfit, Context::new()).id(format!("misfit{number}")).await.unwrap();
        dead.start(&graph(&ledger), Context::new()).id(format!("broken{number}")).await.unwrap();
    }
    world.clock.advance(Duration::from_millis(10));
    for number in 0..600 {
        let broken = key(&format!("broken{number}"));
        assert!(world.store.tamper(&broken, |records| {
            let body = records[0].body.to_vec();
            records[0].body = body[..body.len() - 1].to_vec().into();
        }));
    }
    line.set_heart(Heart::Fails);
    line.set_down(true);
    ledger.began.store(0, Ordering::SeqCst);
    orphans(&world, &ledger, 300).await;
    let (line, server) = world.process(|b| b).await;
    server.serve(&graph(&ledger)).unwrap();
    world.pass(ended(&ledger, 300)).await;
    line.take_calls();
    world.pass_for(Duration::from_secs(40)).await;
    // A bad row is retried with a growing delay: about five times in forty sweeps.
    let reads = line.take_calls().get("load").copied().unwrap_or_default();
    assert!((1_200..10_000).contains(&reads), "{reads} logs of bad rows were read in 40 seconds");
    let mut kinds: BTreeMap<ErrorKind, u32> = BTreeMap::new();
    server.stalled().iter().for_each(|stalled| *kinds.entry(stalled.error.kind()).or_default() += 1);
    assert_eq!((kinds[&ErrorKind::GraphChanged], kinds[&ErrorKind::Corrupt]), (600, 600), "{kinds:?}");
    assert!(kinds[&ErrorKind::Unsupported] > 0, "{kinds:?}");
}

/// Guarantees: FLEET-8.
#[tokio::test]
async fn sweep_survives_store_restart() {
    let (world, ledger) = (World::new(), Arc::new(Ledger::default()));
    orphans(&world, &ledger, 1_000).await;
    let (line, server) = world.process(|b| b.store_retries(3, Duration::from_millis(10))).await;
    server.serve(&graph(&ledger)).unwrap();
    for some in [100, 400, 800] {
        world.pass(ended(&ledger, some)).await;
        line.set_down(true);
        line.take_calls();
        world.pass_for(Duration::from_secs(60)).await;
        let looks = line.take_calls().get("runs").copied().unwrap_or_default();
        assert!((2..30).contains(&looks), "{looks} sweeps of a store that is down for a minute");
        line.set_down(false);
    }
    world.pass(ended(&ledger, 1_000)).await;
    let done = async {
        loop {
            let mut query = RunQuery::default();
            query.statuses = vec![RunStatus::Completed];
            if world.store.runs(&query, Page::first(1_000)).await.unwrap().items.len() == 1_000 {
                return Ok::<_, Error>(());
            }
            tokio::task::yield_now().await;
        }
    };
    world.pass(done).await.unwrap();
}

//! Two processes on three shards: one dies, the other finishes its runs, and no recorded activation runs again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ferrata_core::RunKey;
use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeResult};
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, MemoryStore, Page, RunQuery};
use ferrata_store_sharded::ShardedStore;
use ferrata_testing::{self as testing, FaultPlan, FaultStore};

use crate::world::{World, every};

const RUNS: usize = 24;

/// The processes that started each activation, recorded outside the stores.
#[derive(Clone, Debug, Default)]
struct Ledger(Arc<Mutex<Began>>);

/// The processes, by run and node.
type Began = BTreeMap<(RunKey, String), Vec<&'static str>>;

/// The process, as seen by its nodes.
struct Hand {
    executor: &'static str,
    ledger: Ledger,
}

async fn work(cx: NodeContext, s: Draft<Context>) -> NodeResult<Context> {
    let Hand { executor, ledger } = cx.resource::<Hand>();
    let activation = (cx.run().clone(), cx.node().to_string());
    ledger.0.lock().unwrap().entry(activation).or_default().push(executor);
    // The first process is suspended here.
    if *executor == "first" && cx.node().as_str() == "two" {
        std::future::pending::<()>().await;
    }
    Ok(s.into())
}

fn graph() -> Graph<Context> {
    let builder = Graph::<Context>::builder("three").node("one", work).node("two", work).node("three", work);
    builder.entry("one").edge("one", "two").edge("two", "three").build().unwrap()
}

async fn executor(
    executor: &'static str,
    (time, ledger): (&testing::World, &Ledger),
    store: Arc<dyn CheckpointStore>,
) -> Runtime {
    let hand = Hand { executor, ledger: ledger.clone() };
    let builder = Runtime::builder_with(store).clock(Arc::new(time.clock().clone())).resource(hand);
    builder.build().await.unwrap()
}

/// Advances the clock until the condition holds. The clock moves only when no task can run, so that no heartbeat is late on a busy machine.
async fn until(time: &testing::World, mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    time.pass(wait).await;
}

#[tokio::test]
async fn process_finishes_runs_of_dead_one_in_shards() {
    let (mut world, ledger, time) = (World::default(), Ledger::default(), testing::World::new());
    for store in &mut world.stores {
        store.inner = MemoryStore::with_clock(Arc::new(time.clock().clone()));
    }
    // The process that dies knows one generation less.
    let dying: Arc<FaultStore<ShardedStore>> =
        Arc::new(FaultStore::new(world.open(&["ab"]), FaultPlan::new()));
    let first = executor("first", (&time, &ledger), Arc::clone(&dying) as _).await;
    for n in 0..RUNS {
        first.start(&graph(), Context::new()).id(format!("run-{n}")).await.unwrap();
    }
    // The records of `one` exist when `two` has started. The record of `two` is never written.
    until(&time, async || {
        let ledger = ledger.0.lock().unwrap();
        ledger.keys().filter(|(_, node)| node == "two").count() == RUNS
    })
    .await;
    dying.crash();

    let store = Arc::new(world.open(&["ab", "abc"]));
    let second = executor("second", (&time, &ledger), Arc::clone(&store) as _).await;
    second.serve(&graph()).unwrap();
    second.start(&graph(), Context::new()).id("own").await.unwrap().wait().await.unwrap();
    let mut finished = RunQuery::default();
    finished.statuses = vec![ferrata_core::record::RunStatus::Completed];
    until(&time, async || every(&*store, &finished, Page::first(100)).await.unwrap().len() == RUNS + 1).await;

    for ((run, node), by) in ledger.0.lock().unwrap().iter().filter(|((run, _), _)| run.run.as_str() != "own")
    {
        let expected: &[&str] = match node.as_str() {
            "one" => &["first"],
            "two" => &["first", "second"],
            _ => &["second"],
        };
        assert_eq!(by, expected, "{run} {node}");
    }
    let content = world.content().await;
    let logs = content.concat().into_iter().filter(|row| row.1 == "three").count();
    assert_eq!(logs, RUNS + 1, "each run must have one log: {content:?}");
    assert!(content[..2].iter().all(|shard| shard.len() > 3), "both shards must have runs: {content:?}");
    drop((first, second));
}

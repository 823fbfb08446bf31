//! The runtime on this store: many concurrent runs, and a run that continues in another process.
use crate::common::Schema;
use ferrata_core::graph::Graph;
use ferrata_core::runtime::Outcome;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_store::RunStatus;
use ferrata_store::{CheckpointStore, Page, RunQuery};

const NODES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A chain of nodes that count.
fn chain() -> Graph<Context> {
    let mut builder = Graph::<Context>::builder("chain");
    for node in NODES {
        builder = builder.node(node, async |_cx, mut state| {
            let count = state.get::<u64>("count")?.unwrap_or(0);
            state.set("count", count + 1)?;
            Ok(state)
        });
    }
    for pair in NODES.windows(2) {
        builder = builder.edge(pair[0], pair[1]);
    }
    builder.entry(NODES[0]).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn another_process_reads_hundred_completed_runs() {
    let schema = Schema::new();
    let graph = chain();
    let runtime = Runtime::builder(schema.store()).build().await.unwrap();
    let mut runs = Vec::new();
    for n in 0..100 {
        runs.push(runtime.start(&graph, Context::new()).id(format!("r-{n}")).await.unwrap());
    }
    for run in &runs {
        let Outcome::Completed(state) = run.wait().await.unwrap() else { panic!("not completed") };
        assert_eq!(state.get::<u64>("count").unwrap(), Some(6));
    }
    let other = schema.store();
    let mut completed = RunQuery::default();
    completed.statuses = vec![RunStatus::Completed];
    let listed = other.runs(&completed, Page::first(1_000)).await.unwrap();
    assert_eq!(listed.items.len(), 100);
    assert!(listed.items.iter().all(|head| head.seq.get() >= 6), "each node has its record");

    // The same start again, from another process: the run as it ended, not another one.
    let again = Runtime::builder(other).build().await.unwrap();
    let run = again.start(&graph, Context::new()).id("r-7").await.unwrap();
    let Outcome::Completed(state) = run.wait().await.unwrap() else { panic!("not completed") };
    assert_eq!(state.get::<u64>("count").unwrap(), Some(6));
    drop((runtime, again));
    schema.remove().await;
}

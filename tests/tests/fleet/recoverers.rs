//! Two processes claim runs from the same list of orphans at the same time.

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RecordKind;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_core::{Clock as _, ErrorKind, SystemClock};
use ferrata_tests::Space;

use super::crew::{Crew, Dice, LONG};

const RUNS: usize = 8;

/// A resource that only the dying process has: with it, nodes never end.
struct Dying;

fn graph() -> Graph<Context> {
    Graph::<Context>::builder("orphans")
        .node("slow", async |cx: NodeContext, _s| {
            if cx.try_resource::<Dying>().is_some() {
                std::future::pending::<()>().await;
            }
            SystemClock::new().sleep(Duration::from_millis(150)).await;
            Ok(())
        })
        .node("end", async |_cx, _s| Ok(()))
        .entry("slow")
        .edge("slow", "end")
        .build()
        .unwrap()
}

pub(crate) async fn both(space: &Space, _dice: &mut Dice) {
    let crew = Crew::new(space, LONG).await;
    let graph = graph();
    die(space, &graph).await;
    let runs: Vec<_> = crew.heads().await.into_iter().map(|head| head.run).collect();
    assert_eq!(runs.len(), RUNS);
    let build = async || Runtime::builder_with(space.open()).heartbeat_ttl(LONG).build().await.unwrap();
    let both = [build().await, build().await];
    let meet = Arc::new(tokio::sync::Barrier::new(2 * RUNS));
    let mut tries = tokio::task::JoinSet::new();
    for (runtime, run) in
        both.iter().flat_map(|runtime| runs.iter().map(move |run| (runtime.clone(), run.clone())))
    {
        let (graph, meet) = (graph.clone(), Arc::clone(&meet));
        tries.spawn(async move {
            meet.wait().await;
            let taken = runtime.resume(&graph, run.clone()).await;
            (run, taken.map(|handle| handle.is_driven_here()))
        });
    }
    let mut won = Vec::new();
    while let Some(tried) = tries.join_next().await {
        match tried.unwrap() {
            (run, Ok(true)) => won.push(run),
            (_, Ok(false)) => {}
            // The run was ended by the winner, or is still owned by it.
            (_, Err(error)) => {
                assert!(matches!(error.kind(), ErrorKind::Conflict | ErrorKind::WrongStatus), "{error:?}");
            }
        }
    }
    won.sort();
    let mut wanted = runs.clone();
    wanted.sort();
    assert_eq!(won, wanted, "each run must be claimed once");
    crew.complete(RUNS).await;
    for run in &runs {
        let claims = crew.headers(run).await.iter().filter(|header| header.kind == RecordKind::Claim).count();
        assert_eq!(claims, 1, "{run}");
    }
}

/// Starts runs in a process that dies in the middle of them. It is a thread with its own runtime.
async fn die(space: &Space, graph: &Graph<Context>) {
    let (store, graph) = (space.open(), graph.clone());
    let process = move || {
        let tasks =
            tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(1).build().unwrap();
        tasks.block_on(async {
            let dead =
                Runtime::builder_with(store).heartbeat_ttl(LONG).resource(Dying).build().await.unwrap();
            for at in 0..RUNS {
                drop(dead.start(&graph, Context::new()).id(format!("o-{at}")).await.unwrap());
            }
            // Its heartbeat expires at once, so that the test need not wait.
            dead.store().heartbeat(&dead.executor(), Duration::ZERO).await.unwrap();
        });
    };
    let (done, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        process();
        done.send(())
    });
    ended.await.unwrap();
}

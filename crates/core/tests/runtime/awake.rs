//! A run does not become idle while another part of it is about to end its wait.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use ferrata_core::graph::{Graph, Route};
use ferrata_core::node::{KeepAwakeGuard, NodeContext};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::MemoryStore;
use tokio::sync::watch;

/// State that the two branches share.
#[derive(Default)]
struct Shared {
    asking: Mutex<Option<NodeContext>>,
    awake: Mutex<Option<KeepAwakeGuard>>,
}

/// One branch asks, unless the other branch reports that no answer is needed. The route of the other branch sends this report.
fn graph(shared: &Arc<Shared>, keep_awake: bool) -> Graph<Context> {
    let (tell, told) = watch::channel(false);
    let (here, there) = (Arc::clone(shared), Arc::clone(shared));
    Graph::<Context>::builder("awake")
        .node("fork", async |_cx, s| Ok(s))
        .node("asks", move |cx: NodeContext, s: ferrata_core::state::Draft<Context>| {
            let (mut told, shared) = (told.clone(), Arc::clone(&here));
            async move {
                *shared.asking.lock().unwrap() = Some(cx.clone());
                tokio::select! {
                    answer = cx.ask::<bool>("ok", "Go on?") => drop(answer?),
                    told = told.wait_for(|told| *told) => drop(told),
                }
                Ok(s)
            }
        })
        .node("works", async |cx: NodeContext, s| {
            // After the checkpoint the question is recorded, and the other branch waits for its answer.
            cx.checkpoint().await?;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            Ok(s)
        })
        .node("join", async |_cx, s| Ok(s))
        .entry("fork")
        .edge("fork", ["asks", "works"])
        .edge("asks", "join")
        .route("works", ["join"], move |_: &Context, _| {
            if keep_awake {
                *there.awake.lock().unwrap() =
                    there.asking.lock().unwrap().as_ref().map(NodeContext::keep_awake);
            }
            tell.send_replace(true);
            Route::to("join")
        })
        .build()
        .unwrap()
}

async fn outcome(keep_awake: bool) -> (Outcome<Context>, Arc<Shared>) {
    let shared = Arc::new(Shared::default());
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let run = runtime.start(&graph(&shared, keep_awake), Context::new()).id("r").await.unwrap();
    (run.wait().await.unwrap(), shared)
}

#[tokio::test]
async fn awake_run_stays_active_until_node_gets_result() {
    for _ in 0..50 {
        let (outcome, _shared) = outcome(true).await;
        assert!(outcome.clone().completed().is_some(), "{outcome:?}");
    }
}

#[tokio::test]
async fn awake_run_goes_idle_once_allowed() {
    let shared = Arc::new(Shared::default());
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let there = Arc::clone(&shared);
    let graph = Graph::<Context>::builder("asks")
        .node("asks", move |cx: NodeContext, s: ferrata_core::state::Draft<Context>| {
            let shared = Arc::clone(&there);
            async move {
                *shared.awake.lock().unwrap() = Some(cx.keep_awake());
                cx.ask::<bool>("ok", "Go on?").await?;
                Ok(s)
            }
        })
        .entry("asks")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    while runtime.questions(run.run()).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(runtime.head(run.run()).await.unwrap().unwrap().owner.is_some(), "the run became idle");
    drop(shared.awake.lock().unwrap().take());
    assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
}

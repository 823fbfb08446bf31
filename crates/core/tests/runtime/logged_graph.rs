//! The graph of a run, read from its log without the code of the service.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeError;
use ferrata_core::runtime::{Position, Runtime};
use ferrata_core::state::{Context, Draft};

use super::family::*;
use super::world::World;

/// `check` leads to `send` or `refuse`. With `more`, `send` leads on to `book`.
fn graph(more: bool) -> Graph<Context> {
    let graph = Graph::<Context>::builder("pay")
        .node("check", async |_cx, s| Ok(s))
        .node("send", async |_cx, _s: Draft<Context>| Err::<(), _>(NodeError::from("closed").fatal()))
        .node("refuse", async |_cx, s| Ok(s))
        .entry("check")
        .route("check", ["send", "refuse"], |_s: &Context, _| "send");
    match more {
        true => graph.node("book", async |_cx, s| Ok(s)).edge("send", "book").build().unwrap(),
        false => graph.build().unwrap(),
    }
}

async fn edges(runtime: &Runtime, id: &str) -> Option<Vec<String>> {
    let (_, graph) = runtime.checkpoint_and_graph(&key(id), Position::Latest).await.unwrap();
    graph.edges.map(|edges| edges.iter().map(|(from, to)| format!("{from} {to}")).collect())
}

/// The log contains every edge of the graph, including edges of unvisited nodes and those of a fork's source.
#[tokio::test]
async fn log_has_every_edge() {
    let world = World::new();
    let runtime = world.process().await;
    runtime.start(&graph(false), Context::new()).id("r").await.unwrap().wait().await.unwrap();
    assert_eq!(edges(&runtime, "r").await.unwrap(), ["check refuse", "check send"]);
    for (source, fork) in [("r", "f"), ("f", "g")] {
        runtime.fork(&key(source), Position::Latest).id(fork).start_at("check").await.unwrap();
        assert_eq!(edges(&runtime, fork).await.unwrap(), ["check refuse", "check send"], "{fork}");
    }
    // A process with another graph records the changed graph.
    runtime.retry(&key("r")).await.unwrap();
    let resumed = runtime.resume(&graph(true), "r").allow_changed_graph().await.unwrap();
    resumed.wait().await.unwrap();
    assert_eq!(edges(&runtime, "r").await.unwrap(), ["check refuse", "check send", "send book"]);
    // Without the first record, the graph is unknown.
    runtime.cancel(&key("f"), "enough").await.unwrap();
    runtime.purge(&key("f")).await.unwrap();
    assert_eq!(edges(&runtime, "g").await, None);
}

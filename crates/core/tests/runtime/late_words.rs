//! Calls of tasks after the end of their node return an error.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::{Arc, Mutex};

use ferrata_core::ErrorKind;
use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::{Outcome, Position};
use ferrata_core::state::{Artifact, Context, Draft, MemoryRead};
use tokio::sync::{Notify, mpsc};

use super::world::World;

type Said = (&'static str, Option<ErrorKind>);

/// Makes every call that a node context offers, and returns the result of each.
async fn say(
    cx: &NodeContext,
    mut live: ferrata_core::runtime::StreamWriter,
    mut durable: ferrata_core::runtime::StreamWriter,
) -> Vec<Said> {
    fn kind<T>(result: ferrata_core::Result<T>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind())
    }
    let step = cx.step("late", async || Ok::<_, NodeError>(())).await;
    let step = step.err().and_then(|error| {
        error.source().downcast_ref::<ferrata_core::Error>().map(ferrata_core::Error::kind)
    });
    vec![
        ("send_out", kind(cx.send_out("mail", "late"))),
        ("artifact", kind(cx.artifact(Artifact::new("late", "file:late")))),
        ("remember_read", kind(cx.remember_read(MemoryRead::new("t", "late", 1.0)))),
        ("emit", kind(cx.emit("late", 1))),
        ("progress", kind(cx.progress(1).await)),
        ("live stream", kind(live.send("late").await)),
        ("durable stream", kind(durable.send("late").await)),
        ("sleep", kind(cx.sleep(std::time::Duration::ZERO).await)),
        ("step", step),
    ]
}

/// A graph with a node whose task makes calls after the node has ended, with success or failure. The next node waits for the task.
fn graph(fails: bool, told: mpsc::UnboundedSender<Vec<Said>>) -> Graph<Context> {
    let (go, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (may_go, is_done) = (Arc::clone(&go), Arc::clone(&done));
    let tasks = Arc::new(Mutex::new(Vec::new()));
    Graph::<Context>::builder("late")
        .node("says", move |cx: NodeContext, s: Draft<Context>| {
            let (go, done, told, tasks) =
                (Arc::clone(&may_go), Arc::clone(&is_done), told.clone(), Arc::clone(&tasks));
            async move {
                let (live, durable) = (cx.stream("live")?, cx.stream("durable")?.durable());
                #[expect(clippy::disallowed_methods, reason = "this is what an application may do")]
                let task = tokio::spawn(async move {
                    go.notified().await;
                    told.send(say(&cx, live, durable).await).unwrap();
                    done.notify_one();
                });
                tasks.lock().unwrap().push(task);
                if fails { Err(NodeError::new("it fails")) } else { Ok(s) }
            }
        })
        .node("waits", move |_cx: NodeContext, s: Draft<Context>| {
            let (go, done) = (Arc::clone(&go), Arc::clone(&done));
            async move {
                go.notify_one();
                done.notified().await;
                Ok(s)
            }
        })
        .entry("says")
        .edge("says", "waits")
        .edge("says", "waits")
        .on_failure()
        .build()
        .unwrap()
}

/// An outbox message or other call from a task of an ended attempt is refused, so none is accepted and then lost.
#[tokio::test]
async fn ended_attempt_is_refused() {
    for fails in [false, true] {
        let world = World::new();
        let runtime = world.process().await;
        let (told, mut said) = mpsc::unbounded_channel();
        let run = runtime.start(&graph(fails, told), Context::new()).id("r").await.unwrap();
        let outcome = world.pass(run.wait()).await.unwrap();
        assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
        for (what, kind) in said.recv().await.unwrap() {
            assert_eq!(kind, Some(ErrorKind::Closed), "{what}, of a node that fails: {fails}");
        }
        let checkpoint = runtime.checkpoint(run.run(), Position::Latest).await.unwrap();
        assert!(checkpoint.memory.is_empty(), "{:?}", checkpoint.memory);
    }
}

/// Until the end of the attempt, every call succeeds.
#[tokio::test]
async fn active_attempt_is_heard() {
    let world = World::new();
    let runtime = world.process().await;
    let (told, mut said) = mpsc::unbounded_channel();
    let graph = Graph::<Context>::builder("in-time")
        .node("says", move |cx: NodeContext, s: Draft<Context>| {
            let told = told.clone();
            async move {
                let (live, durable) = (cx.stream("live")?, cx.stream("durable")?.durable());
                told.send(say(&cx, live, durable).await).unwrap();
                Ok(s)
            }
        })
        .entry("says")
        .build();
    let run = runtime.start(&graph.unwrap(), Context::new()).id("r").await.unwrap();
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    for (what, kind) in said.recv().await.unwrap() {
        assert_eq!(kind, None, "{what}");
    }
}

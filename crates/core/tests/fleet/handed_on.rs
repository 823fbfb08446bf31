//! Store calls for a signal to an idle run, if the same process then continues the run.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferrata_core::ask::Answer;
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RecordKind;
use ferrata_core::runtime::{Outcome, RunLimits};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, HeaderRange};

use super::world::{Gate, World, key};

/// A workflow whose node asks, and then waits for the gate, so that no record follows the claim.
fn asks(gate: &Gate) -> Graph<Context> {
    let gate = gate.clone();
    Graph::<Context>::builder("asks")
        .node("ask", move |cx: NodeContext, mut s: Draft<Context>| {
            let gate = gate.clone();
            async move {
                let yes: bool = cx.ask("sure", "Go on?").await?;
                gate.began.fetch_add(1, Ordering::SeqCst);
                gate.word.notified().await;
                s.set("yes", yes)?;
                Ok(s)
            }
        })
        .effect(Effect::Write)
        .entry("ask")
        .build()
        .unwrap()
}

async fn kinds(store: &impl CheckpointStore, run: &str) -> Vec<RecordKind> {
    let headers = store.headers(&key(run), HeaderRange::newest(100)).await.unwrap().items;
    headers.into_iter().map(|header| header.kind).collect()
}

fn calls(calls: &[(&'static str, u64)]) -> BTreeMap<&'static str, u64> {
    calls.iter().copied().collect()
}

/// Yields until no task can make progress without a clock tick.
async fn turns() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// An answer to an idle run causes only the claim. The process does not list runs or load the run again.
#[tokio::test]
async fn answer_to_idle_run_causes_only_claim() {
    let world = World::new();
    let gate = Gate::default();
    let (line, runtime) = world.process_without_notices().await;
    runtime.serve(&asks(&gate)).unwrap();
    let run = runtime.start(&asks(&gate), Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
    turns().await;
    let before = kinds(&world.store, "r").await.len();
    line.take_calls();

    runtime.respond(run.run(), "ask@1:sure", Answer::accept(true).unwrap()).await.unwrap();
    turns().await;
    assert_eq!(gate.began.load(Ordering::SeqCst), 1, "the run must continue at once");
    assert_eq!(line.take_calls(), calls(&[("load", 1), ("append", 2)]));
    assert_eq!(kinds(&world.store, "r").await[before..], [RecordKind::Signal, RecordKind::Claim]);
    gate.word.notify_one();
    world.pass(run.completed()).await.unwrap();
}

#[tokio::test]
async fn retry_of_failed_run_causes_only_claim() {
    let world = World::new();
    let gate = Gate::default();
    let (line, runtime) = world.process_without_notices().await;
    let (tries, waits) = (Arc::new(AtomicU32::new(0)), gate.clone());
    let graph = Graph::<Context>::builder("fails")
        .node("work", move |_cx: NodeContext, s: Draft<Context>| {
            let (tries, gate) = (Arc::clone(&tries), waits.clone());
            async move {
                if tries.fetch_add(1, Ordering::SeqCst) == 0 {
                    return Err(NodeError::new("it is out of order").fatal());
                }
                gate.began.fetch_add(1, Ordering::SeqCst);
                gate.word.notified().await;
                Ok(s)
            }
        })
        .effect(Effect::Write)
        .entry("work")
        .build()
        .unwrap();
    runtime.serve(&graph).unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Failed { .. }));
    turns().await;
    let before = kinds(&world.store, "r").await.len();
    line.take_calls();

    runtime.retry(run.run()).await.unwrap();
    turns().await;
    assert_eq!(gate.began.load(Ordering::SeqCst), 1, "the run must continue at once");
    assert_eq!(line.take_calls(), calls(&[("load", 1), ("append", 2)]));
    assert_eq!(kinds(&world.store, "r").await[before..], [RecordKind::Signal, RecordKind::Claim]);
}

/// A process that never drove the run must also read its head, because the log does not contain the start facts.
#[tokio::test]
async fn answer_from_another_process_lists_no_runs() {
    let world = World::new();
    let gate = Gate::default();
    let (_, first) = world.process(|b| b).await;
    let run = first.start(&asks(&gate), Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
    let (line, second) = world.process_without_notices().await;
    second.serve(&asks(&gate)).unwrap();
    turns().await;
    line.take_calls();

    second.respond(run.run(), "ask@1:sure", Answer::accept(true).unwrap()).await.unwrap();
    turns().await;
    assert_eq!(gate.began.load(Ordering::SeqCst), 1, "the run must continue at once");
    assert_eq!(line.take_calls(), calls(&[("load", 1), ("append", 2), ("head", 1)]));
}

/// If the process is full, an answered run waits for capacity, and the answer causes no listing.
#[tokio::test]
async fn answered_run_waits_for_capacity() {
    let world = World::new();
    let gate = Gate::default();
    let (line, runtime) = world.process(|b| b.run_limits(RunLimits::new().with_runs(1))).await;
    runtime.serve(&asks(&gate)).unwrap();
    let run = runtime.start(&asks(&gate), Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
    let busy = gate.graph("busy", Effect::Write);
    let busy = runtime.start(&busy, Context::new()).id("b").await.unwrap();
    gate.until_began(1).await;
    turns().await;
    line.take_calls();

    runtime.respond(run.run(), "ask@1:sure", Answer::accept(true).unwrap()).await.unwrap();
    turns().await;
    assert_eq!(line.take_calls().get("runs"), None);
    assert_eq!(gate.began.load(Ordering::SeqCst), 1, "no slot is free");
    gate.word.notify_one();
    world.pass(busy.completed()).await.unwrap();
    world.pass(gate.until_began(2)).await;
    gate.word.notify_one();
    let run = runtime.start(&asks(&gate), Context::new()).id("r").await.unwrap();
    assert_eq!(world.pass(run.completed()).await.unwrap().get::<bool>("yes").unwrap(), Some(true));
}

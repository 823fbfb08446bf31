//! Nodes that start children while their process drains or shuts down.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::graph::{Effect, Graph};
use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::state::Context;
use ferrata_core::store::CheckpointStore;
use ferrata_core::{Result, RunKey};

use super::world::{Gate, World, key, spawn};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Starts {
    Child,
    Children,
    Spawned,
}

#[derive(Clone, Copy, Debug)]
enum Ends {
    Drain,
    ShutDown,
}

/// A node that waits for the gate and then starts runs, and a child that counts its executions.
fn family(starts: Starts) -> (Gate, Arc<AtomicU32>, Graph<Context>, Graph<Context>) {
    let (gate, runs) = (Gate::default(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&runs);
    let child = Graph::<Context>::builder("kid")
        .node("count", move |_cx, _s| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok(()) }
        })
        .entry("count")
        .build()
        .unwrap();
    let kept = (child.clone(), gate.clone());
    let parent = Graph::<Context>::builder("parent")
        .node("work", move |cx, _s| {
            let (child, gate) = kept.clone();
            async move {
                if gate.began.fetch_add(1, Ordering::SeqCst) == 0 {
                    gate.word.notified().await;
                }
                match starts {
                    Starts::Child => _ = cx.child(&child, Context::new()).await?,
                    Starts::Children => _ = cx.children(&child, [Context::new(), Context::new()]).await?,
                    Starts::Spawned => _ = cx.spawn(&child, Context::new()).await?,
                }
                Ok(())
            }
        })
        .entry("work")
        .build()
        .unwrap();
    (gate, runs, child, parent)
}

async fn status(world: &World, run: &RunKey) -> RunStatus {
    world.store.head(run).await.unwrap().unwrap().status
}

/// Guarantees: FLEET-17.
#[tokio::test]
async fn shutdown_during_child_start_does_not_fail_node() {
    for ends in [Ends::Drain, Ends::ShutDown] {
        for starts in [Starts::Child, Starts::Children, Starts::Spawned] {
            let world = World::new();
            let (_, old) = world.process(|b| b).await;
            let (gate, runs, child, parent) = family(starts);
            let run = old.start(&parent, Context::new()).id("p").await.unwrap();
            gate.until_began(1).await;
            let ending = spawn({
                let old = old.clone();
                async move {
                    match ends {
                        Ends::Drain => old.drain().await,
                        Ends::ShutDown => old.shutdown(Duration::from_secs(5)).await,
                    }
                }
            });
            world.pass_for(Duration::from_millis(500)).await;
            gate.word.notify_one();
            let ended: Result<()> = world.pass(ending).await.unwrap();
            ended.unwrap();
            let outcome = world.pass(run.wait()).await.unwrap();
            assert_ne!(
                status(&world, &key("p")).await,
                RunStatus::Failed,
                "{ends:?} {starts:?}: {outcome:?}"
            );
            let (_, new) = world.process(|b| b).await;
            new.serve(&parent).unwrap();
            new.serve(&child).unwrap();
            let run = new.start(&parent, Context::new()).id("p").await.unwrap();
            world.pass(run.completed()).await.unwrap();
            world.pass_for(Duration::from_secs(1)).await;
            let wanted = if starts == Starts::Children { 2 } else { 1 };
            assert_eq!(runs.load(Ordering::SeqCst), wanted, "{ends:?} {starts:?}");
        }
    }
}

/// The drain begins between the claim of the parent and the check of its child, which has no owner at that time.
///
/// Guarantees: FLEET-17.
#[tokio::test]
async fn shutdown_during_child_lookup_does_not_fail_node() {
    for ends in [Ends::Drain, Ends::ShutDown] {
        let world = World::new();
        let (_, first) = world.process(|b| b).await;
        let (line, old) = world.process(|b| b).await;
        let (gate, kid) = (Gate::default(), Gate::default());
        let child = kid.graph("kid", Effect::Pure);
        let kept = (child.clone(), gate.clone());
        let parent = Graph::<Context>::builder("parent")
            .node("work", move |cx, _s| {
                let (child, gate) = kept.clone();
                async move {
                    let started = cx.child(&child, Context::new()).id("kid").start().await?;
                    if gate.began.fetch_add(1, Ordering::SeqCst) == 0 {
                        // The node works, so that the run does not become idle while it waits for the child.
                        gate.word.notified().await;
                    }
                    started.result().await?;
                    Ok(())
                }
            })
            .entry("work")
            .build()
            .unwrap();
        first.start(&parent, Context::new()).id("p").await.unwrap();
        kid.until_began(1).await;
        gate.until_began(1).await;
        world.pass(first.shutdown(Duration::ZERO)).await.unwrap();
        let (ending, whole) = tokio::sync::oneshot::channel();
        let closing = old.clone();
        line.after(RecordKind::Claim, async move {
            let task = spawn(async move {
                match ends {
                    Ends::Drain => closing.drain().await,
                    Ends::ShutDown => closing.shutdown(Duration::from_secs(5)).await,
                }
            });
            tokio::task::yield_now().await;
            ending.send(task).unwrap();
        });
        let run = world.pass(async { old.resume(&parent, "p").await }).await.unwrap();
        let task = whole.await.unwrap();
        world.pass(task).await.unwrap().unwrap();
        let outcome = world.pass(run.wait()).await.unwrap();
        assert_ne!(status(&world, &key("p")).await, RunStatus::Failed, "{ends:?}: {outcome:?}");
        assert_eq!(status(&world, &key("kid")).await, RunStatus::InProgress, "{ends:?}");
        let (_, new) = world.process(|b| b).await;
        new.serve(&parent).unwrap();
        new.serve(&child).unwrap();
        world.pass(kid.until_began(2)).await;
        kid.word.notify_one();
        let run = new.start(&parent, Context::new()).id("p").await.unwrap();
        world.pass(run.completed()).await.unwrap();
    }
}

/// The store accepts the note of the child, and then fails for longer than the committer retries. Heartbeats succeed.
///
/// Guarantees: CHILD-20.
#[tokio::test]
async fn store_outage_during_child_start_spares_node() {
    let world = World::new();
    let (line, runtime) = world.process(|b| b).await;
    let (gate, runs, _, parent) = family(Starts::Child);
    gate.word.notify_one();
    let down = Arc::clone(&line);
    line.after(RecordKind::Step, async move { down.set_down(true) });
    let run = runtime.start(&parent, Context::new()).id("p").await.unwrap();
    world.pass_for(Duration::from_secs(8)).await;
    line.set_down(false);
    let state = world.pass(run.wait()).await;
    assert_ne!(status(&world, &key("p")).await, RunStatus::Failed, "{state:?}");
    world.pass(run.completed()).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

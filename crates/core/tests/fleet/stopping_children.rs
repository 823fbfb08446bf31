//! Children of an earlier attempt that are still stopping, or still running.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::graph::{Effect, Graph, RetryPolicy};
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Outcome;
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::CheckpointStore;

use super::world::{Gate, World, key};

/// A child has more time to stop than its parent waits. So the parent has failed and is retried while the child is stopping.
///
/// Guarantees: CHILD-3.
#[tokio::test]
async fn retry_restarts_child_that_is_still_stopping() {
    let world = World::new();
    let (_, runtime) = world.process(|b| b).await;
    let (_, slow) = world.process(|b| b.cancel_grace(Duration::from_secs(600))).await;
    let (attempts, go, kid) = (Arc::<AtomicU32>::default(), Gate::default(), Gate::default());
    let child = kid.graph("kid", Effect::Pure);
    let kept = (child.clone(), Arc::clone(&attempts), Arc::clone(&go.word));
    let parent = Graph::<Context>::builder("parent")
        .node("wait", move |cx: NodeContext, _s: Draft<Context>| {
            let (child, attempts, go) = kept.clone();
            async move {
                let is_first = attempts.fetch_add(1, Ordering::SeqCst) == 0;
                let child = cx.child(&child, Context::new()).id("kid").start().await?;
                if is_first {
                    go.notified().await;
                    return Err("no".into());
                }
                child.result().await?;
                Ok(())
            }
        })
        .entry("wait")
        .build()
        .unwrap();
    let run = runtime.start(&parent, Context::new()).id("p").await.unwrap();
    kid.until_began(1).await;
    let taken = slow.resume(&child, "kid").take_over().await.unwrap();
    kid.until_began(2).await;
    go.word.notify_one();
    let Outcome::Failed { .. } = world.pass(run.wait()).await.unwrap() else {
        panic!("the first attempt must fail")
    };
    assert!(!world.store.head(&key("kid")).await.unwrap().unwrap().status.is_finished());
    runtime.retry(&key("p")).await.unwrap();
    let again = runtime.resume(&parent, "p").await.unwrap();
    while attempts.load(Ordering::SeqCst) < 2 {
        world.pass_for(Duration::from_secs(1)).await;
    }
    world.pass_for(Duration::from_secs(20)).await;
    assert_eq!(kid.began.load(Ordering::SeqCst), 2, "a new child starts only after the old one has stopped");
    kid.word.notify_one();
    let Outcome::Cancelled { .. } = world.pass(taken.wait()).await.unwrap() else {
        panic!("the child got a signal")
    };
    world.pass(kid.until_began(3)).await;
    kid.word.notify_one();
    world.pass(again.completed()).await.unwrap();
    assert_eq!(world.store.head(&key("kid-2")).await.unwrap().unwrap().status, RunStatus::Completed);
}

/// The run must not become idle on the timer while the second attempt still reads the child, so that the end of the child reaches the attempt.
///
/// Guarantees: CHILD-2.
#[tokio::test]
async fn second_attempt_sees_child_end_during_long_sleep() {
    let world = World::new();
    let (line, runtime) = world.process(|b| b).await;
    line.set_heads_take(Duration::from_secs(1));
    let (attempts, kid) = (Arc::<AtomicU32>::default(), Gate::default());
    let child = kid.graph("kid", Effect::Pure);
    let kept = (child.clone(), Arc::clone(&attempts));
    let parent = Graph::<Context>::builder("parent")
        .node("wait", move |cx: NodeContext, mut s: Draft<Context>| {
            let (child, attempts) = kept.clone();
            async move {
                let wanted = cx.child(&child, Context::new()).id("kid");
                if attempts.fetch_add(1, Ordering::SeqCst) == 0 {
                    wanted.start().await?;
                    return Err("no".into());
                }
                let heard = tokio::select! {
                    biased;
                    end = wanted => end.is_ok(),
                    slept = cx.sleep(Duration::from_secs(86_400)) => slept.map(|()| false)?,
                };
                s.set("heard", heard)?;
                Ok(s)
            }
        })
        .retry(RetryPolicy::none().with_attempts(2).with_delay(Duration::from_millis(1)))
        .entry("wait")
        .build()
        .unwrap();
    runtime.serve(&parent).unwrap();
    runtime.serve(&child).unwrap();
    let run = runtime.start(&parent, Context::new()).id("p").await.unwrap();
    while attempts.load(Ordering::SeqCst) < 2 {
        world.pass_for(Duration::from_secs(1)).await;
    }
    world.pass_for(Duration::from_secs(60)).await;
    kid.word.notify_one();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<bool>("heard").unwrap(), Some(true));
}

//! A process that was suspended or cut off affects the children of a parent that another process has claimed.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrata_core::graph::{Effect, Graph};
use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::state::Context;
use ferrata_core::store::CheckpointStore;

use super::world::{Gate, Heart, World, key};

/// Default validity of a heartbeat.
const TTL: Duration = Duration::from_secs(15);

/// A parent with one node. Its first attempt waits for `begin`, starts a child, and works until `work`. Later attempts wait for the child.
struct Family {
    begin: Gate,
    work: Gate,
    kid: Gate,
    child: Graph<Context>,
    parent: Graph<Context>,
}

fn family(at_end: impl Fn() + Clone + Send + Sync + 'static) -> Family {
    let (begin, work, kid) = (Gate::default(), Gate::default(), Gate::default());
    let child = kid.graph("kid", Effect::Pure);
    let kept = (child.clone(), begin.clone(), work.clone());
    let parent = Graph::<Context>::builder("parent")
        .node("work", move |cx, _s| {
            let ((child, begin, work), at_end) = (kept.clone(), at_end.clone());
            async move {
                begin.began.fetch_add(1, Ordering::SeqCst);
                begin.word.notified().await;
                let is_first = work.began.load(Ordering::SeqCst) == 0;
                let started = cx.child(&child, Context::new()).id("kid").start().await?;
                work.began.fetch_add(1, Ordering::SeqCst);
                if is_first {
                    work.word.notified().await;
                    at_end();
                } else {
                    started.result().await?;
                }
                Ok(())
            }
        })
        .entry("work")
        .build()
        .unwrap();
    Family { begin, work, kid, child, parent }
}

/// The status of the child, and the number of its signals.
async fn child_of(world: &World) -> (RunStatus, usize) {
    let (run, latest) = (key("kid"), ferrata_core::store::At::Latest);
    let records = world.store.load(&run, latest).await.unwrap().unwrap();
    let signals = records.iter().filter(|record| record.header.kind == RecordKind::Signal).count();
    (world.store.head(&run).await.unwrap().unwrap().status, signals)
}

/// Another process has claimed the parent. The old owner must not cancel the child that its attempt leaves, because the new owner waits for this
/// child.
///
/// Guarantees: CHILD-11.
#[tokio::test]
async fn fenced_process_cancels_no_child_of_next_owner() {
    for taken in [true, false] {
        let world = World::new();
        let (_, zombie) = world.process_without_notices().await;
        let (_, other) = world.process(|b| b).await;
        let family = family(|| {});
        family.begin.word.notify_one();
        let run = zombie.start(&family.parent, Context::new()).id("p").await.unwrap();
        family.work.until_began(1).await;
        family.kid.until_began(1).await;
        let mut successor = None;
        if taken {
            family.begin.word.notify_one();
            successor = Some(other.resume(&family.parent, "p").take_over().await.unwrap());
            family.work.until_began(2).await;
        }
        family.work.word.notify_one();
        let ended = world.pass(run.wait()).await;
        assert_eq!(ended.is_ok(), !taken);
        if let Some(successor) = successor {
            assert_eq!(child_of(&world).await, (RunStatus::InProgress, 0), "the child got a signal");
            family.kid.word.notify_one();
            world.pass(successor.completed()).await.unwrap();
            assert_eq!(child_of(&world).await, (RunStatus::Completed, 0));
        } else {
            assert_eq!(child_of(&world).await.0, RunStatus::Cancelled);
        }
    }
}

/// After a suspension, an owner does not know whether another process claimed the run. The end of its attempt must not cancel the child.
///
/// Guarantees: CHILD-11.
#[tokio::test]
async fn a_process_in_doubt_cancels_no_child() {
    for heart in [Heart::Beats, Heart::Fails, Heart::Hangs] {
        let world = World::new();
        let (line, zombie) = world.process(|b| b).await;
        let (_, other) = world.process(|b| b).await;
        let (clock, beats) = (Arc::clone(&world.clock), Arc::clone(&line));
        let family = family(move || {
            clock.advance(TTL * 4);
            beats.set_heart(heart);
        });
        family.begin.word.notify_one();
        let run = zombie.start(&family.parent, Context::new()).id("p").await.unwrap();
        family.work.until_began(1).await;
        other.resume(&family.child, "kid").take_over().await.unwrap();
        family.kid.until_began(2).await;
        family.work.word.notify_one();
        let ended = world.pass(run.wait()).await;
        assert_eq!(ended.is_ok(), heart == Heart::Beats, "{heart:?}");
        let (status, signals) = child_of(&world).await;
        match heart {
            Heart::Beats => assert_eq!(status, RunStatus::Cancelled),
            _ => assert_eq!((status, signals), (RunStatus::InProgress, 0), "{heart:?}"),
        }
    }
}

/// A process with a late note of a child reads the parent, which has not noted the child yet. The result of that read does not apply to children that
/// the next owner starts afterwards.
///
/// Guarantees: CHILD-11.
#[tokio::test]
async fn late_parent_check_spares_newly_started_child() {
    let world = World::new();
    let (line, zombie) = world.process_without_notices().await;
    let (_, other) = world.process(|b| b).await;
    let family = family(|| {});
    let run = zombie.start(&family.parent, Context::new()).id("p").await.unwrap();
    family.begin.until_began(1).await;
    let successor = other.resume(&family.parent, "p").take_over().await.unwrap();
    family.begin.until_began(2).await;
    // The first load checks the outcome of the record, and the second one reads the child.
    let (begin, kid, looking) = (family.begin.clone(), family.kid.clone(), Arc::clone(&line));
    line.after(RecordKind::Step, async move {
        looking.after_loads(2, async move {
            assert_eq!(kid.began.load(Ordering::SeqCst), 0);
            begin.word.notify_one();
            kid.until_began(1).await;
        });
    });
    family.begin.word.notify_one();
    world.pass(run.wait()).await.unwrap_err();
    world.pass(family.kid.until_began(1)).await;
    world.pass_for(TTL).await;
    assert_eq!(child_of(&world).await, (RunStatus::InProgress, 0), "the child got a signal");
    family.work.word.notify_one();
    family.kid.word.notify_one();
    world.pass(successor.completed()).await.unwrap();
}

/// The pause ends. While the owner is about to unpause the children, another process claims the run, and the run is paused again.
///
/// Guarantees: CHILD-11.
#[tokio::test]
async fn fenced_owner_cannot_unpause_child_of_next_owner() {
    let world = World::new();
    let (line, zombie) = world.process_without_notices().await;
    let (_, other) = world.process(|b| b).await;
    let family = family(|| {});
    family.begin.word.notify_one();
    let run = zombie.start(&family.parent, Context::new()).id("p").await.unwrap();
    family.work.until_began(1).await;
    family.kid.until_began(1).await;
    other.resume(&family.child, "kid").take_over().await.unwrap();
    family.kid.until_began(2).await;
    zombie.pause(&key("p"), "a pause").await.unwrap();
    let paused = async {
        while child_of(&world).await.1 == 0 {
            tokio::task::yield_now().await;
        }
    };
    world.pass(paused).await;
    // The first signal from here on is the unpause, because the child's pause was recorded before.
    let (successor, store) = (other.clone(), world.store.clone());
    let (parent, begin) = (family.parent.clone(), family.begin.clone());
    let (taken, is_taken) = tokio::sync::oneshot::channel();
    line.after(RecordKind::Signal, async move {
        let run = successor.resume(&parent, "p").take_over().await.unwrap();
        begin.word.notify_one();
        begin.until_began(2).await;
        successor.pause(&key("p"), "another pause").await.unwrap();
        // The parent becomes idle when its child is paused.
        while store.head(&key("p")).await.unwrap().unwrap().status != RunStatus::Interrupted {
            tokio::task::yield_now().await;
        }
        taken.send(run).unwrap();
    });
    drop(world.pass(zombie.unpause(&key("p")).into_future()).await);
    drop(is_taken.await.unwrap());
    world.pass(run.wait()).await.unwrap_err();
    family.kid.word.notify_one();
    world.pass_for(TTL * 2).await;
    assert_eq!(child_of(&world).await.0, RunStatus::Interrupted, "the parent must be paused");
}

/// The owner has read the child's log and is about to cancel the child. Then the child is purged, and another run is started under its id.
///
/// Guarantees: CHILD-5.
#[tokio::test]
async fn parent_signal_skips_run_with_reused_child_id() {
    let world = World::new();
    let (line, runtime) = world.process_without_notices().await;
    let (_, other) = world.process(|b| b).await;
    let family = family(|| {});
    family.begin.word.notify_one();
    let run = runtime.start(&family.parent, Context::new()).id("p").await.unwrap();
    family.work.until_began(1).await;
    // Another process drives the child, so the owner reads its log before the cancellation.
    other.resume(&family.child, "kid").take_over().await.unwrap();
    family.kid.until_began(2).await;
    let (store, stranger, graph) = (world.store.clone(), other.clone(), family.child.clone());
    line.after_loads(1, async move {
        store.purge(&key("kid"), None).await.unwrap();
        let mut input = Context::new();
        input.set("of", "a stranger").unwrap();
        // Wait until the driver of the purged run has noticed the purge.
        while stranger.start(&graph, input.clone()).id("kid").await.is_err() {
            tokio::task::yield_now().await;
        }
    });
    family.work.word.notify_one();
    world.pass(run.completed()).await.unwrap();
    world.pass_for(TTL).await;
    assert_eq!(child_of(&world).await, (RunStatus::InProgress, 0), "an unrelated run got a signal");
}

//! A process that is suspended inside an `External` node, at an `.await` of the node.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ask::{Answer, Resolution};
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Outcome;
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::CheckpointStore;
use ferrata_core::{Clock, ErrorKind};
use tokio::runtime::{Builder, Runtime as Tokio};

use super::world::{World, key};

/// A node that waits for a connection, and then pays.
fn paying(begun: &Arc<AtomicU32>, paid: &Arc<AtomicU32>) -> Graph<Context> {
    let (begun, paid) = (Arc::clone(begun), Arc::clone(paid));
    Graph::<Context>::builder("pays")
        .node("pay", move |cx: NodeContext, s: Draft<Context>| {
            let (begun, paid) = (Arc::clone(&begun), Arc::clone(&paid));
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                cx.clock().sleep(Duration::from_millis(300)).await;
                paid.fetch_add(1, Ordering::SeqCst);
                Ok(s)
            }
        })
        .effect(Effect::External)
        .entry("pay")
        .build()
        .unwrap()
}

/// The threads of one process. None of them runs while the other process runs.
fn threads() -> Tokio {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A process that is suspended at an `.await` must not pay when it resumes, because an operator may have found no payment and answered `Retry`.
///
/// Guarantees: FLEET-6.
#[test]
fn suspended_process_does_not_act() {
    let world = World::new();
    let (suspended, other) = (threads(), threads());
    let (begun, paid) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let graph = paying(&begun, &paid);
    let (_line, first) = suspended.block_on(world.process(|b| b));
    let run = suspended.block_on(async {
        let run = first.start(&graph, Context::new()).id("r").await.unwrap();
        while begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        run
    });
    // The heartbeat has expired, and the wait for the connection has ended.
    world.clock.advance(Duration::from_secs(60));
    other.block_on(async {
        let (_, second) = world.process(|b| b).await;
        let run = second.resume(&graph, "r").await.unwrap();
        let Outcome::Interrupted(questions) = world.pass(run.wait()).await.unwrap() else { panic!() };
        assert!(questions[0].text.as_ref().unwrap().contains("may still do the work"), "{questions:?}");
        second.serve(&graph).unwrap();
        let retry = Answer::Resolve(Resolution::Retry);
        second.respond(&key("r"), &questions[0].id, retry).await.unwrap();
        world.pass(run.completed()).await.unwrap();
    });
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    suspended.block_on(async {
        assert_eq!(world.pass(run.wait()).await.unwrap_err().kind(), ErrorKind::Fenced);
        world.pass_for(Duration::from_secs(5)).await;
    });
    assert_eq!(paid.load(Ordering::SeqCst), 1, "the resumed process paid");
}

/// If no other process claimed the run, the attempt continues after one heartbeat and one read of the head.
///
/// Guarantees: FLEET-6.
#[test]
fn suspended_process_goes_on_with_own_run() {
    for sleeps in [false, true] {
        let world = World::new();
        let tokio = threads();
        let (begun, paid) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let graph = paying(&begun, &paid);
        tokio.block_on(async {
            let (_line, runtime) = world.process(|b| b).await;
            let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
            while begun.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            let minute = Duration::from_secs(60);
            if sleeps {
                world.clock.set_now(world.clock.now().plus(minute));
            } else {
                world.clock.advance(minute);
            }
            world.pass(run.completed()).await.unwrap();
            let head = world.store.head(&key("r")).await.unwrap().unwrap();
            assert_eq!((head.status, head.epoch.get()), (RunStatus::Completed, 1), "sleeps: {sleeps}");
        });
        assert_eq!((begun.load(Ordering::SeqCst), paid.load(Ordering::SeqCst)), (1, 1), "sleeps: {sleeps}");
    }
}

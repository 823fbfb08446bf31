//! The owner of a run after each verb. A copy of a parent is refused a child with a fixed id.

use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, Position, RunHandle, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::CheckpointStore as _;
use ferrata_core::{Epoch, ErrorKind};

use super::things::{Thing, kid};
use super::world::{Process, World, key};

/// Starts the run in a process that stays alive, and returns while the run is active there.
async fn at_work(world: &World) -> (Process, RunHandle<Context>) {
    // The node `beside` works for just as long.
    *world.outside.fails_at.lock().unwrap() = Some(u64::MAX);
    let process = world.process().await;
    let runtime = &process.runtime;
    let run = runtime.start(&Thing::Blob.graph(), Context::new()).id("r").await.unwrap();
    let begun = async {
        while !noted(world).await {
            tokio::task::yield_now().await;
        }
    };
    world.pass(begun).await;
    (process, run)
}

async fn noted(world: &World) -> bool {
    let records = world.store.load(&key("r"), ferrata_core::store::At::Latest).await.unwrap().unwrap();
    records.iter().any(|record| String::from_utf8_lossy(&record.body).contains("\"put\""))
}

/// A copy of a run that a living process owns has no owner.
#[tokio::test]
async fn copies_have_no_owner() {
    let world = World::new(Thing::Blob, "owners");
    let (first, _run) = at_work(&world).await;
    let source = world.head("r").await.unwrap();
    assert_eq!(source.owner, Some(first.runtime.executor()));
    first.runtime.fork(&key("r"), Position::Latest).id("f").await.unwrap();
    let text = first.runtime.export(&key("r")).await.unwrap();
    first.runtime.import(&text, Some(key("copy"))).await.unwrap();
    for copy in ["f", "copy"] {
        let head = world.head(copy).await.unwrap();
        assert_eq!((head.owner, head.status), (None, RunStatus::InProgress), "{copy}");
    }
    assert_eq!(world.head("r").await.unwrap(), source);
}

/// A run that was purged and started again begins in its first epoch. The former owner does not own it.
#[tokio::test]
async fn restart_begins_first_epoch() {
    let world = World::new(Thing::Blob, "epochs");
    let (_first, _run) = at_work(&world).await;
    let second = world.process().await;
    second.runtime.resume(&Thing::Blob.graph(), "r").take_over().await.unwrap();
    assert!(world.head("r").await.unwrap().epoch > Epoch::new(1));
    second.runtime.cancel(&key("r"), "it starts again").await.unwrap();
    world.until("r", RunStatus::Cancelled).await;
    second.runtime.purge(&key("r")).await.unwrap();
    *world.outside.fails_at.lock().unwrap() = Some(u64::MAX);
    second.runtime.start(&Thing::Blob.graph(), Context::new()).id("r").await.unwrap();
    let head = world.head("r").await.unwrap();
    assert_eq!((head.epoch, head.owner), (Epoch::new(1), Some(second.runtime.executor())));
}

/// The former owner learns of a takeover at its next write.
#[tokio::test]
async fn takeover_fences_owner() {
    let world = World::new(Thing::Blob, "fenced");
    let (_first, run) = at_work(&world).await;
    let second = world.process().await;
    second.runtime.resume(&Thing::Blob.graph(), "r").take_over().await.unwrap();
    let error = world.pass(run.wait()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
}

/// A child id that the application chose belongs to one run: a fork of the parent gets an error. With a derived id, each has its own child.
///
/// Guarantees: CHILD-13.
#[tokio::test]
async fn chosen_child_id_is_refused_to_fork() {
    for own in [false, true] {
        let world = World::new(Thing::Child, format!("ids of their own: {own}"));
        let runtime = Runtime::builder(world.store.clone())
            .clock(std::sync::Arc::clone(&world.clock) as _)
            .build()
            .await
            .unwrap();
        let graph = Graph::<Context>::builder("chosen")
            .node("wait", move |cx: NodeContext, s: Draft<Context>| async move {
                let id = if own { format!("{}-kid", cx.run().run) } else { "kid".to_owned() };
                cx.child(&kid(), Context::new()).id(id).await?;
                Ok(s)
            })
            .entry("wait")
            .build()
            .unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        world.clock.advance(Duration::from_millis(10));
        let fork = runtime.fork(&key("r"), Position::Latest).id("f").drive(&graph).await.unwrap();
        let (run, fork) = world.pass(async { tokio::join!(run.wait(), fork.wait()) }).await;
        assert!(matches!(run.unwrap(), Outcome::Completed(_)));
        match fork.unwrap() {
            Outcome::Completed(_) => assert!(own),
            Outcome::Failed { failure, .. } => {
                assert!(!own, "{failure}");
                assert!(failure.to_string().contains("which this activation did not start"), "{failure}");
            }
            other => panic!("{other:?}"),
        }
    }
}

//! Progress of a long attempt: reported by the attempt, and visible to the next attempt and to people.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};

use ferrata_core::graph::{Effect, Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::{Outcome, Position, RecordedEvent, Runtime, WatchEventKind};
use ferrata_core::state::{Context, Draft};
use ferrata_core::{ErrorKind, RunKey};
use ferrata_testing::Fault;
use serde_json::json;

use super::world::World;

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

/// A log of the progress that attempts found and reported, and of the results of the reports.
#[derive(Clone, Default)]
struct Notes {
    found: Arc<Mutex<Vec<Option<u32>>>>,
    safe: Arc<Mutex<u32>>,
}

/// A node that counts to five, starting from the progress of the attempts before.
fn count(effect: Effect) -> Graph<Context> {
    Graph::<Context>::builder("count")
        .node("count", async |cx: NodeContext, mut s: Draft<Context>| {
            let notes = cx.resource::<Notes>().clone();
            let from = cx.last_progress::<u32>()?;
            notes.found.lock().unwrap().push(from);
            for n in from.unwrap_or(0) + 1..=5 {
                cx.progress(n).await?;
                cx.checkpoint().await?;
                *notes.safe.lock().unwrap() = n;
                if n == 3 && cx.attempt() == 1 {
                    return Err(NodeError::new("the line broke").not_done());
                }
            }
            s.set("from", from)?;
            Ok(s)
        })
        .effect(effect)
        .retry(RetryPolicy::none().with_attempts(2))
        .entry("count")
        .build()
        .unwrap()
}

async fn process(world: &World, notes: &Notes) -> Runtime {
    let builder = Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _);
    builder.resource(notes.clone()).build().await.unwrap()
}

/// Guarantees: STEP-3.
#[tokio::test]
async fn next_attempt_reads_progress_of_previous_one() {
    for effect in [Effect::Write, Effect::Read, Effect::External] {
        let (world, notes) = (World::new(), Notes::default());
        let one = process(&world, &notes).await;
        let run = one.start(&count(effect), Context::new()).id("r").await.unwrap();
        let state = world.pass(run.completed()).await.unwrap();
        assert_eq!(state.get_value("from"), Some(&json!(3)), "{effect:?}");
        assert_eq!(*notes.found.lock().unwrap(), [None, Some(3)], "{effect:?}");
        // The progress was removed with the activation.
        let now = one.checkpoint(&key(), Position::Latest).await.unwrap();
        assert_eq!(now.next, []);
        let mut told = Vec::new();
        let mut events = one.watch(&key()).await.unwrap();
        while let Some(event) = events.next().await.unwrap() {
            if let WatchEventKind::Recorded(RecordedEvent::Progress { value, .. }) = event.what {
                told.push(value.get().to_owned());
            }
        }
        assert_eq!(told, ["1", "2", "3", "4", "5"], "{effect:?}");
    }
}

/// After a crash, the next attempt starts from the last recorded progress.
///
/// Guarantees: STEP-3.
#[tokio::test]
async fn progress_survives_crash_at_any_write() {
    let mut crashes = 0;
    for at in 0..12 {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let (world, notes) = (World::new(), Notes::default());
            let (store, _) = world.mortal().await;
            let dying = Runtime::builder_with(Arc::clone(&store) as _).clock(Arc::clone(&world.clock) as _);
            let dying = dying.resource(notes.clone()).build().await.unwrap();
            store.plan(store.operations() + at, fault);
            let run =
                world.pass(dying.start(&count(Effect::Write), Context::new()).id("r").into_future()).await;
            if let Ok(run) = run {
                let _ = world.pass(run.wait()).await;
            }
            crashes += usize::from(store.is_crashed());
            drop(dying);
            let safe = *notes.safe.lock().unwrap();
            notes.found.lock().unwrap().clear();
            world.clock.advance(std::time::Duration::from_secs(86_400));
            let next = process(&world, &notes).await;
            let run = next.start(&count(Effect::Write), Context::new()).id("r").await.unwrap();
            world.pass(run.completed()).await.unwrap();
            let first = notes.found.lock().unwrap().first().copied().flatten();
            let ended = notes.found.lock().unwrap().is_empty();
            assert!(
                ended || first.unwrap_or(0) >= safe,
                "{fault:?} at {at}: found {first:?}, but {safe} was recorded"
            );
        }
    }
    assert!(crashes > 10, "{crashes} crashes");
}

/// Another process writes between two progress records. The second record conflicts, and is written again.
///
/// Guarantees: STEP-3.
#[tokio::test]
async fn last_progress_wins_despite_write_conflict() {
    let world = World::new();
    let other = world.process().await;
    let speaker = other.clone();
    let graph = Graph::<Context>::builder("beside")
        .node("say", move |cx: NodeContext, mut s: Draft<Context>| {
            let other = speaker.clone();
            async move {
                for n in 1..=4_u32 {
                    cx.progress(n).await?;
                    other.send(cx.run(), n).await?;
                    cx.progress(json!({ "at": n })).await?;
                    cx.checkpoint().await?;
                    let now = other.checkpoint(cx.run(), Position::Latest).await?;
                    assert_eq!(now.next[0].progress, Some(json!({ "at": n })));
                    assert!(now.next[0].steps.is_empty(), "{:?}", now.next);
                }
                s.set("done", true)?;
                Ok(s)
            }
        })
        .entry("say")
        .build()
        .unwrap();
    let run = world.process().await.start(&graph, Context::new()).id("r").await.unwrap();
    let Outcome::Completed(_) = world.pass(run.wait()).await.unwrap() else { panic!("it failed") };
}

/// Guarantees: STEP-4.
#[tokio::test]
async fn progress_has_size_limit_and_reads_unchanged() {
    let world = World::new();
    let graph = Graph::<Context>::builder("large")
        .node("say", async |cx: NodeContext, mut s: Draft<Context>| {
            if cx.attempt() == 1 {
                let refused = cx.progress("x".repeat(65_536)).await.unwrap_err();
                cx.progress("x".repeat(65_534)).await?;
                assert_eq!(refused.kind(), ErrorKind::TooLarge);
                return Err(NodeError::new("again"));
            }
            s.set("kind", format!("{:?}", cx.last_progress::<u32>().unwrap_err().kind()))?;
            s.set("length", cx.last_progress::<String>()?.map(|text| text.len()))?;
            Ok(s)
        })
        .retry(RetryPolicy::none().with_attempts(2))
        .entry("say")
        .build()
        .unwrap();
    let run = world.process().await.start(&graph, Context::new()).id("r").await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(
        (state.get_value("kind"), state.get_value("length")),
        (Some(&json!("Invalid")), Some(&json!(65_534)))
    );
}

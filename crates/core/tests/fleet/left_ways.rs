//! Another writer moves the run to another path while attempts of the old path are running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::graph::{Effect, Graph, Route};
use ferrata_core::node::NodeError;
use ferrata_core::record::RecordKind;
use ferrata_core::state::{Context, Op, Patch, Reducer};
use ferrata_core::store::{At, CheckpointStore};
use tokio::sync::Notify;

use super::world::{World, key, spawn};

/// The other path leads to the same activation. A step of a task of the aborted attempt belongs to other inputs, so the new attempt must not reuse
/// it.
#[tokio::test]
async fn aborted_attempt_step_is_not_reused() {
    let world = World::new();
    let (line, runtime) = world.process(|b| b).await;
    let (_, other) = world.process(|b| b).await;
    let (began, late, said, word) = (
        Arc::new(AtomicU32::new(0)),
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
    );
    let kept = (Arc::clone(&began), Arc::clone(&late), Arc::clone(&said), Arc::clone(&word));
    let graph = Graph::<Context>::builder("g")
        .node("first", async |_cx, _s| Ok(()))
        .effect(Effect::Pure)
        .node("around", async |_cx, _s| Ok(()))
        .node("work", move |cx, mut s| {
            let (began, late, said, word) = kept.clone();
            async move {
                if began.fetch_add(1, Ordering::SeqCst) == 0 {
                    let task = spawn(async move {
                        late.notified().await;
                        let step =
                            cx.step("price", async || Ok::<_, NodeError>("of before".to_owned())).await;
                        said.notify_one();
                        step
                    });
                    task.await??;
                    return Ok(s);
                }
                word.notified().await;
                let price = cx.step("price", async || Ok::<_, NodeError>("of now".to_owned())).await?;
                s.set("price", price)?;
                Ok(s)
            }
        })
        .effect(Effect::Pure)
        .entry("first")
        .route("first", ["around", "work"], |s: &Context, _cx| match s.get_value("edited") {
            Some(_) => "around",
            None => "work",
        })
        .edge("around", "work")
        .build()
        .unwrap();
    let at_work = Arc::clone(&began);
    line.before(RecordKind::Node, async move {
        while at_work.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let edited = Op::Set("edited".into(), true.into());
        other.edit(&key("r"), Patch::from_ops(&[edited]).unwrap()).await.unwrap();
    });
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    world
        .pass(async {
            while began.load(Ordering::SeqCst) < 2 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    late.notify_one();
    world.pass(said.notified()).await;
    word.notify_one();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<String>("price").unwrap().as_deref(), Some("of now"));
    // The log contains only the step of the new attempt, so another process reuses the right one.
    let records = world.store.load(&key("r"), At::Latest).await.unwrap().unwrap();
    let steps: Vec<_> = records.iter().filter(|record| record.header.kind == RecordKind::Step).collect();
    assert_eq!(steps.len(), 1, "{steps:?}");
}

/// An edit that precedes the record of the fan-out changes the item. The result of the old item's attempt must not count for the new item. The old
/// attempt may still be running, may have ended, or may have an update that cannot be applied.
///
/// Guarantees: DURABLE-5.
#[tokio::test]
async fn aborted_item_result_is_not_reused() {
    for (has_ended, applies) in [(false, true), (true, true), (true, false)] {
        let world = World::new();
        let (line, runtime) = world.process(|b| b).await;
        let (_, other) = world.process(|b| b).await;
        let (began, word) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let kept = (Arc::clone(&began), Arc::clone(&word));
        let graph = Graph::<Context>::builder("g")
            .channel("done", Reducer::Append)
            .channel("sum", Reducer::Sum)
            .node("plan", async |_cx, _s| Ok(()))
            .effect(Effect::Pure)
            .node("work", move |cx, _s| {
                let (began, word) = kept.clone();
                async move {
                    let item: String = cx.item()?;
                    began.fetch_add(1, Ordering::SeqCst);
                    if item == "old" && !has_ended {
                        word.notified().await;
                    }
                    let update = Context::update().append("done", [&item]);
                    Ok(if item == "old" && !applies { update.reduce("sum", "text") } else { update })
                }
            })
            .effect(Effect::Pure)
            .entry("plan")
            .route("plan", ["work"], |s: &Context, _cx| {
                Route::each("work", s.get::<Vec<String>>("items").unwrap().unwrap())
            })
            .build()
            .unwrap();
        let at_work = Arc::clone(&began);
        line.before(RecordKind::Node, async move {
            while at_work.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            // The driver receives the end of the attempt in the meantime.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let edited = Op::Set("items".into(), serde_json::json!(["new"]));
            other.edit(&key("r"), Patch::from_ops(&[edited]).unwrap()).await.unwrap();
        });
        let mut input = Context::new();
        input.set("items", ["old"]).unwrap();
        let run = runtime.start(&graph, input).id("r").await.unwrap();
        world.pass_for(Duration::from_secs(1)).await;
        word.notify_one();
        let state = world.pass(run.completed()).await.unwrap();
        let done = state.get::<Vec<String>>("done").unwrap();
        assert_eq!(done.as_deref(), Some(&["new".to_owned()][..]), "ended: {has_ended}, applies: {applies}");
    }
}

/// After a conflict, two ends are decided again. If the first cannot be decided again, the second is discarded, too, because its update included that
/// of the first.
#[tokio::test]
async fn conflict_discards_ends_after_unrepeatable_end() {
    let world = World::new();
    let (line, runtime) = world.process(|b| b).await;
    let (_, other) = world.process(|b| b).await;
    let strays = Arc::new(AtomicBool::new(false));
    let kept = Arc::clone(&strays);
    let graph = Graph::<Context>::builder("g")
        .channel("sum", Reducer::Sum)
        .node("s", async |_cx, _s| Ok(()))
        .effect(Effect::Pure)
        .node("a", async |_cx, _s| Ok(Context::update().reduce("sum", 1)))
        .effect(Effect::Pure)
        .node("b", async |_cx, _s| Ok(Context::update().reduce("sum", 10)))
        .effect(Effect::Pure)
        .node("end", async |_cx, _s| Ok(()))
        .entry("s")
        .edge("s", ["a", "b"])
        .route(
            "a",
            ["end"],
            move |_s: &Context, _cx| {
                if kept.swap(false, Ordering::SeqCst) { "nowhere" } else { "end" }
            },
        )
        .build()
        .unwrap();
    let (again, stray) = (Arc::clone(&line), Arc::clone(&strays));
    // The starts of both nodes are recorded, and their ends are not.
    line.after(RecordKind::Node, async move {
        again.before(RecordKind::Node, async move {
            let edited = Op::Set("edited".into(), true.into());
            other.edit(&key("r"), Patch::from_ops(&[edited]).unwrap()).await.unwrap();
            stray.store(true, Ordering::SeqCst);
        });
    });
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let stopped = world.pass(run.wait()).await.unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Conflict, "{stopped}");
    assert!(!strays.load(Ordering::SeqCst));
    world.pass_for(Duration::from_secs(1)).await;
    let run = runtime.resume(&graph, "r").take_over().await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<u32>("sum").unwrap(), Some(11));
}

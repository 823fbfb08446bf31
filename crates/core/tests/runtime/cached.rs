//! Cached node results that other runs of the process reuse.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ask::Ask;
use ferrata_core::graph::{CachePolicy, Effect, Graph, GraphBuilder, Lens, Route};
use ferrata_core::node::{NodeContext, NodeError, NodeResult};
use ferrata_core::runtime::Position;
use ferrata_core::state::{Context, Draft, IntoUpdate, Reducer};
use ferrata_core::{RunId, RunKey, TenantId};
use ferrata_testing::{Fault, Process, World, assert_replays};
use serde_json::json;

const LIFE: Duration = Duration::from_secs(60);

fn key(s: &Context, cx: &NodeContext) -> Result<(String, Option<String>), NodeError> {
    Ok((cx.run().tenant.to_string(), s.get("of")?))
}

/// A node that looks something up, and counts its executions.
fn looks(calls: &Arc<AtomicU32>, policy: CachePolicy) -> GraphBuilder<Context> {
    let calls = Arc::clone(calls);
    Graph::<Context>::builder("look")
        .channel("seen", Reducer::Append)
        .node("look", move |_cx: NodeContext, s: Draft<Context>| {
            let calls = Arc::clone(&calls);
            async move {
                let call = calls.fetch_add(1, Ordering::SeqCst) + 1;
                let of: Option<String> = s.get("of")?;
                if of.as_deref() == Some("wrong") {
                    return Err(NodeError::from("no such thing"));
                }
                let update = Context::update().append("seen", [json!([of, call])]);
                Ok(update.with_output(call).with_notes("looked"))
            }
        })
        .effect(Effect::Read)
        .cached(policy, key)
}

fn graph(calls: &Arc<AtomicU32>, policy: CachePolicy) -> Graph<Context> {
    looks(calls, policy)
        .node("use", async |cx, mut s: Draft<Context>| {
            s.set("used", cx.inputs()[0].output::<u32>()?)?;
            Ok(s)
        })
        .entry("look")
        .edge("look", "use")
        .build()
        .unwrap()
}

fn input(of: &str) -> Context {
    let mut input = Context::new();
    input.set("of", of).unwrap();
    input
}

async fn done(
    world: &World,
    process: &Process,
    graph: &Graph<Context>,
    id: &str,
    of: &str,
) -> (serde_json::Value, u32) {
    let run = world.pass(process.start(graph, input(of)).id(id)).await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    (state.get("seen").unwrap().unwrap(), state.get("used").unwrap().unwrap())
}

#[tokio::test]
async fn cache_hit_records_node_result() {
    let (world, calls) = (World::new(), Arc::default());
    let process = world.process().await.unwrap();
    let graph = graph(&calls, CachePolicy::with_max_age(LIFE));
    let first = done(&world, &process, &graph, "a", "x").await;
    assert_eq!(first, (json!([["x", 1]]), 1));
    assert_eq!(done(&world, &process, &graph, "b", "x").await, first);
    assert_eq!(done(&world, &process, &graph.clone(), "c", "y").await, (json!([["y", 2]]), 2));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    // The log after a cache hit equals the log after a miss, and does not refer to the other run.
    let keys = ["a", "b"].map(|id| RunKey::try_from(id).unwrap());
    let [a, b] = [process.story(&keys[0]).await.unwrap(), process.story(&keys[1]).await.unwrap()];
    assert_eq!(a, b);
    let log = process.export(&keys[1]).await.unwrap();
    assert!(log.contains("looked"));
    assert_replays(&log, &graph).await;
    // A second process reads the recorded result, whatever its own cache contains.
    let other = world.process().await.unwrap();
    let same = self::graph(&calls, CachePolicy::with_max_age(LIFE));
    let state = other.state_at(&same, &keys[1], Position::Latest).await.unwrap();
    assert_eq!(state.get::<u32>("used").unwrap(), Some(1));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_result_has_an_age_and_a_place() {
    let (world, calls) = (World::new(), Arc::default());
    let process = world.process().await.unwrap();
    let graph = graph(&calls, CachePolicy::with_max_age(LIFE).with_max_entries(2));
    let mut n = 0;
    for (of, wanted) in [("x", 1), ("y", 2), ("x", 1), ("z", 3), ("x", 4), ("z", 3), ("y", 5)] {
        n += 1;
        assert_eq!(done(&world, &process, &graph, &format!("r{n}"), of).await.1, wanted, "{n}");
    }
    world.pass_for(LIFE).await;
    assert_eq!(done(&world, &process, &graph, "old", "y").await.1, 6);
    // Another tenant has another cache key, and so has another graph.
    let run = RunKey::new(TenantId::new("t").unwrap(), RunId::new("r1").unwrap());
    let run = process.start(&graph, input("y")).tenant(run.tenant.as_str()).id("r1").await.unwrap();
    assert_eq!(world.pass(run.completed()).await.unwrap().get::<u32>("used").unwrap(), Some(7));
    let anew = self::graph(&calls, CachePolicy::with_max_age(LIFE));
    assert_eq!(done(&world, &process, &anew, "anew", "y").await.1, 8);
}

#[tokio::test]
async fn cache_skips_failed_dropped_and_sending_attempts() {
    let (world, calls) = (World::new(), Arc::default());
    let process = world.process().await.unwrap();
    let graph = graph(&calls, CachePolicy::with_max_age(LIFE));
    for id in ["a", "b"] {
        let run = process.start(&graph, input("wrong")).id(id).await.unwrap();
        assert!(world.pass(run.completed()).await.is_err());
    }
    assert_eq!(calls.load(Ordering::SeqCst), 2);

    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let sends = Graph::<Context>::builder("sends")
        .node("look", move |cx: NodeContext, _s: Draft<Context>| {
            let calls = Arc::clone(&counted);
            async move {
                match calls.fetch_add(1, Ordering::SeqCst) {
                    0 => {
                        cx.sleep(LIFE).await?;
                        NodeResult::Ok(().into_update())
                    }
                    _ => Ok(().send_out("told", 1)),
                }
            }
        })
        .effect(Effect::Read)
        .cached(CachePolicy::with_max_age(100 * LIFE), |_s: &Context, _cx: &NodeContext| Ok(()))
        .entry("look")
        .build()
        .unwrap();
    let run = process.start(&sends, Context::new()).id("dropped").await.unwrap();
    while calls.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    process.cancel(run.run(), "enough").await.unwrap();
    let _ = world.pass(run.wait()).await;
    for (id, wanted) in [("c", 2), ("d", 3)] {
        let run = process.start(&sends, Context::new()).id(id).await.unwrap();
        world.pass(run.completed()).await.unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), wanted);
        assert_eq!(process.outbox(run.run()).await.unwrap().len(), 1);
    }
}

/// Two nodes use the cache concurrently in a subgraph, each with its own item. The run is crashed at each write.
#[tokio::test]
async fn cache_hits_do_not_change_crash_recovery() {
    let map = |policy: CachePolicy| {
        let part = Graph::<Context>::builder("part")
            .channel("seen", Reducer::Append)
            .node("split", async |_cx, s| Ok(s))
            .effect(Effect::Pure)
            .node("one", async |cx, _s: Draft<Context>| {
                let item: u32 = cx.item()?;
                Ok(Context::update().append("seen", [item * item]))
            })
            .effect(Effect::Pure)
            .cached(policy, |_s: &Context, cx: &NodeContext| Ok(cx.item::<u32>()?))
            .entry("split")
            .route("split", ["one"], |_s, _cx| Route::each("one", [2_u32, 3, 2]))
            .build()
            .unwrap();
        let outer = Graph::<Context>::builder("outer").subgraph("part", &part, Lens::whole());
        outer.entry("part").build().unwrap()
    };
    async fn drive(
        world: &World,
        process: &Process,
        graph: &Graph<Context>,
    ) -> ferrata_core::Result<Context> {
        world.pass(world.pass(process.start(graph, Context::new()).id("r")).await?.completed()).await
    }
    async fn lived(graph: &Graph<Context>, at: Option<u64>) -> (Vec<u32>, bool) {
        let world = World::new();
        let mut process = world.process().await.unwrap();
        if let Some(at) = at {
            process.fail_write(at, Fault::CrashAfter);
        }
        let mut end = drive(&world, &process, graph).await;
        let crashed = process.is_crashed();
        if crashed {
            process.crash().await;
            process = world.process().await.unwrap();
            end = drive(&world, &process, graph).await;
        }
        let mut seen: Vec<u32> = end.unwrap().get("seen").unwrap().unwrap();
        seen.sort_unstable();
        (seen, crashed)
    }
    let wanted = vec![4, 4, 9];
    let graph = map(CachePolicy::with_max_age(LIFE));
    assert_eq!(lived(&graph, None).await.0, wanted);
    for at in 0.. {
        let (seen, crashed) = lived(&graph, Some(at)).await;
        assert_eq!(seen, wanted, "{at}");
        if !crashed {
            break;
        }
    }
}

#[test]
fn uncacheable_node_fails_with_remedy() {
    let none = |_s: &Context, _cx: &NodeContext| Ok(());
    let graph = Graph::<Context>::builder("wrong")
        .cached(CachePolicy::with_max_age(LIFE), none)
        .node("write", async |_cx, s| Ok(s))
        .cached(CachePolicy::with_max_age(LIFE), none)
        .node("never", async |_cx, s| Ok(s))
        .effect(Effect::Pure)
        .cached(CachePolicy::with_max_age(Duration::ZERO), none)
        .gate("ask", |_s: &Context| Ask::<bool>::new("Well?"), |s, yes| s.set("yes", yes))
        .effect(Effect::Read)
        .cached(CachePolicy::with_max_age(LIFE), none)
        .entry("write")
        .edge("write", "never")
        .edge("never", "ask")
        .build();
    let told = graph.unwrap_err().to_string();
    for part in [
        "`cached` has no node to modify",
        "is cached, and its effect is `Write`",
        "is cached with a lifetime or a capacity of 0",
        "is cached, and waits",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

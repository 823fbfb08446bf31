//! Graphs of run trees, and helpers that read the trees from the store.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::time::Duration;

use ferrata_core::RunKey;
use ferrata_core::ask::Ask;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, HeaderRange, Page, RunHead, RunQuery};

use super::world::World;

/// A node function with its own clones of the given values.
macro_rules! using {
    ($($kept:ident),*; $cx:pat, $state:pat => $body:block) => {{
        $(let $kept = $kept.clone();)*
        move |$cx: NodeContext, $state: Draft<Context>| {
            $(let $kept = $kept.clone();)*
            async move $body
        }
    }};
}
pub(crate) use using;

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn key(id: &str) -> RunKey {
    RunKey::try_from(id).unwrap()
}

pub(crate) fn with(number: u32) -> Context {
    let mut state = Context::new();
    state.set("number", number).unwrap();
    state
}

/// A graph that doubles a number.
pub(crate) fn double() -> Graph<Context> {
    Graph::<Context>::builder("double")
        .node("double", async |_cx, mut s| {
            let number: u32 = s.get("number")?.unwrap_or_default();
            s.set("number", number * 2)?;
            Ok(s)
        })
        .entry("double")
        .build()
        .unwrap()
}

/// A graph that asks a yes-or-no question.
pub(crate) fn gate() -> Graph<Context> {
    Graph::<Context>::builder("gate")
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
        .entry("ok")
        .build()
        .unwrap()
}

/// A graph that waits for one child and copies `channel` from its state.
pub(crate) fn parent(child: &Graph<Context>, channel: &'static str) -> Graph<Context> {
    let child = child.clone();
    Graph::<Context>::builder("parent")
        .node(
            "wait",
            using!(child; cx, mut s => {
                let state = cx.child(&child, with(21)).await?;
                s.set("got", state.get::<serde_json::Value>(channel)?)?;
                Ok(s)
            }),
        )
        .entry("wait")
        .build()
        .unwrap()
}

pub(crate) async fn children_of(world: &World, parent: &str) -> Vec<RunHead> {
    let mut query = RunQuery::default();
    query.labels.push(("ferrata.parent".to_owned(), parent.to_owned()));
    world.store.runs(&query, Page::first(1_000)).await.unwrap().items
}

pub(crate) async fn only_child_of(world: &World, parent: &str) -> RunHead {
    let mut children = children_of(world, parent).await;
    assert_eq!(children.len(), 1, "{children:?}");
    children.remove(0)
}

pub(crate) async fn records(world: &World, run: &RunKey) -> usize {
    world.store.headers(run, HeaderRange::newest(1_000)).await.unwrap().items.len()
}

pub(crate) async fn status(world: &World, run: &RunKey) -> RunStatus {
    world.store.head(run).await.unwrap().unwrap().status
}

/// Waits until a run has this status.
pub(crate) async fn until(world: &World, run: &RunKey, wanted: RunStatus) {
    let there = async {
        while world.store.head(run).await.unwrap().is_none_or(|head| head.status != wanted) {
            tokio::task::yield_now().await;
        }
    };
    world.pass(there).await;
}

/// Waits until a run is idle and out of memory.
pub(crate) async fn until_asleep(world: &World, run: &RunKey) {
    let there = async {
        let asleep = |head: RunHead| head.owner.is_none() && head.wake_at.is_some();
        while !world.store.head(run).await.unwrap().is_some_and(asleep) {
            tokio::task::yield_now().await;
        }
    };
    world.pass(there).await;
}

pub(crate) fn served(runtime: &Runtime, graphs: &[&Graph<Context>]) {
    graphs.iter().for_each(|graph| runtime.serve(graph).unwrap());
}

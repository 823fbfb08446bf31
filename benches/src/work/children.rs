//! Measures a map over children, in turn with the same number of runs without a parent.

use anyhow::{Result, bail, ensure};
use ferrata::graph::{Effect, Graph, Route};
use ferrata::store::MemoryStore;
use ferrata::{Draft, NodeContext, Outcome, Runtime};
use tokio::task::JoinSet;

use super::Table;
use crate::graphs::{self, Small};
use crate::measure::{Rounds, in_turn};
use crate::row::{Goal, Row};
use crate::space::Space;

/// Number of concurrent runs in both workloads.
const RUNNING: u8 = 64;

/// Measures the row in memory.
pub(crate) async fn in_memory(table: &mut Table) -> Result<()> {
    let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    row(table, "core", &runtime).await
}

/// Measures the row on a store.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let space = Space::make(server).await?;
    let runtime = super::runtime(&space).await?;
    row(table, space.kind.name(), &runtime).await?;
    space.remove().await
}

async fn row(table: &mut Table, store: &str, runtime: &Runtime) -> Result<()> {
    let child = graphs::chain(1, Effect::Write)?;
    let width = table.args.scaled(1_000, 100);
    let each = format!("a node with a child for each of {width} items");
    pair(table, format!("{store}/map"), each, runtime, &child, &mapped(&child, width)?).await?;
    let one = format!("one node that starts {width} children");
    pair(table, format!("{store}/children"), one, runtime, &child, &over(&child, width)?).await
}

async fn pair(
    table: &mut Table,
    id: String,
    what: String,
    runtime: &Runtime,
    child: &Graph<Small>,
    parent: &Graph<Small>,
) -> Result<()> {
    if !table.wants(&id) {
        return Ok(());
    }
    let width = table.args.scaled(1_000, 100);
    let ours = async || {
        let ended = graphs::run(runtime, parent, Small::default()).await?;
        ensure!(ended.count == width as u64, "the parent missed some");
        Ok(())
    };
    let theirs = async || alone(runtime, child, width).await;
    let rounds = Rounds::warm(table.args.scaled(3, 2));
    let pair = in_turn(rounds, [width as f64; 2], ours, theirs).await?;
    let workload = format!("{what} of one node, {RUNNING} at a time");
    let reference = format!("as many runs without a parent, {RUNNING} at a time");
    table.push(Row::pair(id, workload, reference, "µs/child", pair, Goal::Rate(0.5)));
    Ok(())
}

/// Creates a parent with one node that has a child for each of `width` items.
fn mapped(child: &Graph<Small>, width: usize) -> Result<Graph<Small>> {
    let graph = Graph::<Small>::builder("each")
        .node("split", async |_cx: NodeContext, _s: Draft<Small>| Ok(()))
        .child(
            "each",
            child,
            |_s: &Small, _cx| Ok(Small::default()),
            |s: &mut Small, c: Small| s.count += c.count,
        )
        .max_running(RUNNING.into())
        .entry("split")
        .route("split", ["each"], move |_s, _cx| Route::each("each", 0..width));
    Ok(graph.build()?)
}

/// Creates a parent with one node that starts `width` children.
fn over(child: &Graph<Small>, width: usize) -> Result<Graph<Small>> {
    let child = child.clone();
    let graph = Graph::<Small>::builder("gather").node("gather", move |cx: NodeContext, _s: Draft<Small>| {
        let child = child.clone();
        async move {
            let inputs = (0..width).map(|_| Small::default());
            let ended = cx.children(&child, inputs).max_running(RUNNING.into()).await?;
            Ok(Small::update().count(ended.iter().map(|state| state.count).sum::<u64>()))
        }
    });
    Ok(graph.entry("gather").build()?)
}

/// Runs `width` runs to their ends.
async fn alone(runtime: &Runtime, graph: &Graph<Small>, width: usize) -> Result<()> {
    let mut tasks = JoinSet::new();
    for started in 0..width {
        if started >= RUNNING.into() {
            tasks.join_next().await.transpose()?.transpose()?;
        }
        let (runtime, graph) = (runtime.clone(), graph.clone());
        tasks.spawn(async move {
            match runtime.start(&graph, Small::default()).await?.wait().await? {
                Outcome::Completed(_) => anyhow::Ok(()),
                outcome => bail!("a run that is measured must complete: {outcome:?}"),
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

//! Measures what a node costs in the process, without a store.

use std::future::Future;
use std::pin::Pin;

use anyhow::{Result, ensure};
use ferrata::Runtime;
use ferrata::graph::{CheckpointFrequency, Effect, Graph};
use ferrata::store::{CheckpointStore as _, MemoryStore, Page, RunQuery};

use super::Table;
use crate::graphs::{self, Small};
use crate::measure::{Rounds, in_turn};
use crate::row::{Goal, Row};

type Bare = Box<dyn Fn(u64) -> Pin<Box<dyn Future<Output = u64> + Send>> + Send + Sync>;

/// The work of the nodes of the chain, without a graph.
fn bare(nodes: usize) -> Vec<Bare> {
    let node = || -> Bare { Box::new(|count| Box::pin(async move { count + 1 })) };
    (0..nodes).map(|_| node()).collect()
}

async fn loop_over(nodes: &[Bare]) -> Result<()> {
    let mut count = 0;
    for node in nodes {
        count = node(count).await;
    }
    ensure!(std::hint::black_box(count) == nodes.len() as u64, "the loop lost a node");
    Ok(())
}

const NODES: usize = 1_000;
const IN_WORDS: &str = "the same functions in a loop through `Box<dyn>`";

/// Measures the rows of the core.
pub(crate) async fn measure(table: &mut Table) -> Result<()> {
    let rounds = table.args.scaled(31, 5);
    let graph = graphs::chain(NODES, Effect::Pure)?;
    let writes = graphs::chain(NODES, Effect::Write)?;
    let nodes = bare(NODES);
    let chain = async |graph: &Graph<Small>, input: &Small, frequency| {
        // Use a new store for each run, so that no round pays for the logs of earlier rounds.
        let runtime = Runtime::builder(MemoryStore::new()).build().await?;
        let ended = graphs::run_with(&runtime, graph, input.clone(), frequency).await?;
        ensure!(ended.count == NODES as u64, "the chain lost a node");
        anyhow::Ok(())
    };
    let (small, large) = (Small::default(), Small::with_blob(1024 * 1024));

    let (disabled, every) = (CheckpointFrequency::Disabled, CheckpointFrequency::EveryNode);
    let rows = [
        (
            "core/disabled",
            "chain of 1,000 `Pure` nodes, checkpoints disabled",
            &graph,
            disabled,
            Goal::Extra(0.3),
        ),
        ("core/disabled-write", "the same of `Write` nodes", &writes, disabled, Goal::Extra(0.35)),
        (
            "core/every-node",
            "chain of 1,000 `Pure` nodes, each recorded in memory",
            &graph,
            every,
            Goal::Each(1.5),
        ),
        ("core/every-node-write", "the same of `Write` nodes", &writes, every, Goal::Each(2.5)),
    ];
    for (id, name, graph, frequency, goal) in rows {
        if table.wants(id) {
            let ours = async || chain(graph, &small, frequency).await;
            let theirs = async || loop_over(&nodes).await;
            let pair = in_turn(Rounds::warm(rounds), [NODES as f64; 2], ours, theirs).await?;
            table.push(Row::pair(id, name, IN_WORDS, "µs/node", pair, goal));
        }
    }
    if table.wants("core/every-node-1-mib") {
        let pair = in_turn(
            Rounds::warm(rounds.min(11)),
            [NODES as f64; 2],
            async || chain(&graph, &large, every).await,
            async || chain(&graph, &small, every).await,
        )
        .await?;
        let name =
            "chain of 1,000 `Pure` nodes with 1 MiB of text beside the counter, each recorded in memory";
        let row = Row::pair("core/every-node-1-mib", name, "without the text", "µs/node", pair, Goal::None);
        table.push(row);
    }
    if table.wants("core/send-out") {
        let senders = graphs::senders(NODES)?;
        // No sink takes the messages: the row measures their records.
        let send = async |graph| {
            let store = MemoryStore::new();
            let runtime = Runtime::builder(store.clone()).build().await?;
            graphs::run(&runtime, graph, small.clone()).await?;
            let heads = store.runs(&RunQuery::default(), Page::first(1)).await?.items;
            anyhow::Ok(heads.first().map(|head| head.seq))
        };
        ensure!(send(&senders).await? == send(&graph).await?, "a letter has a record of its own");
        let pair = in_turn(
            Rounds::warm(rounds.min(11)),
            [NODES as f64; 2],
            async || send(&senders).await.map(drop),
            async || send(&graph).await.map(drop),
        );
        let name = "every node sends a letter out of the run, recorded in memory";
        let row = Row::pair("core/send-out", name, "without letters", "µs/node", pair.await?, Goal::None);
        table.push(row.note("as many records"));
    }
    if table.wants("core/fan-out") {
        let (ten, one) = (graphs::fan_out(10_000)?, graphs::fan_out(1_000)?);
        let fan = async |graph, width: u64| {
            let runtime = Runtime::builder(MemoryStore::new()).build().await?;
            let ended = graphs::run(&runtime, graph, Small::default()).await?;
            ensure!(ended.count == width, "the join missed some");
            anyhow::Ok(())
        };
        let units = [10_000.0, 1_000.0];
        let pair = in_turn(
            Rounds::warm(rounds.min(7)),
            units,
            async || fan(&ten, 10_000).await,
            async || fan(&one, 1_000).await,
        );
        let name = "fan-out of 10,000 and join, recorded in memory";
        let row =
            Row::pair("core/fan-out", name, "fan-out of 1,000", "µs/item", pair.await?, Goal::Times(1.2));
        table.push(row);
    }
    if table.wants("core/fan-out-static") {
        let (declared, each) = (graphs::static_fan_out(NODES)?, graphs::fan_out(NODES)?);
        let fan = async |graph| {
            let runtime = Runtime::builder(MemoryStore::new()).build().await?;
            let ended = graphs::run(&runtime, graph, Small::default()).await?;
            ensure!(ended.count == NODES as u64, "the join missed some");
            anyhow::Ok(())
        };
        let (ours, theirs) = (async || fan(&declared).await, async || fan(&each).await);
        let pair = in_turn(Rounds::warm(rounds.min(11)), [NODES as f64; 2], ours, theirs).await?;
        let name = "fan-out to 1,000 declared nodes and join, recorded in memory";
        let goal = Goal::Times(1.1);
        table.push(Row::pair(
            "core/fan-out-static",
            name,
            "to as many items of `each`",
            "µs/item",
            pair,
            goal,
        ));
    }
    Ok(())
}

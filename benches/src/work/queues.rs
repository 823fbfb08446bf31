//! Measures what a queue costs: a start through a queue with free slots, in turn with a plain start. Also measures how fast a slot is handed from one
//! run to the next.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use ferrata::graph::{Effect, Graph};
use ferrata::node::{NodeContext, NodeError};
use ferrata::queue::{NodeQueueExt as _, RuntimeQueueExt as _, StartQueueExt as _};
use ferrata::state::Draft;
use ferrata::{Outcome, Runtime};
use tokio::task::JoinSet;

use super::Table;
use super::runs::all;
use crate::bare::Bare;
use crate::graphs::{self, Small};
use crate::measure::{Rounds, in_turn};
use crate::row::{Goal, Row};
use crate::space::Space;

/// Number of concurrent runs.
const WIDTH: usize = 64;

/// Approximate size of the body of a hand-over record, which names the run that releases the slot and the run that gets it.
const BODY: usize = 400;

/// Measures the rows of queues.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let rows = ["queued-64", "hand-over"].map(|row| table.wants(&format!("postgres/{row}")));
    if rows.contains(&true) {
        let space = Space::make(server).await?;
        let runtime = super::runtime(&space).await?;
        if rows[0] {
            with_room(table, &runtime).await?;
        }
        if rows[1] {
            hand_over(table, &runtime, &space).await?;
        }
        drop(runtime);
        space.remove().await?;
    }
    Ok(())
}

async fn with_room(table: &mut Table, runtime: &Runtime) -> Result<()> {
    let graph = graphs::chain(1, Effect::Write)?;
    runtime.queue("mail").at_once(1_000).declare().await?;
    let rounds = Rounds::warm(table.args.scaled(21, 5));
    let ours = async || queued(runtime, &graph).await;
    let theirs = async || all(runtime, &graph, WIDTH).await.map(|_: Vec<Duration>| ());
    let pair = in_turn(rounds, [WIDTH as f64; 2], ours, theirs).await?;
    let workload =
        format!("{WIDTH} runs of one `Write` node, started through a queue that has room, postgres");
    let reference = "the same, started without a queue";
    table.push(Row::pair("postgres/queued-64", workload, reference, "µs/run", pair, Goal::Times(1.3)));
    Ok(())
}

/// Starts all runs through the queue at once, and waits for their ends.
async fn queued(runtime: &Runtime, graph: &Graph<Small>) -> Result<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..WIDTH {
        let start = runtime.start(graph, Small::default()).queue("mail");
        tasks.spawn(async move {
            match start.await?.wait().await? {
                Outcome::Completed(_) => Ok(()),
                outcome => bail!("a run that is measured must complete: {outcome:?}"),
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

async fn hand_over(table: &mut Table, runtime: &Runtime, space: &Space) -> Result<()> {
    runtime.queue("hot").at_once_per_key(1).declare().await?;
    let places: usize = table.args.scaled(20, 3);
    let graph = Graph::<Small>::builder("hot")
        .node("work", move |cx: NodeContext, s: Draft<Small>| async move {
            for _ in 0..places {
                cx.acquire("hot", 1).key("one").await?.release().await?;
            }
            Ok::<_, NodeError>(s)
        })
        .entry("work")
        .build()?;
    let mut bare = Bare::open(space, 1, BODY).await?;
    let rounds = Rounds::warm(table.args.scaled(11, 3));
    let ours = async || {
        let spans = all(runtime, &graph, WIDTH).await?;
        ensure!(spans.len() == WIDTH, "every run has its turns");
        Ok(())
    };
    let theirs = async || bare.commits(WIDTH * places).await;
    let pair = in_turn(rounds, [(WIDTH * places) as f64; 2], ours, theirs).await?;
    bare.close().await?;
    let workload = format!(
        "{WIDTH} runs that take turns at the one place of a key, {places} times each, in one process, postgres"
    );
    let reference = format!("{}, one for each hand-over", Bare::in_words(space.kind, 1));
    // A thousand hand-overs per second, however long a commit takes.
    let goal = Goal::Each(1_000.0);
    table.push(Row::pair("postgres/hand-over", workload, reference, "µs/place", pair, goal));
    Ok(())
}

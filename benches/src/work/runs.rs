//! Measures many concurrent runs on a store, in turn with as many bare clients.

use std::time::Duration;

use anyhow::{Result, bail};
use ferrata::graph::{Effect, Graph};
use ferrata::{Outcome, Runtime};
use tokio::task::JoinSet;

use super::Table;
use crate::bare::Bare;
use crate::graphs::{self, Small};
use crate::measure::{Rounds, Spread, in_turn, micros, now};
use crate::row::{Goal, Row};
use crate::space::{Kind, Space};

/// Number of nodes of each run.
pub(crate) const NODES: usize = 20;

/// Measures the rows of 64 and of 256 runs.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    for width in [64, 256] {
        let kind = Kind::of(server)?;
        let id = format!("{}/runs-{width}", kind.name());
        // A quick run skips the server that takes a minute.
        let left_out = table.args.quick && (width > 64 || kind == Kind::S3);
        if table.wants(&id) && !left_out {
            let space = Space::make(server).await?;
            row(table, &space, id, width).await?;
            space.remove().await?;
        }
    }
    Ok(())
}

async fn row(table: &mut Table, space: &Space, id: String, width: usize) -> Result<()> {
    let goal = match space.kind {
        Kind::Postgres => Goal::Rate(3.0),
        Kind::Redis => Goal::Rate(2.0),
        Kind::Files | Kind::Nats => Goal::Rate(1.0),
        Kind::Sqlite => Goal::Rate(5.0),
        Kind::S3 => Goal::Rate(0.8),
    };
    let rounds = match space.kind {
        // The local server answers one request at a time, so a round of 256 runs takes a minute.
        Kind::S3 => Rounds::cold(3),
        _ => Rounds::warm(table.args.scaled(7, 2)),
    };
    let runtime = super::runtime(space).await?;
    let graph = graphs::chain(NODES, Effect::Write)?;
    let probe = runtime.start(&graph, Small::default()).await?;
    probe.wait().await?;
    let body = super::body_bytes(&runtime, probe.run()).await?;
    let mut bare = Bare::open(space, width, body).await?;

    let mut spans = Vec::new();
    let ours = async || {
        spans.push(all(&runtime, &graph, width).await?);
        Ok(())
    };
    let units = [(width * NODES) as f64; 2];
    let pair = in_turn(rounds, units, ours, async || bare.commits(NODES).await).await?;
    bare.close().await?;

    let workload = format!("{width} runs of {NODES} `Write` nodes, {}", space.kind.name());
    let row = Row::pair(id, workload, Bare::in_words(space.kind, width), "µs/node", pair, goal);
    let per_round = spans.into_iter().skip(rounds.warm as usize).map(percentiles);
    let (halves, tails): (Vec<f64>, Vec<f64>) = per_round.unzip();
    let over = Spread::of(halves.iter().zip(&tails).map(|(half, tail)| tail / half)).median;
    let (half, tail) = (Spread::of(halves).median / 1e3, Spread::of(tails).median / 1e3);
    let note = format!("per run p50 {half:.1} ms, p99 {tail:.1} ms: {over:.2}x, goal at most 2x");
    table.push(row.also(note, over <= 2.0));
    Ok(())
}

/// Starts all runs at once. Returns the duration of each, from the call that starts it to its outcome.
pub(crate) async fn all(runtime: &Runtime, graph: &Graph<Small>, width: usize) -> Result<Vec<Duration>> {
    let mut tasks = JoinSet::new();
    for _ in 0..width {
        let (runtime, graph) = (runtime.clone(), graph.clone());
        tasks.spawn(async move {
            let begun = now();
            match runtime.start(&graph, Small::default()).await?.wait().await? {
                Outcome::Completed(_) => anyhow::Ok(begun.elapsed()),
                outcome => bail!("a run that is measured must complete: {outcome:?}"),
            }
        });
    }
    let mut spans = Vec::with_capacity(width);
    while let Some(ended) = tasks.join_next().await {
        spans.push(ended??);
    }
    Ok(spans)
}

/// Returns the median and the 99th percentile in microseconds.
fn percentiles(mut spans: Vec<Duration>) -> (f64, f64) {
    spans.sort();
    let at = |percent: usize| spans[(spans.len() * percent / 100).min(spans.len() - 1)];
    (micros(at(50)), micros(at(99)))
}

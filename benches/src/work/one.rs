//! Measures one run at a time on a store: what a node waits for, and what does not wait.

use std::time::Duration;

use anyhow::Result;
use ferrata::graph::Effect;

use super::Table;
use crate::bare::Bare;
use crate::graphs::{self, Small};
use crate::measure::{Rounds, Spread, in_turn, micros, now};
use crate::row::{Goal, Row};
use crate::space::{Kind, Space};

/// Measures the rows about a single run.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let kind = Kind::of(server)?;
    let slow = kind == Kind::S3;
    let (rounds, nodes) = table.args.scaled(if slow { (3, 100) } else { (9, 200) }, (2, 50));
    let goal = match kind {
        Kind::Postgres => Goal::Times(1.15),
        Kind::Sqlite => Goal::Times(1.2),
        Kind::Nats => Goal::Times(1.3),
        _ => Goal::None,
    };
    row(table, server, "one-run-write", Effect::Write, rounds, nodes, goal).await?;
    let (rounds, nodes) = table.args.scaled(if slow { (3, 400) } else { (7, 1_000) }, (2, 200));
    let goal = match kind {
        Kind::Postgres => Goal::Rate(10.0),
        _ => Goal::None,
    };
    row(table, server, "one-run-pure", Effect::Pure, rounds, nodes, goal).await?;
    start_up(table, server).await
}

/// Measures what a process waits for when it starts: opening the store, building the runtime, and a run with one node. Other processes have used the
/// store before.
async fn start_up(table: &mut Table, server: &str) -> Result<()> {
    let (kind, id) = (Kind::of(server)?, format!("{}/start-up", Kind::of(server)?.name()));
    let goal = match kind {
        Kind::Files => Goal::Each(5.0),
        Kind::Postgres => Goal::Each(30.0),
        Kind::Sqlite => Goal::None,
        _ => return Ok(()),
    };
    if !table.wants(&id) {
        return Ok(());
    }
    let space = Space::make(server).await?;
    let graph = graphs::chain(1, Effect::Write)?;
    let mut taken = Vec::new();
    for round in 0..=table.args.scaled(15, 3) {
        let begun = now();
        let runtime = super::runtime(&space).await?;
        graphs::run(&runtime, &graph, Small::default()).await?;
        let took = micros(begun.elapsed()) / 1e3;
        runtime.shutdown(Duration::from_secs(10)).await?;
        // The first round creates the space and does not count.
        if round > 0 {
            taken.push(took);
        }
    }
    let workload = format!("open the store, build a runtime, run one `Write` node, {}", kind.name());
    table.push(Row::alone(id, workload, "ms", Spread::of(taken), goal));
    space.remove().await
}

async fn row(
    table: &mut Table,
    server: &str,
    name: &str,
    effect: Effect,
    rounds: u32,
    nodes: usize,
    goal: Goal,
) -> Result<()> {
    let space = Space::make(server).await?;
    let id = format!("{}/{name}", space.kind.name());
    if !table.wants(&id) {
        return space.remove().await;
    }
    let runtime = super::runtime(&space).await?;
    let graph = graphs::chain(nodes, effect)?;
    let probe = runtime.start(&graph, Small::default()).await?;
    probe.wait().await?;
    let body = super::body_bytes(&runtime, probe.run()).await?;
    let mut bare = Bare::open(&space, 1, body).await?;
    let ours = async || graphs::run(&runtime, &graph, Small::default()).await.map(drop);
    let pair =
        in_turn(Rounds::warm(rounds), [nodes as f64; 2], ours, async || bare.commits(nodes).await).await?;
    bare.close().await?;
    let workload = format!("one run of {nodes} `{effect:?}` nodes, {}", space.kind.name());
    let row = Row::pair(id, workload, Bare::in_words(space.kind, 1), "µs/node", pair, goal);
    table.push(row.note(format!("a record's body has {body} bytes")));
    space.remove().await
}

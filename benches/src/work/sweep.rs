//! Measures sweeps over many ended runs on Postgres: as a dry run, with changes, and next to active runs.

use std::pin::pin;

use anyhow::{Result, bail, ensure};
use ferrata::graph::{Effect, Graph};
use ferrata::runtime::SweepLimits;
use ferrata::{RetentionPolicy, Runtime};
use sqlx::{AssertSqlSafe, Executor as _};

use super::Table;
use crate::graphs::{self, Small};
use crate::measure::{Rounds, Spread, in_turn, micros, now};
use crate::row::{Goal, Row};
use crate::space::Space;

/// Number of concurrent runs.
const WIDTH: usize = 64;

/// Number of times that the runs next to a sweep are started in a round.
const TIMES: usize = 8;

/// Number of nodes of each run, as in the store for which the goal was set.
const NODES: usize = 20;

/// The goal is 5,000 runs per second.
const GOAL: Goal = Goal::Each(200.0);

/// Measures the rows of sweeping.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let [dry, real, beside] = ["postgres/sweep", "postgres/sweep-for-real", "postgres/sweep-beside"];
    if table.wants(dry) || table.wants(beside) {
        let store = Filled::make(server, table.args.scaled(100, 3)).await?;
        if table.wants(dry) {
            row_of_dry(table, dry, &store).await?;
        }
        if table.wants(beside) {
            row_beside(table, beside, &store).await?;
        }
        store.space.remove().await?;
    }
    if table.wants(real) {
        row_for_real(table, real, server).await?;
    }
    Ok(())
}

/// A store with many ended runs.
struct Filled {
    space: Space,
    runtime: Runtime,
    runs: usize,
}

impl Filled {
    async fn make(server: &str, waves: u32) -> Result<Self> {
        let space = Space::make(server).await?;
        let runtime = super::runtime(&space).await?;
        let graph = graphs::notes(NODES, 100)?;
        for _ in 0..waves {
            super::runs::all(&runtime, &graph, WIDTH).await?;
        }
        // Vacuum the tables. On any server this happens after a while.
        let mut connection = space.postgres().await?;
        connection.execute(AssertSqlSafe(format!("VACUUM ANALYZE {}.records", space.name()))).await?;
        Ok(Self { space, runtime, runs: waves as usize * WIDTH })
    }

    /// Sweeps all runs and keeps one record of each. Returns the number of runs that lost other records, or would lose them.
    async fn sweep(&self, limits: SweepLimits, dry: bool) -> Result<u64> {
        let policy = RetentionPolicy::keep_all().keep_last(1);
        let (mut limits, mut pruned) = (limits, 0);
        loop {
            let report = self.runtime.sweep(&policy, limits.clone(), dry).await?;
            ensure!(report.failed.is_empty(), "a sweep fails at {:?}", report.failed);
            pruned += report.pruned;
            let Some(next) = report.next else { return Ok(pruned) };
            limits = limits.with_cursor(next);
        }
    }
}

async fn row_of_dry(table: &mut Table, id: &str, store: &Filled) -> Result<()> {
    let (runs, name) = (store.runs, store.space.name());
    let mut connection = store.space.postgres().await?;
    let sql = format!(
        "SELECT run, count(*), sum(octet_length(body)) FROM {name}.records WHERE run > 0 GROUP BY run"
    );
    let ours = async || {
        let pruned = store.sweep(SweepLimits::default(), true).await?;
        ensure!(pruned == runs as u64, "{pruned} of {runs} runs would be pruned");
        Ok(())
    };
    let theirs = async || {
        let rows = connection.fetch_all(AssertSqlSafe(sql.as_str())).await?;
        ensure!(rows.len() == runs, "{} of {runs} runs are weighed", rows.len());
        Ok(())
    };
    let rounds = table.args.scaled(5, 2);
    let pair = in_turn(Rounds::warm(rounds), [runs as f64; 2], ours, theirs).await?;
    let mut each = Vec::new();
    for _ in 0..rounds {
        let begun = now();
        store.sweep(SweepLimits::gentle(), true).await?;
        each.push(micros(begun.elapsed()) / runs as f64);
    }
    let gentle = Spread::of(each).median;
    let workload =
        format!("dry sweep without rests that keeps 1 of {NODES} records of {runs} ended runs, postgres");
    let row = Row::pair(id, workload, "one query over all records", "µs/run", pair, GOAL);
    table.push(row.also(format!("a gentle one {gentle:.0} µs/run, goal at most 200"), gentle <= 200.0));
    Ok(())
}

/// Measures active runs while the same process sweeps the store gently, one sweep after another.
///
/// A part of a sweep continues after its caller was dropped, and then disturbs the round without sweeps. So the parts are short, and the rounds are
/// long compared with them.
async fn row_beside(table: &mut Table, id: &str, store: &Filled) -> Result<()> {
    let graph = graphs::chain(super::runs::NODES, Effect::Write)?;
    let all = async |graph: &Graph<Small>| {
        for _ in 0..TIMES {
            super::runs::all(&store.runtime, graph, WIDTH).await?;
        }
        anyhow::Ok(())
    };
    let ours = async || {
        let sweeps = async {
            loop {
                if let Err(error) = store.sweep(SweepLimits::gentle().with_runs(100), true).await {
                    return error;
                }
            }
        };
        tokio::select! {
            done = all(&graph) => done,
            error = pin!(sweeps) => bail!("a sweep beside runs fails: {error}"),
        }
    };
    let rounds = Rounds::warm(table.args.scaled(7, 2));
    let units = [(TIMES * WIDTH * super::runs::NODES) as f64; 2];
    let pair = in_turn(rounds, units, ours, async || all(&graph).await).await?;
    let workload = format!(
        "{WIDTH} runs of {} `Write` nodes, {TIMES} times, beside gentle dry sweeps of {} ended runs, \
         one after the other, postgres",
        super::runs::NODES,
        store.runs
    );
    table.push(Row::pair(id, workload, "without sweeps", "µs/node", pair, Goal::Times(1.1)));
    Ok(())
}

/// Measures a sweep that removes what it finds. The store is created for it.
async fn row_for_real(table: &mut Table, id: &str, server: &str) -> Result<()> {
    let (waves, mut each, mut runs) = (table.args.scaled(50, 3), Vec::new(), 0);
    for _ in 0..table.args.scaled(3, 1) {
        let store = Filled::make(server, waves).await?;
        runs = store.runs;
        let begun = now();
        let pruned = store.sweep(SweepLimits::default(), false).await?;
        each.push(micros(begun.elapsed()) / runs as f64);
        ensure!(pruned == runs as u64, "{pruned} of {runs} runs were pruned");
        store.space.remove().await?;
    }
    let workload =
        format!("sweep without rests that keeps 1 of {NODES} records of {runs} ended runs, postgres");
    table.push(Row::alone(id, workload, "µs/run", Spread::of(each), GOAL));
    Ok(())
}

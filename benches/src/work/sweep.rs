//! A dry sweep over many ended runs on Postgres, beside one query that weighs the same records.

use anyhow::{Result, ensure};
use ferrata::RetentionPolicy;
use ferrata::runtime::SweepLimits;
use sqlx::{AssertSqlSafe, Executor as _};

use super::Table;
use crate::graphs;
use crate::measure::{Rounds, in_turn};
use crate::row::{Goal, Row};
use crate::space::Space;

/// How many runs go on at once while the store is filled.
const WIDTH: usize = 64;

/// As many as the store holds that the goal was set for.
const NODES: usize = 20;

/// Measures the row of sweeping.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let id = "postgres/sweep";
    if !table.wants(id) {
        return Ok(());
    }
    let space = Space::make(server).await?;
    let runtime = super::runtime(&space).await?;
    let graph = graphs::notes(NODES, 100)?;
    let waves = table.args.scaled(100, 3);
    for _ in 0..waves {
        super::runs::all(&runtime, &graph, WIDTH).await?;
    }
    let runs = waves * WIDTH;
    let mut connection = space.postgres().await?;
    // As it is after a while on any server.
    connection.execute(AssertSqlSafe(format!("VACUUM ANALYZE {}.records", space.name()))).await?;
    let sql =
        format!("SELECT run, count(*), sum(octet_length(body)) FROM {}.records GROUP BY run", space.name());
    let policy = RetentionPolicy::keep_all().keep_last(1);
    let ours = async || {
        let (mut limits, mut pruned) = (SweepLimits::default(), 0);
        loop {
            let report = runtime.sweep(&policy, limits, true).await?;
            pruned += report.pruned;
            let Some(next) = report.next else { break };
            limits = SweepLimits::default().with_cursor(next);
        }
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
    let workload = format!("dry sweep that keeps 1 of {NODES} records of {runs} ended runs, postgres");
    // 5,000 runs a second.
    table.push(Row::pair(id, workload, "one query over all records", "µs/run", pair, Goal::Each(200.0)));
    space.remove().await
}

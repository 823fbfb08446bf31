//! Measures the first page of a long history on Postgres, in turn with one query of the index. Also measures the listing of the newest of many runs
//! on the stores of one machine.

use anyhow::{Result, ensure};
use ferrata::store::Page;
use sqlx::{AssertSqlSafe, Executor as _};

use super::Table;
use crate::graphs::{self, Small};
use crate::measure::{Rounds, Spread, in_turn, micros, now};
use crate::row::{Goal, Row};
use crate::space::{Kind, Space};

/// Number of calls that are timed together, because a single call is too short.
const CALLS: usize = 20;

const PAGE: u32 = 50;

/// Number of runs that are started concurrently.
const WIDTH: usize = 64;

/// Measures the row of listing records.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let id = "postgres/list";
    if !table.wants(id) {
        return Ok(());
    }
    let space = Space::make(server).await?;
    let runtime = super::runtime(&space).await?;
    let steps = table.args.scaled(10_000, 1_000);
    let run = runtime.start(&graphs::notes(steps, 100)?, Small::default()).await?;
    run.wait().await?;
    let mut connection = space.postgres().await?;
    // Vacuum the table. On any server this happens after a while.
    connection.execute(AssertSqlSafe(format!("VACUUM ANALYZE {}.records", space.name()))).await?;
    let sql = format!(
        "SELECT c.* FROM (SELECT seq, at, wake_at, id, prev, owner, epoch, visit, crc, format, kind, status, base, node, \
         octet_length(body) FROM {name}.records \
         WHERE run = (SELECT key FROM {name}.runs WHERE tenant = $1 AND run = $2) ORDER BY seq DESC LIMIT {PAGE}) c",
        name = space.name()
    );
    let (tenant, name) = (run.run().tenant.to_string(), run.run().run.to_string());
    let ours = async || {
        for _ in 0..CALLS {
            let page = runtime.history(run.run(), Page::first(PAGE)).await?;
            ensure!(page.items.len() == PAGE as usize, "the page is not full");
        }
        Ok(())
    };
    let theirs = async || {
        for _ in 0..CALLS {
            let query = sqlx::query(AssertSqlSafe(sql.as_str())).bind(&tenant).bind(&name);
            let rows = connection.fetch_all(query).await?;
            ensure!(rows.len() == PAGE as usize, "the page is not full");
        }
        Ok(())
    };
    let rounds = table.args.scaled(15, 3);
    let pair = in_turn(Rounds::warm(rounds), [CALLS as f64; 2], ours, theirs).await?;
    let workload = format!("first page of {PAGE} of {steps} checkpoints, postgres");
    table.push(Row::pair(id, workload, "one indexed query", "µs/page", pair, Goal::Times(2.0)));
    space.remove().await
}

/// Measures the row of listing runs.
pub(crate) async fn runs(table: &mut Table, server: &str) -> Result<()> {
    let (kind, id) = (Kind::of(server)?, format!("{}/list-runs", Kind::of(server)?.name()));
    if !table.wants(&id) {
        return Ok(());
    }
    let space = Space::make(server).await?;
    let runtime = super::runtime(&space).await?;
    let graph = graphs::notes(1, 100)?;
    let waves = table.args.scaled(320, 3);
    for _ in 0..waves {
        super::runs::all(&runtime, &graph, WIDTH).await?;
    }
    let mut taken = Vec::new();
    for _ in 0..table.args.scaled(15, 3) {
        let begun = now();
        let page = runtime.runs().limit(PAGE).await?;
        taken.push(micros(begun.elapsed()));
        ensure!(page.items.len() == PAGE as usize, "the page is not full");
    }
    let workload = format!("newest {PAGE} of {} runs, {}", waves * WIDTH, kind.name());
    table.push(Row::alone(id, workload, "µs/page", Spread::of(taken), Goal::None));
    space.remove().await
}

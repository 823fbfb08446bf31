//! The first page of a long history on Postgres, beside one query of the index.

use anyhow::{Result, ensure};
use ferrata::store::Page;
use sqlx::{AssertSqlSafe, Executor as _};

use super::Table;
use crate::graphs::{self, Small};
use crate::measure::{Rounds, in_turn};
use crate::row::{Goal, Row};
use crate::space::Space;

/// How many calls are timed as one: a single one is too short.
const CALLS: usize = 20;

const PAGE: u32 = 50;

/// Measures the row of listing.
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
    // As it is after a while on any server.
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

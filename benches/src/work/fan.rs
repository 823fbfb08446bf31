//! Measures a fan-out and its join on Postgres, in turn with rows that are inserted in batches.

use anyhow::{Result, ensure};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use super::Table;
use crate::bare;
use crate::graphs::{self, Small};
use crate::measure::{Rounds, in_turn};
use crate::row::{Goal, Row};
use crate::space::Space;

/// Number of rows that the reference inserts with one statement.
const BATCH: usize = 1_000;

/// Measures the rows of a fan-out.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let mut medians = Vec::new();
    for width in [1_000, 10_000] {
        let id = format!("postgres/fan-out-{width}");
        if !table.wants(&id) || (table.args.quick && width > 1_000) {
            continue;
        }
        let space = Space::make(server).await?;
        let runtime = super::runtime(&space).await?;
        let graph = graphs::fan_out(width)?;
        let probe = runtime.start(&graph, Small::default()).await?;
        probe.wait().await?;
        let body = super::body_bytes(&runtime, probe.run()).await?;
        let name = bare::table(&space).await?;
        let mut connection = space.postgres().await?;
        let ours = async || {
            let ended = graphs::run(&runtime, &graph, Small::default()).await?;
            ensure!(ended.count == width as u64, "the join missed some");
            Ok(())
        };
        let mut run = 0;
        let theirs = async || {
            run += 1;
            insert(&mut connection, &name, run, width + 2, body).await
        };
        let rounds = table.args.scaled(if width > 1_000 { 5 } else { 9 }, 2);
        let pair = in_turn(Rounds::warm(rounds), [width as f64; 2], ours, theirs).await?;
        medians.push(pair.ours.median);
        let workload = format!("1 to {width} fan-out and join, postgres");
        let reference = format!("as many rows inserted in batches of {BATCH}");
        let mut row = Row::pair(id, workload, reference, "µs/item", pair, Goal::Times(3.0));
        if let [thousand, ten_thousand] = medians[..] {
            let growth = ten_thousand / thousand;
            row = row.also(
                format!("{growth:.2} times the cost per item of 1,000; linear within 1.2"),
                growth <= 1.2,
            );
        }
        table.push(row.note(format!("a record's body has {body} bytes")));
        space.remove().await?;
    }
    Ok(())
}

async fn insert(
    connection: &mut PgConnection,
    table: &str,
    run: i64,
    rows: usize,
    body: usize,
) -> Result<()> {
    let sql =
        format!("INSERT INTO {table} (run, seq, body) SELECT $1, * FROM unnest($2::int8[], $3::bytea[])");
    let mut seq = 0;
    let mut left = rows;
    while left > 0 {
        let batch = left.min(BATCH);
        left -= batch;
        let numbers: Vec<i64> = (0..batch)
            .map(|_| {
                seq += 1;
                seq
            })
            .collect();
        let bodies = vec![vec![b'x'; body]; batch];
        connection
            .execute(sqlx::query(AssertSqlSafe(sql.as_str())).bind(run).bind(numbers).bind(bodies))
            .await?;
    }
    Ok(())
}

//! Measures the memory of a run. Another process does this, because it counts each allocation.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::Table;
use crate::measure::Spread;
use crate::row::{Goal, Row};
use crate::space::Space;

/// Each figure of that program: name, description, and the allowed number of bytes.
const ROWS: [(&str, &str, Goal); 4] = [
    ("waiting", "each of 10,000 waiting runs, handles kept", Goal::Each(2_000.0)),
    // One percent of a run, because maps do not release their reserve at once.
    ("released", "the same, handles dropped", Goal::Each(20.0)),
    ("in-progress", "each of 10,000 runs in progress, all at the same node", Goal::None),
    ("peak", "the same, at the worst moment since the first was started", Goal::Each(6_000.0)),
];

/// Measures the rows of memory.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    if !ROWS.iter().any(|(name, ..)| table.wants(&format!("memory/{name}"))) {
        return Ok(());
    }
    let space = Space::make(server).await?;
    let program = std::env::current_exe()?.with_file_name("bench-memory");
    let runs = table.args.scaled(10_000, 1_000);
    let mut command = Command::new(&program);
    // The URL may contain a password, so it is not on the command line.
    command.arg(runs.to_string()).env("FERRATA_BENCH_STORES", space.url());
    let task = tokio::task::spawn_blocking(move || command.output());
    let output = task
        .await?
        .with_context(|| format!("cannot start {}; `cargo xtask bench` builds it", program.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "measuring memory failed ({}): {errors}", output.status);
    let figures: BTreeMap<String, f64> = serde_json::from_slice(&output.stdout)?;
    for (name, workload, goal) in ROWS {
        let figure = *figures.get(name).with_context(|| format!("no figure for {name}"))?;
        let row = Row::alone(format!("memory/{name}"), workload, "bytes/run", Spread::one(figure), goal);
        table.push(row);
    }
    space.remove().await
}

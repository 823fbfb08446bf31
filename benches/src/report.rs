//! Writes the figures to files: JSON for programs, and the table as Markdown.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::machine;
use crate::measure::Spread;
use crate::row::{Row, figure};
use crate::work::Table;

#[derive(Serialize)]
struct Report<'a> {
    machine: String,
    quick: bool,
    rows: &'a [Row],
}

/// Writes the requested files.
pub(crate) fn write(table: &Table) -> Result<()> {
    if let Some(path) = &table.args.json {
        let report = Report { machine: machine::in_words(), quick: table.args.quick, rows: &table.rows };
        save(path, &serde_json::to_string_pretty(&report)?)?;
    }
    if let Some(path) = &table.args.markdown {
        save(path, &markdown(&table.rows)?)?;
    }
    Ok(())
}

fn save(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn markdown(rows: &[Row]) -> Result<String> {
    let mut text = String::from(
        "| row | workload | measured | reference | ratio | goal | met |\n|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let theirs = row.theirs.map(|theirs| format!("{}: {} {}", row.reference, range(theirs), row.unit));
        let ratio = row.ratio.map(range);
        let met = match row.met {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        };
        let notes: String = row.notes.iter().map(|note| format!("; {note}")).collect();
        writeln!(
            text,
            "| `{}` | {}{notes} | {} {} | {} | {} | {} | {met} |",
            row.id,
            row.workload,
            range(row.ours),
            row.unit,
            theirs.unwrap_or_default(),
            ratio.unwrap_or_default(),
            row.goal_in_words(),
        )?;
    }
    Ok(text)
}

/// Formats a median with its range.
fn range(spread: Spread) -> String {
    if spread.min == spread.max {
        return figure(spread.median);
    }
    format!("{} ({} to {})", figure(spread.median), figure(spread.min), figure(spread.max))
}

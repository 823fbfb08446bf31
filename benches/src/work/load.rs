//! Measures the read of the latest checkpoint of a long run with a large state, in turn with reading and parsing the same bytes.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use ferrata::Position;
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use super::Table;
use crate::graphs::{self, Small};
use crate::measure::{Rounds, in_turn};
use crate::row::{Goal, Row};
use crate::space::{Kind, Space};

const MIB: usize = 1024 * 1024;

/// Measures the rows of loading: a state that grew to 1 MiB, and a state of a constant MiB.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let steps = table.args.scaled(10_000, 1_000);
    for (name, payload, blob, in_words) in [
        ("load", MIB / steps, 0, "that grew to 1 MiB"),
        ("load-1-mib", 0, MIB, "of a constant MiB and a counter"),
    ] {
        let id = format!("{}/{name}", Kind::of(server)?.name());
        if !table.wants(&id) {
            continue;
        }
        let space = Space::make(server).await?;
        let runtime = super::runtime(&space).await?;
        let graph = graphs::notes(steps, payload)?;
        let run = runtime.start(&graph, Small::with_blob(blob)).await?;
        run.wait().await?;
        let mut bare = Reading::of(&space).await?;
        let loaded = async || {
            let state = runtime.state_at(&graph, run.run(), Position::Latest).await?;
            ensure!(state.count == steps as u64, "the state is not the latest");
            Ok(())
        };
        let rounds = table.args.scaled(9, 2);
        let (bytes, records) = bare.once().await?;
        let pair =
            in_turn(Rounds::warm(rounds), [1_000.0; 2], loaded, async || bare.once().await.map(drop)).await?;
        let workload = format!("load the latest of {steps} steps, state {in_words}, {}", space.kind.name());
        let reference = "reading the same records and parsing each as JSON";
        let row = Row::pair(id, workload, reference, "ms", pair, Goal::Times(2.0));
        table.push(row.note(format!("{records} records of {bytes} bytes in all, from the newest base on")));
        space.remove().await?;
    }
    Ok(())
}

/// What the reference reads, and how.
#[derive(Debug)]
enum Reading {
    /// The rows from the newest base on, with one query.
    Rows(PgConnection, String),
    /// The lines of one file from the newest base on.
    Lines(PathBuf, u64),
}

impl Reading {
    /// Finds the only run in a space.
    async fn of(space: &Space) -> Result<Self> {
        if space.kind == Kind::Postgres {
            let name = space.name();
            let sql = format!(
                "SELECT body FROM {name}.records WHERE seq >= (SELECT max(seq) FROM {name}.records WHERE base) ORDER BY seq"
            );
            return Ok(Self::Rows(space.postgres().await?, sql));
        }
        let log = largest(&space.folder()?.join("store"))?.context("no file")?;
        let (mut at, mut base) = (0, 0);
        let mut lines = BufReader::new(File::open(&log)?);
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 {
            if line.contains("\"base\":true") {
                base = at;
            }
            at += line.len() as u64;
            line.clear();
        }
        Ok(Self::Lines(log, base))
    }

    /// Reads and parses the data once. Returns the number of bytes and of records.
    async fn once(&mut self) -> Result<(usize, usize)> {
        let mut size = (0, 0);
        let mut parse = |text: &[u8]| -> Result<()> {
            size.0 += text.len();
            size.1 += 1;
            std::hint::black_box(serde_json::from_slice::<Value>(text)?);
            Ok(())
        };
        match self {
            Self::Rows(connection, sql) => {
                let rows = sqlx::query(AssertSqlSafe(sql.as_str())).fetch_all(connection).await?;
                for row in rows {
                    parse(row.try_get::<&[u8], _>(0)?)?;
                }
            }
            Self::Lines(log, base) => {
                let mut file = File::open(log)?;
                file.seek(SeekFrom::Start(*base))?;
                let mut text = Vec::new();
                file.read_to_end(&mut text)?;
                for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    parse(line)?;
                }
            }
        }
        Ok(size)
    }
}

/// Finds the largest file in a folder.
fn largest(folder: &Path) -> Result<Option<PathBuf>> {
    let mut found: Option<(u64, PathBuf)> = None;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let size = entry.metadata()?.len();
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if found.as_ref().is_none_or(|(most, _)| size > *most) {
                found = Some((size, entry.path()));
            }
        }
    }
    Ok(found.map(|(_, path)| path))
}

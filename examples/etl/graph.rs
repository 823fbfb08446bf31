//! The graphs of a load. The file is cut into parts. For each part, a separate run extracts, transforms and loads it, in any process with capacity.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::{Clock, SystemClock};
use serde::{Deserialize, Serialize};

/// Number of lines in a part.
pub(crate) const LINES: usize = 100;

/// A part of a file: a range of bytes that contains whole lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// The state of a run that loads a part.
#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
pub(crate) struct Part {
    pub(crate) file: String,
    pub(crate) piece: Piece,
    pub(crate) rows: u64,
    /// The number of lines that are not sales.
    pub(crate) refused: u64,
    pub(crate) cents: u64,
}

/// The state of the parent run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
pub(crate) struct Load {
    pub(crate) file: String,
    pub(crate) pieces: Vec<Piece>,
    #[state(sum)]
    pub(crate) rows: u64,
    #[state(sum)]
    pub(crate) refused: u64,
    #[state(sum)]
    pub(crate) cents: u64,
}

/// The amounts that were sold, by shop.
type Table = BTreeMap<String, u64>;

/// The destination of loaded parts. The destination is a folder with a file for each part, and stands for a table with a unique key.
#[derive(Debug)]
pub(crate) struct Warehouse {
    pub(crate) folder: PathBuf,
    /// The duration of loading a part.
    pub(crate) pace: Duration,
    /// Whether to print messages for people.
    pub(crate) is_told: bool,
}

impl Warehouse {
    /// Loads a part as an upsert: the same key replaces the existing part. So a part that is loaded twice is there once.
    async fn put(&self, key: &str, table: &Table) -> io::Result<()> {
        if !self.pace.is_zero() {
            SystemClock::new().sleep(self.pace).await;
        }
        std::fs::create_dir_all(&self.folder)?;
        let (name, process) = (key.replace(['/', ':'], "-"), std::process::id());
        let beside = self.folder.join(format!("{name}.{process}"));
        std::fs::write(&beside, serde_json::json!({ "by": process, "table": table }).to_string())?;
        std::fs::rename(beside, self.folder.join(format!("{name}.json")))?;
        if self.is_told {
            #[expect(clippy::print_stdout, reason = "whoever runs the example sees which process does what")]
            {
                println!("process {process}: loads {key}");
            }
        }
        Ok(())
    }
}

/// Reads a part of a file.
fn extract(file: &str, piece: &Piece) -> io::Result<String> {
    let mut file = std::fs::File::open(file)?;
    file.seek(SeekFrom::Start(piece.begin))?;
    let mut text = String::new();
    file.take(piece.end.saturating_sub(piece.begin)).read_to_string(&mut text)?;
    Ok(text)
}

/// Parses a line `DAY,SHOP,CENTS`; `None` if the line is not a sale.
fn sale(line: &str) -> Option<(&str, u64)> {
    let mut fields = line.split(',');
    let (_day, shop, cents) = (fields.next()?, fields.next()?, fields.next()?.trim().parse().ok()?);
    (fields.next().is_none() && !shop.is_empty()).then_some((shop, cents))
}

/// Cuts a file into parts of a fixed number of lines.
fn cut(text: &str) -> Vec<Piece> {
    let (mut pieces, mut end) = (Vec::new(), 0);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for some in lines.chunks(LINES) {
        let begin = end;
        end += some.iter().map(|line| line.len() as u64).sum::<u64>();
        pieces.push(Piece { begin, end });
    }
    pieces
}

/// Creates the graph that loads a part.
pub(crate) fn part() -> Result<Graph<Part>, GraphError> {
    Graph::<Part>::builder("part")
        .node("extract", async |_cx, s| {
            // The rows are sent along the edge, because no later node needs them.
            let text = extract(&s.file, &s.piece)?;
            Ok(Part::update().with_output(text))
        })
        .effect(Effect::Read)
        .retry(RetryPolicy::standard())
        .node("transform", async |cx, _s| {
            let [input] = cx.inputs() else { return Err("a part has one text".into()) };
            let (text, mut table, mut rows, mut refused) = (input.output::<String>()?, Table::new(), 0, 0);
            for line in text.lines() {
                match sale(line) {
                    Some((shop, cents)) => {
                        *table.entry(shop.to_owned()).or_default() += cents;
                        rows += 1;
                    }
                    None => refused += 1,
                }
            }
            let cents = table.values().sum::<u64>();
            Ok(Part::update().rows(rows).refused(refused).cents(cents).with_output(table))
        })
        .effect(Effect::Pure)
        .node("load", async |cx, _s| {
            let [input] = cx.inputs() else { return Err("a part has one table".into()) };
            let table = input.output::<Table>()?;
            cx.resource::<Warehouse>().put(&cx.idempotency_key(), &table).await?;
            Ok(())
        })
        .retry(RetryPolicy::patient())
        .entry("extract")
        .edge("extract", "transform")
        .edge("transform", "load")
        .build()
}

/// Creates the graph of the parent run, with a child run for each part.
pub(crate) fn load(part: &Graph<Part>) -> Result<Graph<Load>, GraphError> {
    Graph::<Load>::builder("load")
        .node("split", async |_cx, mut s| {
            s.pieces = cut(&std::fs::read_to_string(&s.file)?);
            Ok(s)
        })
        .effect(Effect::Read)
        .child(
            "part",
            part,
            |s: &Load, cx| Ok(Part { file: s.file.clone(), piece: cx.item()?, ..Part::default() }),
            |s: &mut Load, part: Part| {
                s.rows += part.rows;
                s.refused += part.refused;
                s.cents += part.cents;
            },
        )
        .entry("split")
        .route("split", ["part"], |s: &Load, _| Route::each("part", &s.pieces))
        .build()
}

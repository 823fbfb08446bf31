//! Counts the words of a directory: one child run for each file, a few at a time, and one table of the counts.
//!
//! ```text
//! cargo run --example map_reduce -- [DIR] [--id ID] [--store URL]
//! ```
//!
//! Kill it at any moment, even with `kill -9`, and start it again: it does not read counted files again.
#![expect(clippy::print_stdout, reason = "the table is what the program is for")]
#![expect(clippy::print_stderr, reason = "errors of a command go there")]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::{RunId, RunKey};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use walkdir::WalkDir;

const USAGE: &str = "\
usage: map_reduce [DIR] [--id ID] [--store URL]

  DIR          whose .rs, .md and .txt files are counted (default: docs)
  --id ID      the run; the same command continues it (default: words)
  --store URL  where runs are kept (default: file:.ferrata-words)";

/// Maximum number of files that are counted concurrently.
const AT_ONCE: u32 = 8;

/// Number of words in the table.
const ROWS: usize = 10;

/// A file: the state of a child run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct File {
    path: String,
    words: BTreeMap<String, u64>,
}

/// The directory: the state of the parent run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
struct Words {
    dir: String,
    files: Vec<String>,
    /// The counts by file, in the order in which the children ended.
    #[state(append)]
    counted: Vec<File>,
    total: u64,
    table: Vec<(String, u64)>,
}

/// Maps a file to its words.
fn file() -> Result<Graph<File>, GraphError> {
    Graph::<File>::builder("file")
        .node("read", async |_cx, mut file| {
            let path = file.path.clone();
            let text = spawn_blocking(move || std::fs::read_to_string(path)).await??;
            println!("process {}: reads {}", std::process::id(), file.path);
            for word in text.split(|c: char| !c.is_alphabetic()).filter(|word| word.len() > 3) {
                *file.words.entry(word.to_lowercase()).or_default() += 1;
            }
            Ok(file)
        })
        .effect(Effect::Read)
        .entry("read")
        .build()
}

fn words(file: &Graph<File>) -> Result<Graph<Words>, GraphError> {
    Graph::<Words>::builder("words")
        .node("list", async |_cx, mut words| {
            words.files = list(Path::new(&words.dir))?;
            Ok(words)
        })
        .effect(Effect::Read)
        .child(
            "count",
            file,
            |_words: &Words, cx| Ok(File { path: cx.item()?, ..File::default() }),
            |words: &mut Words, file: File| words.counted.push(file),
        )
        .max_running(AT_ONCE)
        .node("sum", async |_cx, mut words| {
            let mut all: BTreeMap<String, u64> = BTreeMap::new();
            for (word, count) in words.counted.iter().flat_map(|file| &file.words) {
                *all.entry(word.clone()).or_default() += count;
            }
            words.total = all.values().sum();
            let mut table: Vec<_> = all.into_iter().collect();
            table.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            table.truncate(ROWS);
            words.table = table;
            Ok(words)
        })
        .entry("list")
        .route("list", ["count", "sum"], |words: &Words, _| match words.files.len() {
            0 => Route::to("sum"),
            _ => Route::each("count", &words.files),
        })
        .edge("count", "sum")
        .build()
}

/// Lists the text files of a directory, by extension, in order.
fn list(dir: &Path) -> Result<Vec<String>, NodeError> {
    let mut files = Vec::new();
    for entry in WalkDir::new(dir).sort_by_file_name() {
        let entry = entry.fatal()?;
        let is_text = entry.path().extension().is_some_and(|ext| ext == "rs" || ext == "md" || ext == "txt");
        if entry.file_type().is_file() && is_text {
            let path = entry.path().to_str().ok_or_else(|| NodeError::new("a path is no text").fatal())?;
            files.push(path.to_owned());
        }
    }
    Ok(files)
}

#[derive(Debug)]
struct Args {
    dir: String,
    id: String,
    store: String,
}

/// Reads the arguments; `None` if they ask for help.
fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let (mut dir, mut id, mut store) = (None, None, None);
    while let Some(arg) = args.next() {
        let (place, value) = match arg.as_str() {
            "-h" | "--help" => return Ok(None),
            "--id" => (&mut id, args.next().ok_or("`--id` needs a value")?),
            "--store" => (&mut store, args.next().ok_or("`--store` needs a value")?),
            option if option.starts_with('-') => return Err(format!("there is no option `{option}`")),
            _ => (&mut dir, arg),
        };
        if let Some(before) = place.replace(value) {
            return Err(format!("`{before}` is one too many"));
        }
    }
    let or = |given: Option<String>, usual: &str| given.unwrap_or_else(|| usual.into());
    Ok(Some(Args { dir: or(dir, "docs"), id: or(id, "words"), store: or(store, "file:.ferrata-words") }))
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = match ferrata_examples::arguments(USAGE, parse) {
        Ok(args) => args,
        Err(exit) => return exit,
    };
    match Box::pin(count(&args)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn count(args: &Args) -> Result<(), Box<dyn Error>> {
    let key = RunKey::from(RunId::new(&args.id)?);
    let runtime = Runtime::builder_with(ferrata_examples::open(&args.store)?).build().await?;
    let file = file()?;
    let words = words(&file)?;
    ferrata_examples::free(&runtime, &key).await?;
    // A process that serves the workflow claims the children of a killed process.
    runtime.serve(&file)?;
    runtime.serve(&words)?;
    let input = Words { dir: args.dir.clone(), ..Words::default() };
    let counted = runtime.start(&words, input).id(&args.id).await?.completed().await?;
    println!("{} words of more than three letters in {} files", counted.total, counted.files.len());
    for (word, count) in &counted.table {
        println!("{count:>8}  {word}");
    }
    runtime.shutdown(Duration::ZERO).await?;
    Ok(())
}

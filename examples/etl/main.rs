//! Loads a file of sales in parts that several processes share: extract, transform, load.
//!
//! ```text
//! cargo run --example etl -- --work
//! cargo run --example etl -- [FILE] [--id ID] [--store URL] [--into FOLDER]
//! ```
//!
//! Start the first command in several terminals, and the second once. Kill any of them, even with `kill -9`: each part is loaded once,
//! and live processes load the rest.
#![expect(clippy::print_stdout, reason = "the sum is what the program is for")]
#![expect(clippy::print_stderr, reason = "errors of a command go there")]

mod graph;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::runtime::RunLimits;
use ferrata::{RunId, RunKey};

use self::graph::{Load, Warehouse, load, part};

const USAGE: &str = "\
usage: etl [FILE] [--id ID] [--store URL] [--into FOLDER] [--pace MS]
       etl --work [--store URL] [--into FOLDER] [--pace MS]

  FILE           lines of DAY,SHOP,CENTS (default: a sample, .ferrata-etl.csv, which is made)
  --work         work on the parts of all loads until Ctrl-C
  --id ID        the run; the same command continues it (default: sales)
  --store URL    where runs are kept (default: file:.ferrata-etl)
  --into FOLDER  where parts are loaded to (default: .ferrata-etl-loaded)
  --pace MS      how long it takes to load one (default: 200)";

/// Maximum number of parts per process. The others wait in the store for a process with capacity.
const AT_ONCE: usize = 2;

#[derive(Debug)]
struct Args {
    file: Option<String>,
    work: bool,
    id: String,
    store: String,
    into: String,
    pace: Duration,
}

/// Reads the arguments; `None` if they ask for help.
fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let (mut file, mut id, mut store, mut into, mut pace) = (None, None, None, None, None);
    let mut work = false;
    while let Some(arg) = args.next() {
        let place = match arg.as_str() {
            "-h" | "--help" => return Ok(None),
            "--work" => {
                work = true;
                continue;
            }
            "--id" => &mut id,
            "--store" => &mut store,
            "--into" => &mut into,
            "--pace" => &mut pace,
            option if option.starts_with('-') => return Err(format!("there is no option `{option}`")),
            _ => {
                if let Some(before) = file.replace(arg) {
                    return Err(format!("`{before}` is one too many"));
                }
                continue;
            }
        };
        let value = args.next().ok_or_else(|| format!("`{arg}` needs a value"))?;
        if place.replace(value).is_some() {
            return Err(format!("`{arg}` was given twice"));
        }
    }
    if work && (file.is_some() || id.is_some()) {
        return Err("`--work` works on all loads: it takes neither a file nor an id".into());
    }
    let pace = pace.map_or(Ok(200), |ms: String| ms.parse().map_err(|_| format!("`{ms}` is no number")))?;
    let or = |given: Option<String>, usual: &str| given.unwrap_or_else(|| usual.into());
    Ok(Some(Args {
        file,
        work,
        id: or(id, "sales"),
        store: or(store, "file:.ferrata-etl"),
        into: or(into, ".ferrata-etl-loaded"),
        pace: Duration::from_millis(pace),
    }))
}

/// Writes a file of sales, if it does not exist, and returns its name.
fn sample() -> std::io::Result<String> {
    let file = Path::new(".ferrata-etl.csv");
    if !file.exists() {
        let line = |n: usize| {
            let shop = ["Rome", "Oslo", "Bern"][n % 3];
            format!("2026-11-{:02},{shop},{}\n", n % 30 + 1, n * 7 % 1_000)
        };
        // Write to another name first, so that a kill leaves no partial file.
        let beside = format!("{}.{}", file.display(), std::process::id());
        std::fs::write(&beside, (0..4_000).map(line).collect::<String>())?;
        std::fs::rename(beside, file)?;
    }
    Ok(file.display().to_string())
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = match ferrata_examples::arguments(USAGE, parse) {
        Ok(args) => args,
        Err(exit) => return exit,
    };
    match Box::pin(run(args)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::builder_with(ferrata_examples::open(&args.store)?)
        .run_limits(RunLimits::new().with_runs_of("part", AT_ONCE))
        .resource(Warehouse { folder: args.into.into(), pace: args.pace, is_told: true })
        .build()
        .await?;
    let part = part()?;
    let load = load(&part)?;
    // Each process claims parts that no process drives, and loads whose process has died.
    runtime.serve(&part)?;
    runtime.serve(&load)?;
    if args.work {
        println!("process {}: works", std::process::id());
        tokio::signal::ctrl_c().await?;
        runtime.drain().await?;
    } else {
        let file = match args.file {
            Some(file) => file,
            None => sample()?,
        };
        ferrata_examples::free(&runtime, &RunKey::from(RunId::new(&args.id)?)).await?;
        let input = Load { file, ..Load::default() };
        let done = runtime.start(&load, input).id(&args.id).await?.completed().await?;
        println!(
            "{} rows in {} parts, {} cents; lines without a sale: {}",
            done.rows,
            done.pieces.len(),
            done.cents,
            done.refused
        );
    }
    runtime.shutdown(Duration::from_secs(1)).await?;
    Ok(())
}

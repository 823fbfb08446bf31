//! Moves money in a process that is killed many times: each transfer happens once, and the sum stays right.
//!
//! ```text
//! cargo run --features transfer --example transfer
//! cargo run --features transfer --example transfer -- --kills 20 --store postgres://me@localhost/bank
//! ```
//!
//! The program starts itself as a worker, kills the worker with `kill -9` at random moments, and starts the next worker. If you kill the program, the
//! same command continues. A worker prints `begins` when a transfer has debited one account and not yet credited the other, so some transfers print
//! it twice. The rows of a transfer and its record are one commit. A kill before the commit undoes the rows. A committed transfer never runs again.
#![expect(clippy::print_stdout, reason = "what is moved is what the program is for")]
#![expect(clippy::print_stderr, reason = "errors of a command go there")]

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::{Clock, ErrorKind, Postgres, RunId, RunKey, Sqlite, SystemClock};
use serde::{Deserialize, Serialize};

const USAGE: &str = "\
usage: transfer [--transfers N] [--kills N] [--id ID] [--store URL]

  --transfers N  how many transfers to make (default: 40)
  --kills N      how often the process that makes them is killed (default: 5)
  --id ID        the run; the same command continues it, another one starts a new run (default: transfers)
  --store URL    the database of the accounts and of the run, sqlite:FILE or postgres://... (default: sqlite:.ferrata-transfer.db)";

/// Sum of the 5 accounts, with 100 each.
const SUM: i64 = 500;

/// Time between debit and credit, so that a person sees it and a kill can hit it.
const PACE: Duration = Duration::from_millis(40);

/// Lifetime of a heartbeat. The lifetime is short, because a person who kills the program must wait for its end.
const DEAD_AFTER: Duration = Duration::from_secs(5);

const OPEN: &str = "
    DROP TABLE IF EXISTS example_accounts;
    DROP TABLE IF EXISTS example_transfers;
    CREATE TABLE example_accounts (name text PRIMARY KEY, balance bigint NOT NULL);
    CREATE TABLE example_transfers (number bigint NOT NULL);
    INSERT INTO example_accounts VALUES ('ann', 100), ('ben', 100), ('cleo', 100), ('dan', 100), ('eve', 100)";
const TAKE: &str = "UPDATE example_accounts SET balance = balance - $1 WHERE name = $2";
const GIVE: &str = "UPDATE example_accounts SET balance = balance + $1 WHERE name = $2";
const NOTE: &str = "INSERT INTO example_transfers VALUES ($1)";
const BALANCES: &str = "SELECT name, balance FROM example_accounts ORDER BY name";
const NOTED: &str = "SELECT count(*), count(DISTINCT number) FROM example_transfers";

const NAMES: [&str; 5] = ["ann", "ben", "cleo", "dan", "eve"];

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Day {
    wanted: u32,
    /// Number of transfers. Each is in its record and in a row.
    done: u32,
    balances: Vec<(String, i64)>,
    /// Number of rows, and number of transfers in them.
    noted: (i64, i64),
}

impl Day {
    /// Returns the next node.
    fn then(&self) -> &'static str {
        if self.done < self.wanted { "transfer" } else { "count" }
    }

    /// Returns source, target and amount of the next transfer.
    fn next(&self) -> (&'static str, &'static str, i64) {
        let number = self.done as usize;
        let (from, to) = (number % 5, (number + 1 + number / 5 % 4) % 5);
        (NAMES[from], NAMES[to], 1 + i64::from(self.done) * 7 % 20)
    }
}

/// Defines the nodes for one kind of database. Only the type of the sqlx connection differs.
macro_rules! nodes {
    ($module:ident, $database:ty) => {
        mod $module {
            use super::*;

            pub(super) async fn open(cx: NodeContext, s: Draft<Day>) -> NodeResult<Day> {
                let mut tx = cx.transaction::<$database>().await?;
                sqlx::raw_sql(OPEN).execute(&mut *tx).await?;
                s.commit_with(tx)
            }

            pub(super) async fn transfer(cx: NodeContext, mut s: Draft<Day>) -> NodeResult<Day> {
                let (from, to, amount) = s.next();
                let mut tx = cx.transaction::<$database>().await?;
                sqlx::query(TAKE).bind(amount).bind(from).execute(&mut *tx).await?;
                s.done += 1;
                println!(
                    "process {}: transfer {} begins: {amount} from {from} to {to}",
                    std::process::id(),
                    s.done
                );
                SystemClock::new().sleep(PACE).await;
                sqlx::query(GIVE).bind(amount).bind(to).execute(&mut *tx).await?;
                sqlx::query(NOTE).bind(i64::from(s.done)).execute(&mut *tx).await?;
                // The rows, the count in the state, and the record of this node are one commit.
                s.commit_with(tx)
            }

            pub(super) async fn count(cx: NodeContext, mut s: Draft<Day>) -> NodeResult<Day> {
                let mut tx = cx.transaction::<$database>().await?;
                s.balances = sqlx::query_as(BALANCES).fetch_all(&mut *tx).await?;
                s.noted = sqlx::query_as(NOTED).fetch_one(&mut *tx).await?;
                s.commit_with(tx)
            }
        }
    };
}

nodes!(postgres, Postgres);
nodes!(sqlite, Sqlite);

fn graph(url: &str) -> Result<Graph<Day>, GraphError> {
    let builder = Graph::<Day>::builder("transfers");
    let builder = match url.starts_with("sqlite:") {
        true => builder
            .node("open", sqlite::open)
            .effect(Effect::Transactional)
            .node("transfer", sqlite::transfer)
            .effect(Effect::Transactional)
            .node("count", sqlite::count)
            .effect(Effect::Transactional),
        false => builder
            .node("open", postgres::open)
            .effect(Effect::Transactional)
            .node("transfer", postgres::transfer)
            .effect(Effect::Transactional)
            .node("count", postgres::count)
            .effect(Effect::Transactional),
    };
    builder
        .entry("open")
        .route("open", ["transfer", "count"], |s: &Day, _| s.then())
        .route("transfer", ["transfer", "count"], |s: &Day, _| s.then())
        .build()
}

#[derive(Clone, Debug)]
struct Args {
    transfers: u32,
    kills: u32,
    id: String,
    store: String,
    /// The argument of a worker: `first`, or `next` after a kill.
    worker: Option<String>,
}

/// Reads the arguments; `None` if they ask for help.
fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let (id, store) = ("transfers".to_owned(), "sqlite:.ferrata-transfer.db".to_owned());
    let mut all = Args { transfers: 40, kills: 5, id, store, worker: None };
    let number = |text: String| text.parse().map_err(|_| format!("`{text}` is no number"));
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("`{arg}` needs a value"));
        match arg.as_str() {
            "-h" | "--help" => return Ok(None),
            "--transfers" => all.transfers = number(value()?)?,
            "--kills" => all.kills = number(value()?)?,
            "--id" => all.id = value()?,
            "--store" => all.store = value()?,
            "--worker" => all.worker = Some(value()?),
            other => return Err(format!("there is no option `{other}`")),
        }
    }
    Ok(Some(all))
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = match ferrata_examples::arguments(USAGE, parse) {
        Ok(args) => args,
        Err(exit) => return exit,
    };
    let ended = match args.worker.as_deref() {
        Some(which) => Box::pin(work(&args, which == "next")).await,
        None => Box::pin(watch(&args)).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts workers and kills all but the last.
async fn watch(args: &Args) -> Result<(), Box<dyn Error>> {
    // Open it before any worker starts, so that a wrong URL is one error.
    drop(ferrata_examples::open(&args.store)?);
    let (mut begun, mut killed) = (0, 0);
    loop {
        let mut worker = Command::new(std::env::current_exe()?)
            .args(["--transfers", &args.transfers.to_string(), "--id", &args.id, "--store", &args.store])
            .args(["--worker", if killed == 0 { "first" } else { "next" }])
            // If this process is killed, the pipe closes and the worker exits.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let says = BufReader::new(worker.stdout.take().ok_or("the worker has no output")?);
        let spared = 1 + RandomState::new().hash_one(killed) % 12;
        let (mut heard, mut is_killed) = (0, false);
        for line in says.lines() {
            let line = line?;
            println!("{line}");
            if line.contains(" begins: ") {
                begun += 1;
                heard += 1;
                if killed < args.kills && heard == spared {
                    // The moment is before, during or after the commit.
                    let moment = RandomState::new().hash_one(begun) % 50;
                    SystemClock::new().sleep(Duration::from_millis(moment)).await;
                    worker.kill()?;
                    is_killed = true;
                }
            }
        }
        let status = worker.wait()?;
        if status.success() {
            println!("kills: {killed}; transfers started: {begun}; transfers done: {}", args.transfers);
            return Ok(());
        }
        if !is_killed {
            return Err(format!("the worker ended with {status}").into());
        }
        killed += 1;
        println!("-- kill -9 {}", worker.id());
    }
}

/// Makes all transfers of the run, and prints the accounts.
async fn work(args: &Args, is_next: bool) -> Result<(), Box<dyn Error>> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::abort();
    });
    let graph = graph(&args.store)?;
    let key = RunKey::from(RunId::new(&args.id)?);
    let store = ferrata_examples::open(&args.store)?;
    let runtime = Runtime::builder_with(store).heartbeat_ttl(DEAD_AFTER).build().await?;
    let input = Day { wanted: args.transfers, ..Day::default() };
    let run = if is_next {
        // The program killed the previous worker, so it is dead.
        match runtime.resume(&graph, key).take_over().await {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WrongStatus) => {
                runtime.start(&graph, input).id(&args.id).await?
            }
            resumed => resumed?,
        }
    } else {
        ferrata_examples::free(&runtime, &key).await?;
        runtime.start(&graph, input).id(&args.id).await?
    };
    let day = run.completed().await?;
    println!("\nwhat the database holds:");
    for (name, balance) in &day.balances {
        println!("  {name:<5} {balance:>4}");
    }
    let (sum, wanted) = (day.balances.iter().map(|(_, balance)| balance).sum::<i64>(), i64::from(day.wanted));
    println!("  sum   {sum:>4}, and {} rows note {} transfers", day.noted.0, day.noted.1);
    runtime.shutdown(Duration::ZERO).await?;
    if (sum, day.noted) != (SUM, (wanted, wanted)) {
        return Err(format!("{wanted} transfers were to be there once, and {SUM} to be the sum").into());
    }
    Ok(())
}

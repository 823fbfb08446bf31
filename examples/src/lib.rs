//! Programs that use Ferrata. Each is run from the root of the repository:
//!
//! - `cargo run --example hello`: a graph of one node.
//! - `cargo run --example crash_and_resume`: a process dies in the middle of a chain, and the next one goes on.
//! - `cargo run --example agent -- "climbing ropes"`: an agent with tools, that asks before it sends a mail and when its money is spent.
//! - `cargo run --example approval -- start inv-7`: a question that is answered by another process than the one that asks.
//! - `cargo run --example chat`: a conversation that survives `kill -9`.
//! - `cargo run --example etl`: a load in parts, which processes share: start `--example etl -- --work` in other terminals, and kill any.
//! - `cargo run --example map_reduce`: a run for each file of a directory, a few at a time, and one table of what they counted.
//! - `cargo run --example nightly`: a report for each night, by the calendar, whichever processes are alive.
//! - `cargo run --features metrics --example metrics`: what Prometheus scrapes of runs that go on.
//! - `cargo run --example research -- "electric ferries"`: an agent with agents of its own, of which one asks you.
//! - `cargo run --example time_travel`: a run as it was, a fork of it with one thing changed, and what differs in the end.
//! - `cargo run --features otlp --example traces`: one trace of a run over two processes, of which the first is killed, in your collector.
//! - `cargo run --features transfer --example transfer`: money that is moved by a process that is killed again and again, while you watch.
//! - `cargo run --release --example survey`: a real job over every file of a directory, which may be killed at any moment.
//!
//! A service of several replicas is in `examples/service`.
//!
//! `agent`, `crash_and_resume`, `approval`, `chat`, `etl`, `map_reduce`, `research`, `survey`, `traces` and `transfer` take `--store URL`. The drivers of servers are features, so that the first
//! command builds quickly: `cargo run --features postgres --example chat -- ann --store postgres://…`, or `nats`, `redis`, `s3`, `sqlite`,
//! `all-stores`. Here is what they share: reading arguments, opening that store, and
//! waiting for a run that a process has, or had until it died.

use std::env;
use std::error::Error;
use std::iter::Skip;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ferrata::{CheckpointStore, Clock, ErrorKind, RunKey, RunStatus, Runtime, SystemClock};

/// What may follow `--store`.
pub const STORES: &str = "\
file:FOLDER, file:///FOLDER, sqlite:FILE, postgres://USER:PASSWORD@HOST/DATABASE, nats://HOST, redis://HOST, redis-cluster://HOST:PORT,HOST:PORT \
or s3://BUCKET/PREFIX";

/// How often a run that another process has is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Reads what was typed behind the name of the program; without arguments to go on with, returns how the program ends.
///
/// # Errors
///
/// Success when `parse` finds that help was asked for: the usage is printed. Code 2 for a mistake, which is printed before the usage.
#[expect(clippy::print_stdout, reason = "help that was asked for is what the program prints")]
#[expect(clippy::print_stderr, reason = "mistakes go there")]
pub fn arguments<T>(
    usage: &str,
    parse: impl FnOnce(Skip<env::Args>) -> Result<Option<T>, String>,
) -> Result<T, ExitCode> {
    match parse(env::args().skip(1)) {
        Ok(Some(args)) => Ok(args),
        Ok(None) => {
            println!("{usage}");
            Err(ExitCode::SUCCESS)
        }
        Err(mistake) => {
            eprintln!("error: {mistake}\n\n{usage}");
            Err(ExitCode::from(2))
        }
    }
}

/// Opens the store that `--store` names.
///
/// # Errors
///
/// If the URL names none, or one that ends with this process; the message says what to type.
pub fn open(url: &str) -> Result<Arc<dyn CheckpointStore>, Box<dyn Error>> {
    if url.starts_with("memory:") {
        return Err("a memory store ends with this process; use --store file:FOLDER, or leave it out".into());
    }
    // The URL may hold a password: only its errors are shown, which do not.
    ferrata::connect(url).map_err(|error| {
        let remedy = match feature(url) {
            Some(feature) if error.kind() == ErrorKind::Unsupported => format!(
                "build this program with it: cargo run --features {feature} --example {} -- ...",
                program()
            ),
            _ => format!("type --store with one of {STORES}"),
        };
        format!("--store: {error}\n{remedy}").into()
    })
}

/// Returns the feature that the store of a URL needs, if this program was built without it.
fn feature(url: &str) -> Option<&'static str> {
    match url.split(':').next()?.to_ascii_lowercase().as_str() {
        "postgres" | "postgresql" if cfg!(not(feature = "postgres")) => Some("postgres"),
        "nats" | "tls" if cfg!(not(feature = "nats")) => Some("nats"),
        "redis" | "rediss" | "redis-cluster" | "rediss-cluster" if cfg!(not(feature = "redis")) => {
            Some("redis")
        }
        "s3" if cfg!(not(feature = "s3")) => Some("s3"),
        "sqlite" if cfg!(not(feature = "sqlite")) => Some("sqlite"),
        _ => None,
    }
}

/// Returns the name of the program that runs.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_stem().map_or_else(|| "NAME".into(), |name| name.to_string_lossy().into_owned())
}

/// Waits as long as a run that is to go on is in the hands of another process.
///
/// A process that was killed counts as alive for some seconds where the store cannot see that it died, 15 unless
/// [`heartbeat_ttl`](ferrata::runtime::RuntimeBuilder::heartbeat_ttl) says otherwise. No process is hurt by taking the run from it
/// earlier, with [`take_over`](ferrata::runtime::ResumeRequest::take_over); but from one that lives, work would be taken.
///
/// # Errors
///
/// As [`Runtime::head`].
///
/// # Cancel safety
///
/// Cancel safe: it only looks.
pub async fn free(runtime: &Runtime, run: &RunKey) -> ferrata::Result<()> {
    let (clock, mut told) = (SystemClock::new(), false);
    while let Some(head) = runtime.head(run).await?
        && head.status == RunStatus::InProgress
        && head.owner_alive
        && head.owner != Some(runtime.executor())
    {
        if !told {
            #[expect(clippy::print_stderr, reason = "the user who waits must know for what")]
            {
                eprintln!("another process is at work on `{}`, or was seconds ago; waiting for it", run.run);
            }
            told = true;
        }
        clock.sleep(LOOK).await;
    }
    Ok(())
}

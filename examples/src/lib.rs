//! Code that the [example programs](https://github.com/ferrata-rs/ferrata/tree/main/examples) share: they read arguments, open the store of
//! `--store`, and wait for a run that another process drives.

use std::env;
use std::error::Error;
use std::iter::Skip;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ferrata::{CheckpointStore, Clock, ErrorKind, RunKey, RunStatus, Runtime, SystemClock};

/// Accepted values of `--store`.
pub const STORES: &str = "\
file:FOLDER, file:///FOLDER, sqlite:FILE, postgres://USER:PASSWORD@HOST/DATABASE, nats://HOST, redis://HOST, redis-cluster://HOST:PORT,HOST:PORT \
or s3://BUCKET/PREFIX";

/// Interval between checks of a run that another process drives.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Parses the command line.
///
/// # Errors
///
/// Returns the exit code of the program: success if the user asked for help, and 2 for a mistake. In both cases the usage is printed.
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
/// Fails if the URL does not name a store, or names a store in memory. The message says what to type.
pub fn open(url: &str) -> Result<Arc<dyn CheckpointStore>, Box<dyn Error>> {
    if url.starts_with("memory:") {
        return Err("a memory store ends with this process; use --store file:FOLDER, or leave it out".into());
    }
    // The URL may contain a password, so the message shows only the error, which does not contain it.
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

/// Returns the feature that the store of this URL needs, if the program was built without it.
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

/// Returns the name of this program.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_stem().map_or_else(|| "NAME".into(), |name| name.to_string_lossy().into_owned())
}

/// Waits until no live process drives the run.
///
/// Some stores cannot detect that a process has died. In such a store, a killed process counts as alive for
/// [`heartbeat_ttl`](ferrata::runtime::RuntimeBuilder::heartbeat_ttl), by default 15 s. Unlike this function,
/// [`take_over`](ferrata::runtime::ResumeRequest::take_over) does not wait, but it also takes the run from a live process.
///
/// # Errors
///
/// The errors of [`Runtime::head`].
///
/// # Cancel safety
///
/// Cancel safe: the call only reads.
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
        clock.sleep(CHECK_INTERVAL).await;
    }
    Ok(())
}

//! A web service with several replicas on one store. If a replica is killed, the other replicas continue its orders.
//!
//! ```text
//! cargo run -p ferrata-example-service -- --name ann --listen 127.0.0.1:8001
//! cargo run -p ferrata-example-service -- --name bob --listen 127.0.0.1:8002
//! ```
#![expect(clippy::print_stdout, reason = "whoever starts it must know where it listens")]
#![expect(clippy::print_stderr, reason = "errors of a command go there")]

mod auth;
mod http;
mod orders;
mod page;

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::{CheckpointStore, ErrorKind};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::auth::Keys;
use crate::http::App;
use crate::orders::Replica;

const USAGE: &str = "\
usage: orders [OPTION VALUE]...

  --name NAME        the name of the replica (default: replica)
  --listen ADDRESS   the address of the listener (default: 127.0.0.1:0, any free port)
  --keys FILE        the callers, one `NAME KEY` per line; without it, the listener accepts only addresses of this machine
  --store URL        the store of the orders, the same for all replicas (default: file:.ferrata-orders)
  --payments FOLDER  the folder of the payments, the same for all replicas (default: .ferrata-payments)
  --heartbeat MS     the time for which a killed replica counts as alive (default: 5000)
  --pace MS          the duration of each piece of work (default: 1000)
  --grace MS         the time for running nodes to end at a shutdown (default: 3000)";

struct Args {
    name: String,
    listen: String,
    keys: Option<String>,
    store: String,
    payments: String,
    heartbeat: Duration,
    pace: Duration,
    grace: Duration,
}

impl Args {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self {
            name: "replica".into(),
            listen: "127.0.0.1:0".into(),
            keys: None,
            store: "file:.ferrata-orders".into(),
            payments: ".ferrata-payments".into(),
            heartbeat: Duration::from_secs(5),
            pace: Duration::from_secs(1),
            grace: Duration::from_secs(3),
        };
        while let Some(option) = args.next() {
            let value =
                args.next().ok_or_else(|| format!("`{option}` needs a value, or is none of the options"))?;
            let ms = || {
                value.parse().map(Duration::from_millis).map_err(|_| format!("`{option}` is in milliseconds"))
            };
            match option.as_str() {
                "--heartbeat" => parsed.heartbeat = ms()?,
                "--pace" => parsed.pace = ms()?,
                "--grace" => parsed.grace = ms()?,
                "--name" => parsed.name = value,
                "--listen" => parsed.listen = value,
                "--keys" => parsed.keys = Some(value),
                "--store" => parsed.store = value,
                "--payments" => parsed.payments = value,
                _ => return Err(format!("there is no option `{option}`")),
            }
        }
        Ok(parsed)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(mistake) => {
            eprintln!("error: {mistake}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match serve(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: Args) -> Result<(), Box<dyn Error>> {
    let Args { name, listen, keys, store, payments, heartbeat, pace, grace } = args;
    let keys = Arc::new(match keys {
        Some(file) => Keys::read(file.as_ref())?,
        None => Keys::Open,
    });
    let listener = TcpListener::bind(&listen).await?;
    let address = listener.local_addr()?;
    if matches!(*keys, Keys::Open) && !address.ip().is_loopback() {
        return Err(format!("others reach {address}: say with `--keys FILE` who may ask").into());
    }
    let graph = orders::graph()?;
    let runtime = Runtime::builder_with(open(&store)?)
        .heartbeat_ttl(heartbeat)
        .resource(Replica { name: name.clone(), pace, payments: payments.into() })
        .build()
        .await?;
    // From here on, this replica also continues the orders of dead replicas, and orders that were approved.
    runtime.serve(&graph)?;
    let app = Arc::new(App { runtime, graph, name, ending: watch::Sender::new(false) });
    let (told_to_end, ending) = (told_to_end()?, app.ending.clone());
    let told_to_end = async move {
        told_to_end.await;
        ending.send_replace(true);
    };
    println!("{} listens on http://{address}", app.name);
    // During the shutdown, no new connection is accepted, and the current requests are answered.
    axum::serve(listener, http::router(&app, &keys)).with_graceful_shutdown(told_to_end).await?;
    // Then release the orders, so that another replica claims them at once.
    app.runtime.shutdown(grace).await?;
    println!("{} has let go of its orders", app.name);
    Ok(())
}

/// Waits for SIGTERM, as a deployment sends it, or for Ctrl-C. The library installs no signal handlers, because the application decides when to stop.
fn told_to_end() -> std::io::Result<impl Future<Output = ()>> {
    let (mut term, mut ctrl_c) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = ctrl_c.recv() => {}
        }
    })
}

/// Opens the store that all replicas share.
fn open(url: &str) -> Result<Arc<dyn CheckpointStore>, String> {
    // The URL may contain a password, so show only the error, which does not contain it.
    ferrata::connect(url).map_err(|error| {
        let has_all = cfg!(all(feature = "postgres", feature = "redis", feature = "s3"));
        match error.kind() {
            ErrorKind::Unsupported if !has_all => format!(
                "--store: {error}\nbuild it with every driver: cargo run -p ferrata-example-service --features all-stores -- ..."
            ),
            _ => format!("--store: {error}"),
        }
    })
}

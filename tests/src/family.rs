//! A program for kill tests: it drives a parent or its children on any store, and writes every effect to a ledger outside the store.
//!
//! `family STORE LEDGER RUN TTL parent` starts or continues the parent in the store of that URL, and prints `completed` and the results of its
//! children when it has completed. With `children`, the program claims the children of dead processes until it is killed. After its death the process
//! counts as alive for `TTL` milliseconds.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft};
use ferrata_core::{Clock, SystemClock};

/// Maximum time that a slow store may take to answer.
const PATIENCE: Duration = Duration::from_secs(300);

/// Time that a waiting parent stays in memory, and the delay before a store call is retried.
const SHORT: Duration = Duration::from_millis(20);

/// The file of effects. Each effect is one line in one write, synced to disk before the node returns.
struct Ledger(PathBuf);

impl Ledger {
    fn write(&self, cx: &NodeContext) -> std::io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0)?;
        let line = format!("{} {}@{} {}\n", cx.run(), cx.node(), cx.visit(), cx.idempotency_key());
        file.write_all(line.as_bytes())?;
        file.sync_data()
    }
}

fn child() -> Result<Graph<Context>, Box<dyn Error>> {
    Ok(Graph::<Context>::builder("child")
        .node("first", async |cx, s| {
            cx.resource::<Ledger>().write(&cx)?;
            cx.sleep(Duration::from_millis(100)).await?;
            Ok(s)
        })
        .node("double", async |cx, mut s| {
            cx.resource::<Ledger>().write(&cx)?;
            let number: u32 = s.get("number")?.unwrap_or_default();
            s.set("number", number * 2)?;
            Ok(s)
        })
        .entry("first")
        .edge("first", "double")
        .build()?)
}

fn parent() -> Result<Graph<Context>, Box<dyn Error>> {
    let child = child()?;
    Ok(Graph::<Context>::builder("parent")
        .node("wait", move |cx: NodeContext, mut s: Draft<Context>| {
            let child = child.clone();
            async move {
                cx.resource::<Ledger>().write(&cx)?;
                let mut started = Vec::new();
                for number in 1..=3 {
                    let mut input = Context::new();
                    input.set("number", number)?;
                    started.push(cx.child(&child, input).name(format!("c{number}")).start().await?);
                }
                let mut got = Vec::new();
                for child in started {
                    got.push(child.await?.get::<u32>("number")?.unwrap_or_default());
                }
                s.set("got", got)?;
                Ok(s)
            }
        })
        .entry("wait")
        .build()?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, ledger, run, ttl, role] = &*arguments else {
        return Err("usage: family STORE LEDGER RUN TTL parent|children".into());
    };
    let (ttl, clock) = (Duration::from_millis(ttl.parse()?), SystemClock::new());
    let runtime = loop {
        let builder = Runtime::builder_with(ferrata::connect(store)?).heartbeat_ttl(ttl).release_after(SHORT);
        // A starved machine claims runs of living processes repeatedly.
        let builder = builder.max_claims(u32::MAX);
        match builder.resource(Ledger(ledger.into())).build().await {
            Err(error) if error.is_retryable() && clock.monotonic() < PATIENCE => {
                say_why(&error);
                clock.sleep(SHORT).await;
            }
            built => break built?,
        }
    };
    if role == "children" {
        runtime.serve(&child()?)?;
        return std::future::pending().await;
    }
    let graph = parent()?;
    runtime.serve(&graph)?;
    loop {
        let ended = match runtime.start(&graph, Context::new()).id(run).await {
            Ok(handle) => handle.completed().await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(state) => {
                let got: Vec<u32> = state.get("got")?.unwrap_or_default();
                let mut out = std::io::stdout().lock();
                writeln!(out, "completed {got:?}")?;
                return Ok(out.flush()?);
            }
            // On a busy machine, the store may not answer in time, and the killed process may still count as alive.
            Err(error) if clock.monotonic() < PATIENCE => {
                say_why(&error);
                clock.sleep(SHORT).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Prints the reason of a retry to the test's log.
fn say_why(error: &ferrata_core::Error) {
    let _ = writeln!(std::io::stderr().lock(), "trying again: {error}");
}

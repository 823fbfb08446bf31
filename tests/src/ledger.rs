//! A program for kill tests: it drives one run on any store, and writes every effect to a ledger outside the store.
//!
//! `ledger STORE LEDGER RUN TTL` starts or continues the run in the store of that URL, and answers questions about unknown outcomes from the ledger.
//! It prints `completed` and the final state when the run has completed, or `held` when another process owns the run. After its death the process
//! counts as alive for `TTL` milliseconds.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use ferrata_core::graph::{Effect, Graph, RetryPolicy, Route};
use ferrata_core::node::NodeContext;
use ferrata_core::record::Resolution;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Reducer};
use ferrata_core::store::RunHead;
use ferrata_core::{Clock, ErrorKind, RunKey, SystemClock};

/// Maximum time that a slow store may take to answer, and the delay before a call is retried.
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(20);

/// The file of effects. Each effect is one line in one write, synced to disk before the node returns.
struct Ledger(PathBuf);

impl Ledger {
    fn write(&self, cx: &NodeContext) -> std::io::Result<()> {
        let mut file: File = OpenOptions::new().append(true).create(true).open(&self.0)?;
        file.write_all(format!("{} {} {}\n", cx.node(), cx.visit(), cx.idempotency_key()).as_bytes())?;
        file.sync_data()
    }

    fn has(&self, node: &str, visit: &str) -> std::io::Result<bool> {
        let text = std::fs::read_to_string(&self.0)?;
        Ok(text.lines().any(|line| line.starts_with(&format!("{node} {visit} "))))
    }
}

async fn work(
    cx: NodeContext,
    _s: ferrata_core::state::Draft<Context>,
) -> Result<ferrata_core::state::ContextUpdate, ferrata_core::node::NodeError> {
    cx.resource::<Ledger>().write(&cx)?;
    // Pause between the effect and its record, so that kills hit this moment.
    SystemClock::new().sleep(Duration::from_millis(2)).await;
    Ok(Context::update().reduce("path", vec![format!("{}@{}", cx.node(), cx.visit())]))
}

async fn flaky(
    cx: NodeContext,
    s: ferrata_core::state::Draft<Context>,
) -> Result<ferrata_core::state::ContextUpdate, ferrata_core::node::NodeError> {
    if cx.attempt() < 3 {
        return Err("not yet".into());
    }
    work(cx, s).await
}

fn graph() -> Result<Graph<Context>, Box<dyn Error>> {
    let retry = RetryPolicy::none().with_attempts(3).with_delay(Duration::from_millis(1));
    Ok(Graph::<Context>::builder("ledger")
        .channel("path", Reducer::Append)
        .node("read", work)
        .effect(Effect::Read)
        .node("write", work)
        .node("pay", work)
        .effect(Effect::External)
        .node("flaky", flaky)
        .retry(retry)
        .node("each", work)
        .effect(Effect::Pure)
        .node("join", work)
        .node("again", work)
        .node("last", work)
        .effect(Effect::External)
        .entry("read")
        .edge("read", ["write", "flaky"])
        .edge("write", "pay")
        .route("flaky", ["each"], |_s, _cx| Route::each("each", 0..8))
        .edge(["each", "pay"], "join")
        .edge("join", "again")
        .route("again", ["read", "last"], |s, _cx| {
            let path: Vec<String> = s.get("path").ok().flatten().unwrap_or_default();
            if path.iter().filter(|at| at.starts_with("again@")).count() < 3 { "read" } else { "last" }
        })
        .build()?)
}

/// Printed by a program that lost the run, or that finds it with another owner.
const HELD: &str = "held";

/// Drives the run as far as possible. Returns its end, or none if more remains to be done.
async fn drive(
    runtime: &Runtime,
    graph: &Graph<Context>,
    key: &RunKey,
    ledger: &Ledger,
) -> Result<Option<String>, Box<dyn Error>> {
    let handle = runtime.start(graph, Context::new()).id(key.run.as_str()).await?;
    let elsewhere = |head: RunHead| head.owner_alive && head.owner != Some(runtime.executor());
    if !handle.is_driven_here() && runtime.head(key).await?.is_some_and(elsewhere) {
        return Ok(Some(HELD.to_owned()));
    }
    match handle.wait().await {
        Ok(Outcome::Completed(state)) => {
            let mut path: Vec<String> = state.get("path")?.unwrap_or_default();
            path.sort();
            Ok(Some(format!("completed {}", path.join(" "))))
        }
        Ok(Outcome::Interrupted(questions)) => {
            for question in questions {
                let (node, visit) = (question.node.to_string(), question.visit.to_string());
                let resolution = if ledger.has(&node, &visit)? {
                    let patch = format!(r#"[{{"append":["path",["{node}@{visit}"]]}}]"#);
                    Resolution::Supply(ferrata_core::state::Patch::from_json(&patch)?)
                } else {
                    Resolution::Retry
                };
                match runtime.respond(key, &question.id, resolution).await {
                    // The previous process may have become idle with the same question, and both processes answer it. One answer is recorded, and the
                    // other is refused. The run continues in either process.
                    Err(error)
                        if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::WrongStatus) => {}
                    told => drop(told?),
                }
            }
            Ok(None)
        }
        Ok(outcome) => Err(format!("unexpected: {outcome:?}").into()),
        Err(error) if error.kind() == ErrorKind::Fenced => Ok(Some(HELD.to_owned())),
        Err(error) => Err(error.into()),
    }
}

/// Whether an error is expected. On a busy machine, the store may not answer in time, and a process without a valid heartbeat claims no run.
fn passes(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<ferrata_core::Error>().is_some_and(ferrata_core::Error::is_retryable)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, ledger, run, ttl] = &*arguments else {
        return Err("usage: ledger STORE LEDGER RUN TTL".into());
    };
    let (ttl, clock) = (Duration::from_millis(ttl.parse()?), SystemClock::new());
    let runtime = loop {
        // A starved machine claims runs of living processes repeatedly.
        let builder =
            Runtime::builder_with(ferrata_tests::open(store)?).heartbeat_ttl(ttl).max_claims(u32::MAX);
        match builder.resource(Ledger(ledger.into())).build().await {
            Err(error) if passes(&error) && clock.monotonic() < PATIENCE => clock.sleep(PAUSE).await,
            built => break built?,
        }
    };
    let (graph, ledger, key) = (graph()?, Ledger(ledger.into()), RunKey::try_from(run.as_str())?);
    loop {
        match drive(&runtime, &graph, &key, &ledger).await {
            Ok(Some(told)) => return say(&told),
            Ok(None) => {}
            Err(error) if passes(&*error) && clock.monotonic() < PATIENCE => clock.sleep(PAUSE).await,
            Err(error) => return Err(error),
        }
    }
}

fn say(line: &str) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

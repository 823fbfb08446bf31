//! A program for fleet tests: several processes serve one workflow on one store, and are killed, suspended, restarted and cut off.
//!
//! `fleet STORE LEDGER TTL SKEW PREFIX COUNT` serves the workflow, starts the runs `PREFIX-0` to `PREFIX-(COUNT-1)`, and writes every effect to the
//! ledger. Its wall clock is wrong by `SKEW` milliseconds and steps back repeatedly. It prints the end of each of its runs, as `RUN completed` or as
//! `RUN` and the error kind. At SIGTERM it releases its runs and prints `left`. `fleet queues` is another mode: see `queued.rs`.

mod queued;

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ferrata_core::graph::{Effect, Graph, Route};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::{Outcome, Runtime, RuntimeBuilder};
use ferrata_core::state::{Context, ContextUpdate, Draft, Reducer};
use ferrata_core::{Clock, ErrorKind, SystemClock, Timestamp};
use tokio::signal::unix::{SignalKind, signal};

/// Step back of the wall clock every other second.
const STEP_MS: i64 = 90_000;

/// Maximum time for retries of a start: longer than any outage of the tests, and as long as the tests wait.
const PATIENCE: Duration = Duration::from_secs(300);

/// The machine's clock with an error.
#[derive(Debug)]
struct WrongClock {
    truth: SystemClock,
    skew_ms: i64,
}

impl Clock for WrongClock {
    fn now(&self) -> Timestamp {
        let stepped = if self.truth.monotonic().as_secs().is_multiple_of(2) { 0 } else { STEP_MS };
        Timestamp::from_unix_ms(self.truth.now().unix_ms() + self.skew_ms - stepped)
    }

    fn monotonic(&self) -> Duration {
        self.truth.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.truth.sleep(duration)
    }
}

/// The file of effects. Each effect is one line in one write.
struct Ledger(PathBuf);

impl Ledger {
    fn write(&self, cx: &NodeContext) -> std::io::Result<()> {
        let mut file: File = OpenOptions::new().append(true).create(true).open(&self.0)?;
        let line = format!("{} {} {} {}\n", cx.run().run, cx.node(), cx.visit(), cx.idempotency_key());
        file.write_all(line.as_bytes())
    }
}

async fn work(cx: NodeContext, _s: Draft<Context>) -> Result<ContextUpdate, NodeError> {
    cx.resource::<Ledger>().write(&cx)?;
    // Pause between the effect and its record, so that kills hit this moment.
    SystemClock::new().sleep(Duration::from_millis(15)).await;
    Ok(Context::update().reduce("path", vec![format!("{}@{}", cx.node(), cx.visit())]))
}

fn graph() -> Result<Graph<Context>, Box<dyn Error>> {
    Ok(Graph::<Context>::builder("fleet")
        .channel("path", Reducer::Append)
        .node("read", work)
        .effect(Effect::Read)
        .node("write", work)
        .node("pay", work)
        .effect(Effect::External)
        .node("each", work)
        .effect(Effect::Pure)
        .node("join", work)
        .node("last", work)
        .entry("read")
        .edge("read", ["write", "pay"])
        .route("write", ["each"], |_s, _cx| Route::each("each", 0..4))
        .edge(["each", "pay"], "join")
        .route("join", ["read", "last"], |_s, cx| if cx.visit().get() < 4 { "read" } else { "last" })
        .build()?)
}

fn say(line: &str) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Starts a run, with retries while the store is down. Prints the run's outcome in this process.
async fn follow(runtime: &Runtime, graph: &Graph<Context>, run: &str) -> Result<(), Box<dyn Error>> {
    let clock = SystemClock::new();
    let handle = loop {
        match runtime.start(graph, Context::new()).id(run).await {
            Ok(handle) => break handle,
            Err(error) if error.is_retryable() && clock.monotonic() < PATIENCE => {
                clock.sleep(Duration::from_millis(20)).await;
            }
            // The process is shutting down, or does not know whether its heartbeat is valid.
            Err(error) if matches!(error.kind(), ErrorKind::Closed | ErrorKind::Fenced) => {
                return say(&format!("{run} {:?}", error.kind()));
            }
            Err(error) => return Err(error.into()),
        }
    };
    say(&format!("{run} started"))?;
    match handle.wait().await {
        Ok(Outcome::Completed(_)) => say(&format!("{run} completed")),
        Ok(outcome) => say(&format!(
            "{run} rests: {}",
            if matches!(outcome, Outcome::Released) { "released" } else { "asks" }
        )),
        Err(error) => say(&format!("{run} {:?}: {error}", error.kind())),
    }
}

async fn build(
    store: &str,
    ttl: &str,
    skew: &str,
    set: impl Fn(RuntimeBuilder) -> RuntimeBuilder,
) -> Result<Runtime, Box<dyn Error>> {
    let clock = Arc::new(WrongClock { truth: SystemClock::new(), skew_ms: skew.parse()? });
    loop {
        let builder = Runtime::builder_with(ferrata::connect(store)?)
            .clock(Arc::clone(&clock) as _)
            .heartbeat_ttl(Duration::from_millis(ttl.parse()?))
            // A starved machine claims runs of living processes repeatedly.
            .max_claims(u32::MAX)
            .sweep_interval(Duration::from_millis(500));
        match set(builder).build().await {
            Ok(runtime) => return Ok(runtime),
            Err(error) if error.is_retryable() && clock.monotonic() < PATIENCE => {
                clock.sleep(Duration::from_millis(50)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((queues, rest)) = arguments.split_first()
        && queues == "queues"
    {
        return queued::play(rest).await;
    }
    let [store, ledger, ttl, skew, prefix, count] = &*arguments else {
        return Err("usage: fleet STORE LEDGER TTL SKEW PREFIX COUNT".into());
    };
    let mut ended = signal(SignalKind::terminate())?;
    let runtime = build(store, ttl, skew, |builder| builder.resource(Ledger(ledger.into()))).await?;
    let graph = graph()?;
    runtime.serve(&graph)?;
    let mut runs = tokio::task::JoinSet::new();
    for at in 0..count.parse::<u32>()? {
        let (runtime, graph, run) = (runtime.clone(), graph.clone(), format!("{prefix}-{at}"));
        runs.spawn(async move {
            if let Err(error) = follow(&runtime, &graph, &run).await {
                // The test, which waits for the run, sees this line.
                let _ = say(&format!("{run} failed: {error}"));
            }
        });
    }
    ended.recv().await;
    runtime.shutdown(Duration::from_millis(200)).await?;
    while runs.join_next().await.is_some() {}
    say("left")
}

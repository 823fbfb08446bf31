//! The queue mode of `fleet`: `fleet queues STORE LEDGER TTL SKEW RUNS REST PER_KEY`.
//!
//! Each process starts the runs `run-0` to `run-(RUNS-1)` in the queue `mail`, and serves them until SIGTERM. A run takes slots of `gpu` and of
//! `api`, one at a time. Each entry and exit writes a line to the ledger, a file outside the store: the time, the process, the action, the queue and
//! the run. A waiting run becomes idle after `REST` milliseconds. A process that was delayed for longer than a heartbeat reports it, because other
//! processes may treat it as dead. A key has at most `PER_KEY` slots of `mail`.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ferrata::queue::{
    GraphQueueExt as _, NodeQueueExt as _, RateLimit, RuntimeQueueExt as _, StartQueueExt as _,
};
use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft};
use ferrata_core::{Clock, ErrorKind, SystemClock};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// The limits. The test has the same numbers.
const MAILS: u32 = 4;
const GPUS: u32 = 2;
const CALLS: u32 = 50;
const BURST: u32 = 3;

/// Longer than any test, so that no run becomes more urgent by waiting.
const AGEING: Duration = Duration::from_secs(86_400);

/// Interval at which a process checks whether it was delayed.
const TICK: Duration = Duration::from_millis(20);

/// Records entries and exits.
#[derive(Clone)]
pub(crate) struct Turnstile(Arc<PathBuf>);

impl Turnstile {
    fn write(&self, what: &str) -> std::io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(&*self.0)?;
        let line = format!("{} {} {what}\n", SystemClock::new().now().unix_ms(), std::process::id());
        file.write_all(line.as_bytes())
    }
}

/// A run in a slot. Dropping it with its node records the exit.
struct Inside(Turnstile, String);

impl Inside {
    fn enter(cx: &NodeContext, at: &str) -> std::io::Result<Self> {
        let (turnstile, who) = (cx.resource::<Turnstile>().clone(), format!("{at} {}", cx.run().run));
        turnstile.write(&format!("enter {who}"))?;
        Ok(Self(turnstile, who))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // If this line cannot be written, the test reports it as missing.
        let _ = self.0.write(&format!("leave {}", self.1));
    }
}

async fn ask(cx: NodeContext, s: Draft<Context>) -> Result<Draft<Context>, NodeError> {
    let _inside = Inside::enter(&cx, "gpu")?;
    SystemClock::new().sleep(Duration::from_millis(25)).await;
    Ok(s)
}

fn graph() -> Result<Graph<Context>, Box<dyn Error>> {
    let again =
        || RetryPolicy::none().with_attempts(1_000).with_delay(Duration::from_millis(20)).with_factor(1.0);
    Ok(Graph::<Context>::builder("queued")
        .node("begin", async |cx: NodeContext, s: Draft<Context>| {
            cx.resource::<Turnstile>().write(&format!("enter mail {}", cx.run().run))?;
            Ok::<_, NodeError>(s)
        })
        .retry(again())
        .node("ask", ask)
        .limit("gpu")
        .retry(again())
        .node("call", async |cx: NodeContext, s: Draft<Context>| {
            let place = cx.acquire("api", 1).key(cx.run().run.as_str()).await?;
            drop(Inside::enter(&cx, "api")?);
            place.release().await?;
            Ok::<_, NodeError>(s)
        })
        .retry(again())
        .node("end", async |cx: NodeContext, s: Draft<Context>| {
            cx.resource::<Turnstile>().write(&format!("leave mail {}", cx.run().run))?;
            Ok::<_, NodeError>(s)
        })
        .retry(again())
        .entry("begin")
        .edge("begin", "ask")
        .edge("ask", "call")
        .edge("call", "end")
        .build()?)
}

/// Records a delay that is so long that the process may count as dead.
async fn watch(turnstile: Turnstile, ttl: Duration) {
    let clock = SystemClock::new();
    loop {
        let before = clock.monotonic();
        clock.sleep(TICK).await;
        let late = (clock.monotonic() - before).saturating_sub(TICK);
        // A quarter is allowed for all delays together.
        if late > ttl / 16 {
            let _ = turnstile.write(&format!("late {} -", late.as_millis()));
        }
    }
}

async fn declare(runtime: &Runtime, per_key: u32) -> ferrata_core::Result<()> {
    let second = Duration::from_secs(1);
    runtime.queue("mail").at_once(MAILS).at_once_per_key(per_key).aging(AGEING).declare().await?;
    runtime.queue("gpu").at_once(GPUS).declare().await?;
    runtime.queue("api").at_once(1).rate_limit(RateLimit::new(CALLS, second).burst(BURST)).declare().await?;
    Ok(())
}

/// Declares the queues and starts the runs, with retries during an outage of the store.
async fn start(
    runtime: &Runtime,
    graph: &Graph<Context>,
    runs: u32,
    per_key: u32,
) -> Result<(), Box<dyn Error>> {
    let clock = SystemClock::new();
    let pause = || clock.sleep(Duration::from_millis(20));
    while let Err(error) = declare(runtime, per_key).await {
        if !error.is_retryable() && error.kind() != ErrorKind::Indeterminate {
            return Err(error.into());
        }
        pause().await;
    }
    for at in 0..runs {
        loop {
            let start = runtime.start(graph, Context::new()).id(format!("run-{at}")).queue("mail");
            // The test has the same keys and priorities.
            match start.key(format!("key-{}", at % 3)).priority(i32::try_from(at % 2)?).await {
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Invalid => return Err(error.into()),
                Err(_) => pause().await,
            }
        }
    }
    Ok(())
}

pub(crate) async fn play(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [store, ledger, ttl, skew, runs, rest, per_key] = arguments else {
        return Err("usage: fleet queues STORE LEDGER TTL SKEW RUNS REST PER_KEY".into());
    };
    let mut ended = signal(SignalKind::terminate())?;
    let (turnstile, graph) = (Turnstile(Arc::new(ledger.into())), graph()?);
    let (life, rest) = (Duration::from_millis(ttl.parse()?), Duration::from_millis(rest.parse()?));
    let mut beside = JoinSet::new();
    beside.spawn(watch(turnstile.clone(), life));
    let runtime = super::build(store, ttl, skew, |builder| {
        builder.release_after(rest).sweep_interval(life / 4).resource(turnstile.clone())
    });
    let runtime = runtime.await?;
    runtime.serve(&graph)?;
    tokio::select! {
        started = start(&runtime, &graph, runs.parse()?, per_key.parse()?) => {
            started?;
            ended.recv().await;
        }
        _ = ended.recv() => {}
    }
    runtime.shutdown(Duration::from_millis(200)).await?;
    super::say("left")
}

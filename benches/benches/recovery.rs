//! Measures how fast orphaned runs continue: live processes claim and complete many runs of a dead process on one store.
//!
//! `cargo bench -p ferrata-benches --bench recovery -- [runs] [processes] [URL]`. The URL must name an empty store. By default, the benchmark uses
//! its own schema in the database that `STORE_TEST_POSTGRES_URL` names.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "it measures the machine's own time, and prints what it measured"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ferrata::graph::Graph;
use ferrata::node::NodeContext;
use ferrata::prelude::*;
use ferrata::state::Draft;

type Failed = Box<dyn std::error::Error>;

/// Number of runs that are started concurrently.
const LANES: u32 = 64;

/// The counters that the nodes of all processes share.
#[derive(Default)]
struct Ledger {
    open: AtomicBool,
    began: AtomicU64,
    ended: AtomicU64,
}

fn graph(ledger: &Arc<Ledger>) -> Result<Graph<Context>, Failed> {
    let ledger = Arc::clone(ledger);
    let work = move |_cx: NodeContext, mut s: Draft<Context>| {
        let ledger = Arc::clone(&ledger);
        async move {
            ledger.began.fetch_add(1, Ordering::SeqCst);
            if !ledger.open.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            s.set("done", true)?;
            ledger.ended.fetch_add(1, Ordering::SeqCst);
            Ok(s)
        }
    };
    Ok(Graph::<Context>::builder("orphans").node("work", work).entry("work").build()?)
}

async fn until(count: &AtomicU64, most: u64) {
    while count.load(Ordering::SeqCst) < most {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn measure(url: &str, runs: u64, processes: u64) -> Result<(), Failed> {
    let ledger = Arc::new(Ledger::default());
    let graph = graph(&ledger)?;
    // A separate runtime. Its end stands for the end of its process.
    let dying = std::thread::spawn({
        let (url, graph, ledger) = (url.to_owned(), graph.clone(), Arc::clone(&ledger));
        move || -> Result<(), String> {
            let tasks = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
            tasks
                .block_on(async {
                    let store = ferrata::connect(&url)?;
                    let ttl = Duration::from_secs(4);
                    let runtime = Runtime::builder_with(store).heartbeat_ttl(ttl).build().await?;
                    let started = Instant::now();
                    let mut starting = tokio::task::JoinSet::new();
                    for lane in 0..u64::from(LANES) {
                        let (runtime, graph) = (runtime.clone(), graph.clone());
                        starting.spawn(async move {
                            for number in (lane..runs).filter(|number| number % u64::from(LANES) == lane) {
                                runtime.start(&graph, Context::new()).id(format!("r{number}")).await?;
                            }
                            Ok::<_, ferrata::Error>(())
                        });
                    }
                    while let Some(lane) = starting.join_next().await {
                        lane??;
                    }
                    println!("{runs} runs started in {:.2?}", started.elapsed());
                    until(&ledger.began, runs).await;
                    Ok::<_, Failed>(())
                })
                .map_err(|error| error.to_string())
        }
    });
    while !dying.is_finished() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    dying.join().map_err(|_| "the dying process panicked")??;
    tokio::time::sleep(Duration::from_secs(5)).await;
    ledger.open.store(true, Ordering::SeqCst);

    let mut fleet = Vec::new();
    for _ in 0..processes {
        fleet.push(Runtime::builder_with(ferrata::connect(url)?).build().await?);
    }
    let begun = Instant::now();
    for runtime in &fleet {
        runtime.serve(&graph)?;
    }
    until(&ledger.ended, runs).await;
    let ran = begun.elapsed();
    for runtime in &fleet {
        runtime.drain().await?;
    }
    let took = begun.elapsed();
    let rate = |time: Duration| runs as f64 / time.as_secs_f64();
    println!(
        "{runs} orphans, {processes} processes: every node done after {ran:.2?} ({:.0} runs/s), every end recorded after \
         {took:.2?} ({:.0} runs/s); {} nodes ran more than once",
        rate(ran),
        rate(took),
        ledger.ended.load(Ordering::SeqCst) - runs
    );
    Ok(())
}

fn own_schema() -> Option<String> {
    let url = std::env::var("STORE_TEST_POSTGRES_URL").ok()?;
    let schema = format!("recovery_{}", std::process::id());
    Some(format!("{url}{}schema={schema}", if url.contains('?') { '&' } else { '?' }))
}

fn main() -> Result<(), Failed> {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let (runs, processes) =
        (numbers.first().copied().unwrap_or(10_000), numbers.get(1).copied().unwrap_or(1));
    let named = std::env::args().skip(1).find(|argument| argument.contains(':'));
    let Some(url) = named.or_else(own_schema) else {
        println!(
            "recovery: name a store, or a database in STORE_TEST_POSTGRES_URL, see CONTRIBUTING.md; nothing was measured"
        );
        return Ok(());
    };
    tokio::runtime::Runtime::new()?.block_on(measure(&url, runs, processes))
}

//! Measures streams of nodes: many chunks in a process, in turn with a bare channel; and the first chunk at a watcher that reaches the run only
//! through its store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ferrata::graph::Graph;
use ferrata::runtime::{Watch, WatchEventKind};
use ferrata::store::MemoryStore;
use ferrata::{Clock as _, Draft, NodeContext, RunKey, Runtime, SystemClock};
use tokio::sync::broadcast;

use super::Table;
use crate::graphs::Small;
use crate::measure::{Pair, Rounds, Spread, in_turn, micros, now};
use crate::notice::Notice;
use crate::row::{Goal, Row, figure};
use crate::space::Space;

/// The text of a chunk. The text has the length of a token of a model.
const TOKEN: &str = " reason";

/// Time that a node waits for the watcher to receive its chunk before it sends another chunk.
const AGAIN: Duration = Duration::from_millis(2);

/// Time without any chunk before a first chunk. The pause is longer than the time in which chunks are gathered.
const IDLE: Duration = Duration::from_millis(50);

/// Number of chunks that the bare channel holds. This number equals the number by which a watcher may lag behind.
const LAG: usize = 1_024;

/// Measures the row in memory.
pub(crate) async fn in_memory(table: &mut Table) -> Result<()> {
    let id = "core/stream";
    if !table.wants(id) {
        return Ok(());
    }
    let chunks = table.args.scaled(10_000_u64, 1_000);
    let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    let graph = speaker(chunks, None)?;
    let mut number = 0;
    let ours = async || {
        number += 1;
        let key = RunKey::try_from(format!("r-{number}").as_str())?;
        let watch = runtime.watch(&key).before_start().await?;
        #[expect(clippy::disallowed_methods, reason = "it ends with the run that it hears")]
        let heard = tokio::spawn(heard(watch));
        let run = runtime.start(&graph, Small::default()).id(key.run.as_str()).await?;
        run.completed().await?;
        ensure!(heard.await?? == chunks, "chunks and those that were missed are all");
        Ok(())
    };
    let theirs = async || bare(chunks).await;
    let rounds = Rounds::warm(table.args.scaled(5, 2));
    let pair = in_turn(rounds, [chunks as f64; 2], ours, theirs).await?;
    let workload = format!("one node that streams {chunks} chunks to a watcher in the process");
    // The goal is 10,000 chunks per second.
    let goal = Goal::Each(100.0);
    table.push(Row::pair(id, workload, "`tokio::sync::broadcast` of JSON texts", "µs/chunk", pair, goal));
    Ok(())
}

/// Measures the rows on a store.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let space = Space::make(server).await?;
    let durable = format!("{}/first-token", space.kind.name());
    let live = format!("{}/first-token-live", space.kind.name());
    let rounds = table.args.scaled(60, 10);
    // The goal is at most 50 ms.
    let goal = Goal::Each(50_000.0);
    if table.wants(&durable) {
        let mut first = First::open(&space, Kept::Durable).await?;
        let mut took = Vec::new();
        for _ in 0..rounds {
            took.push(first.round().await?);
        }
        let workload = "first chunk of a durable stream at a watcher of another store instance";
        table.push(Row::alone(durable, workload, "µs", Spread::of(took), goal));
    }
    if table.wants(&live) {
        let mut first = First::open(&space, Kept::Not).await?;
        let mut bare = Notice::open(&space).await?;
        let text = serde_json::to_string(TOKEN)?;
        // With its first stream, a process asks the other processes what they watch.
        first.round().await?;
        bare.pass(&text).await?;
        let mut figures = Vec::new();
        for _ in 0..rounds {
            figures.push((first.round().await?, bare.pass(&text).await?));
        }
        let workload = "first chunk of a stream that is not durable at a watcher of another store instance";
        // This row has no ratio in the guard, because very small figures differ by a factor of ten on a busy machine.
        let Pair { ours, theirs, ratio, .. } = Pair::of(&figures);
        let row = Row::alone(live, workload, "µs", ours, goal);
        let (theirs, ratio) = (figure(theirs.median), figure(ratio.median));
        table.push(row.note(format!("{}: {theirs} µs, so {ratio}x", bare.in_words())));
    }
    space.remove().await
}

/// Whether a stream is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Durable,
    Not,
}

/// The data that the node of a stream and its watcher share.
#[derive(Debug, Default)]
struct Timed {
    /// The time at which the first chunk was sent.
    begun: Mutex<Option<Instant>>,
    is_heard: AtomicBool,
}

/// Two runtimes: the runs of the first each send a chunk. The second has its own store, like another process, and watches these runs.
struct First {
    runtime: Runtime,
    other: Runtime,
    graph: Graph<Small>,
    timed: Arc<Timed>,
    kept: Kept,
    number: u32,
}

impl First {
    async fn open(space: &Space, kept: Kept) -> Result<Self> {
        let timed = Arc::<Timed>::default();
        let graph = speaker(1, Some((Arc::clone(&timed), kept)))?;
        let other = Runtime::builder_with(space.open()?).operator();
        Ok(Self { runtime: super::runtime(space).await?, other, graph, timed, kept, number: 0 })
    }

    /// Returns the number of microseconds until the first chunk of a further run was received.
    async fn round(&mut self) -> Result<f64> {
        // A chunk that is sent just after another is gathered with it first, so wait.
        SystemClock::new().sleep(IDLE).await;
        self.number += 1;
        let key = RunKey::try_from(format!("{:?}-{}", self.kept, self.number).as_str())?;
        let mut watch = self.other.watch(&key).before_start().await?;
        self.timed.is_heard.store(false, Ordering::Relaxed);
        let run = self.runtime.start(&self.graph, Small::default()).id(key.run.as_str()).await?;
        while watch.next().await?.context("the run ends after its stream")?.chunks().next().is_none() {}
        let begun = self.timed.begun.lock().unwrap_or_else(PoisonError::into_inner).take();
        let took = micros(begun.context("the node has sent something")?.elapsed());
        self.timed.is_heard.store(true, Ordering::Relaxed);
        run.completed().await?;
        Ok(took)
    }
}

/// Creates a graph with one node that sends `chunks` chunks. If `timed` is given, the node stores its start time there, and the value says whether
/// the stream is durable.
fn speaker(chunks: u64, timed: Option<(Arc<Timed>, Kept)>) -> Result<Graph<Small>> {
    let graph = Graph::<Small>::builder("speaker").node("speak", move |cx: NodeContext, _s: Draft<Small>| {
        let timed = timed.clone();
        async move {
            let mut tokens = cx.stream("tokens")?;
            if let Some((timed, kept)) = &timed {
                if *kept == Kept::Durable {
                    tokens = tokens.durable();
                }
                *timed.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(now());
            }
            for _ in 0..chunks {
                tokens.send(TOKEN).await?;
            }
            // A stream that is not recorded may be sent before the process learns that it is watched.
            while let Some((timed, Kept::Not)) = &timed
                && !timed.is_heard.load(Ordering::Relaxed)
            {
                SystemClock::new().sleep(AGAIN).await;
                tokens.send(TOKEN).await?;
            }
            tokens.finish().await?;
            Ok(Small::update().count(1u64))
        }
    });
    Ok(graph.entry("speak").build()?)
}

/// Counts the chunks that a watcher receives, and those that it reports as missed.
async fn heard(mut watch: Watch) -> Result<u64> {
    let (mut heard, mut others) = (0, 0);
    while let Some(event) = watch.next().await? {
        match event.what {
            WatchEventKind::Lagged { missed } => heard += missed,
            WatchEventKind::Live(_) => heard += 1,
            _ => others += 1,
        }
    }
    ensure!(others > 0, "the run is recorded");
    // The start of the attempt is also a live event.
    Ok(heard - 1)
}

/// Does the same with a channel: texts are serialized, sent, received and counted.
async fn bare(chunks: u64) -> Result<()> {
    let (sender, mut receiver) = broadcast::channel::<Arc<str>>(LAG);
    #[expect(clippy::disallowed_methods, reason = "it ends with the channel that it hears")]
    let counting = tokio::spawn(async move {
        let mut count = 0;
        loop {
            match receiver.recv().await {
                Ok(_) => count += 1,
                Err(broadcast::error::RecvError::Lagged(missed)) => count += missed,
                Err(broadcast::error::RecvError::Closed) => return count,
            }
        }
    });
    for number in 0..chunks {
        if number % 128 == 0 {
            tokio::task::yield_now().await;
        }
        // Sending fails only without a receiver, and there is one.
        let _ = sender.send(serde_json::to_string(TOKEN)?.into());
    }
    drop(sender);
    ensure!(counting.await? == chunks, "chunks and those that were missed are all");
    Ok(())
}

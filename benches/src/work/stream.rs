//! Streams from nodes: many chunks in a process beside a bare channel, and the first one at a watcher that reaches the run through its store alone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use ferrata::graph::Graph;
use ferrata::runtime::{Watch, What};
use ferrata::store::MemoryStore;
use ferrata::{Draft, NodeContext, RunKey, Runtime};
use tokio::sync::broadcast;

use super::Table;
use crate::graphs::Small;
use crate::measure::{Rounds, Spread, in_turn, micros, now};
use crate::row::{Goal, Row};
use crate::space::Space;

/// A chunk, as long as a token of a model.
const TOKEN: &str = " reason";

/// How many chunks the bare channel holds: as many as a watcher may lag behind.
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
    // 10,000 a second.
    let goal = Goal::Each(100.0);
    table.push(Row::pair(id, workload, "`tokio::sync::broadcast` of JSON texts", "µs/chunk", pair, goal));
    Ok(())
}

/// Measures the row on a store.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let space = Space::make(server).await?;
    let id = format!("{}/first-token", space.kind.name());
    if table.wants(&id) {
        let runtime = super::runtime(&space).await?;
        // A store of its own: as another process has it.
        let other = Runtime::builder_with(space.open()?).operator();
        let begun = Arc::new(Mutex::new(None));
        let graph = speaker(1, Some(Arc::clone(&begun)))?;
        let mut took = Vec::new();
        for number in 0..table.args.scaled(60, 10) {
            let key = RunKey::try_from(format!("r-{number}").as_str())?;
            let mut watch = other.watch(&key).before_start().await?;
            let run = runtime.start(&graph, Small::default()).id(key.run.as_str()).await?;
            loop {
                let event = watch.next().await?.context("the run ends after its stream")?;
                if event.chunks().next().is_some() {
                    break;
                }
            }
            let begun = begun.lock().unwrap_or_else(PoisonError::into_inner).take();
            took.push(micros(begun.context("the node has sent something")?.elapsed()));
            run.completed().await?;
        }
        let workload = "first chunk of a durable stream at a watcher of another store instance".to_owned();
        table.push(Row::alone(id, workload, "µs", Spread::of(took), Goal::Each(50_000.0)));
    }
    space.remove().await
}

/// One node that sends so many chunks; where it is to say when it began, the stream is durable.
fn speaker(chunks: u64, begun: Option<Arc<Mutex<Option<Instant>>>>) -> Result<Graph<Small>> {
    let graph = Graph::<Small>::builder("speaker").node("speak", move |cx: NodeContext, _s: Draft<Small>| {
        let begun = begun.clone();
        async move {
            let mut tokens = cx.stream("tokens")?;
            if let Some(begun) = begun {
                tokens = tokens.durable();
                *begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(now());
            }
            for _ in 0..chunks {
                tokens.send(TOKEN).await?;
            }
            tokens.finish().await?;
            Ok(Small::update().count(1u64))
        }
    });
    Ok(graph.entry("speak").build()?)
}

/// Counts the chunks that a watcher hears, and those that it is told it missed.
async fn heard(mut watch: Watch) -> Result<u64> {
    let (mut heard, mut others) = (0, 0);
    while let Some(event) = watch.next().await? {
        match event.what {
            What::Lagged { missed } => heard += missed,
            What::Live(_) => heard += 1,
            _ => others += 1,
        }
    }
    ensure!(others > 0, "the run is recorded");
    // That the attempt began is live, too.
    Ok(heard - 1)
}

/// The same through a channel: texts are written, sent, taken and counted.
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
        // Fails without a listener, and there is one.
        let _ = sender.send(serde_json::to_string(TOKEN)?.into());
    }
    drop(sender);
    ensure!(counting.await? == chunks, "chunks and those that were missed are all");
    Ok(())
}

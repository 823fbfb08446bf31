//! Steps of durable functions: recorded in memory, committed to a store, and replayed.

use std::time::Duration;

use anyhow::{Result, ensure};
use ferrata::flow::{Flow, FlowContext, FlowError, FlowHandle, RuntimeFlowExt as _, flow};
use ferrata::graph::{CheckpointFrequency, Effect};
use ferrata::store::MemoryStore;
use ferrata::{Position, Runtime};
use futures_util::future::join_all;

use super::Table;
use crate::bare::Bare;
use crate::graphs::{self, Small};
use crate::measure::{Pair, Rounds, in_turn, micros, now};
use crate::row::{Goal, Row};
use crate::space::{Kind, Space};

/// How the steps of a function follow each other.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Sequence,
    /// Each step races a timer, which loses.
    Races,
    AllAtOnce,
}

/// A function of so many steps.
fn steps(name: &'static str) -> Flow<usize, usize> {
    flow(name, async |cx: FlowContext, count: usize| {
        let mut sum = 0;
        for _ in 0..count {
            sum += cx.step("add", async || Ok::<_, FlowError>(1)).await?;
        }
        Ok::<_, FlowError>(sum)
    })
}

/// The same, which then waits for a message.
fn waiting(shape: Shape) -> Flow<usize, usize> {
    flow("waiting", move |cx: FlowContext, count: usize| async move {
        let cx = &cx;
        let step = || cx.step("add", async || Ok::<_, FlowError>(1_usize));
        let mut sum = 0;
        match shape {
            Shape::Sequence => {
                for _ in 0..count {
                    sum += step().await?;
                }
            }
            Shape::Races => {
                for _ in 0..count {
                    sum += tokio::select! {
                        biased;
                        one = step() => one?,
                        () = cx.sleep("late", Duration::from_secs(86_400)) => 0,
                    };
                }
            }
            Shape::AllAtOnce => {
                for one in join_all((0..count).map(|_| step())).await {
                    sum += one?;
                }
            }
        }
        let _: String = cx.receive("wait").await;
        Ok::<_, FlowError>(sum)
    })
}

async fn call(runtime: &Runtime, flow: &Flow<usize, usize>, count: usize) -> Result<()> {
    ensure!(runtime.call(flow, count).await? == count, "a step was lost");
    Ok(())
}

/// Measures the rows in memory.
pub(crate) async fn in_memory(table: &mut Table) -> Result<()> {
    let rounds = table.args.scaled(21, 3);
    let count = 1_000;
    if table.wants("core/flow-step") {
        let (flow, graph) = (steps("steps"), graphs::chain(count, Effect::Write)?);
        // A store of its own for each run, so that no round pays for earlier logs.
        let ours = async || call(&Runtime::builder(MemoryStore::new()).build().await?, &flow, count).await;
        let theirs = async || {
            let runtime = Runtime::builder(MemoryStore::new()).build().await?;
            graphs::run_with(&runtime, &graph, Small::default(), CheckpointFrequency::EveryNode)
                .await
                .map(drop)
        };
        let pair = in_turn(Rounds::warm(rounds), [count as f64; 2], ours, theirs).await?;
        let workload = "function of 1,000 steps, each recorded in memory";
        let reference = "a chain of 1,000 `Write` nodes";
        table.push(Row::pair("core/flow-step", workload, reference, "µs/step", pair, Goal::None));
    }
    for (id, shape, words) in [
        ("core/flow-resume", Shape::Sequence, "in sequence"),
        ("core/flow-resume-races", Shape::Races, "each against a timer"),
        ("core/flow-resume-joined", Shape::AllAtOnce, "all at once"),
    ] {
        if table.wants(id) {
            let (rounds, count) = table.args.scaled((5, 10_000), (1, 500));
            let pair = resume(shape, rounds, count).await?;
            let workload = format!("resume of a function after {count} steps, {words}, from memory");
            table.push(Row::pair(id, workload, "loading the run's state", "ms", pair, Goal::Times(2.0)));
        }
    }
    Ok(())
}

/// Resumes functions that wait behind so many steps, each beside a load of its records.
async fn resume(shape: Shape, rounds: u32, count: usize) -> Result<Pair> {
    let flow = waiting(shape);
    let graph = flow.graph()?;
    let mut figures = Vec::new();
    for round in 0..=rounds {
        let store = MemoryStore::new();
        let first = Runtime::builder(store.clone()).build().await?;
        let started = start(&first, &flow, count).await?;
        let run = started.run().clone();
        started.handle().wait().await?;
        first.shutdown(Duration::from_secs(10)).await?;
        let runtime = Runtime::builder(store).build().await?;
        runtime.send(&run, "go on").await?;
        let begun = now();
        runtime.state_at(graph, &run, Position::Latest).await?;
        let load = begun.elapsed();
        let begun = now();
        let handle = FlowHandle::<usize>::new(runtime.resume(graph, &run).await?);
        ensure!(handle.result().await? == count, "a step was lost");
        // The first round warms up.
        if round > 0 {
            figures.push((micros(begun.elapsed()) / 1e3, micros(load) / 1e3));
        }
    }
    Ok(Pair::of(&figures))
}

async fn start(runtime: &Runtime, flow: &Flow<usize, usize>, count: usize) -> Result<FlowHandle<usize>> {
    Ok(runtime.call(flow, count).start().await?)
}

/// Measures the rows of a store.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let kind = Kind::of(server)?;
    let id = format!("{}/flow-step", kind.name());
    if !table.wants(&id) {
        return Ok(());
    }
    let (rounds, count) = table.args.scaled((9, 200), (2, 50));
    let space = Space::make(server).await?;
    let runtime = super::runtime(&space).await?;
    let flow = steps("steps");
    let probe = start(&runtime, &flow, count).await?;
    probe.result().await?;
    let body = super::body_bytes(&runtime, probe.run()).await?;
    let mut bare = Bare::open(&space, 1, body).await?;
    let ours = async || call(&runtime, &flow, count).await;
    let pair =
        in_turn(Rounds::warm(rounds), [count as f64; 2], ours, async || bare.commits(count).await).await?;
    bare.close().await?;
    let workload = format!("one function of {count} steps, {}", kind.name());
    let row = Row::pair(id, workload, Bare::in_words(kind, 1), "µs/step", pair, Goal::None);
    table.push(row.note(format!("a record's body has {body} bytes")));
    space.remove().await
}

//! Measures how many bytes a step takes on each store, and how often a large constant is stored.

use std::sync::Arc;

use anyhow::Result;
use ferrata::Runtime;
use ferrata::graph::Graph;
use ferrata::store::CheckpointStore;

use super::Table;
use crate::graphs::{self, Small};
use crate::measure::Spread;
use crate::row::{Goal, Row, figure};
use crate::space::{Kind, Space};

/// The number of bytes that each step appends.
const PAYLOAD: usize = 200;

/// The minimum number of stored steps. A table grows by pages, and a run of a hundred steps would have some pages to itself.
const STEPS: usize = 1_600;

const MIB: usize = 1024 * 1024;

/// Measures the rows of bytes.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let kind = Kind::of(server)?;
    let plain = |store| store;
    let sizes: &[usize] = table.args.scaled(&[100, 400, 1_600, 6_400], &[100, 400]);
    let id = format!("{}/bytes", kind.name());
    if table.wants(&id) {
        let goal = match kind {
            Kind::Postgres => 400.0,
            // Headers are JSON, with ids as text.
            Kind::Sqlite => 500.0,
            Kind::Redis => 350.0,
            Kind::Files | Kind::S3 | Kind::Nats => 300.0,
        };
        let mut over = Vec::new();
        for steps in sizes {
            let runs = STEPS.div_ceil(*steps);
            let graph = graphs::notes(*steps, PAYLOAD)?;
            let bytes = stored(server, &plain, runs, &graph, &Small::default()).await?;
            over.push(bytes as f64 / (runs * steps) as f64 - PAYLOAD as f64);
        }
        let workload = format!("bytes over the payload when each step appends {PAYLOAD}, {}", kind.name());
        let row = Row::alone(id, workload, "bytes/step", Spread::of(over.iter().copied()), Goal::Most(goal));
        let each: Vec<String> = over.iter().map(|bytes| figure(*bytes)).collect();
        // Compare all stored bytes, including the payload. The age of the newest base accounts for up to a fifth.
        let growth = (row.ours.max + PAYLOAD as f64) / (row.ours.min + PAYLOAD as f64);
        let note = format!(
            "for N = {}: {}, as many runs each as make {STEPS} steps",
            in_words(sizes),
            each.join(", ")
        );
        let row = row.note(note);
        let words =
            format!("the dearest step takes {growth:.2} times the bytes of the cheapest; linear within 1.5");
        table.push(row.also(words, growth <= 1.5));
    }
    let id = format!("{}/bytes-1-mib", kind.name());
    // By default, a NATS server accepts no message of 1 MiB.
    if table.wants(&id) && kind != Kind::Nats {
        let mut copies = Vec::new();
        for steps in sizes {
            let bytes = stored(server, &plain, 1, &graphs::notes(*steps, 0)?, &Small::with_blob(MIB)).await?;
            copies.push(bytes as f64 / MIB as f64);
        }
        let workload = format!("a constant MiB beside a counter, {}", kind.name());
        let row = Row::alone(id, workload, "MiB in all", Spread::of(copies.iter().copied()), Goal::None);
        let each: Vec<String> = copies.iter().map(|mib| format!("{mib:.2}")).collect();
        let steps = sizes.last().copied().unwrap_or(1);
        // The bytes of the counter, by the goal for steps, and at most one copy of the constant for each doubling of the number of steps.
        let most = (steps as f64).log2() + steps as f64 * 400.0 / MIB as f64;
        let worst = row.ours.max;
        let row = row.note(format!("for N = {}: {}", in_words(sizes), each.join(", ")));
        table.push(
            row.also(format!("at most one copy for each doubling of N: {worst:.1} MiB"), worst <= most),
        );
    }
    Ok(())
}

fn in_words(sizes: &[usize]) -> String {
    let words: Vec<String> = sizes.iter().map(usize::to_string).collect();
    words.join(", ")
}

/// Returns the number of bytes that `runs` runs add to a store that has already stored another run. So bytes that all runs share do not count.
/// `layers` wraps the store in further layers.
pub(super) async fn stored(
    server: &str,
    layers: &impl Fn(Arc<dyn CheckpointStore>) -> Arc<dyn CheckpointStore>,
    runs: usize,
    graph: &Graph<Small>,
    input: &Small,
) -> Result<u64> {
    let space = Space::make(server).await?;
    let runtime = Runtime::builder_with(layers(space.open()?)).build().await?;
    graphs::run(&runtime, &graphs::notes(1, 0)?, Small::default()).await?;
    let before = space.bytes().await?;
    for _ in 0..runs {
        graphs::run(&runtime, graph, input.clone()).await?;
    }
    let after = space.bytes().await?;
    space.remove().await?;
    Ok(after.saturating_sub(before))
}

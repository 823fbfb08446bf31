//! The figures of the foundation: nodes without and with checkpoints, the store in files, bytes on disk, fan-out.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark that cannot run stops, and prints its table"
)]

use std::future::Future;
use std::io::Write;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use ferrata::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph, Route};
use ferrata::runtime::{Outcome, Runtime};
use ferrata::state::Update;
use ferrata::store::{CheckpointStore, MemoryStore};
use ferrata::{FsStore, State};
use ferrata_benches::{pair, row};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
struct Small {
    #[state(sum)]
    count: u64,
    #[state(append)]
    notes: Vec<String>,
    blob: String,
}

fn chain(nodes: usize, effect: Effect) -> Graph<Small> {
    let mut builder = Graph::<Small>::builder("chain");
    for at in 0..nodes {
        builder =
            builder.node(format!("n{at}"), async |_cx, _s| Ok(Small::update().count(1u64))).effect(effect);
    }
    builder = builder.entry("n0");
    for at in 1..nodes {
        builder = builder.edge(format!("n{}", at - 1), format!("n{at}"));
    }
    builder.build().unwrap()
}

async fn run(runtime: &Runtime, graph: &Graph<Small>, input: Small, frequency: CheckpointFrequency) -> Small {
    let policy = CheckpointPolicy::default().with_frequency(frequency);
    let run = runtime.start(graph, input).checkpoints(policy).await.unwrap();
    match run.wait().await.unwrap() {
        Outcome::Completed(state) => state,
        outcome => panic!("{outcome:?}"),
    }
}

type Boxed = Box<dyn Fn(u64) -> Pin<Box<dyn Future<Output = u64> + Send>> + Send + Sync>;

fn bare(nodes: usize) -> Vec<Boxed> {
    let node = || -> Boxed { Box::new(|count| Box::pin(async move { count + 1 })) };
    (0..nodes).map(|_| node()).collect()
}

async fn loop_over(nodes: &[Boxed]) {
    let mut count = 0;
    for node in nodes {
        count = node(count).await;
    }
    assert_eq!(std::hint::black_box(count), nodes.len() as u64);
}

async fn on(store: impl CheckpointStore) -> Runtime {
    Runtime::builder(store).build().await.unwrap()
}

/// Writes and syncs as often, and as many bytes, as a run of that many nodes does.
fn bare_writes(folder: &Path, writes: usize, bytes: usize) {
    let mut file = tempfile::NamedTempFile::new_in(folder).unwrap();
    let line = vec![b'x'; bytes];
    for _ in 0..writes {
        file.write_all(&line).unwrap();
        file.as_file().sync_data().unwrap();
    }
}

async fn in_memory(rounds: u32) {
    let graph = chain(1_000, Effect::Pure);
    let nodes = Arc::new(bare(1_000));
    let runtime = on(MemoryStore::new()).await;
    let [ours, theirs] = pair(
        rounds,
        [1_000.0; 2],
        |_| async {
            assert_eq!(
                run(&runtime, &graph, Small::default(), CheckpointFrequency::Disabled).await.count,
                1_000
            )
        },
        |_| loop_over(&nodes),
    )
    .await;
    row(
        "chain of 1,000 pure nodes, checkpoints disabled",
        ours,
        theirs,
        "µs per node",
        "at most 0.5 µs per node",
    );

    let large = Small { blob: "x".repeat(1024 * 1024), ..Small::default() };
    let [small, blob] = pair(
        rounds,
        [1_000.0; 2],
        |_| async { drop(run(&runtime, &graph, Small::default(), CheckpointFrequency::EveryNode).await) },
        |_| async { drop(run(&runtime, &graph, large.clone(), CheckpointFrequency::EveryNode).await) },
    )
    .await;
    row("the same, every node recorded in memory", small, theirs, "µs per node", "at most 2 µs per node");
    row(
        "the same with 1 MiB beside the counter; reference: without",
        blob,
        small,
        "µs per node",
        "within 2x",
    );
}

async fn in_files(rounds: u32, folder: &Path) {
    let runtime = on(FsStore::open(folder.join("store")).unwrap()).await;
    let graph = chain(200, Effect::Write);
    let [ours, theirs] = pair(
        rounds,
        [200.0; 2],
        |_| async { drop(run(&runtime, &graph, Small::default(), CheckpointFrequency::EveryNode).await) },
        |_| async { bare_writes(folder, 200, 330) },
    )
    .await;
    row(
        "one run of 200 write nodes, files",
        ours,
        theirs,
        "µs per node",
        "at most 1.2x of write + fdatasync",
    );

    let graph = chain(1_000, Effect::Pure);
    let [ours, theirs] = pair(
        rounds,
        [1_000.0; 2],
        |_| async { drop(run(&runtime, &graph, Small::default(), CheckpointFrequency::EveryNode).await) },
        |_| async { bare_writes(folder, 1_000, 330) },
    )
    .await;
    row("1,000 pure nodes, files", ours, theirs, "µs per node", "at most 0.05x (20 times faster)");
}

/// Text of 200 bytes that does not repeat.
fn note(at: usize) -> String {
    let mut text = String::new();
    let mut word = at as u64;
    while text.len() < 200 {
        word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        text.push_str(&format!("{word:x} "));
    }
    text.truncate(200);
    text
}

async fn bytes_on_disk() {
    println!(
        "bytes on disk for N nodes that append 200 bytes each; goal: at most 600 over the payload, linear"
    );
    for steps in [100usize, 400, 1_600, 6_400] {
        let folder = tempfile::tempdir().unwrap();
        let runtime = on(FsStore::open(folder.path()).unwrap()).await;
        let graph = Graph::<Small>::builder("notes")
            .node("note", async |cx, _s| Ok(Small::update().notes([note(cx.visit().get() as usize)])))
            .effect(Effect::Pure)
            .entry("note")
            .route("note", ["note"], move |s: &Small, _cx| (s.notes.len() < steps).then_some("note"))
            .build()
            .unwrap();
        run(&runtime, &graph, Small::default(), CheckpointFrequency::EveryNode).await;
        let bytes: u64 = walk(folder.path());
        println!(
            "    N = {steps:5}: {:.0} bytes a step over the payload",
            bytes as f64 / steps as f64 - 200.0
        );
    }
}

fn walk(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|e| if e.path().is_dir() { walk(&e.path()) } else { e.metadata().unwrap().len() }).sum()
}

async fn fan_out(rounds: u32) {
    let graph = |width: usize| {
        Graph::<Small>::builder("fan")
            .node("split", async |_cx, s| Ok(s))
            .effect(Effect::Pure)
            .node("work", async |_cx, _s| Ok(Update::none().with_output(1)))
            .effect(Effect::Pure)
            .node("join", async |cx, _s| Ok(Small::update().count(cx.inputs().len() as u64)))
            .effect(Effect::Pure)
            .entry("split")
            .route("split", ["work"], move |_s, _cx| Route::each("work", 0..width))
            .edge("work", "join")
            .build()
            .unwrap()
    };
    let (thousand, ten) = (graph(1_000), graph(10_000));
    let runtime = on(MemoryStore::new()).await;
    let [ten, thousand] = pair(
        rounds,
        [1_000.0; 2],
        |_| async {
            assert_eq!(
                run(&runtime, &ten, Small::default(), CheckpointFrequency::EveryNode).await.count,
                10_000
            )
        },
        |_| async { drop(run(&runtime, &thousand, Small::default(), CheckpointFrequency::EveryNode).await) },
    )
    .await;
    row("fan-out of 10,000 and join, in memory; reference: of 1,000", ten, thousand, "ms", "at most 12x");
}

/// `cargo bench -- [--quick] [PART...]`, with the parts `memory`, `fan-out`, `files`, `bytes`; all unless some are named.
#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parts: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|part| !part.starts_with('-')).collect();
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let rounds = if arguments.iter().any(|argument| argument == "--quick") { 3 } else { 11 };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if wanted("memory") {
        in_memory(rounds).await;
    }
    if wanted("fan-out") {
        fan_out(rounds).await;
    }
    if wanted("files") {
        in_files(rounds, folder.path()).await;
    }
    if wanted("bytes") {
        bytes_on_disk().await;
    }
}

//! The graphs that the benchmark runs.

use anyhow::{Result, bail};
use ferrata::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph, Route};
use ferrata::{Draft, NodeContext, Outcome, Runtime, State, Update};
use serde::{Deserialize, Serialize};

/// A state with a counter, a list that grows, and a large value that no node changes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
pub(crate) struct Small {
    #[state(sum)]
    pub(crate) count: u64,
    #[state(append)]
    pub(crate) notes: Vec<String>,
    pub(crate) blob: String,
}

impl Small {
    /// Creates a state with a constant value of `bytes` bytes.
    pub(crate) fn with_blob(bytes: usize) -> Self {
        Self { blob: "x".repeat(bytes), ..Self::default() }
    }
}

/// Creates a chain of nodes. Each adds one to the counter.
pub(crate) fn chain(nodes: usize, effect: Effect) -> Result<Graph<Small>> {
    let mut builder = Graph::<Small>::builder("chain");
    for at in 0..nodes {
        builder =
            builder.node(format!("n{at}"), async |_cx, _s| Ok(Small::update().count(1u64))).effect(effect);
    }
    builder = builder.entry("n0");
    for at in 1..nodes {
        builder = builder.edge(format!("n{}", at - 1), format!("n{at}"));
    }
    Ok(builder.build()?)
}

/// Creates a chain of such nodes, each of which also sends an outbox message.
pub(crate) fn senders(nodes: usize) -> Result<Graph<Small>> {
    let mut builder = Graph::<Small>::builder("senders").entry("n0");
    for at in 0..nodes {
        let node = async |_cx: NodeContext, _s: Draft<Small>| {
            Ok(Update::from(Small::update().count(1u64)).send_out("mail", "a letter"))
        };
        builder = builder.node(format!("n{at}"), node).effect(Effect::Pure);
        if at > 0 {
            builder = builder.edge(format!("n{}", at - 1), format!("n{at}"));
        }
    }
    Ok(builder.build()?)
}

/// Creates one node that repeats. Each time, it appends another text of `bytes` bytes and adds one to the counter.
pub(crate) fn notes(steps: usize, bytes: usize) -> Result<Graph<Small>> {
    appending(steps, bytes, note)
}

/// Creates the same graph with text of Ferrata's documentation, one part after the other.
pub(crate) fn prose(steps: usize, bytes: usize) -> Result<Graph<Small>> {
    appending(steps, bytes, page)
}

fn appending(steps: usize, bytes: usize, text: fn(u64, usize) -> String) -> Result<Graph<Small>> {
    let graph = Graph::<Small>::builder("notes")
        .node("note", move |cx: NodeContext, _s: Draft<Small>| async move {
            let counted = Small::update().count(1u64);
            let text = text(u64::from(cx.visit().get()), bytes);
            Ok(if bytes == 0 { counted } else { counted.notes([text]) })
        })
        .effect(Effect::Pure)
        .entry("note")
        .unlimited_steps()
        .route("note", ["note"], move |s: &Small, _cx| (s.count < steps as u64).then_some("note"))
        .build()?;
    Ok(graph)
}

/// Texts that were written for people.
const PAGES: &str = concat!(
    include_str!("../../ARCHITECTURE.md"),
    include_str!("../../CONTRIBUTING.md"),
    include_str!("../../docs/how-to/children.md"),
    include_str!("../../docs/how-to/custom-store.md"),
    include_str!("../../docs/how-to/durability.md"),
    include_str!("../../docs/how-to/events.md"),
    include_str!("../../docs/how-to/exactly-once.md"),
    include_str!("../../docs/reference/format.md"),
    include_str!("../../docs/how-to/history.md"),
    include_str!("../../docs/how-to/queues.md"),
    include_str!("../../docs/reference/store-postgres.md"),
    include_str!("../../docs/reference/store-s3.md"),
);

/// Returns `bytes` bytes of these texts, beginning where the previous part ended. At the end, it continues with the beginning.
fn page(at: u64, bytes: usize) -> String {
    let before = usize::try_from(at).unwrap_or(usize::MAX).wrapping_mul(bytes) % PAGES.len();
    let (start, end) = (PAGES.floor_char_boundary(before), PAGES.floor_char_boundary(before + bytes));
    let text = &PAGES[start..end];
    format!("{text}{}", &PAGES[..PAGES.floor_char_boundary(bytes.saturating_sub(text.len()))])
}

/// Returns a text that does not repeat.
fn note(at: u64, bytes: usize) -> String {
    let mut text = String::new();
    let mut word = at;
    while text.len() < bytes {
        word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        text.push_str(&format!("{word:x} "));
    }
    text.truncate(bytes);
    text
}

/// Creates a graph with one activation for each item, and a node that joins them all.
pub(crate) fn fan_out(width: usize) -> Result<Graph<Small>> {
    let graph = Graph::<Small>::builder("fan")
        .node("split", async |_cx, s| Ok(s))
        .effect(Effect::Pure)
        .node("work", async |_cx, _s| Ok(Update::none().with_output(1)))
        .effect(Effect::Pure)
        .node("join", async |cx, _s| Ok(Small::update().count(cx.inputs().len() as u64)))
        .effect(Effect::Pure)
        .entry("split")
        .route("split", ["work"], move |_s, _cx| Route::each("work", 0..width))
        .edge("work", "join")
        .build()?;
    Ok(graph)
}

/// Creates a graph with as many parallel nodes, each declared separately, and a node that joins them all.
pub(crate) fn static_fan_out(width: usize) -> Result<Graph<Small>> {
    let mut builder = Graph::<Small>::builder("static-fan")
        .node("split", async |_cx, s| Ok(s))
        .effect(Effect::Pure)
        .node("join", async |cx, _s| Ok(Small::update().count(cx.inputs().len() as u64)))
        .effect(Effect::Pure)
        .entry("split");
    for at in 0..width {
        let name = format!("work{at}");
        builder = builder.node(&name, async |_cx, _s| Ok(Update::none().with_output(1))).effect(Effect::Pure);
        builder = builder.edge("split", [name.as_str()]).edge(name, "join");
    }
    Ok(builder.build()?)
}

/// Runs a graph to its end.
pub(crate) async fn run(runtime: &Runtime, graph: &Graph<Small>, input: Small) -> Result<Small> {
    run_with(runtime, graph, input, CheckpointFrequency::EveryNode).await
}

/// Runs a graph to its end, with a checkpoint frequency.
pub(crate) async fn run_with(
    runtime: &Runtime,
    graph: &Graph<Small>,
    input: Small,
    frequency: CheckpointFrequency,
) -> Result<Small> {
    let policy = CheckpointPolicy::default().with_frequency(frequency);
    match runtime.start(graph, input).checkpoints(policy).await?.wait().await? {
        Outcome::Completed(state) => Ok(state),
        outcome => bail!("a run that is measured must complete: {outcome:?}"),
    }
}

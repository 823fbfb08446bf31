//! Random graphs: layers of nodes of many kinds with forward edges, and loops around some nodes.

use std::num::NonZeroU32;
use std::time::Duration;

use ferrata_core::RunKey;
use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph, GraphBuilder, RetryPolicy};
use ferrata_core::runtime::{OnParentEnd, RetentionPolicy};
use ferrata_core::state::{Context, Reducer};

use super::nodes;
use crate::support::dice::Dice;

/// The workflows.
const NAMES: [&str; 2] = ["one", "two"];

/// The kinds of nodes in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Nodes of every kind, which wait for each of their children without a time limit.
    Works,
    /// Nodes that start children, most of which they leave or await with a time limit.
    Families,
    /// Nodes of every kind, in runs that are pruned, swept and edited concurrently.
    Pruned,
}

pub(crate) struct Workload {
    pub(crate) mix: Mix,
    pub(crate) graphs: Vec<Graph<Context>>,
    /// The graph of the children.
    pub(crate) kid: Graph<Context>,
    /// The retention policy of active runs. By default, all records are kept.
    pub(crate) retention: Option<RetentionPolicy>,
    /// The deadline of each workflow.
    deadlines: Vec<Option<Duration>>,
}

/// The coarse checkpoint frequencies. `Disabled` is missing, because the simulation checks records.
const COARSE: [CheckpointFrequency; 3] = [
    CheckpointFrequency::EveryNth(NonZeroU32::new(3).unwrap()),
    CheckpointFrequency::Interval(Duration::from_secs(2)),
    CheckpointFrequency::StatusChangeOnly,
];

/// The kind of a node.
#[derive(Clone, Copy)]
enum Kind {
    Pure,
    Read,
    Write,
    External,
    Hazard,
    Steps,
    Asks,
    Hears,
    Naps,
    Flaky,
    Child,
    Children,
    Race,
    Left,
    Enough,
    Hasty,
}

impl Kind {
    const WORKS: [Self; 15] = [
        Self::Child,
        Self::Children,
        Self::Pure,
        Self::Pure,
        Self::Read,
        Self::Write,
        Self::Write,
        Self::External,
        Self::External,
        Self::Hazard,
        Self::Steps,
        Self::Asks,
        Self::Hears,
        Self::Naps,
        Self::Flaky,
    ];

    const FAMILIES: [Self; 10] = [
        Self::Child,
        Self::Children,
        Self::Race,
        Self::Race,
        Self::Left,
        Self::Enough,
        Self::Hasty,
        Self::Hasty,
        Self::Write,
        Self::Asks,
    ];

    fn draw(dice: &Dice, mix: Mix) -> Self {
        match mix {
            Mix::Works => *dice.pick(&Self::WORKS),
            Mix::Families => *dice.pick(&Self::FAMILIES),
            Mix::Pruned => *dice.pick(if dice.below(3) > 0 { &Self::WORKS } else { &Self::FAMILIES }),
        }
    }

    fn add(self, graph: GraphBuilder<Context>, name: &str) -> GraphBuilder<Context> {
        let worker = |graph: GraphBuilder<Context>, effect| {
            graph.node(name, move |cx, _s| nodes::work(cx, effect)).effect(effect)
        };
        match self {
            Self::Pure => worker(graph, Effect::Pure),
            Self::Read => worker(graph, Effect::Read),
            Self::Write => worker(graph, Effect::Write),
            Self::External => worker(graph, Effect::External),
            Self::Hazard => {
                let policy = RetryPolicy::none().with_attempts(3).with_delay(Duration::from_millis(200));
                graph.node(name, nodes::hazard).effect(Effect::External).retry(policy).timeout(nodes::HAZARD)
            }
            Self::Steps => graph.node(name, nodes::steps),
            Self::Asks => graph.node(name, nodes::asks),
            Self::Hears => graph.node(name, nodes::hears),
            Self::Naps => graph.node(name, nodes::naps),
            Self::Child => graph.node(name, async |cx, _s| nodes::family(cx, 1).await),
            Self::Children => graph.node(name, async |cx, _s| nodes::family(cx, 3).await),
            Self::Race => graph.node(name, async |cx, _s| {
                nodes::race(cx, Duration::from_secs(5), OnParentEnd::Cancel).await
            }),
            Self::Left => graph
                .node(name, async |cx, _s| nodes::race(cx, Duration::from_secs(1), OnParentEnd::Leave).await),
            Self::Enough => graph.node(name, nodes::enough),
            Self::Hasty => {
                let policy = RetryPolicy::none().with_attempts(2).with_delay(Duration::from_millis(200));
                graph.node(name, nodes::hasty).retry(policy)
            }
            Self::Flaky => {
                let policy = RetryPolicy::none().with_attempts(3).with_delay(Duration::from_millis(200));
                graph.node(name, nodes::flaky).retry(policy)
            }
        }
    }
}

impl Workload {
    /// Draws the graphs. Runs have deadlines only if no clock jumps. An owner cancels the children of an overdue run before it records the failure.
    /// Another owner with a slow clock would then continue with a cancelled child.
    pub(crate) fn draw(dice: &Dice, mix: Mix, are_steady: bool) -> Self {
        let deadlines = NAMES.map(|_| match dice.below(3) {
            0 => Some(Duration::from_secs(*dice.pick(&[8, 25, 100]))).filter(|_| are_steady),
            _ => None,
        });
        let graphs = NAMES
            .into_iter()
            .zip(deadlines)
            .map(|(name, deadline)| draw(dice, mix, name, deadline))
            .collect();
        let kid = kid(dice);
        let keeps = mix == Mix::Pruned && dice.below(2) == 0;
        let retention = keeps.then(|| RetentionPolicy::keep_all().keep_last(1));
        Self { mix, graphs, kid, retention, deadlines: deadlines.into() }
    }

    /// The deadline of a run.
    pub(crate) fn deadline_of(&self, run: &RunKey) -> Option<Duration> {
        let at = NAMES.iter().position(|name| run.run.as_str().starts_with(name));
        at.and_then(|at| self.deadlines[at])
    }

    /// Draws the checkpoint policy of a claimed run.
    pub(crate) fn policy(dice: &Dice) -> CheckpointPolicy {
        let frequency = match dice.below(2) {
            0 => CheckpointFrequency::EveryNode,
            _ => *dice.pick(&COARSE),
        };
        CheckpointPolicy::default().with_frequency(frequency)
    }

    /// Draws run ids, each with one of the workflows.
    pub(crate) fn runs(dice: &Dice) -> Vec<RunKey> {
        let names = NAMES.into_iter().cycle().zip(0..1 + dice.below(3));
        names.map(|(name, at)| RunKey::try_from(&*format!("{name}-{at}")).unwrap()).collect()
    }

    pub(crate) fn graph_of(&self, run: &RunKey) -> &Graph<Context> {
        self.graphs.iter().find(|graph| run.run.as_str().starts_with(graph.name().as_str())).unwrap()
    }
}

/// A child that needs no operator, and sleeps at most once. The sleep takes long if clocks differ widely.
fn kid(dice: &Dice) -> Graph<Context> {
    let kinds = [Kind::Pure, Kind::Steps, Kind::Naps, Kind::Flaky];
    let graph = Graph::<Context>::builder("kid").channel("trace", Reducer::Append);
    let graph = dice.pick(&kinds).add(graph, "first");
    dice.pick(&kinds[..2]).add(graph, "second").entry("first").edge("first", "second").build().unwrap()
}

fn draw(dice: &Dice, mix: Mix, name: &str, deadline: Option<Duration>) -> Graph<Context> {
    let mut graph = ["trace", "said", "edits"]
        .into_iter()
        .fold(Graph::<Context>::builder(name), |graph, channel| graph.channel(channel, Reducer::Append));
    let layers: Vec<Vec<String>> = (0..2 + dice.below(3))
        .map(|layer| (0..1 + dice.below(3)).map(|at| format!("n{layer}_{at}")).collect())
        .collect();
    graph = graph.node("begin", async |cx, _s| nodes::work(cx, Effect::Pure).await).effect(Effect::Pure);
    for node in layers.iter().flatten() {
        graph = Kind::draw(dice, mix).add(graph, node);
    }
    graph = graph.node("end", async |cx, _s| nodes::work(cx, Effect::Write).await).entry("begin");
    let mut before = vec!["begin".to_owned()];
    for layer in layers {
        for node in &layer {
            // Each node has at least one incoming edge. Nodes without an outgoing edge are joined at the end.
            graph = graph.edge(dice.pick(&before).clone(), node.clone());
        }
        let lost: Vec<String> = before.into_iter().filter(|_| dice.below(2) == 0).collect();
        if !lost.is_empty() {
            graph = graph.edge(lost, "end");
        }
        before = layer;
    }
    graph = graph.edge(before, "end");
    if dice.below(2) == 0 {
        graph = graph.node("last", async |cx, _s| nodes::work(cx, Effect::Read).await).effect(Effect::Read);
        graph = graph.route(
            "end",
            ["begin", "last"],
            |_s, cx| if cx.visit().get() < 2 { "begin" } else { "last" },
        );
    }
    match deadline {
        Some(deadline) => graph.deadline(deadline).build().unwrap(),
        None => graph.build().unwrap(),
    }
}

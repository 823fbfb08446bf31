//! Fidelity: how much of the previous run a task receives. There are six fidelities, and this module chooses one for each node.

mod preamble;
mod sessions;

use std::fmt;

use serde_json::{Value as Json, json};

pub(crate) use preamble::{STEERING, latest_answers, preamble};
pub(crate) use sessions::TaskSessions;

use crate::pipeline::{Edge, Node, Pipeline};

/// Prefix of the context keys with the last result of each node, for later tasks.
pub(crate) const STAGES: &str = "internal.stage.";

/// The context key of the fidelity of the last task.
pub(crate) const LAST: &str = "internal.fidelity";

/// The amount of information about the previous run that a task receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fidelity {
    /// The task receives no summary. The task continues the session of its thread, which already has the information.
    Full,
    /// The task receives the goal and the id of the run.
    Truncate,
    /// The task receives one line for each node that has run, with its status, and one line for each value of the context.
    Compact,
    /// The task receives the latest actions, in about 600 tokens.
    SummaryLow,
    /// The task receives actions and answers, in about 1,500 tokens.
    SummaryMedium,
    /// The task receives actions and answers, in about 3,000 tokens.
    SummaryHigh,
}

impl Fidelity {
    /// All fidelities.
    pub const ALL: [Self; 6] =
        [Self::Full, Self::Truncate, Self::Compact, Self::SummaryLow, Self::SummaryMedium, Self::SummaryHigh];

    /// Returns the name that attributes use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Truncate => "truncate",
            Self::Compact => "compact",
            Self::SummaryLow => "summary:low",
            Self::SummaryMedium => "summary:medium",
            Self::SummaryHigh => "summary:high",
        }
    }

    /// Returns the fidelity with this name; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fidelity| fidelity.as_str() == name)
    }
}

impl fmt::Display for Fidelity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The fidelity of one task. The fidelity is chosen before the task begins, from the edge that led to the node, from the node and from the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FidelityChoice {
    /// The amount of information that the task receives.
    pub fidelity: Fidelity,
    /// The session that the task continues. Present if the fidelity is [`Fidelity::Full`].
    pub thread: Option<String>,
}

/// The fidelity settings of the edge that led to a node, and the node where this edge begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct EdgeArrival {
    pub(crate) from: Option<String>,
    pub(crate) fidelity: String,
    pub(crate) thread: String,
}

impl EdgeArrival {
    /// Reads the fidelity settings of an edge.
    pub(crate) fn by(edge: &Edge) -> Self {
        let text = |key: &str| edge.attributes.text(key).into_owned();
        Self { from: Some(edge.from.to_string()), fidelity: text("fidelity"), thread: text("thread_id") }
    }
}

impl FidelityChoice {
    /// Chooses the fidelity of a task. The first setting that exists applies: the edge, the node, the graph's `default_fidelity`, and then `compact`.
    /// For full fidelity, the thread is chosen in the same way: the node's `thread_id`, the edge's thread, the graph's `default_thread`, the
    /// innermost subgraph around the node, and then the previous node.
    pub(crate) fn of(node: &Node, pipeline: &Pipeline, arrival: &EdgeArrival) -> Self {
        let fidelities = [
            arrival.fidelity.as_str().into(),
            node.attributes.text("fidelity"),
            pipeline.attributes.text("default_fidelity"),
        ];
        let fidelity = fidelities.iter().find_map(|name| Fidelity::named(name)).unwrap_or(Fidelity::Compact);
        let thread = || {
            let own = node.attributes.text("thread_id").into_owned();
            let of_graph = pipeline.attributes.text("default_thread").into_owned();
            let around = node.innermost_class().unwrap_or_default().to_owned();
            let before = arrival.from.clone().unwrap_or_default();
            let mut keys = [own, arrival.thread.clone(), of_graph, around, before].into_iter();
            keys.find(|key| !key.is_empty()).unwrap_or_else(|| node.id().to_owned())
        };
        Self { fidelity, thread: (fidelity == Fidelity::Full).then(thread) }
    }

    /// Returns the choice in the form that the context stores. `by` is the idempotency key of the activation.
    pub(crate) fn kept(&self, by: &str) -> Json {
        match &self.thread {
            Some(thread) => json!({"mode": self.fidelity.as_str(), "thread": thread, "by": by}),
            None => json!({"mode": self.fidelity.as_str(), "by": by}),
        }
    }
}

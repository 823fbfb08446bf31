//! How much of the run so far a task receives: the six fidelities, and the choice of one for a node.

mod preamble;
mod sessions;

use std::fmt;

use serde_json::{Value as Json, json};

pub(crate) use preamble::{STEERING, latest_answers, preamble};
pub(crate) use sessions::TaskSessions;

use crate::pipeline::{Edge, Node, Pipeline};

/// Prefix of the context keys for each node's last result, for later tasks.
pub(crate) const STAGES: &str = "internal.stage.";

/// The context key for the fidelity of the last task.
pub(crate) const LAST: &str = "internal.fidelity";

/// How much of the run so far a task receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fidelity {
    /// Nothing: the session of its thread continues, and knows it.
    Full,
    /// The goal and the run's id.
    Truncate,
    /// A line for each node that has run, with its status, and for each value of the context.
    Compact,
    /// The latest actions, in about 600 tokens.
    SummaryLow,
    /// Actions and answers, in about 1,500 tokens.
    SummaryMedium,
    /// Actions and answers, in about 3,000 tokens.
    SummaryHigh,
}

impl Fidelity {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Full, Self::Truncate, Self::Compact, Self::SummaryLow, Self::SummaryMedium, Self::SummaryHigh];

    /// Returns the name for attributes.
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

    /// Returns the fidelity with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fidelity| fidelity.as_str() == name)
    }
}

impl fmt::Display for Fidelity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The fidelity of one task. It is chosen before the task begins, from the edge that led to its node, the node and the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FidelityChoice {
    /// How much the task receives.
    pub fidelity: Fidelity,
    /// The session to continue, if the fidelity is [`Fidelity::Full`].
    pub thread: Option<String>,
}

/// The fidelity settings of the edge that led to a node, and the edge's first node.
#[derive(Clone, Debug, Default)]
pub(crate) struct EdgeArrival {
    pub(crate) from: Option<String>,
    pub(crate) fidelity: String,
    pub(crate) thread: String,
}

impl EdgeArrival {
    /// Reads the settings of an edge.
    pub(crate) fn by(edge: &Edge) -> Self {
        let text = |key: &str| edge.attributes.text(key).into_owned();
        Self { from: Some(edge.from.to_string()), fidelity: text("fidelity"), thread: text("thread_id") }
    }
}

impl FidelityChoice {
    /// Chooses the fidelity: from the edge, then the node, then the graph's `default_fidelity`; the default is `compact`. The thread of a full
    /// fidelity is the node's `thread_id`, then the edge's, then the graph's `default_thread`, then the innermost subgraph around the node, then the
    /// previous node.
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

    /// Returns the form for the context; `by` names the activation.
    pub(crate) fn kept(&self, by: &str) -> Json {
        match &self.thread {
            Some(thread) => json!({"mode": self.fidelity.as_str(), "thread": thread, "by": by}),
            None => json!({"mode": self.fidelity.as_str(), "by": by}),
        }
    }
}

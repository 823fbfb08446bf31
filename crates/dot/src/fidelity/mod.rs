//! How much of the run so far a task is told: the six fidelities, and which of them counts for a node.

mod preamble;
mod sessions;

use std::fmt;

use serde_json::{Value as Json, json};

pub(crate) use preamble::{STEERING, latest_answers, preamble};
pub(crate) use sessions::Sessions;

use crate::pipeline::{Edge, Node, Pipeline};

/// What the keys begin with under which the context keeps what each node last came to, for the tasks after it.
pub(crate) const STAGES: &str = "internal.stage.";

/// The key under which the context keeps how the last task was told of the run.
pub(crate) const LAST: &str = "internal.fidelity";

/// How much of the run so far a task is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fidelity {
    /// Nothing: the session of its thread goes on, which knows it.
    Full,
    /// The goal and the run's id.
    Truncate,
    /// Which nodes have run, how each ended, and the values of the context, in a line each.
    Compact,
    /// What has been done last, in about 600 tokens.
    SummaryLow,
    /// What has been done and said, in about 1,500 tokens.
    SummaryMedium,
    /// What has been done and said, in about 3,000 tokens.
    SummaryHigh,
}

impl Fidelity {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Full, Self::Truncate, Self::Compact, Self::SummaryLow, Self::SummaryMedium, Self::SummaryHigh];

    /// Returns the name, as attributes have it.
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

    /// Returns the fidelity of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fidelity| fidelity.as_str() == name)
    }
}

impl fmt::Display for Fidelity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How one task is told of the run: decided before it begins, by the edge it was reached by, its node and the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FidelityChoice {
    /// How much it is told.
    pub fidelity: Fidelity,
    /// The session that goes on, if the fidelity is [`Fidelity::Full`].
    pub thread: Option<String>,
}

/// What the edge that led to a node says, and the node it came from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrival {
    pub(crate) from: Option<String>,
    pub(crate) fidelity: String,
    pub(crate) thread: String,
}

impl Arrival {
    /// Reads what an edge says.
    pub(crate) fn by(edge: &Edge) -> Self {
        let text = |key: &str| edge.attributes.text(key).into_owned();
        Self { from: Some(edge.from.to_string()), fidelity: text("fidelity"), thread: text("thread_id") }
    }
}

impl FidelityChoice {
    /// Decides: the edge before the node, the node before the graph's `default_fidelity`, else `compact`. The thread of a full
    /// fidelity is the node's `thread_id`, else the edge's, else the graph's `default_thread`, else the innermost subgraph
    /// around the node, else the node before it.
    pub(crate) fn of(node: &Node, pipeline: &Pipeline, arrival: &Arrival) -> Self {
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

    /// What the context keeps of it: `by` names the activation.
    pub(crate) fn kept(&self, by: &str) -> Json {
        match &self.thread {
            Some(thread) => json!({"mode": self.fidelity.as_str(), "thread": thread, "by": by}),
            None => json!({"mode": self.fidelity.as_str(), "by": by}),
        }
    }
}

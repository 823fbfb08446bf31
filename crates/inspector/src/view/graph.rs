//! The graph of a run: every node with its status, and each edge with the number of times that the run took it.

use std::collections::{BTreeMap, BTreeSet};

use ferrata_core::NodeName;
use ferrata_core::runtime::{ActivationPhase, Checkpoint, LoggedGraph, PastActivation};
use serde::{Deserialize, Serialize};

use super::text::SHORT;
use crate::outline::Outline;
use crate::redact::Redaction;

/// The appearance of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeAppearance {
    /// The run has not reached the node.
    Plain,
    /// The last visit of the node succeeded.
    Done,
    /// The last visit of the node did a part of its work.
    Partial,
    /// The last visit of the node failed, whether the run continued or stopped.
    Failed,
    /// The node is running.
    Going,
    /// The node waits for an answer, a message, a time, a run, a process or other branches.
    Waiting,
    /// The node will never run, or did nothing.
    Skipped,
}

impl NodeAppearance {
    /// Returns the appearance of an ended activation. A run may continue after a failure, but the failure never appears as success.
    pub(crate) fn of(past: &PastActivation) -> Self {
        match past.verdict.as_ref().map(|verdict| verdict.outcome.as_str()) {
            _ if !past.ok => Self::Failed,
            Some("fail" | "retry") => Self::Failed,
            Some("partial_success") => Self::Partial,
            Some("skipped") => Self::Skipped,
            _ => Self::Done,
        }
    }

    /// Returns the appearance of an open activation.
    pub(crate) const fn of_phase(phase: ActivationPhase) -> Self {
        match phase {
            ActivationPhase::Stopped => Self::Failed,
            ActivationPhase::Running => Self::Going,
            _ => Self::Waiting,
        }
    }
}

/// A node with its status.
#[derive(Debug, Serialize)]
pub(crate) struct ViewNode {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    label: String,
    look: NodeAppearance,
    visits: u32,
    /// The number of failed attempts of the open visit.
    #[serde(skip_serializing_if = "is_zero")]
    failed: u32,
    /// The reason why its last visit did not succeed; empty if it succeeded.
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
    /// The current activity of its open visit, in a few words.
    #[serde(skip_serializing_if = "Option::is_none")]
    doing: Option<&'static str>,
    /// The activations that have already led to this node, while it waits for others that lead to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    joins: Vec<String>,
}

/// An edge with the number of times the run took it.
#[derive(Debug, Serialize)]
pub(crate) struct ViewEdge {
    from: String,
    to: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    label: String,
    taken: u32,
}

impl ViewEdge {
    /// Creates an edge between two nodes without further data.
    fn plain(from: &NodeName, to: &NodeName) -> Self {
        Self {
            from: from.to_string(),
            to: to.to_string(),
            kind: String::new(),
            label: String::new(),
            taken: 0,
        }
    }
}

/// The part of a graph that a log describes: its nodes and edges, and old edges that the current graph no longer has.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct KnownGraph {
    nodes: Vec<NodeName>,
    edges: Vec<(NodeName, NodeName)>,
    /// Whether the edges of nodes that the run has not reached are included.
    whole: bool,
}

impl KnownGraph {
    pub(crate) fn of(now: &Checkpoint, told: &LoggedGraph) -> Self {
        let fired =
            now.history.iter().flat_map(|past| past.led_to.iter().map(|to| (past.node.clone(), to.clone())));
        let (mut edges, mut seen) = (Vec::new(), BTreeSet::new());
        let declared = told.edges.iter().flatten().cloned();
        for edge in declared.chain(fired).chain(told.bypassed.iter().cloned()) {
            if seen.insert(edge.clone()) {
                edges.push(edge);
            }
        }
        Self { nodes: told.nodes.clone(), edges, whole: told.edges.is_some() }
    }
}

/// A run's graph.
#[derive(Debug, Default, Serialize)]
pub(crate) struct RunGraph {
    pub(crate) nodes: Vec<ViewNode>,
    pub(crate) edges: Vec<ViewEdge>,
    /// Whether the edges of nodes that the run has not reached are known.
    pub(crate) whole: bool,
    #[serde(skip)]
    places: BTreeMap<String, usize>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl RunGraph {
    /// Combines the activations of a run with the known graph.
    pub(crate) fn of(
        now: &Checkpoint,
        phases: &[ActivationPhase],
        known: &KnownGraph,
        outline: Option<&Outline>,
        hides: &Redaction,
    ) -> Self {
        let mut graph = Self { whole: outline.is_some() || known.whole, ..Self::default() };
        if let Some(outline) = outline {
            for node in &outline.nodes {
                graph.node(&node.name).label.clone_from(&node.label);
            }
            for edge in &outline.edges {
                graph.edges.push(ViewEdge {
                    from: edge.from.clone(),
                    to: edge.to.clone(),
                    kind: edge.kind.clone(),
                    label: hides.cut(&edge.label, SHORT),
                    taken: 0,
                });
            }
        }
        // Add nodes in the order of their activation, so that a drawing without the other edges reads from start to end.
        for past in &now.history {
            graph.node(past.node.as_str());
        }
        for name in &known.nodes {
            graph.node(name.as_str());
        }
        let mut drawn: BTreeSet<(String, String)> =
            graph.edges.iter().map(|edge| (edge.from.clone(), edge.to.clone())).collect();
        for (from, to) in &known.edges {
            if drawn.insert((from.to_string(), to.to_string())) {
                graph.edges.push(ViewEdge::plain(from, to));
            }
        }
        graph.color(now, phases, hides);
        graph
    }

    fn node(&mut self, name: &str) -> &mut ViewNode {
        let at = *self.places.entry(name.to_owned()).or_insert_with(|| {
            self.nodes.push(ViewNode {
                name: name.to_owned(),
                label: String::new(),
                look: NodeAppearance::Plain,
                visits: 0,
                failed: 0,
                why: String::new(),
                doing: None,
                joins: Vec::new(),
            });
            self.nodes.len() - 1
        });
        &mut self.nodes[at]
    }

    fn color(&mut self, now: &Checkpoint, phases: &[ActivationPhase], hides: &Redaction) {
        let mut by_ends: BTreeMap<(String, String), usize> = BTreeMap::new();
        for (at, edge) in self.edges.iter().enumerate() {
            by_ends.entry((edge.from.clone(), edge.to.clone())).or_insert(at);
        }
        for past in &now.history {
            let node = self.node(past.node.as_str());
            node.look = NodeAppearance::of(past);
            node.why = if node.look == NodeAppearance::Done {
                String::new()
            } else {
                hides.cut(reason(past), SHORT)
            };
            for to in &past.led_to {
                self.node(to.as_str());
                let ends = (past.node.to_string(), to.to_string());
                let at = *by_ends.entry(ends).or_insert_with(|| {
                    self.edges.push(ViewEdge::plain(&past.node, to));
                    self.edges.len() - 1
                });
                self.edges[at].taken += 1;
            }
        }
        for (name, visits) in &now.visited {
            self.node(name.as_str()).visits = *visits;
        }
        for name in &now.skipped {
            self.node(name.as_str()).look = NodeAppearance::Skipped;
        }
        for waiting in &now.waiting {
            let node = self.node(waiting.at.as_str());
            node.look = NodeAppearance::Waiting;
            node.doing = Some("waits for other branches");
            node.joins.push(format!("{}@{}", waiting.from, waiting.visit));
        }
        // If a node has several open visits, show the visit that most urgently needs a person.
        let mut open: Vec<_> = now.next.iter().zip(phases).collect();
        open.sort_by_key(|(_, phase)| std::cmp::Reverse(urgency(**phase)));
        for (pending, phase) in open {
            let node = self.node(pending.node.as_str());
            node.failed = pending.failed;
            node.look = NodeAppearance::of_phase(*phase);
            let is_told_by_look = matches!(phase, ActivationPhase::Stopped | ActivationPhase::Running);
            node.doing = (!is_told_by_look).then_some(phase.as_str());
        }
    }
}

/// Returns the urgency of an activation for a person. The lowest number is the most urgent.
const fn urgency(phase: ActivationPhase) -> u8 {
    match phase {
        ActivationPhase::Stopped => 0,
        ActivationPhase::Asking => 1,
        ActivationPhase::WaitingForProcess => 2,
        ActivationPhase::WaitingForMessage => 3,
        ActivationPhase::WaitingForRuns => 4,
        ActivationPhase::Retrying => 5,
        ActivationPhase::Sleeping => 6,
        ActivationPhase::Running => 7,
        _ => 8,
    }
}

/// Returns the reason for the result of an activation; an empty text if there is none.
pub(crate) fn reason(past: &PastActivation) -> &str {
    let said = past.verdict.as_ref().map(|verdict| &*verdict.reason).filter(|reason| !reason.is_empty());
    let failed = past.failure.as_ref().map(|failure| &*failure.message);
    failed.or(said).or(past.notes.as_deref()).unwrap_or_default()
}

//! Graphs for drawing: the graph of a pipeline, of a run, or of both together.

#[cfg(test)]
mod crossing;
mod direction;
mod edge_paths;
mod layout;
mod order;
mod svg;
mod text;

use std::collections::BTreeMap;

use ferrata::runtime::{ActivationPhase, Checkpoint, LoggedGraph};
use ferrata_dot::Pipeline;
use ferrata_dot::pipeline::{Attributes, SHAPES};
use serde::Serialize;

use crate::nodes::ReadMoment;
use crate::verdict::NodeVerdict;

pub(crate) use svg::svg;
pub(crate) use text::{dot, mermaid};

/// The appearance of a node of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeLook {
    /// The status of the node is unknown, or the node has not started.
    Plain,
    /// The last visit of the node succeeded.
    Done,
    /// The last visit of the node did a part of its work.
    Partial,
    /// The last visit of the node failed, whether the run continued or stopped.
    Failed,
    /// The node has started and has not ended.
    Going,
    /// The node waits for an answer or a message, or for other branches.
    Waiting,
    /// The node will never run, did nothing, or was abandoned.
    Skipped,
}

impl NodeLook {
    /// Returns the colors of the box and of its border.
    pub(crate) const fn colors(self) -> (&'static str, &'static str) {
        match self {
            Self::Plain => ("#ffffff", "#57606a"),
            Self::Done => ("#dafbe1", "#1a7f37"),
            Self::Partial => ("#fff1e5", "#bc4c00"),
            Self::Failed => ("#ffebe9", "#cf222e"),
            Self::Going => ("#ddf4ff", "#0969da"),
            Self::Waiting => ("#fff8c5", "#9a6700"),
            Self::Skipped => ("#f6f8fa", "#afb8c1"),
        }
    }

    /// Returns a symbol that has the same meaning as the color.
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Done => "✓ ",
            Self::Partial => "◐ ",
            Self::Failed => "✗ ",
            Self::Going => "… ",
            Self::Waiting => "? ",
            Self::Skipped => "- ",
        }
    }
}

/// A node for drawing.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DrawnNode {
    /// The name of the node.
    pub(crate) id: String,
    /// The text in the node.
    pub(crate) label: String,
    /// The Graphviz shape of the node.
    pub(crate) shape: String,
    /// The handler type of the node; an empty text if only the run is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) kind: String,
    /// All attributes of the node in the pipeline, including those of its scopes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attributes: BTreeMap<String, String>,
    /// The appearance of the node.
    pub(crate) look: NodeLook,
    /// The number of visits of the node.
    pub(crate) visits: u32,
    /// The reason why the last visit did not succeed; an empty text if it succeeded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) why: String,
}

impl DrawnNode {
    /// Returns the text in the node, with its symbol and the number of visits.
    pub(crate) fn caption(&self) -> String {
        let times = if self.visits > 1 { format!(" ×{}", self.visits) } else { String::new() };
        format!("{}{}{times}", self.look.sign(), self.label)
    }
}

/// An edge for drawing.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DrawnEdge {
    /// The index of the node where the edge begins.
    pub(crate) from: usize,
    /// The index of the node to which the edge leads.
    pub(crate) to: usize,
    /// The label next to the edge.
    pub(crate) label: String,
    /// The condition of the edge; an empty text if it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) condition: String,
    /// All attributes of the edge in the pipeline.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attributes: BTreeMap<String, String>,
    /// The number of times that the run took the edge.
    pub(crate) taken: u32,
}

impl DrawnEdge {
    /// Creates an edge between two nodes without further data.
    fn between(from: usize, to: usize) -> Self {
        Self {
            from,
            to,
            label: String::new(),
            condition: String::new(),
            attributes: BTreeMap::new(),
            taken: 0,
        }
    }
}

/// A graph for drawing.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GraphSketch {
    /// The name of the graph.
    pub(crate) name: String,
    /// All attributes of the pipeline itself.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attributes: BTreeMap<String, String>,
    /// The nodes of the graph.
    pub(crate) nodes: Vec<DrawnNode>,
    /// The edges of the graph.
    pub(crate) edges: Vec<DrawnEdge>,
    /// Whether the graph shows a run. Then the parts that the run has not reached are faint.
    #[serde(skip)]
    pub(crate) is_run: bool,
    #[serde(skip)]
    places: BTreeMap<String, usize>,
}

impl GraphSketch {
    /// Creates an empty graph.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            attributes: BTreeMap::new(),
            nodes: Vec::new(),
            edges: Vec::new(),
            is_run: false,
            places: BTreeMap::new(),
        }
    }

    /// Creates the graph of a pipeline.
    pub(crate) fn of_pipeline(pipeline: &Pipeline) -> Self {
        let mut sketch = Self::new(pipeline.name());
        sketch.attributes = listed(&pipeline.attributes);
        for node in pipeline.nodes() {
            let at = sketch.node(node.id());
            sketch.nodes[at].label = node.label().into_owned();
            sketch.nodes[at].shape = node.shape().into_owned();
            sketch.nodes[at].kind =
                node.handler_type(|name| SHAPES.iter().any(|(_, kind)| *kind == name)).into_owned();
            sketch.nodes[at].attributes = listed(&node.attributes);
        }
        for edge in pipeline.edges() {
            let (from, to) = (sketch.node(&edge.from), sketch.node(&edge.to));
            let label = if edge.label().is_empty() { edge.condition() } else { edge.label() };
            let (label, condition) = (label.into_owned(), edge.condition().into_owned());
            sketch.edges.push(DrawnEdge {
                from,
                to,
                label,
                condition,
                attributes: listed(&edge.attributes),
                taken: 0,
            });
        }
        sketch
    }

    /// Returns the direction of the picture.
    fn turn(&self) -> direction::LayoutDirection {
        direction::LayoutDirection::of(self.attributes.get("rankdir").map_or("", String::as_str))
    }

    /// Returns the index of a node. Adds the node if it is missing.
    fn node(&mut self, id: &str) -> usize {
        if let Some(&at) = self.places.get(id) {
            return at;
        }
        let at = self.nodes.len();
        self.places.insert(id.to_owned(), at);
        let (id, label) = (id.to_owned(), id.to_owned());
        self.nodes.push(DrawnNode {
            id,
            label,
            shape: "box".into(),
            kind: String::new(),
            attributes: BTreeMap::new(),
            look: NodeLook::Plain,
            visits: 0,
            why: String::new(),
        });
        at
    }

    /// Adds the activations of a run, and the nodes and edges that are missing in the graph.
    pub(crate) fn color(&mut self, run: &Checkpoint, moment: ReadMoment) {
        self.is_run = true;
        for past in &run.history {
            let from = self.node(past.node.as_str());
            self.nodes[from].look = match NodeVerdict::of(past) {
                NodeVerdict::Done => NodeLook::Done,
                NodeVerdict::Partial => NodeLook::Partial,
                NodeVerdict::Failed => NodeLook::Failed,
                NodeVerdict::Skipped => NodeLook::Skipped,
            };
            self.nodes[from].why = match NodeVerdict::of(past) {
                NodeVerdict::Done => String::new(),
                _ => crate::verdict::reason(past).to_owned(),
            };
            for to in &past.led_to {
                let to = self.node(to.as_str());
                match self.edges.iter_mut().find(|edge| (edge.from, edge.to) == (from, to)) {
                    Some(edge) => edge.taken += 1,
                    None => self.edges.push(DrawnEdge { taken: 1, ..DrawnEdge::between(from, to) }),
                }
            }
        }
        for (node, visits) in &run.visited {
            let at = self.node(node.as_str());
            self.nodes[at].visits = *visits;
        }
        for node in &run.skipped {
            let at = self.node(node.as_str());
            self.nodes[at].look = NodeLook::Skipped;
        }
        for waiting in &run.waiting {
            let at = self.node(waiting.at.as_str());
            self.nodes[at].look = NodeLook::Waiting;
        }
        for pending in &run.next {
            let at = self.node(pending.node.as_str());
            self.nodes[at].look = match moment.phase(run, pending) {
                ActivationPhase::Stopped => NodeLook::Failed,
                ActivationPhase::Running => NodeLook::Going,
                _ => NodeLook::Waiting,
            };
        }
    }

    /// Adds the nodes and edges of the graph in a run's log.
    pub(crate) fn add_logged(&mut self, graph: &LoggedGraph) {
        self.is_run = true;
        for node in &graph.nodes {
            self.node(node.as_str());
        }
        for (from, to) in graph.edges.iter().flatten().chain(&graph.bypassed) {
            let (from, to) = (self.node(from.as_str()), self.node(to.as_str()));
            if !self.edges.iter().any(|edge| (edge.from, edge.to) == (from, to)) {
                self.edges.push(DrawnEdge::between(from, to));
            }
        }
    }
}

/// Returns attributes by their keys.
fn listed(attributes: &Attributes) -> BTreeMap<String, String> {
    let text = |attribute: &ferrata_dot::syntax::Attribute| {
        (attribute.key.value.to_string(), attribute.value.value.text().into_owned())
    };
    attributes.iter().map(text).collect()
}

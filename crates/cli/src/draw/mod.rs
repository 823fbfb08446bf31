//! A graph to be drawn: of a pipeline, of a run, or of a run over its pipeline.

#[cfg(test)]
mod crossing;
mod layout;
mod order;
mod svg;
mod text;
mod turn;
mod ways;

use std::collections::BTreeMap;

use ferrata::runtime::{ActivationPhase, Checkpoint, LoggedGraph};
use ferrata_dot::Pipeline;
use ferrata_dot::pipeline::{Attributes, SHAPES};
use serde::Serialize;

use crate::nodes::Moment;
use crate::verdict::NodeVerdict;

pub(crate) use svg::svg;
pub(crate) use text::{dot, mermaid};

/// How a node of a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Look {
    /// Nothing is known, or it has not begun.
    Plain,
    /// Its last visit ended well.
    Done,
    /// Its last visit did a part of its work.
    Partial,
    /// Its last visit failed, also where the run went on, or stopped the run.
    Failed,
    /// It has begun and not ended.
    Going,
    /// It waits for an answer or a message, or for other branches.
    Waiting,
    /// It will never run, did nothing, or was left.
    Skipped,
}

impl Look {
    /// Returns the colours of the box and of its border.
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

    /// Returns a sign that says the same without colour.
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

/// A node to be drawn.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Box {
    /// Its name.
    pub(crate) id: String,
    /// What stands in it.
    pub(crate) label: String,
    /// Its shape in Graphviz.
    pub(crate) shape: String,
    /// The type of its handler, as the dialect knows it; empty if only a run is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) kind: String,
    /// All that the pipeline says of it, its scopes included.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attributes: BTreeMap<String, String>,
    /// How it stands.
    pub(crate) look: Look,
    /// How often it was visited.
    pub(crate) visits: u32,
    /// Why its last visit came to something else than success.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) why: String,
}

impl Box {
    /// Returns what is written in it.
    pub(crate) fn caption(&self) -> String {
        let times = if self.visits > 1 { format!(" ×{}", self.visits) } else { String::new() };
        format!("{}{}{times}", self.look.sign(), self.label)
    }
}

/// An edge to be drawn.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// Where it begins, as a place in the nodes.
    pub(crate) from: usize,
    /// Where it leads.
    pub(crate) to: usize,
    /// What is written beside it.
    pub(crate) label: String,
    /// What it asks for, if it has a condition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) condition: String,
    /// All that the pipeline says of it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attributes: BTreeMap<String, String>,
    /// How often the run went along it.
    pub(crate) taken: u32,
}

impl Line {
    /// Makes an edge of which nothing is known but its ends.
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

/// A graph to be drawn.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sketch {
    /// What it is called.
    pub(crate) name: String,
    /// All that the pipeline says of itself.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attributes: BTreeMap<String, String>,
    /// Its nodes.
    pub(crate) nodes: Vec<Box>,
    /// Its edges.
    pub(crate) edges: Vec<Line>,
    /// Whether it is one of a run: what that has not come to is faint.
    #[serde(skip)]
    pub(crate) is_run: bool,
    #[serde(skip)]
    places: BTreeMap<String, usize>,
}

impl Sketch {
    /// Makes an empty one.
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

    /// Makes one of a pipeline.
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
            sketch.edges.push(Line {
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

    /// Returns which way its picture goes.
    fn turn(&self) -> turn::Turn {
        turn::Turn::of(self.attributes.get("rankdir").map_or("", String::as_str))
    }

    /// Returns the place of a node, which is made if it is not there.
    fn node(&mut self, id: &str) -> usize {
        if let Some(&at) = self.places.get(id) {
            return at;
        }
        let at = self.nodes.len();
        self.places.insert(id.to_owned(), at);
        let (id, label) = (id.to_owned(), id.to_owned());
        self.nodes.push(Box {
            id,
            label,
            shape: "box".into(),
            kind: String::new(),
            attributes: BTreeMap::new(),
            look: Look::Plain,
            visits: 0,
            why: String::new(),
        });
        at
    }

    /// Puts what a run has done over it; nodes and edges that it does not have are added.
    pub(crate) fn color(&mut self, run: &Checkpoint, moment: Moment) {
        self.is_run = true;
        for past in &run.history {
            let from = self.node(past.node.as_str());
            self.nodes[from].look = match NodeVerdict::of(past) {
                NodeVerdict::Done => Look::Done,
                NodeVerdict::Partial => Look::Partial,
                NodeVerdict::Failed => Look::Failed,
                NodeVerdict::Skipped => Look::Skipped,
            };
            self.nodes[from].why = match NodeVerdict::of(past) {
                NodeVerdict::Done => String::new(),
                _ => crate::verdict::reason(past).to_owned(),
            };
            for to in &past.led_to {
                let to = self.node(to.as_str());
                match self.edges.iter_mut().find(|edge| (edge.from, edge.to) == (from, to)) {
                    Some(edge) => edge.taken += 1,
                    None => self.edges.push(Line { taken: 1, ..Line::between(from, to) }),
                }
            }
        }
        for (node, visits) in &run.visited {
            let at = self.node(node.as_str());
            self.nodes[at].visits = *visits;
        }
        for node in &run.skipped {
            let at = self.node(node.as_str());
            self.nodes[at].look = Look::Skipped;
        }
        for waiting in &run.waiting {
            let at = self.node(waiting.at.as_str());
            self.nodes[at].look = Look::Waiting;
        }
        for pending in &run.next {
            let at = self.node(pending.node.as_str());
            self.nodes[at].look = match moment.phase(run, pending) {
                ActivationPhase::Stopped => Look::Failed,
                ActivationPhase::Running => Look::Going,
                _ => Look::Waiting,
            };
        }
    }

    /// Adds the nodes and edges that the log of a run tells of its graph.
    pub(crate) fn add_logged(&mut self, graph: &LoggedGraph) {
        self.is_run = true;
        for node in &graph.nodes {
            self.node(node.as_str());
        }
        for (from, to) in graph.edges.iter().flatten().chain(&graph.bypassed) {
            let (from, to) = (self.node(from.as_str()), self.node(to.as_str()));
            if !self.edges.iter().any(|edge| (edge.from, edge.to) == (from, to)) {
                self.edges.push(Line::between(from, to));
            }
        }
    }
}

/// Lists attributes by their keys.
fn listed(attributes: &Attributes) -> BTreeMap<String, String> {
    let text = |attribute: &ferrata_dot::syntax::Attribute| {
        (attribute.key.value.to_string(), attribute.value.value.text().into_owned())
    };
    attributes.iter().map(text).collect()
}

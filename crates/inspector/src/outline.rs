//! Outlines of graphs: the nodes and edges of a workflow, including those that are not in a run's log.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ferrata_core::graph::Graph;
use ferrata_core::state::State;
use ferrata_core::store::RunHead;
use serde::Serialize;

/// A graph as the page draws it.
///
/// A log names only the nodes of its graph and the edges that the run took. An outline adds the other edges, and labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[must_use]
pub struct Outline {
    pub(crate) nodes: Vec<OutlineNode>,
    pub(crate) edges: Vec<OutlineEdge>,
}

/// A node of an outline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutlineNode {
    pub(crate) name: String,
    pub(crate) label: String,
}

/// An edge of an outline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutlineEdge {
    pub(crate) from: String,
    pub(crate) to: String,
    /// The trigger of the edge, in one word.
    pub(crate) kind: String,
    /// The label that is drawn next to the edge.
    pub(crate) label: String,
}

impl Outline {
    /// Creates an outline without nodes and edges.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the outline of a graph.
    pub fn of<S: State>(graph: &Graph<S>) -> Self {
        let outline = graph.node_names().fold(Self::new(), |outline, name| outline.node(name.as_str(), ""));
        graph.edges().fold(outline, |outline, (from, to, kind)| {
            outline.edge(from.as_str(), to.as_str(), kind.as_str(), "")
        })
    }

    /// Adds a node. By default its label is its name.
    pub fn node(mut self, name: impl Into<String>, label: impl Into<String>) -> Self {
        self.nodes.push(OutlineNode { name: name.into(), label: label.into() });
        self
    }

    /// Adds an edge with its trigger and its label. Triggers are `plain`, `when`, `otherwise`, `on_failure` and `routed`.
    pub fn edge(
        mut self,
        from: impl Into<String>,
        to: impl Into<String>,
        kind: impl Into<String>,
        label: impl Into<String>,
    ) -> Self {
        let (from, to, kind, label) = (from.into(), to.into(), kind.into(), label.into());
        self.edges.push(OutlineEdge { from, to, kind, label });
        self
    }
}

type Find = dyn Fn(&RunHead) -> Option<Outline> + Send + Sync;

/// The outlines that the inspector has, and the hook that returns others.
#[derive(Clone, Default)]
pub(crate) struct OutlineLookup {
    by_workflow: BTreeMap<String, Arc<Outline>>,
    find: Option<Arc<Find>>,
}

impl OutlineLookup {
    pub(crate) fn insert(&mut self, workflow: &str, outline: Outline) {
        self.by_workflow.insert(workflow.to_owned(), Arc::new(outline));
    }

    pub(crate) fn find_by(&mut self, find: impl Fn(&RunHead) -> Option<Outline> + Send + Sync + 'static) {
        self.find = Some(Arc::new(find));
    }

    /// Finds the outline of a run's graph.
    pub(crate) fn of(&self, head: &RunHead) -> Option<Arc<Outline>> {
        let known = self.by_workflow.get(head.facts.workflow.as_str()).cloned();
        known.or_else(|| self.find.as_ref().and_then(|find| find(head)).map(Arc::new))
    }
}

impl fmt::Debug for OutlineLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_workflow.keys()).finish()
    }
}

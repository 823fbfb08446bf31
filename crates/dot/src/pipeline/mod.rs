//! A pipeline: nodes and edges with all attributes that apply to them, independent of scopes.

mod attributes;
mod flatten;
mod node;

use std::collections::HashMap;
use std::sync::Arc;

use ferrata_core::{Error, ErrorKind};

pub use attributes::Attributes;
pub use node::{DEFAULT_TYPE, Edge, Node, SHAPES};

use crate::parse::ParseError;
use crate::syntax::{Document, id_of_name};
use crate::tolerance::Tolerance;

/// A pipeline: the input of lint, transforms and the compiler.
///
/// # Examples
///
/// ```
/// use ferrata_dot::Pipeline;
///
/// let pipeline = Pipeline::parse(b"digraph G { node [timeout = 15m] a; b [timeout = 1h]; a -> b }")?;
/// assert_eq!(pipeline.node("a").unwrap().attributes.text("timeout"), "15m");
/// assert_eq!(pipeline.node("b").unwrap().attributes.text("timeout"), "1h");
/// # Ok::<(), ferrata_dot::ParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    name: Arc<str>,
    /// The attributes of the graph.
    pub attributes: Attributes,
    nodes: Vec<Node>,
    by_id: HashMap<Arc<str>, usize>,
    edges: Vec<Edge>,
    tolerated: Vec<Tolerance>,
}

impl Pipeline {
    /// Parses a source to a pipeline; see [`Document::parse`].
    ///
    /// # Errors
    ///
    /// Returns [`ParseError`] for the first mistake. The parser does not check whether the pipeline makes sense; [lint](crate::lint) does.
    pub fn parse(source: &[u8]) -> Result<Self, ParseError> {
        let (document, tolerated) = Document::parse_tolerant(source)?;
        flatten::flatten(document, source, tolerated)
    }

    /// Converts a document to a pipeline.
    ///
    /// # Errors
    ///
    /// Returns [`ParseError`] if the scopes, classes or attributes exceed a limit. Its snippets show the printed form of the document.
    pub fn from_document(document: &Document) -> Result<Self, ParseError> {
        flatten::flatten(document.clone(), document.to_string().as_bytes(), Vec::new())
    }

    /// Returns the name of the graph.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the nodes in the order of their declaration.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the nodes, so that the caller can change them. Nodes cannot be added or removed this way.
    pub fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// Returns the node with this id. `id` may also be the quoted name from which the id was made.
    pub fn node(&self, id: &str) -> Option<&Node> {
        self.position(id).map(|at| &self.nodes[at])
    }

    /// Returns the index of a node in [`nodes`](Self::nodes), by its id or quoted name.
    pub fn position(&self, id: &str) -> Option<usize> {
        let known = self.by_id.get(id);
        known.or_else(|| (!id.is_empty()).then(|| self.by_id.get(&*id_of_name(id)))?).copied()
    }

    /// Adds a node.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::AlreadyExists`] if a node has the same id, and [`ErrorKind::Invalid`] if the id is invalid.
    pub fn add_node(&mut self, node: Node) -> Result<(), Error> {
        let mut bytes = node.id.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        if !first || !bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            let message = format!("`{}` is not a valid node id; use letters, digits and `_`", node.id);
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if self.by_id.contains_key(&node.id) {
            let message = format!("the node `{}` already exists; choose another id", node.id);
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        self.by_id.insert(node.shared_id(), self.nodes.len());
        self.nodes.push(node);
        Ok(())
    }

    /// Returns the edges in the order of their declaration.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Returns the edges, so that the caller can change, add and remove them.
    pub fn edges_mut(&mut self) -> &mut Vec<Edge> {
        &mut self.edges
    }

    /// Returns the context key of the list whose items each begin a branch along an edge. The edge sets it, or else the node where the edge begins.
    pub(crate) fn for_each(&self, edge: &Edge) -> std::borrow::Cow<'_, str> {
        match &*edge.attributes.text("for_each") {
            "" => self.node(&edge.from).map(|fork| fork.attributes.text("for_each")).unwrap_or_default(),
            own => own.to_owned().into(),
        }
    }

    /// Returns the tolerated constructs outside of the dialect, in the order of the source.
    pub fn tolerated(&self) -> &[Tolerance] {
        &self.tolerated
    }

    /// Returns the goal of the graph. The default is an empty text.
    pub fn goal(&self) -> std::borrow::Cow<'_, str> {
        self.attributes.text("goal")
    }

    /// Returns the indices of the start nodes. Start nodes are the nodes of type `start`. If there are none, start nodes are the nodes named `start`
    /// or `Start`.
    pub fn starts(&self) -> Vec<usize> {
        self.terminals("start", &["start", "Start"])
    }

    /// Returns the indices of the exit nodes. Exit nodes are the nodes of type `exit`. If there are none, exit nodes are the nodes named `exit` or
    /// `end`.
    pub fn exits(&self) -> Vec<usize> {
        self.terminals("exit", &["exit", "end"])
    }

    fn terminals(&self, handler: &str, names: &[&str]) -> Vec<usize> {
        // If a node's explicit type has no handler, the type of its shape counts.
        let known = |name: &str| SHAPES.iter().any(|(_, known)| *known == name);
        let is = |node: &Node| {
            let shape = node.shape();
            (shape == "Mdiamond" || shape == "Msquare" || !node.explicit_type().is_empty())
                && node.handler_type(known) == handler
        };
        let found: Vec<usize> = (0..self.nodes.len()).filter(|&at| is(&self.nodes[at])).collect();
        if !found.is_empty() {
            return found;
        }
        names.iter().filter_map(|name| self.position(name)).collect()
    }
}

//! Mistakes in the definition of a graph, each with its location and its remedy.

use std::fmt;

use crate::error::{Error, ErrorKind};

/// A mistake in the definition of a graph.
///
/// Its `Display` form is one line with the location and the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphIssue {
    location: Location,
    message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Location {
    Graph,
    Node(String),
    Edge(String, String),
}

impl GraphIssue {
    /// Creates a mistake that concerns the graph as a whole.
    #[doc(hidden)]
    pub fn graph(message: impl Into<String>) -> Self {
        Self { location: Location::Graph, message: message.into() }
    }

    /// Creates a mistake at a node.
    #[doc(hidden)]
    pub fn node(node: &str, message: impl Into<String>) -> Self {
        Self { location: Location::Node(node.into()), message: message.into() }
    }

    /// Creates a mistake at an edge.
    #[doc(hidden)]
    pub fn edge(from: &str, to: &str, message: impl Into<String>) -> Self {
        Self { location: Location::Edge(from.into(), to.into()), message: message.into() }
    }

    /// Returns the name of the node that has the mistake, in the spelling of the definition.
    pub fn node_name(&self) -> Option<&str> {
        match &self.location {
            Location::Node(name) => Some(name),
            Location::Graph | Location::Edge(..) => None,
        }
    }

    /// Returns the source and the target of the edge that has the mistake, in the spelling of the definition.
    pub fn edge_ends(&self) -> Option<(&str, &str)> {
        match &self.location {
            Location::Edge(from, to) => Some((from, to)),
            Location::Graph | Location::Node(_) => None,
        }
    }

    /// Returns the message, which describes the problem and the remedy.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for GraphIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Location::Graph => {}
            Location::Node(name) => write!(f, "node `{}`: ", name.escape_debug())?,
            Location::Edge(from, to) => {
                write!(f, "edge `{}` -> `{}`: ", from.escape_debug(), to.escape_debug())?
            }
        }
        f.write_str(&self.message)
    }
}

/// The error of a graph that cannot be built. It contains all mistakes, in the order of the definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphError {
    graph: String,
    issues: Vec<GraphIssue>,
}

impl GraphError {
    pub(crate) fn new(graph: &str, issues: Vec<GraphIssue>) -> Self {
        Self { graph: graph.into(), issues }
    }

    /// Returns the name of the graph as written.
    pub fn graph(&self) -> &str {
        &self.graph
    }

    /// Returns all mistakes. There is at least one.
    pub fn issues(&self) -> &[GraphIssue] {
        &self.issues
    }
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph = self.graph.escape_debug();
        match &*self.issues {
            [issue] => write!(f, "graph `{graph}`: {issue}"),
            issues => {
                write!(f, "graph `{graph}` has {} mistakes:", issues.len())?;
                issues.iter().try_for_each(|issue| write!(f, "\n- {issue}"))
            }
        }
    }
}

impl std::error::Error for GraphError {}

impl From<GraphError> for Error {
    /// Converts to [`ErrorKind::Invalid`], with every mistake in the message.
    fn from(error: GraphError) -> Self {
        Self::new(ErrorKind::Invalid, error.to_string()).with_operation("graph.build").with_source(error)
    }
}

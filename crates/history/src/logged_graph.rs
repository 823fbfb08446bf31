//! The graph of a run, as its log records it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::graph::Effect;
use crate::id::NodeName;
use crate::record::node_data::ByNode;

/// The graph of a run, as far as the stored records describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[doc(hidden)]
pub struct LoggedGraph {
    /// The nodes of the graph that last drove the run, including nodes that never ran.
    pub nodes: Vec<NodeName>,
    /// The edges of this graph, as pairs of source and target. For a fork, these are the edges of the run from which it was forked, if that run still
    /// exists. `None` if no stored record contains the edges.
    pub edges: Option<Vec<(NodeName, NodeName)>>,
    /// The edges that did not fire when their node ended, as pairs of source and target. Such an edge may have fired in another visit of the node.
    pub bypassed: BTreeSet<(NodeName, NodeName)>,
    /// The effects of its nodes at the start of the run.
    pub(crate) effects: Option<Arc<ByNode<Effect>>>,
}

impl LoggedGraph {
    /// Returns the effect of a node, if a stored record contains it.
    #[doc(hidden)]
    pub fn effect(&self, node: &NodeName) -> Option<Effect> {
        self.effects.as_ref().map(|effects| effects.get(node).copied().unwrap_or_default())
    }
}

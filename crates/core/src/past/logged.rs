//! The graph of a run as its log tells it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::graph::Effect;
use crate::id::NodeName;
use crate::record::prints::ByNode;

/// What a log tells of the graph of its run, as far as its records are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoggedGraph {
    /// The nodes of the graph with which the run had been driven last, also those to which it had not come.
    pub nodes: Vec<NodeName>,
    /// The edges of that graph, as from and to. A fork has those of the run that it was forked from, if that is still there. None where no record
    /// that is kept has them.
    pub edges: Option<Vec<(NodeName, NodeName)>>,
    /// The edges that had not fired when their node ended, as from and to; at another visit of the node they may have.
    pub bypassed: BTreeSet<(NodeName, NodeName)>,
    /// What repeating its nodes means, as it was when the run was started.
    pub(crate) effects: Option<Arc<ByNode<Effect>>>,
}

impl LoggedGraph {
    /// Returns what repeating a node means, if a record that is kept says so.
    pub(crate) fn effect(&self, node: &NodeName) -> Option<Effect> {
        self.effects.as_ref().map(|effects| effects.get(node).copied().unwrap_or_default())
    }
}

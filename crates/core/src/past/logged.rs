//! The graph of a run as its log tells it.

use std::collections::BTreeSet;

use crate::id::NodeName;

/// What a log tells of the graph of its run, as far as its records are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoggedGraph {
    /// The nodes of the graph with which the run had been driven last, also those to which it had not come.
    pub nodes: Vec<NodeName>,
    /// The edges that had not fired when their node ended, as from and to; at another visit of the node they may have.
    pub bypassed: BTreeSet<(NodeName, NodeName)>,
}

//! The edges that fire after a node, as the machine takes them in.

use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::graph::plan::EdgeIx;

/// An edge that fires: a token for its target.
#[derive(Clone)]
pub struct EdgeToken {
    pub edge: EdgeIx,
    /// The item of a fan-out, for an activation of its own.
    pub item: Option<Arc<RawValue>>,
    /// The reason for a deliberate return to the target, if there is one.
    pub reason: Option<Arc<str>>,
}

impl EdgeToken {
    pub fn once(edge: EdgeIx) -> Self {
        Self { edge, item: None, reason: None }
    }
}

/// The edges that fire after a node.
#[derive(Debug)]
pub enum FiredEdges {
    /// The only edge that leaves the node.
    Sole(EdgeIx),
    /// These, in order.
    These(Vec<EdgeToken>),
}

impl fmt::Debug for EdgeToken {
    /// Hides the item.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.edge, if self.item.is_some() { " with an item" } else { "" })
    }
}

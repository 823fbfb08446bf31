//! The edges that fire after a node, in the form in which the machine receives them.

use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::graph::plan::EdgeIx;

/// An edge that fires. It is also called a token for its target.
#[derive(Clone)]
pub struct EdgeToken {
    pub edge: EdgeIx,
    /// The item of a route with items. Each item starts an activation of its own.
    pub item: Option<Arc<RawValue>>,
    /// The reason, if the edge fires as a replan (a deliberate return to its target).
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
    /// The only edge of the node fires.
    Sole(EdgeIx),
    /// These edges fire, in this order.
    These(Vec<EdgeToken>),
}

impl fmt::Debug for EdgeToken {
    /// Hides the item.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.edge, if self.item.is_some() { " with an item" } else { "" })
    }
}

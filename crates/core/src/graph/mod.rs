//! Nodes and edges: builder, validation, topology.

#![cfg_attr(not(test), expect(dead_code, reason = "used by the engine"))]

mod adjacency;
pub(crate) mod liveness;
pub(crate) mod node_set;
pub(crate) mod topology;
mod weak_order;

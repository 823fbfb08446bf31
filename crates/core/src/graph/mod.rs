//! Nodes and edges: builder, validation, topology.

#![cfg_attr(not(test), expect(dead_code, reason = "used by the engine"))]

mod adjacency;
mod edge;
mod effect;
mod join;
pub(crate) mod liveness;
pub(crate) mod node_set;
#[cfg_attr(test, expect(dead_code, reason = "made by the builder"))]
pub(crate) mod plan;
mod policy;
mod retry;
mod route;
pub(crate) mod topology;
mod weak_order;

pub use edge::EdgeKind;
pub use effect::Effect;
pub use join::Join;
pub use policy::{CheckpointFrequency, CheckpointPolicy, NodeCheckpoint};
pub use retry::RetryPolicy;
pub use route::{Route, RouteContext};

//! Nodes and edges: builder, validation, topology.

mod adjacency;
mod any;
mod builder;
mod check;
mod edge;
mod fingerprint;
pub(crate) mod fire;
mod issue;
mod join;
pub(crate) mod liveness;
mod lower;
mod migrate;
mod names;
pub(crate) mod node_set;
mod outline;
pub(crate) mod plan;
mod policy;
mod retry;
mod route;
mod shape;
mod suggest;
pub(crate) mod topology;
mod typed;
mod weak_order;

pub use crate::record::effect::Effect;
pub(crate) use any::AnyGraph;
pub use builder::GraphBuilder;
pub use edge::EdgeKind;
pub use issue::{GraphError, GraphIssue};
pub use join::Join;
pub use names::NodeNames;
pub use policy::{CheckpointFrequency, CheckpointPolicy, NodeCheckpoint};
pub use retry::RetryPolicy;
pub use route::{Route, RouteContext};
pub use typed::Graph;

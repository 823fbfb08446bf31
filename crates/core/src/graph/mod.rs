//! Graphs, which consist of nodes, edges and the user's functions.

mod any;
mod builder;
mod fire;
mod lens;
mod middleware;
mod migrate;
mod node_cache;
mod subgraph;
mod typed;

pub(crate) use any::AnyGraph;
pub use builder::GraphBuilder;
pub use ferrata_engine::graph::{
    CachePolicy, CheckpointFrequency, CheckpointPolicy, EdgeKind, Effect, GraphError, GraphIssue, Join,
    NodeCheckpoint, NodeNames, RetryPolicy, Route, RouteContext,
};
pub(crate) use ferrata_engine::graph::{RoutePart, fired, lower, node_set, outline, plan, suggest};
pub use lens::Lens;
pub use middleware::InnerNode;
pub use typed::Graph;

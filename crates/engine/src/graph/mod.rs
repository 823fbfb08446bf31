//! Plans, which are graphs without the user's functions, and their checks, topology, routes and policies.

mod adjacency;
mod cache;
#[doc(hidden)]
pub mod check;
mod edge;
mod fingerprint;
#[doc(hidden)]
pub mod fired;
mod issue;
mod join;
pub(crate) mod liveness;
#[doc(hidden)]
pub mod lower;
mod names;
#[doc(hidden)]
pub mod node_set;
#[doc(hidden)]
pub mod outline;
#[doc(hidden)]
pub mod plan;
mod policy;
mod retry;
mod route;
mod shape;
#[doc(hidden)]
pub mod suggest;
#[doc(hidden)]
pub mod topology;
mod weak_order;

pub use crate::record::effect::Effect;
pub use cache::CachePolicy;
pub use edge::EdgeKind;
pub use issue::{GraphError, GraphIssue};
pub use join::Join;
pub use names::NodeNames;
pub use policy::{CheckpointFrequency, CheckpointPolicy, Interrupt, NodeCheckpoint};
pub use retry::RetryPolicy;
pub use route::{Route, RouteContext, RoutePart};

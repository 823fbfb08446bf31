//! Queues for [Ferrata](ferrata_core): they limit concurrency and rate across all processes that share a store, in a fair order.
//!
//! ```
//! use std::time::Duration;
//!
//! use ferrata_core::graph::Graph;
//! use ferrata_core::runtime::Runtime;
//! use ferrata_core::state::Context;
//! use ferrata_core::store::MemoryStore;
//! use ferrata_queue::{StartQueueExt, GraphQueueExt, RuntimeQueueExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let graph = Graph::<Context>::builder("mail")
//!     .node("write", async |_cx, s| Ok(s))
//!     .limit("openai")
//!     .entry("write")
//!     .build()?;
//! let runtime = Runtime::builder(MemoryStore::new()).build().await?;
//! runtime.serve(&graph)?;
//! runtime.queue("openai").at_once(5).rate(100, Duration::from_secs(60)).declare().await?;
//! runtime.queue("mail").at_once(50).declare().await?;
//! let mail = runtime.start(&graph, Context::new()).queue("mail").key("customer-7").priority(1).await?;
//! mail.wait().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A queue is stored as an idle run. The state of this run lists the holders of slots and the waiters. So every store can keep, list and export a
//! queue like any other run. `docs/how-to/queues.md` has the rules and the guarantees.
//!
//! # Guarantees
//!
//! - Holders never exceed the number of slots. Exceptions to this limit: a process that was suspended while it executed a node, and a run that an
//!   operator unpauses by hand.
//! - The queue reclaims the slot of a dead holder when its heartbeat expires or its run ends.
//! - If processes declare different settings, the settings with the highest version apply.

mod acquire;
mod child;
mod handle;
mod limit;
mod overview;
mod queue;
mod queue_run;
mod reason;
mod settings;
mod start;
mod start_options;
mod state;
mod tasks;

pub use acquire::{AcquireRequest, NodeQueueExt, QueueSlot};
pub use child::{ChildQueueExt, QueuedChild};
pub use limit::GraphQueueExt;
pub use overview::{QueueMembership, QueueOverview, UnreadableQueue};
pub use queue::{Queue, QueueRequest, QueueStatus, RuntimeQueueExt};
pub use queue_run::QUEUE as QUEUE_LABEL;
pub use reason::explain_memberships;
pub use settings::{QueueOverrides, QueueSettings, RateLimit};
pub use start::{QueuedRun, QueuedStart, StartQueueExt};
pub use state::{DebounceGroup, SlotHolder, SlotKind, SlotWaiter};

/// Only Ferrata implements the extension traits, so a new method breaks no application.
mod sealed {
    pub trait SealedType {}

    impl SealedType for ferrata_core::runtime::Runtime {}
    impl SealedType for ferrata_core::node::NodeContext {}
    impl<S: ferrata_core::state::State> SealedType for ferrata_core::graph::GraphBuilder<S> {}
    impl<S: ferrata_core::state::State> SealedType for ferrata_core::runtime::StartRequest<S> {}
    impl<S: ferrata_core::state::State> SealedType for ferrata_core::runtime::ChildRequest<S> {}
    impl<S: ferrata_core::state::State> SealedType for ferrata_core::runtime::SpawnRequest<S> {}
}

//! The contract of a store, the memory store, wrappers, and what every store decides alike.

mod bounded;
mod check;
mod contract;
mod fault;
mod listing;
mod memory;
mod query;
mod sharded;
mod shared;

pub(crate) use bounded::Bounded;
pub use check::{check_prune, is_repeat};
pub use contract::{
    Capabilities, CheckpointStore, Notices, PruneCut, Pruned, Purged, RunAppend, check_append,
};
pub use fault::{Fault, FaultOdds, FaultPlan, FaultStore};
pub use listing::{Listing, RunPlace};
pub use memory::MemoryStore;
pub use query::{At, Cursor, Order, Page, Paged, RunFilter, RunHead, RunQuery};
pub use sharded::{ShardedStore, ShardedStoreBuilder};

//! The contract of a store, as `ferrata-store` has it; a store that is made of several; and the bound on each call.

mod bounded;
mod sharded;

pub(crate) use bounded::Bounded;
pub use ferrata_store::testing::{Fault, FaultOdds, FaultPlan, FaultStore};
pub use ferrata_store::{
    At, Capabilities, CheckpointStore, Cursor, Listing, MemoryStore, Notices, Order, Page, Paged, PruneCut,
    Pruned, Purged, RunAppend, RunFilter, RunHead, RunPlace, RunQuery, check_append, check_prune, is_repeat,
};
pub use sharded::{ShardedStore, ShardedStoreBuilder};

//! The contract of a store, and what is built from it.

mod contract;
mod query;

pub use contract::{
    Capabilities, CheckpointStore, Notices, PruneCut, Pruned, Purged, RunAppend, check_append,
};
pub use query::{At, Cursor, Order, Page, Paged, RunFilter, RunHead, RunQuery};

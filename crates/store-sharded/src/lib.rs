//! Combines several stores of Ferrata's runs into one. Each run stays in the store where it was started, its *shard*, and is found there.
//!
//! [`ShardedStore::from_url`] opens `sharded:PATH`, with the path of a file that has a line for each shard and each generation.
//! [`ShardedStore::builder`] takes open stores. `docs/how-to/sharding.md` explains how runs are distributed, why a run never has two logs, and what
//! happens when a shard is unavailable.

mod append;
mod builder;
mod config;
mod join_all;
mod known_places;
mod list;
mod map;
mod purge;
mod setup;
mod shard;
mod shard_mark;
mod store;

pub use crate::builder::ShardedStoreBuilder;
pub use crate::store::ShardedStore;

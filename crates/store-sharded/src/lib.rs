//! Several stores of Ferrata's runs as one: each run is in one of them, its *shard*, and is found where it was started.
//!
//! [`ShardedStore::from_url`] takes `sharded:PATH`, the path of a file with a line for each shard and each generation; [`ShardedStore::builder`]
//! takes open stores. `docs/how-to/sharding.md` explains the distribution of runs, why a run never has two logs, and the effect of an unavailable shard.

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

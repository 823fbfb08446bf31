//! Several stores of Ferrata's runs as one: each run is in one of them, its *shard*, and is found where it was started.
//!
//! [`ShardedStore::from_url`] takes `sharded:PATH`, the path of a file with a line for each shard and each generation;
//! [`ShardedStore::builder`] takes stores that are open already. `docs/sharding.md` says how runs are spread, why none ever has
//! two logs, and what a shard that is away harms.

mod append;
mod builder;
mod config;
mod known;
mod list;
mod map;
mod mark;
mod purge;
mod setup;
mod shard;
mod store;
mod together;

pub use crate::builder::ShardedStoreBuilder;
pub use crate::store::ShardedStore;

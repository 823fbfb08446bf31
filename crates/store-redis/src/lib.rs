//! Stores the runs of [Ferrata](ferrata_store) in Redis or Valkey, on one server or a cluster. Each run is a list.
//!
//! This store fits services that already have a Redis server, and services with many short runs whose steps take well below a millisecond. The
//! server's settings decide which failures an acknowledged record survives; see [`Persistence`].
//!
//! ```no_run
//! use ferrata_store::{CheckpointStore, Page, RunQuery};
//! use ferrata_store_redis::{RedisOptions, RedisStore};
//!
//! # async fn example() -> ferrata_store::Result<()> {
//! let store = RedisStore::from_url("redis://localhost:6379/0?prefix=shop", RedisOptions::default())?;
//! store.setup().await?;
//! println!("{}", store.persistence().expect("set up"));
//! assert!(store.runs(&RunQuery::default(), Page::default()).await?.items.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - **One winner.** An append is one step of a script on the run's own key. It compares the head, and writes all records or none. If several
//!   appends expect the same head, exactly one succeeds, through any process or node. One script may append to many runs, each independently.
//! - **As durable as the server.** `setup` reads the persistence of the server, and reports it in the log and in
//!   [`capabilities`](ferrata_store::CheckpointStore::capabilities). It refuses a server that evicts runs when its memory is full. With
//!   [`RedisOptions::replicas`], an append waits until that number of replicas has it.
//! - **Failures are reported.** If a command was not sent, the call fails with [`Unavailable`](ferrata_store::ErrorKind::Unavailable). If the reply
//!   was lost, an append fails with [`Indeterminate`](ferrata_store::ErrorKind::Indeterminate). The store repeats a command by itself only if the
//!   server reported that it had not run the command.
//! - **Listings include every run.** A writer adds a run to the index before or with the record that needs the entry. Readers check every entry
//!   against the run itself, and remove surplus entries.
//!
//! # Limits
//!
//! - The store needs Redis 7 or later, or Valkey, and permission to run Lua scripts. All runs must fit in the server's memory.
//! - A Redis server replicates after it has answered. So a failover can lose the last acknowledged records, which breaks the guarantees for them.
//!   `replicas` makes this less likely, but never impossible.
//! - One append may have at most 64 MiB of bodies.
//! - If the server loses keys of the index (a restore, a failover to a lagging replica), listings lack the affected runs until each run's next
//!   change, or until [`RedisStore::repair`], which `setup` runs every six hours.
//!
//! # Features
//!
//! The crate has no features. TLS uses rustls with ring, or the process's default provider if one was installed.
//!
//! `docs/reference/store-redis.md` describes the keys byte by byte, the measured costs, and how to operate a server for the store.

mod append;
mod config;
mod entry;
mod error;
mod header;
mod index;
mod known_heads;
mod layout;
mod link;
mod list;
mod merge;
mod notices;
mod persistence;
mod read;
mod remove;
mod reply;
mod reseal;
mod scripts;
mod setup;
mod store;

pub use config::RedisOptions;
pub use persistence::Persistence;
pub use store::RedisStore;

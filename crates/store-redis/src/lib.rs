//! Keeps the runs of [Ferrata](ferrata_store) in Redis or Valkey: a list per run, on one server or a cluster.
//!
//! It fits services that already have a Redis, and many short runs with steps well below a millisecond. The server's settings determine the failures
//! that an acknowledged record survives; [`Persistence`] describes them.
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
//! - **One winner.** An append is one step of a script on the run's own key: it compares the head, and writes all or nothing. If several appends
//!   expect the same head, one succeeds, through any process or node. One script may append to many runs, each independently.
//! - **Durable as the server is.** `setup` reads the persistence of the server, and reports it in the log and in
//!   [`capabilities`](ferrata_store::CheckpointStore::capabilities). It refuses a server that evicts runs when its memory is full. With
//!   [`RedisOptions::replicas`] an append waits until that number of replicas has it.
//! - **Failures are reported.** An unsent command is [`Unavailable`](ferrata_store::ErrorKind::Unavailable), a command with a lost reply
//!   [`Indeterminate`](ferrata_store::ErrorKind::Indeterminate). The store repeats a command by itself only if the server reported that it had not
//!   run it.
//! - **Listings include every run.** A run gets its place in the index before or with the record that needs it, and readers check every entry
//!   against the run itself. A reader removes a surplus place.
//!
//! # Limits
//!
//! - Redis 7 or later, or Valkey; Lua scripts must be allowed. Every run must fit in the server's memory.
//! - Redis replicates behind the answer: a failover can lose the last records, and with them the promise. `replicas` makes the
//!   window small, never nil.
//! - One append may have at most 64 MiB of bodies.
//! - If the server loses keys of the index (a restore, a failover to a lagging replica), listings lack those runs until the next change of the run,
//!   or until [`RedisStore::repair`], which `setup` runs every six hours.
//!
//! # Features
//!
//! None. TLS is rustls with ring, and with the process's own provider if one was installed.
//!
//! `docs/reference/store-redis.md` has the keys byte by byte, the costs as measured, and how to run a server for it.

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

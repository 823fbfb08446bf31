//! Keeps the runs of [Ferrata](ferrata_store) in Redis or Valkey: a list per run, on one server or a cluster.
//!
//! For services that have a Redis already, and for many short runs whose every step should cost well below a millisecond.
//! What an acknowledged record survives is up to the server's settings; [`Persistence`] says what they come to.
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
//! - **One winner.** An append is one step of a script on the run's own key: it compares the head, and writes all or nothing. Of
//!   several that expect the same head one succeeds, whichever process or node it comes through. One script may do so for many
//!   runs, each by itself.
//! - **Durable as the server is.** `setup` reads how the server keeps what it acknowledges, says it in the log and in
//!   [`capabilities`](ferrata_store::CheckpointStore::capabilities), and refuses a server that removes runs when its memory is full. With
//!   [`RedisOptions::replicas`] an append waits until so many replicas have it.
//! - **Honest about doubt.** A command that was never sent is [`Unavailable`](ferrata_store::ErrorKind::Unavailable), one whose
//!   reply was lost [`Indeterminate`](ferrata_store::ErrorKind::Indeterminate). No command is sent twice by itself, but where
//!   the server said that it had not run it.
//! - **No run is lost from listings.** A run's place in the index is taken before or with the record that needs it, and
//!   every entry is checked against the run itself. A run may stand in a place too many, and is then taken out.
//!
//! # Limits
//!
//! - Redis 7 or later, or Valkey; Lua scripts must be allowed. Every run must fit in the server's memory.
//! - Redis replicates behind the answer: a failover can lose the last records, and with them the promise. `replicas` makes the
//!   window small, never nil.
//! - One append has 64 MiB of bodies at most.
//! - When the server loses keys of the index (a restore, a failover to a replica that was behind), listings lack those runs until
//!   [`RedisStore::repair`], which `setup` does every six hours, or the next change of the run.
//!
//! # Features
//!
//! None. TLS is rustls with ring, and with the process's own provider if one was installed.
//!
//! `docs/store-redis.md` has the keys byte by byte, the costs as measured, and how to run a server for it.

mod append;
mod config;
mod entry;
mod error;
mod header;
mod index;
mod known;
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

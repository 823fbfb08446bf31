//! Keeps the runs of [Ferrata](ferrata_store) in NATS JetStream: one subject per run in one stream.
//!
//! For fleets that have NATS and no database.
//!
//! ```no_run
//! use ferrata_store::{CheckpointStore, Page, RunQuery};
//! use ferrata_store_nats::{NatsOptions, NatsStore};
//!
//! # async fn example() -> ferrata_store::Result<()> {
//! let store = NatsStore::from_url("nats://localhost:4222/?namespace=shop", NatsOptions::default())?;
//! store.setup().await?;
//! assert!(store.runs(&RunQuery::default(), Page::default()).await?.items.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - **One winner.** An append is one message. The stream accepts it only if the last message of the run's subject is the one that the writer knows.
//!   If several appends expect the same head, one succeeds, through any server. All records of an append are in that one message, so either all of
//!   them exist or none.
//! - **Acknowledged by the stream.** `setup` refuses streams whose settings would lose records: limits, retention, mirrors, storage in memory, fewer replicas than asked for.
//! - **Honest about doubt.** A request that was never sent is [`Unavailable`](ferrata_store::ErrorKind::Unavailable), one whose reply was
//!   lost [`Indeterminate`](ferrata_store::ErrorKind::Indeterminate). The same records sent again are found by their ids, and written once.
//! - **No separate index.** A listing reads the last message of each run, so it includes every run.
//!
//! # Limits
//!
//! - NATS 2.9 or later with JetStream. An append has at most `max_payload` bytes, 1 MiB unless the server's settings change it.
//! - A server writes to its files before it answers, and syncs them later (every two minutes by default; from 2.10 on `sync_interval: always`
//!   changes that). The end of the process loses nothing; a power failure may lose the newest acknowledged records.
//! - Each process that lists keeps the heads of all runs in memory: purge what is finished.
//! - More than one replica needs NATS 2.11 or later: older clusters take two appends after the same record, and `setup` refuses them.
//!
//! # Why so
//!
//! - *No message ids* (`Nats-Msg-Id`): a server remembers them for two minutes, even those of a run that was purged meanwhile, and would acknowledge
//!   a record of its next life without storing it. The expected message makes repeats safe without them.
//! - *No key-value bucket as index*: the last message of each subject is one, and cannot differ from the log.
//! - *No direct reads* (`allow_direct`): a replica that is behind would answer them.
//!
//! `docs/reference/store-nats.md` has the messages byte by byte.

mod append;
mod config;
mod cut;
mod error;
mod heartbeats;
mod layout;
mod link;
mod list;
mod message;
mod notices;
mod read;
mod remove;
mod reseal;
mod setup;
mod store;
mod stream;

pub use config::NatsOptions;
pub use store::NatsStore;

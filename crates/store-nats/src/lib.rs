//! Stores the runs of [Ferrata](ferrata_store) in NATS JetStream: one stream, with one subject for each run.
//!
//! This store fits services that have NATS and no database.
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
//! - **One winner.** An append is one message. The stream accepts it only if the last message of the run's subject is the one that the writer
//!   knows. If several appends expect the same head, exactly one succeeds, through any server. All records of an append are in that one message, so
//!   either all of them exist or none.
//! - **Acknowledged by the stream.** `setup` refuses streams whose settings would lose records: limits, retention, mirrors, storage in memory, or
//!   fewer replicas than requested.
//! - **Failures are reported.** If a request was not sent, the call fails with [`Unavailable`](ferrata_store::ErrorKind::Unavailable). If the reply
//!   was lost, an append fails with [`Indeterminate`](ferrata_store::ErrorKind::Indeterminate). If the same records are sent again, the store finds
//!   them by their ids, so they are stored only once.
//! - **No separate index.** A listing reads the last message of each run, so it includes every run.
//!
//! # Limits
//!
//! - The store needs NATS 2.9 or later with JetStream. An append has at most `max_payload` bytes: 1 MiB unless the server's settings change it.
//! - A server writes to its files before it answers, and syncs them later: every two minutes by default. From 2.10 on, the setting `sync_interval:
//!   always` changes that. A crash of the server process loses nothing; a power failure may lose the newest acknowledged records.
//! - Each process that lists runs keeps the heads of all runs in memory: purge finished runs.
//! - More than one replica needs NATS 2.11 or later. Older clusters may accept two appends after the same record, so `setup` refuses them.
//!
//! # Design decisions
//!
//! - *No message ids* (`Nats-Msg-Id`): a server remembers them for two minutes, even those of a run that was purged meanwhile. It would acknowledge
//!   a record of the next run with that id without storing it. The condition on the last message makes repeats safe without message ids.
//! - *No key-value bucket as index*: the last message of each subject already is an index, and it cannot differ from the log.
//! - *No direct reads* (`allow_direct`): a replica that is behind would answer them.
//!
//! `docs/reference/store-nats.md` describes the messages byte by byte.

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

//! Stores the runs of [Ferrata](ferrata_store) as objects in a bucket of S3, or of a server with the same API.
//!
//! The bucket is enough: the store needs no database and no lock service. One conditional write (`If-None-Match: *`) decides each append, from any
//! machine.
//!
//! ```no_run
//! use ferrata_store::{CheckpointStore, Page, RunQuery};
//! use ferrata_store_s3::{S3Options, S3Store};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let store = S3Store::from_url("s3://my-runs/production?region=eu-central-1", S3Options::default())?;
//! store.setup().await?;
//! assert!(store.runs(&RunQuery::default(), Page::default()).await?.items.is_empty());
//! # Ok::<(), ferrata_store::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - **Durable.** The store acknowledges an append when the server has acknowledged the object. The append is as durable as the server makes it;
//!   AWS keeps copies in several places.
//! - **Atomic.** The records of an append are one object, so either all of them exist or none.
//! - **One winner.** The key of an object contains the number of its first record. Two appends after the same head need the same key, and the
//!   server gives the key to only one of them. [`setup`](ferrata_store::CheckpointStore::setup) tests this with concurrent writes. It refuses a
//!   server that ignores the condition or lets several writers win.
//! - **Reads settle unknown outcomes.** After a lost reply, a `409` or a `412`, the store reads the log and recognizes its records by their ids.
//!   The result is [`Indeterminate`](ferrata_store::ErrorKind::Indeterminate) only if this read fails, too.
//! - **Stale writers cannot write.** The keys of pruned and purged objects stay taken for half an hour. A writer whose last read is older than ten
//!   minutes reads again after its write. Both times are by the server's clock; see `docs/reference/store-s3.md`.
//! - **Listings include every run.** The store writes the index entry before the log.
//!
//! # Limits
//!
//! - The server must list an object right after its write, and support `If-None-Match: *` and `If-Match` on `PutObject`.
//! - Each append is a request, which takes about 10 to 50 ms. This suits steps that take seconds, but not a thousand steps per second.
//! - Heartbeats and wake-ups have a precision of one second.
//! - Listing the oldest runs first, and loading at a record's id, read many objects; see `docs/reference/store-s3.md`.
//! - One append may have at most 256 MiB of bodies.
//! - The store sends no notices, because a bucket has none. The runtime polls.
//! - A purged run leaves two marks of 18 bytes under its id. They refuse writers of the old generation.
//!
//! `docs/reference/store-s3.md` describes the keys and objects byte by byte, the cost of requests, and how to operate a bucket.

mod append;
mod bounded_join;
mod bucket;
mod cache;
mod client;
mod codes;
mod config;
mod entry;
mod error;
mod heartbeat;
mod inner;
mod layout;
mod line;
mod list;
mod object;
mod read;
mod remove;
mod repair;
mod reseal;
mod setup;
mod store;
mod time;
mod view;

pub use config::S3Options;
pub use repair::RepairReport;
pub use store::S3Store;

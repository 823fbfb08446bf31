//! Keeps the runs of [Ferrata](ferrata_store) as objects in a bucket of S3, or of a server that speaks it.
//!
//! The bucket needs no companion: no database, no lock service. One conditional write (`If-None-Match: *`) decides each append, from any machine.
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
//! - **Durable.** An append is acknowledged when the server has acknowledged the object, which is worth what the server's word
//!   is worth: on AWS, copies in several places.
//! - **Whole.** The records of an append are one object, so either all of them exist or none.
//! - **One winner.** The key of an object is the number of its first record. Two appends after the same head want the same key,
//!   and the server gives it to one of them. [`setup`](ferrata_store::CheckpointStore::setup) tries with a race whether
//!   it does, and refuses servers that ignore the condition or let several writers win.
//! - **Reads settle doubtful writes.** After a lost reply, a `409` or a `412`, the store reads the log and recognizes its records by their ids. Only
//!   if the read fails too is the result [`Indeterminate`](ferrata_store::ErrorKind::Indeterminate).
//! - **Stale writers cannot write.** The keys of pruned and purged objects stay taken for half an hour. A writer whose knowledge is older than ten
//!   minutes reads again after its write. Both times are by the server's clock; see `docs/reference/store-s3.md`.
//! - **Listings include every run.** The store writes the index entry before the log.
//!
//! # Limits
//!
//! - The server must list what was just written, and honour `If-None-Match: *` and `If-Match` on `PutObject`.
//! - Each append is a request, some 10 to 50 ms away: fit for steps that take seconds, not for a thousand steps a second.
//! - Heartbeats and wake-ups are exact to a second.
//! - Listing the oldest runs first, and loading at a record's id, read much; see `docs/reference/store-s3.md`.
//! - One append may have at most 256 MiB of bodies.
//! - No notices: a bucket sends no notices, so the runtime polls.
//! - A purged run leaves two marks of 18 bytes under its id, which keep writers of its old life out.
//!
//! `docs/reference/store-s3.md` has the keys and objects byte by byte, what requests cost, and how to operate a bucket.

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

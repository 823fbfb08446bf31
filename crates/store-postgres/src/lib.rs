//! Stores the runs of [Ferrata](ferrata_store) in tables of a PostgreSQL database, version 14 or later.
//!
//! This store fits services that already have a PostgreSQL server. Any number of processes can share the tables. A node's writes to the database
//! can be committed together with its record.
//!
//! ```no_run
//! use ferrata_store::{CheckpointStore, Page, RunQuery};
//! use ferrata_store_postgres::{PostgresOptions, PostgresStore};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let store = PostgresStore::from_url("postgres://me@localhost/app", PostgresOptions::default())?;
//! store.setup().await?;
//! assert!(store.runs(&RunQuery::default(), Page::default()).await?.items.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - **As durable as the server.** The store acknowledges an append after its commit. `setup` logs a warning if the server acknowledges commits
//!   before they are on its disk.
//! - **Atomic.** One statement in one round trip writes a batch of any number of runs.
//! - **One winner.** The store inserts a record only next to the expected one. A primary key admits one record with each number, so one of several
//!   appends that expect the same head succeeds. A batch of several runs waits at most a tenth of a second for another transaction's lock. It then
//!   takes its locks in the one order that all long waits use. So a deadlock never aborts a batch: the server searches for deadlocks only after a
//!   second.
//! - **Failures are reported.** If a connection is lost during an append, the append fails with
//!   [`Indeterminate`](ferrata_store::ErrorKind::Indeterminate). The store never sends an append a second time by itself.
//! - **One clock.** Only the server's clock decides whether executors are alive and timers are due.
//!
//! # Limits
//!
//! - One entry of a batch may have at most 256 MiB of bodies.
//! - The store works only within a tokio runtime, because the driver does.
//! - For a pooler that shares connections by transaction, see [`PostgresOptions::prepared`] and [`PostgresOptions::listen_url`].
//!
//! `docs/reference/store-postgres.md` describes the tables column by column, the costs, tuning and operation.

mod append;
mod batch;
mod columns;
mod config;
mod db;
mod detached_connection;
mod error;
mod headers;
mod heartbeat;
mod idle;
mod list;
mod load;
mod migrations;
mod names;
mod notices;
#[cfg(feature = "objects")]
mod objects;
mod open_transaction;
mod prune;
mod reseal;
mod row;
mod row_write_mode;
mod run_key_cache;
mod setup;
mod single;
mod statement;
mod store;
mod stored_run;
mod tail;
mod tasks;
mod transaction;

pub use config::{PostgresOptions, SecretUrl};
pub use migrations::Migration;
#[cfg(feature = "objects")]
pub use objects::PostgresObjects;
pub use store::PostgresStore;
pub use transaction::{Postgres, PostgresTransaction};

//! Keeps the runs of [Ferrata](ferrata_store) in tables of a PostgreSQL database, version 14 or later.
//!
//! For services that have one anyway: any number of processes share it, and a node's own work in the database can commit
//! together with its record.
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
//! - **Durable** as the server is: an append is acknowledged after its commit. `setup` warns of a server that acknowledges
//!   commits before they are on its disk.
//! - **Whole.** A batch of any number of runs is one statement, and one round trip.
//! - **One winner**, under READ COMMITTED, by a comparison with the run's locked head. A batch of several runs that waits for another transaction's
//!   lock gives up after a tenth of a second. It then takes the locks in the one order that all long waits use. So no batch is the victim of a
//!   deadlock, which the server searches for after a second.
//! - **Honest about failure.** A connection lost in the middle of an append is
//!   [`Indeterminate`](ferrata_store::ErrorKind::Indeterminate), and nothing is sent twice behind the caller's back.
//! - **The server's clock** alone decides whether executors are alive and timers are due.
//!
//! # Limits
//!
//! - 256 MiB of bodies in one entry of a batch.
//! - Within a tokio runtime only, as the driver is.
//! - Behind a pooler that shares connections by transaction see [`PostgresOptions::prepared`] and
//!   [`PostgresOptions::listen_url`].
//!
//! `docs/reference/store-postgres.md` has the tables column by column, the costs, tuning and operations.

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

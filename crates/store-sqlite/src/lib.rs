//! Stores the runs of [Ferrata](ferrata_store) in an SQLite database: one file on a disk of this machine.
//!
//! The store needs no server and no installation, because it contains SQLite. `sqlite3` can read the file, with the views `ferrata_run_list`,
//! `ferrata_record_list` and `ferrata_failed_today`.
//!
//! ```
//! use ferrata_store::{CheckpointStore, Page, RunQuery};
//! use ferrata_store_sqlite::{SqliteOptions, SqliteStore};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("runs.db");
//! let store = SqliteStore::open(path, SqliteOptions::default())?;
//! store.setup().await?;
//! assert!(store.runs(&RunQuery::default(), Page::default()).await?.items.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - **Durable.** The store acknowledges an append after its transaction is committed and the write-ahead log is synced ([`Synchronous::Full`]).
//!   This relies on the disk: a disk that acknowledges a write too early can lose it.
//! - **Atomic.** An append is a part of one transaction. Readers never see the remains of a crashed transaction.
//! - **One winner.** Each transaction locks the file, across processes, before it reads a head.
//! - **Cross-checked.** The head, the row and the records of a run are in three trees of the file. If one of them loses data, it contradicts the
//!   others, and the read fails with [`Corrupt`](ferrata_store::ErrorKind::Corrupt). So a read never returns another run's data, and never a
//!   shortened run.
//! - **Appends of many runs in one commit.** Appends that wait for a commit all go into the next transaction, so that one sync makes all of them
//!   durable.
//! - **Failures are reported.** If the lock is not free within `lock_wait`, the disk is full or the file is read-only, a call fails with
//!   [`Unavailable`](ferrata_store::ErrorKind::Unavailable), and the store is unchanged. If the disk fails during the commit, or the file was removed
//!   or replaced meanwhile, it fails with [`Indeterminate`](ferrata_store::ErrorKind::Indeterminate).
//!
//! # Limits
//!
//! - The store needs Unix, and all its processes on one machine with a local file system. `setup` refuses network file systems on Linux.
//! - Only one transaction writes at a time, across all processes. A process that is suspended within a commit stops all writes.
//! - In a process that uses the store, open the file only with SQLite, and do not copy it by other means. When a process closes any open file of
//!   the database, POSIX releases all locks of the process on that file. Use [`SqliteStore::back_up`] for copies.
//! - Connections do not survive `fork`: open the store after the fork.
//! - A body may have at most a billion bytes.
//!
//! `docs/reference/store-sqlite.md` describes the layout and how to maintain the file.

mod append;
mod config;
mod db;
mod error;
mod list;
mod load;
mod prune;
mod reseal;
mod row;
mod session;
mod setup;
mod statement;
mod store;
mod stored_run;
mod transaction;
mod writer;

pub use config::{SqliteOptions, Synchronous};
pub use store::SqliteStore;
pub use transaction::{Sqlite, SqliteTransaction};

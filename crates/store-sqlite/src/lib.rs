//! Keeps the runs of [Ferrata](ferrata_store) in an SQLite database: one file on a disk of this machine.
//!
//! Nothing to run and nothing to install: SQLite is built in. `sqlite3` reads the file, and the views `ferrata_run_list`,
//! `ferrata_record_list` and `ferrata_failed_today` are made for that.
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
//! - **Durable.** An append is acknowledged after its transaction was committed and the write-ahead log synced
//!   ([`Synchronous::Full`]). What that is worth is up to the disk: one that acknowledges before it has written loses what it lied about.
//! - **Whole.** An append is a part of one transaction. What a crash leaves of one is not read.
//! - **One winner.** Each transaction takes the lock of the file before it looks at a head, also among processes.
//! - **Compared.** The head, the row and the records of a run lie in three trees of the file. What one of them lost contradicts the others, and that is
//!   [`Corrupt`](ferrata_store::ErrorKind::Corrupt): no run is read as another one, and none shorter than it is.
//! - **Appends of many runs in one commit.** What waits while a transaction is committed goes into the next one, so that one sync serves
//!   all of them.
//! - **Honest about failure.** A lock that does not come free within `lock_wait`, a full disk and a read-only file are
//!   [`Unavailable`](ferrata_store::ErrorKind::Unavailable): nothing was written. A disk that fails during the commit is
//!   [`Indeterminate`](ferrata_store::ErrorKind::Indeterminate), and so is a file that was removed or replaced meanwhile.
//!
//! # Limits
//!
//! - Unix, and processes of one machine, on a local file system. `setup` refuses network file systems on Linux.
//! - One transaction at a time writes, whatever the number of processes. A process that is suspended within a commit stops the writes of all.
//! - Never open the file with anything but SQLite in a process that uses the store, not even to copy it: when any open file of a
//!   process is closed, POSIX ends all locks that the process holds on it. Use [`SqliteStore::back_up`].
//! - The connections of a process do not survive `fork`: open the store after it.
//! - A body may have a billion bytes.
//!
//! `docs/store-sqlite.md` has the layout and what to do with the file.

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

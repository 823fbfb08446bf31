//! Stores the runs of [Ferrata](ferrata_store) on a disk of this machine: one append-only file of JSON lines per run.
//!
//! The store needs no server and no installation, and `jq` can read every file. It is the default for services on one machine, and for tests that
//! need a store that outlives the process.
//!
//! ```
//! use ferrata_store::{CheckpointStore, Page, RunQuery};
//! use ferrata_store_fs::FsStore;
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path();
//! let store = FsStore::open(directory)?;
//! store.setup().await?;
//! assert!(store.runs(&RunQuery::default(), Page::default()).await?.items.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - **Durable.** The store acknowledges an append after `fdatasync` of the log, or of a journal with the same bytes. Before it acknowledges a new
//!   log, it also calls `fsync` on the directories that name the log. If the machine crashes, the next process that opens the folder restores lost
//!   data from journals before it reads anything. This relies on the disk: a disk that acknowledges a write too early can lose it.
//! - **Atomic.** An append becomes visible with its last line. Readers skip the remains of a write that a crash cut short. The next writer cuts
//!   these remains off and logs a warning. Reads report any other damage, and no writer cuts it off.
//! - **One winner.** Writers to a run exclude each other by a lock on its file (`flock`), also across processes. So one of several appends that
//!   expect the same head succeeds.
//! - **Failures are reported.** A failed write leaves the file unchanged. A failed sync returns
//!   [`Indeterminate`](ferrata_store::ErrorKind::Indeterminate). This process then copies the log to a new file before it reports anything else
//!   about the run, because a second sync would return `Ok` even if data was lost.
//! - **Immediate detection of dead processes.** An executor's heartbeat includes a lock that ends with its process. So other processes can claim
//!   its runs before the heartbeat expires.
//!
//! # Limits
//!
//! - The store needs a local file system on Unix with `flock` and case-sensitive names: ext4, XFS, Btrfs, ZFS, tmpfs. Network file systems are
//!   unsupported: their locks work only on one machine, or only within one process, or not at all.
//! - A listing of runs looks at every log, and reads the first and the last lines of those that changed since its last listing. This is fast enough
//!   for tens of thousands of runs, not for millions.
//! - A reader may see an append shortly before it is durable. A later append to the run makes it durable, too.
//! - A body may have at most 256 MiB.
//! - The store creates files and directories with the process's default permissions (`umask`). Logs contain the same data as the state.
//!
//! `docs/reference/format-fs.md` describes the files byte by byte.

mod append;
mod backward;
mod batch;
mod caller;
mod clock;
mod config;
mod create;
mod disk;
mod error;
mod executors;
mod fd_limits;
mod forward;
mod header;
mod inner;
mod journal;
mod layout;
mod line;
mod list;
mod listed;
mod lock;
mod log;
mod log_readers;
mod presence;
mod purge;
mod read;
mod recover;
mod rewrite;
mod row;
mod setup;
mod slots;
mod store;
mod tail;

#[cfg(test)]
mod tests;

pub use config::FsOptions;
pub use store::FsStore;

//! Keeps the runs of [Ferrata](ferrata_store) on a disk of this machine: one append-only file of JSON lines per run.
//!
//! The store needs no server and no installation; `jq` reads every file. It is the default for services on one machine, and for tests that need a
//! store that outlives a process.
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
//! - **Durable.** An append is acknowledged after `fdatasync` of the file, or of a journal with the same bytes. For a new file, `fsync` of the
//!   directories that name it comes first, too. If the machine crashes, the next process that opens the folder restores lost data from journals
//!   before it reads anything. This relies on the disk: a disk that acknowledges a write too early can lose it.
//! - **Whole.** An append becomes visible with its last line. Readers skip the remains of a write that a crash cut short, and the next writer cuts
//!   them off with a warning. Reads report any other damage, and no writer cuts it off.
//! - **One winner.** Appends to a run take turns by a lock on its file (`flock`), also among processes.
//! - **Failures are reported.** A failed write leaves the file unchanged. A failed sync returns
//!   [`Indeterminate`](ferrata_store::ErrorKind::Indeterminate). This process then copies the log to a new file before it reports anything else
//!   about the run, because a second sync would return `Ok` even if the data is lost.
//! - **Immediate detection of dead processes.** An executor's heartbeat includes a lock that ends with its process, so other processes can claim its
//!   runs before the heartbeat expires.
//!
//! # Limits
//!
//! - Local file systems on Unix, with `flock` and case-sensitive names: ext4, XFS, Btrfs, ZFS, tmpfs. Network file systems are unsupported: their
//!   locks apply on one machine, or for one process, or not at all.
//! - A listing of runs reads every log's first and last lines: fit for tens of thousands of runs, not for millions.
//! - A reader may see an append a moment before it is on stable storage. A later append to the run makes it durable too.
//! - A body may have 256 MiB.
//! - The store creates files and directories with the process's usual rights (`umask`); logs contain the same data as the state.
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

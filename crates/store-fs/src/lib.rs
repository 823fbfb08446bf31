//! Keeps the runs of [Ferrata](ferrata_store) on a disk of this machine: one append-only file of JSON lines per run.
//!
//! Nothing to run and nothing to install; `jq` reads every file. The default for services on one machine, and for tests
//! that need a store that outlives a process.
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
//! - **Durable.** An append is acknowledged after `fdatasync` of the file, or of a journal that has the same bytes, and, where the file
//!   was made, `fsync` of the directories that name it. What a crash of the machine takes from files is put back from journals by the
//!   next process to open the folder, before it reads anything. What that is worth is up to the disk: one that acknowledges before it has written loses what it lied about.
//! - **Whole.** An append becomes visible with its last line. What a crash leaves of a write is passed over by readers and
//!   cut off by the next writer, with a warning. Damage of any other kind is reported and never cut off.
//! - **One winner.** Appends to a run take turns by a lock on its file (`flock`), also among processes.
//! - **Honest about failure.** After a failed write the file is as it was. After a failed sync the result is
//!   [`Indeterminate`](ferrata_store::ErrorKind::Indeterminate), and this process copies the log to a new file before it says
//!   anything else of the run: a second sync would say `Ok` whether the data is there or not.
//! - **Death is noticed at once.** An executor's heartbeat holds a lock that ends with its process, so its runs can be
//!   claimed without waiting for the heartbeat to expire.
//!
//! # Limits
//!
//! - Local file systems on Unix, with `flock` and names that tell upper from lower case: ext4, XFS, Btrfs, ZFS,
//!   tmpfs. Not on a network: locks there hold on one machine, or for one process, or not at all.
//! - A listing of runs reads every log's first and last lines: fit for tens of thousands of runs, not for millions.
//! - A reader may see an append a moment before it is on stable storage. Whatever is appended on top of it brings it there.
//! - A body may have 256 MiB.
//! - Files and directories are made with the process's usual rights (`umask`); logs hold whatever the state holds.
//!
//! `docs/format-fs.md` describes the files byte by byte.

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
mod forward;
mod header;
mod inner;
mod journal;
mod layout;
mod line;
mod list;
mod lock;
mod log;
mod presence;
mod purge;
mod read;
mod recover;
mod rewrite;
mod roomy;
mod row;
mod setup;
mod slots;
mod store;
mod tail;
mod walk;

#[cfg(test)]
mod tests;

pub use config::FsOptions;
pub use store::FsStore;

//! The store. Each method of the contract runs on a thread that may block.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{
    At, Capabilities, CheckpointStore, Clock, Error, ErrorKind, ExecutorId, HeadRef, HeaderRange, Headers,
    Notices, Page, Paged, PruneCut, Record, Removed, Result, RunAppend, RunHead, RunKey, RunQuery,
};
use tokio::task::spawn_blocking;

use crate::batch::AppendBatch;
use crate::caller::CallerGuard;
use crate::clock::MachineClock;
use crate::config::{FsOptions, path_of_url};
use crate::disk::{Disk, RealDisk};
use crate::error::FsStoreError;
use crate::inner::FsInner;
use crate::journal::JournalLimits;
use crate::layout::FsLayout;
use crate::row;

/// A store that keeps each run as one append-only file of JSON lines below a directory.
///
/// A clone is cheap and shares the open files. Any number of instances, in any number of processes of one machine, may use a directory at the same
/// time. Dropping the last clone syncs the logs that have entries in its journal, which takes some milliseconds. If the process is killed instead,
/// the next process that opens the directory does that.
#[derive(Clone)]
pub struct FsStore {
    folder: Arc<FsInner>,
}

impl FsStore {
    /// Creates a store in a directory. Touches no file: [`setup`](CheckpointStore::setup) or the first append creates the directory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the path is empty, or if the path is relative and the current directory is unknown.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(directory, FsOptions::default())
    }

    /// Creates a store with options.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open).
    pub fn open_with(directory: impl AsRef<Path>, options: FsOptions) -> Result<Self> {
        let directory = directory.as_ref();
        // Make the path absolute, so that the store stays the same when the process changes its current directory.
        let root = std::path::absolute(directory).map_err(|source| {
            let message = format!(
                "\"{}\" is not a valid directory for a store; use the path of a directory",
                directory.display()
            );
            Error::new(ErrorKind::Invalid, message).with_source(source)
        })?;
        Ok(Self::with_disk(root, options, Arc::new(RealDisk), Arc::new(MachineClock::new())))
    }

    /// Creates a store in the directory of a URL: `file:///absolute/path`, or `file:relative/path`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the URL does not have this form.
    pub fn from_url(url: &str, options: FsOptions) -> Result<Self> {
        Self::open_with(path_of_url(url)?, options)
    }

    /// Replaces the system clock. The monotonic time must be the same in every process that uses the folder. Call it before the store is used or
    /// cloned.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        let root = PathBuf::from(self.folder.layout.root());
        Self::with_disk(root, self.folder.options.clone(), Arc::clone(&self.folder.disk), clock)
    }

    pub(crate) fn with_disk(
        root: PathBuf,
        options: FsOptions,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            folder: Arc::new(FsInner::new(
                disk,
                FsLayout::new(root),
                clock,
                options,
                JournalLimits::default(),
            )),
        }
    }

    #[cfg(test)]
    pub(crate) fn inner(&self) -> Arc<FsInner> {
        Arc::clone(&self.folder)
    }

    /// Runs `work` on a thread that may block.
    async fn block<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FsInner) -> Result<T, FsStoreError> + Send + 'static,
    ) -> Result<T, FsStoreError> {
        let folder = Arc::clone(&self.folder);
        let work = move || {
            let _turn = folder.turns.acquire();
            folder.check_still_there(work(&folder))
        };
        spawn_blocking(work).await.unwrap_or(Err(FsStoreError::GivenUp))
    }

    /// Runs `work` for one run on a thread that may block. The run's name goes into the error.
    async fn block_on_run<T: Send + 'static>(
        &self,
        operation: &'static str,
        run: &RunKey,
        work: impl FnOnce(&FsInner, &RunKey) -> Result<T, FsStoreError> + Send + 'static,
    ) -> Result<T> {
        let key = run.clone();
        self.block(move |folder| work(folder, &key)).await.map_err(|fault| fault.of_run(operation, run))
    }
}

impl fmt::Debug for FsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FsStore").field("root", &self.folder.layout.root()).finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for FsStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("file").with_durable(true).with_shared(true)
    }

    async fn setup(&self) -> Result<()> {
        let folder = Arc::clone(&self.folder);
        let done = spawn_blocking(move || folder.set_up()).await.unwrap_or(Err(FsStoreError::GivenUp));
        done.map_err(|fault| Error::from(fault).with_operation("store.setup"))
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let row = row::LONGEST.min(self.folder.turns.max());
        let (batch, waiting) = (Arc::new(AppendBatch::new(batch, row)), CallerGuard::new());
        // The second pass executes the appends that the rows postponed.
        for _ in 0..2 {
            let (rows, singles) = batch.waiting();
            let parallel = self.folder.options.parallel.get();
            let mut workers = Vec::new();
            for _ in 0..rows.min(parallel) {
                let (folder, batch, caller) =
                    (Arc::clone(&self.folder), Arc::clone(&batch), waiting.caller());
                workers.push(spawn_blocking(move || {
                    while let Some(row) = batch.next_row() {
                        batch.postpone(folder.append_row(row, &batch, &caller));
                    }
                }));
            }
            // Each thread takes the next entry when it finishes an entry, so a slow run delays only itself.
            for _ in 0..singles.min(parallel) {
                let (folder, batch, caller) =
                    (Arc::clone(&self.folder), Arc::clone(&batch), waiting.caller());
                workers.push(spawn_blocking(move || {
                    while let Some((number, entry)) = batch.next() {
                        let _turn = folder.turns.acquire();
                        let done = folder.ready_to_write().and_then(|()| folder.append(&entry, &caller));
                        // The folder existed when it was acknowledged, so a missing folder is an error.
                        let done = done.or_else(|fault| folder.check_still_there(Err(fault)));
                        batch.set_result(
                            number,
                            done.map_err(|fault| fault.of_run("store.append", &entry.run)),
                        );
                    }
                }));
            }
            for worker in workers {
                // A thread that did not finish has left its entries without a result, which `results` reports.
                let _ended = worker.await;
            }
        }
        batch.results()
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        let load = move |folder: &FsInner, run: &RunKey| {
            folder.ready_to_read()?;
            folder.load(run, at)
        };
        self.block_on_run("store.load", run, load).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        let load = move |folder: &FsInner, run: &RunKey| {
            folder.ready_to_read()?;
            folder.load_since(run, known)
        };
        self.block_on_run("store.load", run, load).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        let headers = move |folder: &FsInner, run: &RunKey| {
            folder.ready_to_read()?;
            folder.headers(run, range)
        };
        self.block_on_run("store.headers", run, headers).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        let head = |folder: &FsInner, run: &RunKey| {
            folder.ready_to_read()?;
            folder.head(run)
        };
        self.block_on_run("store.head", run, head).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        let query = query.clone();
        let listed = self.block(move |folder| {
            folder.ready_to_read()?;
            folder.runs(&query, &page)
        });
        listed.await.map_err(|fault| Error::from(fault).with_operation("store.runs"))
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        let waiting = CallerGuard::new();
        let caller = waiting.caller();
        let prune = move |folder: &FsInner, run: &RunKey| {
            folder.ready_to_read()?;
            folder.prune(run, &cut, &caller)
        };
        self.block_on_run("store.prune", run, prune).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        let waiting = CallerGuard::new();
        let caller = waiting.caller();
        let purge = move |folder: &FsInner, run: &RunKey| {
            folder.ready_to_read()?;
            folder.purge(run, expected, &caller)
        };
        self.block_on_run("store.purge", run, purge).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        let executor = *executor;
        let beat = self.block(move |folder| {
            folder.ready_to_write()?;
            folder.heartbeat(&executor, ttl)?;
            folder.journal.restart_if_old(folder);
            Ok(())
        });
        beat.await.map_err(|fault| Error::from(fault).with_operation("store.heartbeat"))
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        let executor = *executor;
        let read = self.block(move |folder| {
            folder.ready_to_read()?;
            folder.is_alive(&executor)
        });
        read.await.map_err(|fault| Error::from(fault).with_operation("store.is_alive"))
    }

    fn transactions(&self) -> Option<&dyn ferrata_store::Transactions> {
        None
    }

    fn part(&self, _run: &RunKey) -> u64 {
        0
    }

    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        Some(self)
    }

    fn relay(&self) -> Option<&dyn ferrata_store::Relay> {
        None
    }

    fn subscribe(&self) -> Option<Notices> {
        None
    }
}

#[async_trait]
impl ferrata_store::Resealing for FsStore {
    /// Reseals all records in one call, because each call rewrites the run's file.
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        ferrata_store::check_reseal(run, records)?;
        let records = records.to_vec();
        let reseal = move |folder: &FsInner, run: &RunKey| {
            folder.ready_to_write()?;
            folder.reseal(run, &records)
        };
        self.block_on_run("store.reseal", run, reseal).await
    }
}

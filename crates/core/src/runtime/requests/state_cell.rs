//! A cell whose content is the state of an idle run. Several processes can read and change it.

use std::fmt;
use std::sync::Arc;

use crate::engine::fold::missing;
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::kernel::run_writer::RunWriter;
use crate::kernel::tasks::finish;
use crate::record::RunStatus;
use crate::record::pause::EditRecord;
use crate::runtime::runtime::Runtime;
use crate::state::{Channels, Op, Patch};

/// A cell whose content is the state of an idle run. Several processes change it: each process loads the state, decides, and appends its change. The
/// append succeeds only if no other process has changed the run since the load. The cell is for libraries that share state between all processes of a
/// store. For example, `ferrata-queue` stores the slots of a queue in a cell.
///
/// No process drives the run. Start it [on hold](super::StartRequest::on_hold) and never unpause it. A change is recorded like an
/// [`edit`](super::super::Runtime::edit) of the state, so history, retention and all tools support it.
///
/// If the store supports [`load_since`](crate::store::CheckpointStore::load_since), a load reads only the changes of other processes, even if the
/// state is large.
#[doc(hidden)]
pub struct StateCell {
    run: RunKey,
    tip: Option<Box<RunWriter>>,
    /// The operations that undo a failed change. The next load returns them, because the caller may have applied the change.
    undone: Vec<Op>,
    /// Whether other processes may have changed the run since the last load.
    is_stale: bool,
}

/// The changes that [`StateCell::load`] found.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)]
pub enum CellChanges {
    /// The whole state was loaded again. Data that the caller has computed from earlier channels is out of date.
    All,
    /// The operations that changed the channels since the last load or append, in order. They are changes by other processes, or undo a failed append
    /// of the caller. The caller's own successful appends are not included. The list is empty if nothing changed.
    Changes(Vec<Op>),
}

impl StateCell {
    /// Creates a cell for the state of a run, without loading the state.
    pub fn new(run: RunKey) -> Self {
        Self { run, tip: None, undone: Vec::new(), is_stale: false }
    }

    /// Returns the key of the run.
    pub fn run(&self) -> &RunKey {
        &self.run
    }

    /// Loads the state. Returns the current channels, and their changes since the last load or append. The next [`append`](Self::append) succeeds
    /// only if the run has not changed since this load.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: there is no such run.
    /// - [`ErrorKind::WrongStatus`]: the run was cancelled or has ended in another way.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`], [`ErrorKind::Unavailable`]: the errors of a load.
    ///
    /// After an error the next load is a full load.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn load(&mut self, runtime: &Runtime) -> Result<(&Channels, CellChanges)> {
        let shared = runtime.shared();
        let (tip, news) = match self.tip.take() {
            None => (Box::new(RunWriter::load(shared, &self.run, None).await?), CellChanges::All),
            Some(tip) if !self.is_stale => (tip, CellChanges::Changes(std::mem::take(&mut self.undone))),
            Some(mut tip) => {
                let records = shared.store.load_since(&self.run, tip.folded.last.head()).await?;
                let news = tip.take_in(shared, &records.ok_or_else(|| missing(&self.run))?)?;
                let mut changes = std::mem::take(&mut self.undone);
                let news = news.map_or(CellChanges::All, |news| {
                    changes.extend(news);
                    CellChanges::Changes(changes)
                });
                (tip, news)
            }
        };
        self.forget();
        let status = tip.folded.machine.status();
        if matches!(status, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled) {
            let message = format!("the run is {status}; it stores no further state");
            return Err(Error::new(ErrorKind::WrongStatus, message).with_run(&self.run));
        }
        Ok((&self.tip.insert(tip).folded.channels, news))
    }

    /// Returns whether the run is unchanged since the last load or append. Returns false if nothing was loaded yet. If the run has changed, the next
    /// load returns the changes.
    ///
    /// # Errors
    ///
    /// Returns the errors of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn is_current(&mut self, runtime: &Runtime) -> Result<bool> {
        let Some(tip) = &self.tip else { return Ok(false) };
        let head = runtime.store().head(&self.run).await?;
        self.is_stale |= head.is_none_or(|head| head.id != tip.folded.last.id);
        Ok(!self.is_stale)
    }

    /// Drops the loaded state, so that the next load reads the whole state.
    pub fn forget(&mut self) {
        (self.tip, self.is_stale) = (None, false);
        self.undone.clear();
    }

    /// Returns the maximum size of the channels as JSON, in bytes, at which loads stay cheap. Up to this size, a load reads at most data in
    /// proportion to the size. It equals the [`max_body`](super::super::RuntimeBuilder::max_body) of this process.
    pub fn size_limit(runtime: &Runtime) -> usize {
        runtime.shared().limits.max_body
    }

    /// Appends a change of the loaded state. After an error, the next [`load`](Self::load) undoes the change in the cell and returns the changes of
    /// other processes.
    ///
    /// A state that is larger than its [`size_limit`](Self::size_limit) still accepts changes, because otherwise it could never become smaller. Each
    /// load then reads more and more of the log, so the caller must make no changes that add data.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Conflict`]: another process has changed the run since the load. The call wrote nothing.
    /// - [`ErrorKind::Invalid`]: the change is invalid. The call wrote nothing.
    /// - [`ErrorKind::Indeterminate`]: the change may be recorded; if so, the next load returns it.
    /// - [`ErrorKind::Unavailable`]: the store failed. The call wrote nothing.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after the first poll, the append completes even if the caller drops the future. The next load then reads the whole state.
    pub async fn append(&mut self, runtime: &Runtime, patch: Patch, by: impl Into<String>) -> Result<()> {
        let shared = Arc::clone(runtime.shared());
        let patch = patch.into_stored().map_err(|error| error.with_run(&self.run))?;
        // If the future is dropped from here on, the cell has no writer, and the next load is a full load.
        let Some(mut tip) = self.tip.take().filter(|_| !self.is_stale) else {
            let message = "the change follows no loaded state; call `load` first";
            return Err(Error::new(ErrorKind::Invalid, message).with_run(&self.run));
        };
        let edited = EditRecord { patch, by: Some(by.into()) };
        let (tip, changed) = finish(async move {
            let changed = tip.change(&shared, edited).await;
            Ok((tip, changed))
        })
        .await?;
        match changed {
            Ok(()) => {
                self.tip = Some(tip);
                Ok(())
            }
            Err((error, None)) => Err(error),
            Err((error, Some(undo))) => {
                (self.tip, self.undone, self.is_stale) = (Some(tip), undo, true);
                Err(error)
            }
        }
    }
}

impl fmt::Debug for StateCell {
    /// Formats the cell without its state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateCell").field("run", &self.run).finish_non_exhaustive()
    }
}

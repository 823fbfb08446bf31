//! The state of an idle run as a shared cell that several processes change.

use std::fmt;
use std::sync::Arc;

use super::run_writer::RunWriter;
use crate::engine::fold::missing;
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::record::RunStatus;
use crate::record::pause::EditRecord;
use crate::runtime::Runtime;
use crate::runtime::tasks::finish;
use crate::state::{Channels, Op, Patch};

/// The state of an idle run, which several processes change: each loads it, decides, and appends its change if no other process did since. It serves
/// libraries that share state across all processes of a store, as a queue does with its slots.
///
/// The run has no driver; best start it [on hold](super::StartRequest::on_hold) and never unpause it. A change is an ordinary edit record, so
/// history, retention and all tools support it.
///
/// If the store [supports it](crate::store::CheckpointStore::load_since), a load reads in proportion to the changes of other processes, however
/// large the state is.
pub struct StateCell {
    run: RunKey,
    tip: Option<Box<RunWriter>>,
    /// The operations that undo a failed change, for a caller that has applied it.
    undone: Vec<Op>,
    /// Whether other processes may have appended since.
    is_stale: bool,
}

/// The result of [`StateCell::load`].
#[derive(Clone, Debug, PartialEq)]
pub enum CellChanges {
    /// A full load: everything that the caller derived from the channels is out of date.
    All,
    /// The changes of the caller's channels, in order: by other processes, or the rollback of its own failed change; empty if there are none.
    /// The caller's own successful appends are not included.
    Changes(Vec<Op>),
}

impl StateCell {
    /// Creates a cell of a run, without loading it.
    pub fn new(run: RunKey) -> Self {
        Self { run, tip: None, undone: Vec::new(), is_stale: false }
    }

    /// Returns the run.
    pub fn run(&self) -> &RunKey {
        &self.run
    }

    /// Returns the channels as of the record that the next [`append`](Self::append) follows, and their changes since the last load or append.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: there is no such run.
    /// - [`ErrorKind::WrongStatus`]: the run was cancelled, or has ended otherwise.
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

    /// Returns whether the run is unchanged since the last load or append; false without one. The next load returns later changes.
    ///
    /// # Errors
    ///
    /// The errors of the store.
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

    /// Drops the loaded state.
    pub fn forget(&mut self) {
        (self.tip, self.is_stale) = (None, false);
        self.undone.clear();
    }

    /// Returns the size of the channels as JSON, in bytes, up to which a load reads in proportion to them. It equals this process's
    /// [`max_body`](super::super::RuntimeBuilder::max_body).
    pub fn size_limit(runtime: &Runtime) -> usize {
        runtime.shared().limits.max_body
    }

    /// Appends a change after the loaded record. After an error, [`load`](Self::load) returns the changes since, and rolls the change back.
    ///
    /// A state that has outgrown its [`size_limit`](Self::size_limit) still accepts changes, because otherwise it could never shrink. Each load then reads
    /// more and more of its log, so the caller must reject additions.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Conflict`]: another writer was first. The call wrote nothing.
    /// - [`ErrorKind::Invalid`]: the change is invalid. The call wrote nothing.
    /// - [`ErrorKind::Indeterminate`]: the change may be recorded; if so, the next load returns it.
    /// - [`ErrorKind::Unavailable`]: the store failed. The call wrote nothing.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled, the append completes even if the caller drops it; the next load is then a full load.
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
    /// Omits the state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateCell").field("run", &self.run).finish_non_exhaustive()
    }
}

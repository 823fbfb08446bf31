//! The state of a run at rest as a thing that several processes change together.

use std::fmt;
use std::sync::Arc;

use super::amend::RunWriter;
use crate::engine::fold::missing;
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::record::RunStatus;
use crate::record::pause::EditRecord;
use crate::runtime::Runtime;
use crate::runtime::tasks::finish;
use crate::state::{Channels, Op, Patch};

/// The state of a run at rest, to be changed by several processes: each reads it, decides, and appends what it decided if nobody was there
/// since. It is for libraries that keep something for all processes of a store, as a queue keeps its places.
///
/// The run is one that nobody drives, best one that was started [on hold](super::StartRequest::on_hold) and never unpaused. A change
/// is recorded as an operator's edit is, so history, retention and every tool know it.
///
/// What others have changed is read in proportion to the change where the store [can](crate::store::CheckpointStore::load_since), however
/// large the state is.
pub struct StateCell {
    run: RunKey,
    tip: Option<Box<RunWriter>>,
    /// What takes back a change that was not appended, for a caller that has followed it.
    undone: Vec<Op>,
    /// Whether others may have appended since.
    is_stale: bool,
}

/// What [`StateCell::load`] has read.
#[derive(Clone, Debug, PartialEq)]
pub enum CellNews {
    /// All of it: what the caller made of the channels before is out of date.
    All,
    /// How the channels that the caller knows were changed, in this order, by others, or back by a change of its own that was not appended;
    /// nothing if they were not. What the caller has appended is not among it.
    Changes(Vec<Op>),
}

impl StateCell {
    /// Makes a cell of a run, which is not looked at yet.
    pub fn new(run: RunKey) -> Self {
        Self { run, tip: None, undone: Vec::new(), is_stale: false }
    }

    /// Returns the run.
    pub fn run(&self) -> &RunKey {
        &self.run
    }

    /// Returns the channels as of the record that the next [`append`](Self::append) follows, and how they differ from those that were
    /// returned or appended last.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: there is no such run.
    /// - [`ErrorKind::WrongStatus`]: it was cancelled, or has ended otherwise.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`], [`ErrorKind::Unavailable`]: as a load.
    ///
    /// After an error all is read anew.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: cells::of_two_that_change_a_cell_at_once_one_is_refused, cells::what_others_changed_is_read_in_proportion_to_it -->
    pub async fn load(&mut self, runtime: &Runtime) -> Result<(&Channels, CellNews)> {
        let shared = runtime.shared();
        let (tip, news) = match self.tip.take() {
            None => (Box::new(RunWriter::load(shared, &self.run, None).await?), CellNews::All),
            Some(tip) if !self.is_stale => (tip, CellNews::Changes(std::mem::take(&mut self.undone))),
            Some(mut tip) => {
                let records = shared.store.load_since(&self.run, tip.folded.last.head()).await?;
                let news = tip.take_in(shared, &records.ok_or_else(|| missing(&self.run))?)?;
                let mut changes = std::mem::take(&mut self.undone);
                let news = news.map_or(CellNews::All, |news| {
                    changes.extend(news);
                    CellNews::Changes(changes)
                });
                (tip, news)
            }
        };
        self.forget();
        let status = tip.folded.machine.status();
        if matches!(status, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled) {
            let message = format!("the run is {status}; nothing more is kept in it");
            return Err(Error::new(ErrorKind::WrongStatus, message).with_run(&self.run));
        }
        Ok((&self.tip.insert(tip).folded.channels, news))
    }

    /// Tells whether the run is as it was loaded or written here last; not if it was not. What came since is in the next load.
    ///
    /// # Errors
    ///
    /// What the store says.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: cells::of_two_that_change_a_cell_at_once_one_is_refused -->
    pub async fn is_current(&mut self, runtime: &Runtime) -> Result<bool> {
        let Some(tip) = &self.tip else { return Ok(false) };
        let head = runtime.store().head(&self.run).await?;
        self.is_stale |= head.is_none_or(|head| head.id != tip.folded.last.id);
        Ok(!self.is_stale)
    }

    /// Forgets what was loaded.
    pub fn forget(&mut self) {
        (self.tip, self.is_stale) = (None, false);
        self.undone.clear();
    }

    /// Returns how many bytes the channels may have, as JSON, for the run to be read in proportion to them: what
    /// [`max_body`](super::super::RuntimeBuilder::max_body) says in this process.
    pub fn room(runtime: &Runtime) -> usize {
        runtime.shared().limits.max_body
    }

    /// Appends a change after what was loaded. After an error [`load`](Self::load) says what came since, and takes the change back.
    ///
    /// A state that has outgrown its [`room`](Self::room) takes changes all the same, or nothing could make it smaller again; whoever reads
    /// it then reads more and more of its log. So the caller refuses what would add to it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Conflict`]: another writer was there since. Nothing was written.
    /// - [`ErrorKind::Invalid`]: the change cannot be kept. Nothing was written.
    /// - [`ErrorKind::Indeterminate`]: it may be on record; then it is among what the next load returns.
    /// - [`ErrorKind::Unavailable`]: the store. Nothing was written.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled it is carried out, even if the caller drops it; the next load reads all anew then.
    ///
    /// <!-- held by: cells::of_two_that_change_a_cell_at_once_one_is_refused, cells::a_cell_that_has_outgrown_its_bases_can_be_made_smaller, cells::a_change_that_fails_is_taken_back_by_the_next_load -->
    pub async fn append(&mut self, runtime: &Runtime, patch: Patch, by: impl Into<String>) -> Result<()> {
        let shared = Arc::clone(runtime.shared());
        let patch = patch.checked().map_err(|error| error.with_run(&self.run))?;
        // Dropped from here on, nothing is known of it any more.
        let Some(mut tip) = self.tip.take().filter(|_| !self.is_stale) else {
            let message = "nothing was loaded that the change could follow; call `load` before";
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
    /// Never shows the state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateCell").field("run", &self.run).finish_non_exhaustive()
    }
}

//! The state of a run at rest as a thing that several processes change together.

use std::fmt;
use std::sync::Arc;

use super::amend::Tip;
use super::edit::misfit;
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::record::RunStatus;
use crate::record::body::Event;
use crate::record::pause::Edited;
use crate::runtime::Runtime;
use crate::runtime::tasks::finish;
use crate::state::{Channels, Patch};

/// The state of a run at rest, to be changed by several processes: each reads it, decides, and appends what it decided if nobody was there
/// since. It is for libraries that keep something for all processes of a store, as a queue keeps its places.
///
/// The run is one that nobody drives, best one that was started [on hold](super::StartRequest::on_hold) and never unpaused. A change
/// is recorded as an operator's edit is, so history, retention and every tool know it.
pub struct StateCell {
    run: RunKey,
    tip: Option<Box<Tip>>,
}

impl StateCell {
    /// Makes a cell of a run, which is not looked at yet.
    pub fn new(run: RunKey) -> Self {
        Self { run, tip: None }
    }

    /// Returns the run.
    pub fn run(&self) -> &RunKey {
        &self.run
    }

    /// Returns the channels as of the record that the next [`append`](Self::append) follows, and whether they were read just now: what the
    /// caller made of them before is out of date then.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: there is no such run.
    /// - [`ErrorKind::WrongStatus`]: it was cancelled, or has ended otherwise.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`], [`ErrorKind::Unavailable`]: as a load.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: cells::of_two_that_change_a_cell_at_once_one_is_refused -->
    pub async fn load(&mut self, runtime: &Runtime) -> Result<(&Channels, bool)> {
        let is_new = self.tip.is_none();
        let tip = match self.tip.take() {
            Some(tip) => tip,
            None => Box::new(Tip::load(runtime.shared(), &self.run, None).await?),
        };
        let status = tip.folded.machine.status();
        if matches!(status, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled) {
            let message = format!("the run is {status}; nothing more is kept in it");
            return Err(Error::new(ErrorKind::WrongStatus, message).with_run(&self.run));
        }
        Ok((&self.tip.insert(tip).folded.channels, is_new))
    }

    /// Tells whether the run is as it was loaded or written here last; not if it was not.
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
    pub async fn is_current(&self, runtime: &Runtime) -> Result<bool> {
        let Some(tip) = &self.tip else { return Ok(false) };
        let head = runtime.store().head(&self.run).await?;
        Ok(head.is_some_and(|head| head.id == tip.folded.last.id))
    }

    /// Forgets what was loaded.
    pub fn forget(&mut self) {
        self.tip = None;
    }

    /// Returns how many bytes the channels may have, as JSON, for the run to be read in proportion to them: what
    /// [`max_body`](super::super::RuntimeBuilder::max_body) says in this process.
    pub fn room(runtime: &Runtime) -> usize {
        runtime.shared().limits.max_body
    }

    /// Appends a change after what was loaded. After an error load it anew.
    ///
    /// A state that has outgrown its [`room`](Self::room) takes changes all the same, or nothing could make it smaller again; whoever reads
    /// it then reads more and more of its log. So the caller refuses what would add to it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Conflict`]: another writer was there since. Nothing was written.
    /// - [`ErrorKind::Invalid`]: the change cannot be kept. Nothing was written.
    /// - [`ErrorKind::Indeterminate`]: it may be on record.
    /// - [`ErrorKind::Unavailable`]: the store. Nothing was written.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled it is carried out, even if the caller drops it; load it anew then.
    ///
    /// <!-- held by: cells::of_two_that_change_a_cell_at_once_one_is_refused, cells::a_cell_that_has_outgrown_its_bases_can_be_made_smaller -->
    pub async fn append(&mut self, runtime: &Runtime, patch: Patch, by: impl Into<String>) -> Result<()> {
        let shared = Arc::clone(runtime.shared());
        let Some(mut tip) = self.tip.take() else {
            let message = "nothing was loaded that the change could follow; call `load` before";
            return Err(Error::new(ErrorKind::Invalid, message).with_run(&self.run));
        };
        tip.folded.channels.apply(&patch).map_err(|error| misfit(error).with_run(&self.run))?;
        let event = Event::Edit(Edited { patch, by: Some(by.into()) });
        let run = self.run.clone();
        let appended = finish(async move {
            tip.append(&shared, None, &[event]).await.map_err(|error| error.with_run(&run))?;
            Ok(tip)
        });
        self.tip = Some(appended.await?);
        Ok(())
    }
}

impl fmt::Debug for StateCell {
    /// Never shows the state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateCell").field("run", &self.run).finish_non_exhaustive()
    }
}

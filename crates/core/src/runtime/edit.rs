//! Changing the state of a run as its operator.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::load::load;
use super::log::{About, LogWriter};
use super::shared::{Control, Shared};
use super::signal;
use super::tasks::finish;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Graph;
use crate::id::RunKey;
use crate::record::RunStatus;
use crate::record::body::Event;
use crate::record::pause::Edited;
use crate::state::{Patch, State};
use crate::store::RunAppend;

/// A change of a run's state that is about to be made; `.await` makes it, and comes back when it is durable.
///
/// # Cancel safety
///
/// Cancel safe: once polled it is carried out, whoever drops it.
#[must_use = "nothing is changed before it is awaited"]
pub struct EditRequest<S: State> {
    shared: Arc<Shared>,
    graph: Graph<S>,
    run: RunKey,
    patch: Patch,
    by: Option<String>,
}

impl<S: State> EditRequest<S> {
    pub(crate) fn new(shared: &Arc<Shared>, graph: &Graph<S>, run: &RunKey, patch: Patch) -> Self {
        Self { shared: Arc::clone(shared), graph: graph.clone(), run: run.clone(), patch, by: None }
    }

    /// Says who changes it; it is recorded.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }

    async fn edit(self) -> Result<()> {
        let edit = |reply| Control::Edit { patch: self.patch.clone(), by: self.by.clone(), reply };
        signal::attempt(&self.shared, &self.run, edit, || self.append()).await
    }

    /// Appends the edit to the log of a run that is not driven here.
    async fn append(&self) -> Result<()> {
        let (shared, run) = (&self.shared, &self.run);
        let place = |error: Error| error.with_run(run);
        let loaded = load(&*shared.store, &self.graph, run).await?;
        let mut folded = loaded.folded;
        let status = folded.machine.status();
        if matches!(status, RunStatus::Completed | RunStatus::Cancelled) {
            let message = format!("the run is {status}; its state is final");
            return Err(place(Error::new(ErrorKind::WrongStatus, message)));
        }
        let mut channels = self.graph.migrated(&folded.channels, folded.version).map_err(place)?;
        channels.apply(&self.patch).map_err(misfit).map_err(place)?;
        let state = S::from_channels(channels, self.graph.schema()).map_err(misfit).map_err(place)?;
        let owner = folded.last.owner;
        let (clock, ids) = (Arc::clone(&shared.clock), Arc::clone(&shared.ids));
        let executor = owner.unwrap_or(shared.executor);
        let mut log = LogWriter::new(run.clone(), executor, shared.limits.max_body, clock, ids);
        // The parts of the log that its writer needs; the channels are the new ones by now.
        log.head = Some(folded.last.head());
        log.epoch = folded.last.epoch;
        log.state_version = self.graph.schema().version();
        // Patches are in the form of the type that wrote the base before them.
        let migrated = folded.version != log.state_version;
        if migrated {
            folded
                .machine
                .bring_forward(|patch| self.graph.migrated_patch(&folded.channels, folded.version, patch));
        }
        let event = Event::Edit(Edited { patch: self.patch.clone(), by: self.by.clone() });
        folded.machine.absorb(&event)?;
        let about = About { release: owner.is_none(), base: migrated, ..About::default() };
        let record = log.record(&event, about, &folded.machine, || state.to_channels_json())?;
        let append = RunAppend {
            run: run.clone(),
            expected: Some(folded.last.head()),
            records: vec![record],
            facts: None,
        };
        let gone = |_| Err(Error::new(ErrorKind::Indeterminate, "the append was dropped before its answer"));
        shared.committer.submit(append, None).await.unwrap_or_else(gone).map(|_| ())
    }
}

/// Says that a patch does not fit. What channels report as damage in a log is the caller's mistake here.
pub(crate) fn misfit(error: Error) -> Error {
    let message = format!("the patch does not fit the state: {}; nothing was changed", error.message());
    Error::new(ErrorKind::Invalid, message).with_source(error)
}

impl<S: State> IntoFuture for EditRequest<S> {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(finish(self.edit()))
    }
}

impl<S: State> std::fmt::Debug for EditRequest<S> {
    /// Never shows the values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EditRequest").field("run", &self.run).field("by", &self.by).finish_non_exhaustive()
    }
}

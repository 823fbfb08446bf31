//! Changing the state of a run as its operator.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::amend::{Tip, Writer, amend};
use super::shared::{Control, Shared};
use super::tasks::finish;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Graph;
use crate::id::RunKey;
use crate::record::RunStatus;
use crate::record::body::Event;
use crate::record::pause::Edited;
use crate::state::{Channels, Patch, State};

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
        let Self { shared, graph, run, patch, by } = self;
        let message = |reply| Control::Edit { patch: patch.clone(), by: by.clone(), reply };
        amend(&shared, &run, Writer::Signaller(&message), |tip| {
            check_status(tip)?;
            let mut channels = graph.migrated(&tip.folded.channels, tip.folded.version)?;
            channels.apply(&patch).map_err(misfit)?;
            let state = S::from_channels(channels, graph.schema()).map_err(misfit)?;
            // Patches are in the form of the type that wrote the base before them.
            tip.migrate(&graph, &state)?;
            tip.folded.channels = Channels::from_json(state.to_channels_json()?.get())?;
            Ok(vec![Event::Edit(Edited { patch: patch.clone(), by: by.clone() })])
        })
        .await
        .map(|_| ())
    }
}

/// Refuses to change the state of a run that has ended for good.
pub(super) fn check_status(tip: &Tip) -> Result<()> {
    let status = tip.folded.machine.status();
    if matches!(status, RunStatus::Completed | RunStatus::Cancelled) {
        let message = format!("the run is {status}; its state is final");
        return Err(Error::new(ErrorKind::WrongStatus, message));
    }
    Ok(())
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

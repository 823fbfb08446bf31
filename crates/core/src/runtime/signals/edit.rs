//! The request by which an operator edits the state of a run.

use crate::runtime::writes::run_writer::caller_error;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::graph::{AnyGraph, Graph};
use crate::id::RunKey;
use crate::kernel::commands::DriverCommand;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::log::check_size;
use crate::kernel::run_writer::RunWriter;
use crate::kernel::tasks::finish;
use crate::record::body::RecordEvent;
use crate::record::pause::EditRecord;
use crate::record::{RunStatus, codec};
use crate::runtime::writes::run_writer::{WriterRole, amend};
use crate::state::{Patch, State};

/// A prepared edit of a run's state. `.await` writes the edit, and returns when it is durable.
///
/// # Errors
///
/// Returns the errors of [`Runtime::edit`](crate::runtime::Runtime::edit), and the errors of every [`SignalRequest`](crate::runtime::SignalRequest).
///
/// # Cancel safety
///
/// Cancel safe: after the first poll, the request completes even if the caller drops the future.
#[must_use = "the state changes only when the future is awaited"]
pub struct EditRequest {
    shared: Arc<RuntimeInner>,
    run: RunKey,
    patch: Patch,
    by: Option<String>,
    graph: Option<Box<dyn AnyGraph>>,
}

impl EditRequest {
    pub(crate) fn new(shared: &Arc<RuntimeInner>, run: &RunKey, patch: Patch) -> Self {
        Self { shared: Arc::clone(shared), run: run.clone(), patch, by: None, graph: None }
    }

    /// Sets the author of the edit, which the log records.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }

    /// Rejects the edit if the state type of `graph` cannot read the changed state. If the state is of an older version, the check migrates it first.
    ///
    /// If this process drives the run, its driver always checks this.
    pub fn check_with<S: State>(mut self, graph: &Graph<S>) -> Self {
        self.graph = Some(Box::new(graph.clone()));
        self
    }

    async fn edit(self) -> Result<()> {
        let Self { shared, run, patch, by, graph } = self;
        let patch = patch.into_stored().map_err(|error| caller_error(error).with_run(&run))?;
        let message = |reply| DriverCommand::Edit { patch: Box::new(patch.clone()), by: by.clone(), reply };
        let decide = |tip: &mut RunWriter| {
            change(tip, &patch, graph.as_deref(), shared.limits.max_body)?;
            Ok(vec![RecordEvent::Edit(EditRecord { patch: patch.clone(), by: by.clone() })])
        };
        amend(&shared, &run, WriterRole::Signaller(&message), decide).await.map(|_| ())
    }
}

/// Changes the channels of a run that this process does not drive.
fn change(tip: &mut RunWriter, patch: &Patch, graph: Option<&dyn AnyGraph>, most: usize) -> Result<()> {
    let status = tip.folded.machine.status();
    if matches!(status, RunStatus::Completed | RunStatus::Cancelled) {
        let message = format!("the run is {status}; its state is final");
        return Err(Error::new(ErrorKind::WrongStatus, message));
    }
    match graph {
        None => tip.folded.channels.apply(patch).map_err(caller_error)?,
        Some(graph) => {
            let mut channels = graph.migrated(&tip.folded.channels, tip.folded.version)?;
            channels.apply(patch).map_err(caller_error)?;
            let channels = graph.rewritten(channels).map_err(caller_error)?;
            // Patches have the form of the type that wrote the base before them.
            tip.migrate(graph, channels);
        }
    }
    check_size(&codec::to_raw(&tip.folded.channels)?, most)
}

impl IntoFuture for EditRequest {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(finish(self.edit()))
    }
}

impl std::fmt::Debug for EditRequest {
    /// Formats the request without the values of the patch.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EditRequest").field("run", &self.run).field("by", &self.by).finish_non_exhaustive()
    }
}

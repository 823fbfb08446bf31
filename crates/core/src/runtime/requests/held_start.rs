//! Starts on hold, and starts whose id is chosen in advance.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::signal::paused;
use super::start::{StartRequest, ValidatedStart};
use crate::error::{ErrorKind, Result};
use crate::id::{Epoch, RunId, RunKey};
use crate::runtime::Runtime;
use crate::runtime::event::Event as RunEventKind;
use crate::runtime::handle::{OutcomeSource, RunHandle};
use crate::runtime::log::RecordOptions;
use crate::state::State;

impl<S: State> StartRequest<S> {
    /// Starts the run paused, with this recorded reason. It does nothing until it is [unpaused](crate::runtime::Runtime::unpause). Start and
    /// pause are one atomic write, so the run is never active in between.
    ///
    /// An existing run stays unchanged: the start neither pauses nor claims it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::record::RunStatus;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let graph = Graph::<Context>::builder("greet").node("hello", async |_cx, s| Ok(s)).entry("hello").build()?;
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// runtime.serve(&graph)?;
    /// let run = runtime.start(&graph, Context::new()).on_hold("not before it is paid").await?;
    /// let status = runtime.head(run.run()).await?.map(|head| head.status);
    /// assert_eq!(status, Some(RunStatus::Interrupted));
    /// runtime.unpause(run.run()).await?;
    /// run.completed().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_hold(mut self, reason: impl Into<String>) -> Self {
        self.hold = Some(reason.into());
        self
    }

    /// Restricts the run to processes with all of these [tags](crate::runtime::RuntimeBuilder::tags), also after a crash. The log records the
    /// restriction. Children and forks do not inherit it.
    ///
    /// A process that lacks a tag can start the run only on [hold](Self::on_hold).
    pub fn require_tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.tags.extend(tags.into_iter().map(Into::into));
        self
    }

    /// Returns the runtime of the start.
    pub fn runtime(&self) -> Runtime {
        Runtime::new(Arc::clone(&self.shared))
    }

    /// Returns the input of the run.
    pub fn input(&self) -> &S {
        &self.input
    }

    /// Chooses the run's id now, unless the caller set one, and returns the key of the future run.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the id or the tenant is invalid.
    pub fn choose_id(&mut self) -> Result<RunKey> {
        let tenant = self.tenant.clone().transpose()?.unwrap_or_default();
        let id = match self.id.clone() {
            Some(id) => id?,
            None => RunId::new(self.shared.ids.next(self.shared.clock.now()).to_string())?,
        };
        self.id = Some(Ok(id.clone()));
        Ok(RunKey::new(tenant, id))
    }
}

impl<S: State> ValidatedStart<S> {
    /// Records the run as paused, or continues if a run had the id and is gone.
    pub(super) async fn start_on_hold(
        mut self,
        reason: String,
        text: Box<RawValue>,
    ) -> Result<ControlFlow<RunHandle<S>, Self>> {
        let (event, mut machine) = self.first()?;
        let life = machine.generation();
        let Self { shared, graph, run, facts, .. } = &self;
        shared.takes(run)?;
        let mut log = shared.log_writer(run);
        (log.state_version, log.epoch) = (graph.schema().version(), Epoch::NEVER);
        let mut append = log.begin(&event, &machine, text.clone(), true, facts.clone())?;
        for event in paused(&machine, &reason, None, shared.clock.now()) {
            machine.absorb(&event)?;
            let options = RecordOptions { release: true, ..RecordOptions::default() };
            append.records.push(log.record(&event, options, &machine, || Ok(text.clone()))?);
        }
        match shared.committer.append(append, None).await {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Conflict => {
                self.hold = Some(reason);
                return self.again().await;
            }
            Err(error) => return Err(error),
        }
        shared.telemetry().of(Some(&facts.workflow)).started();
        shared.emit(run, || RunEventKind::Started);
        let handle = RunHandle::new(Arc::clone(shared), graph.clone(), run.clone(), OutcomeSource::Elsewhere);
        Ok(ControlFlow::Break(handle.of_life(life)))
    }
}

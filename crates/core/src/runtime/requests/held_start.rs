//! Starts of runs that are paused from the beginning, and starts whose run id is chosen before the start.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::start::{StartRequest, ValidatedStart};
use crate::error::{ErrorKind, Result};
use crate::id::{Epoch, RunId, RunKey};
use crate::kernel::event::Event as RunEventKind;
use crate::kernel::log::RecordOptions;
use crate::kernel::run_change::RunChange;
use crate::record::parent_link::PARENT;
use crate::runtime::handle::{OutcomeSource, RunHandle};
use crate::runtime::runtime::Runtime;
use crate::runtime::writes::pause_events::paused;
use crate::runtime::writes::system_runs::queue_name;
use crate::state::State;

impl<S: State> StartRequest<S> {
    /// Starts the run paused, with `reason` as the recorded reason. No node starts until the run is [unpaused](crate::runtime::Runtime::unpause).
    /// Start and pause are one atomic write, so no process can drive the run before it is paused.
    ///
    /// If a run with the same id already exists, it stays unchanged: the start neither pauses nor claims it.
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
    #[doc(hidden)]
    pub fn on_hold(mut self, reason: impl Into<String>) -> Self {
        self.hold = Some(reason.into());
        self
    }

    /// Restricts the run to processes that have all of these [tags](crate::runtime::RuntimeBuilder::tags). The log records the restriction, so it
    /// also applies after a crash. Children and forks do not inherit it.
    ///
    /// A process that lacks one of the tags can only start the run [on hold](Self::on_hold).
    #[doc(hidden)]
    pub fn require_tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.tags.extend(tags.into_iter().map(Into::into));
        self
    }

    /// Returns the runtime that will start the run.
    #[doc(hidden)]
    pub fn runtime(&self) -> Runtime {
        Runtime::new(Arc::clone(&self.shared))
    }

    /// Returns the input of the run.
    #[doc(hidden)]
    pub fn input(&self) -> &S {
        &self.input
    }

    /// Returns the key that the run will have. If the caller has set no id, this method chooses one.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the id or the tenant is invalid.
    #[doc(hidden)]
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
    /// Records the run as paused. If another run had the id and was purged during the call, the caller must try again.
    pub(super) async fn start_on_hold(
        mut self,
        reason: String,
        text: Box<RawValue>,
    ) -> Result<ControlFlow<RunHandle<S>, Self>> {
        let (event, mut machine) = self.first()?;
        let start_id = machine.start_id();
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
        let head = match shared.committer.append(append, None).await {
            Ok(head) => head,
            Err(error) if error.kind() == ErrorKind::Conflict => {
                self.hold = Some(reason);
                return self.again().await;
            }
            Err(error) => return Err(error),
        };
        shared.telemetry().of(Some(&facts.workflow)).started();
        shared.emit(run, || RunEventKind::Started);
        if facts.labels.get(PARENT).is_some() && queue_name(facts).is_some() {
            // Only the queue can start the child. The start of any other run asks the queue first.
            let (facts, head) = (Arc::new(facts.clone()), head);
            shared.registry.publish(|| RunChange::Held { run: run.clone(), facts: Arc::clone(&facts), head });
        }
        let handle = RunHandle::new(Arc::clone(shared), graph.clone(), run.clone(), OutcomeSource::Elsewhere);
        Ok(ControlFlow::Break(handle.of_start_id(start_id)))
    }
}

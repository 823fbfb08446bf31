//! The interface of the runtime for libraries such as `ferrata-queue`: its clock, its polling intervals, its storage for extensions, and its access
//! from a node.

use crate::kernel::run_change::RunChange;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::runtime::Runtime;
use crate::clock::{Clock, Timestamp};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::graph::{CheckpointPolicy, Graph};
use crate::id::{RunKey, WorkflowName};
use crate::kernel::commands::DriverCommand;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tasks::finish;
use crate::node::NodeContext;
use crate::runtime::fleet::serve::replace_served;
use crate::runtime::signals::start_held::start_held;
use crate::state::State;
use crate::store::RunHead;

/// The polling intervals of a runtime, and how long waiting runs stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(hidden)]
pub struct PollIntervals {
    /// The interval between sweeps, set by [`sweep_interval`](super::RuntimeBuilder::sweep_interval).
    pub look: Duration,
    /// The interval between polls of an active run, set by [`poll_interval`](super::RuntimeBuilder::poll_interval).
    pub poll: Duration,
    /// The longest wait during which a run stays in memory, set by [`release_after`](super::RuntimeBuilder::release_after).
    pub rest_after: Duration,
}

/// A weak reference to a runtime, for tasks that must not keep it alive.
#[derive(Clone)]
pub struct WeakRuntime(Weak<RuntimeInner>);

impl WeakRuntime {
    /// Returns the runtime, or `None` if it was dropped.
    pub fn upgrade(&self) -> Option<Runtime> {
        self.0.upgrade().map(Runtime::new)
    }
}

impl fmt::Debug for WeakRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakRuntime")
    }
}

impl Runtime {
    /// Returns the clock of the runtime.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared().clock
    }

    /// Returns the polling intervals of this runtime.
    #[doc(hidden)]
    pub fn poll_intervals(&self) -> PollIntervals {
        let limits = &self.shared().limits;
        PollIntervals { look: limits.sweep, poll: self.shared().poll(), rest_after: limits.release_after }
    }

    /// Returns a weak reference to this runtime.
    pub fn downgrade(&self) -> WeakRuntime {
        WeakRuntime(Arc::downgrade(self.shared()))
    }

    /// Returns the extension of type `T`, and creates it with `make` on first use. `make` must not call this method.
    #[doc(hidden)]
    pub fn extension<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        self.shared().services.extensions.get_or_insert_with(make)
    }

    /// Returns whether any library stored an extension.
    #[doc(hidden)]
    pub fn has_extensions(&self) -> bool {
        !self.shared().services.extensions.is_empty()
    }

    /// Serves a workflow with `graph`. If this process already serves the workflow with another graph, the new graph replaces it. Runs that this
    /// process already drives keep the old graph until they are [released](Self::release_run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`serve`](Self::serve), except [`ErrorKind::AlreadyExists`].
    #[doc(hidden)]
    pub fn replace_served<S: State>(&self, graph: &Graph<S>) -> Result<()> {
        self.shared().check_drives()?;
        replace_served(self.shared(), graph, CheckpointPolicy::default())
    }

    /// Releases a run if this process drives it. The running nodes of the run are stopped at once, as in a [shutdown](Self::shutdown) without grace
    /// period. The call returns after this process has given up the claim that it held at the time of the call.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after the first poll, the run is released even if the caller drops the future.
    #[doc(hidden)]
    pub async fn release_run(&self, run: &RunKey) {
        let registry = &self.shared().registry;
        let mut count = registry.count();
        let Some(driver) = registry.driver(run) else { return };
        if driver.send(DriverCommand::Release).is_err() {
            return;
        }
        while registry.driver(run).is_some_and(|current| current.is_same(&driver)) {
            if count.changed().await.is_err() {
                return;
            }
        }
    }

    /// Starts a run that is [on hold](super::StartRequest::on_hold), if `head` is still its last record. `by` is the author of the signal. If this
    /// process serves the workflow of the run and has capacity, it claims the run in the same append.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`unpause`](Self::unpause), and [`ErrorKind::Conflict`] if the run has changed since `head` or its
    /// parent is paused.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after the first poll, the request completes even if the caller drops the future.
    #[doc(hidden)]
    pub async fn start_held(&self, head: &RunHead, by: &str) -> Result<()> {
        let (shared, head, by) = (Arc::clone(self.shared()), head.clone(), by.to_owned());
        finish(async move { start_held(&shared, &head, &by).await }).await
    }

    /// Returns whether this process serves a workflow, and so claims its runs.
    #[doc(hidden)]
    pub fn serves(&self, workflow: &WorkflowName) -> bool {
        self.shared().recovery.serves(workflow)
    }

    /// Returns the error of the last failed attempt of this process to claim a run, if there was one.
    #[doc(hidden)]
    pub fn claim_failure(&self, run: &RunKey) -> Option<Error> {
        self.shared().recovery.claim_failure(run)
    }

    /// Returns whether this process has all of these [tags](super::RuntimeBuilder::tags).
    #[doc(hidden)]
    pub fn has_tags<'a>(&self, tags: impl IntoIterator<Item = &'a str>) -> bool {
        self.shared().services.tags.has_all(tags)
    }

    /// Returns a stream of the changes that this process makes to runs after this call, in order.
    #[doc(hidden)]
    pub fn run_changes(&self) -> UnboundedReceiver<RunChange> {
        self.shared().registry.news()
    }

    /// Records metrics of a library's queue: the number of waiters, the number of held slots, and the longest wait. Only the first 500 queues of a
    /// runtime are recorded, because a recorder of metrics keeps each series forever.
    #[doc(hidden)]
    pub fn report_queue(&self, name: &str, waiting: usize, held: usize, oldest: Duration) {
        self.shared().telemetry().queue(name, waiting, held, oldest);
    }

    /// Reports that runs wait, each with the start time of its wait and an error that describes the wait. The report replaces the previous report
    /// under the same `name`. [`stalled`](Self::stalled) lists the waits that are longer than the [heartbeat
    /// TTL](super::RuntimeBuilder::heartbeat_ttl). The report is retained in memory, so pass at most about a hundred runs.
    #[doc(hidden)]
    pub fn report_waits(&self, name: &str, waits: impl IntoIterator<Item = (RunKey, Timestamp, Error)>) {
        self.shared().recovery.report_waits(name, waits, self.shared().clock.now());
    }

    /// Returns the runtime that drives the run of a node. This is for libraries. The code of a node starts runs with [`NodeContext::child`] and
    /// [`NodeContext::spawn`], which start a run only once even if the node runs again.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Closed`] if this process has released the run.
    pub fn of(cx: &NodeContext) -> Result<Self> {
        cx.shared().map(Self::new)
    }
}

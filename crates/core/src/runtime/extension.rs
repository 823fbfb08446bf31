//! What a library needs of a runtime that it is made for: its clock, its pace, a place for what it keeps, and the way to it from a node.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::fleet::recovery;
use super::runtime::Runtime;
use super::shared::{DriverCommand, RuntimeInner};
use crate::clock::{Clock, Timestamp};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::graph::{CheckpointPolicy, Graph};
use crate::id::{HeadRef, RunKey, Seq, WorkflowName};
use crate::node::NodeContext;
use crate::record::RunFacts;
use crate::state::State;

/// What libraries keep beside a runtime, one value for each type.
#[derive(Default)]
pub(crate) struct Extensions(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

/// A run that is no longer driven in this process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeftRun {
    /// The run.
    pub run: RunKey,
    /// What is settled of it at its start. Absent if this process did not come to drive it.
    pub facts: Option<Arc<RunFacts>>,
    /// The record that ended the run, if this process made it; 0 with checkpoints disabled. Otherwise the run is idle, is active in another
    /// process, or this process does not know.
    pub ended_at: Option<Seq>,
}

/// A change of a run by this process, for a library that keeps something for the run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunNews {
    /// The run is no longer driven in this process.
    Left(LeftRun),
    /// A verb of this process left the run on hold for a slot of its [queue](super::queue_of).
    Held {
        /// The run.
        run: RunKey,
        /// What is settled of it at its start.
        facts: Arc<RunFacts>,
        /// The record that holds it.
        head: HeadRef,
    },
    /// This process purged the run.
    Purged {
        /// The run.
        run: RunKey,
        /// What was settled of it at its start.
        facts: Arc<RunFacts>,
    },
}

/// How often a runtime looks, and how long it keeps what waits in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PollIntervals {
    /// How often work is looked for: [`sweep_interval`](super::RuntimeBuilder::sweep_interval).
    pub look: Duration,
    /// How often something is looked at that goes on: [`poll_interval`](super::RuntimeBuilder::poll_interval).
    pub poll: Duration,
    /// How long something that waits stays in memory: [`release_after`](super::RuntimeBuilder::release_after).
    pub rest_after: Duration,
}

/// A runtime that may have been dropped: for what goes on beside it and is not to keep it.
#[derive(Clone)]
pub struct WeakRuntime(Weak<RuntimeInner>);

impl WeakRuntime {
    /// Returns the runtime, unless it was dropped.
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
    /// Returns the clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared().clock
    }

    /// Returns how often this runtime looks, and how long it keeps what waits.
    pub fn pace(&self) -> PollIntervals {
        let limits = &self.shared().limits;
        PollIntervals { look: limits.sweep, poll: self.shared().poll(), rest_after: limits.release_after }
    }

    /// Returns a runtime that is not kept by it.
    pub fn downgrade(&self) -> WeakRuntime {
        WeakRuntime(Arc::downgrade(self.shared()))
    }

    /// Returns what a library keeps beside this runtime under this type; made the first time. `make` must not ask for another.
    pub fn extension<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut kept = self.shared().services.extensions.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.get(&TypeId::of::<T>()).cloned().and_then(|kept| kept.downcast().ok());
        found.unwrap_or_else(|| {
            let made = Arc::new(make());
            kept.insert(TypeId::of::<T>(), Arc::clone(&made) as _);
            made
        })
    }

    /// Whether any library keeps something beside this runtime.
    pub(crate) fn has_extensions(&self) -> bool {
        let kept = self.shared().services.extensions.0.lock().unwrap_or_else(PoisonError::into_inner);
        !kept.is_empty()
    }

    /// Serves a workflow, in place of the graph that this process served it with. Runs that are driven with that graph keep it until they are
    /// [released](Self::release_run).
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve), except [`ErrorKind::AlreadyExists`].
    ///
    /// <!-- held by: versions::process_replaces_own_definition -->
    pub fn replace_served<S: State>(&self, graph: &Graph<S>) -> Result<()> {
        self.shared().check_drives()?;
        recovery::replace_served(self.shared(), graph, CheckpointPolicy::default())
    }

    /// Releases a run if this process drives it: running nodes are stopped, as by a [shutdown](Self::shutdown) without grace. Returns when this
    /// process does not drive the run with that claim.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once polled, the run is released even if the caller drops it.
    ///
    /// <!-- held by: versions::process_replaces_own_definition -->
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

    /// Whether this process claims runs of a workflow.
    pub(crate) fn serves(&self, workflow: &WorkflowName) -> bool {
        self.shared().recovery.serves(workflow)
    }

    /// Returns why this process failed to claim a run, if it tried.
    pub(crate) fn claim_failure(&self, run: &RunKey) -> Option<Error> {
        self.shared().recovery.why(run)
    }

    /// Tells whether this process has all of these [tags](super::RuntimeBuilder::tags).
    pub fn has_tags<'a>(&self, tags: impl IntoIterator<Item = &'a str>) -> bool {
        self.shared().services.tags.has_all(tags)
    }

    /// Returns the changes that this process makes to runs from now on, in their order.
    pub fn news(&self) -> UnboundedReceiver<RunNews> {
        self.shared().registry.news()
    }

    /// Has the metrics tell how a queue of a library stands: how many wait, how many places are held, and how long the longest wait is. Does
    /// nothing without the feature `metrics`. Of the first 500 queues of a runtime only: a recorder keeps the series of each for good.
    ///
    /// <!-- held by: fleet::a_queue_is_told_as_it_stands -->
    pub fn report_queue(&self, name: &str, waiting: usize, held: usize, oldest: Duration) {
        self.shared().telemetry().queue(name, waiting, held, oldest);
    }

    /// Says what runs wait for, each since when and as an error that tells it, in the place of what was said under this name before.
    /// [`stalled`](Self::stalled) lists those whose wait is longer than the [life of a heartbeat](super::RuntimeBuilder::heartbeat_ttl). It is
    /// kept in memory: say the first hundred or so.
    ///
    /// <!-- held by: shows::a_wait_that_is_long_is_among_what_is_stalled -->
    pub fn report_waits(&self, name: &str, waits: impl IntoIterator<Item = (RunKey, Timestamp, Error)>) {
        self.shared().recovery.report_waits(name, waits, self.shared().clock.now());
    }

    /// Returns the runtime that drives the run of a node, for libraries. A node itself starts runs with [`NodeContext::child`] and
    /// [`NodeContext::spawn`], which start them once.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`] if the run is left.
    ///
    /// <!-- held by: cells::a_node_finds_its_runtime_and_what_is_kept_beside_it -->
    pub fn of(cx: &NodeContext) -> Result<Self> {
        cx.shared().map(Self::new)
    }
}

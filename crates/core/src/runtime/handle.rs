//! What a caller holds of a run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::event::Events;
use super::load;
use super::outcome::Outcome;
use super::shared::Shared;
use super::signal::SignalRequest;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Graph;
use crate::id::RunKey;
use crate::record::RunStatus;
use crate::record::body::SignalKind;
use crate::state::State;

/// How often a run that goes on elsewhere is looked at.
const WATCH: Duration = Duration::from_millis(200);

pub(crate) type Ended<S> = Option<Result<Outcome<S>>>;

/// A run that was started or resumed. Dropping the handle changes nothing: the run goes on.
pub struct RunHandle<S: State> {
    shared: Arc<Shared>,
    graph: Graph<S>,
    run: RunKey,
    /// Absent if the run goes on elsewhere.
    ended: Option<watch::Receiver<Ended<S>>>,
}

impl<S: State> RunHandle<S> {
    pub(crate) fn new(
        shared: Arc<Shared>,
        graph: Graph<S>,
        run: RunKey,
        ended: Option<watch::Receiver<Ended<S>>>,
    ) -> Self {
        Self { shared, graph, run, ended }
    }

    /// Returns the run's key.
    pub fn run(&self) -> &RunKey {
        &self.run
    }

    /// Tells whether this handle's start or resume took the run; otherwise it had ended, or goes on elsewhere.
    pub fn is_driven_here(&self) -> bool {
        self.ended.is_some()
    }

    /// Waits until nothing moves the run any more. What is returned rests on durable records, unless checkpoints are disabled.
    ///
    /// A run that goes on elsewhere is watched for as long as it is in progress, also when its owner has died: it ends only if
    /// somebody goes on with it, see [`Runtime::serve`](super::Runtime::serve). Set a bound of your own where that is not certain.
    ///
    /// # Errors
    ///
    /// Why the run stopped without an outcome; it is in the store as of its last record and can be resumed.
    ///
    /// - [`ErrorKind::Fenced`]: another executor has claimed the run; it goes on there.
    /// - [`ErrorKind::Unavailable`], [`ErrorKind::Indeterminate`]: the store could not be written to, after all retries.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: the log cannot be read.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the run goes on, and can be waited for again.
    pub async fn wait(&self) -> Result<Outcome<S>> {
        let Some(ended) = &self.ended else { return self.watch().await };
        let mut ended = ended.clone();
        let outcome = ended.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
        outcome.unwrap_or_else(|| {
            let message = "the driver of the run ended without an outcome; resume the run";
            Err(Error::new(ErrorKind::Closed, message).with_run(&self.run))
        })
    }

    /// Waits until the run is completed, however often it rests and is taken up meanwhile, here or elsewhere. Returns its state.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongStatus`] with the reason if it failed or was cancelled, and as [`wait`](Self::wait).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the run goes on, and can be waited for again.
    pub async fn completed(&self) -> Result<S> {
        let refuse = |message: String| Err(Error::new(ErrorKind::WrongStatus, message).with_run(&self.run));
        let mut outcome = self.wait().await;
        loop {
            match outcome {
                Ok(Outcome::Completed(state)) => return Ok(state),
                Ok(Outcome::Failed { failure, .. }) => return refuse(format!("the run failed: {failure}")),
                Ok(Outcome::Cancelled { reason, .. }) => {
                    return refuse(format!("the run was cancelled: {reason}"));
                }
                Ok(_) => self.shared.clock.sleep(WATCH).await,
                // It goes on elsewhere.
                Err(error) if error.kind() == ErrorKind::Fenced => {}
                Err(error) => return Err(error),
            }
            outcome = self.watch().await;
        }
    }

    /// Follows a run that goes on elsewhere.
    async fn watch(&self) -> Result<Outcome<S>> {
        loop {
            let head = self.shared.store.head(&self.run).await?;
            let head = head.ok_or_else(|| load::missing(&self.run))?;
            let asleep = head.owner.is_none() && head.wake_at.is_some();
            if head.status != RunStatus::InProgress || asleep {
                let loaded = load::load(&*self.shared.store, &self.graph, &self.run).await?;
                let machine = &loaded.folded.machine;
                if machine.status != RunStatus::InProgress || machine.wake.is_some() {
                    return Ok(Outcome::of(machine, &loaded.state));
                }
            }
            self.shared.clock.sleep(WATCH).await;
        }
    }

    /// Asks the run to stop for good: see [`Runtime::cancel`](super::Runtime::cancel).
    ///
    /// # Errors
    ///
    /// As [`Runtime::cancel`](super::Runtime::cancel).
    pub fn cancel(&self, reason: impl Into<String>) -> SignalRequest {
        SignalRequest::new(&self.shared, &self.run, Ok(SignalKind::Cancel { reason: reason.into() }))
    }

    /// Returns the events of this run from now on.
    pub fn events(&self) -> Events {
        self.shared.hear(Some(self.run.clone()))
    }
}

impl<S: State> fmt::Debug for RunHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle")
            .field("run", &self.run)
            .field("workflow", self.graph.name())
            .field("driven_here", &self.is_driven_here())
            .finish_non_exhaustive()
    }
}

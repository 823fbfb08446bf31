//! The phase of an activation that has not ended, for graphs, timelines and tables.

use std::fmt;

use serde::Serialize;

use crate::checkpoint::{Checkpoint, PendingActivation};
use crate::clock::Timestamp;
use crate::record::RunStatus;

/// The phase of an activation that has not ended, as the log of its run shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ActivationPhase {
    /// The activation failed and stopped the run.
    Stopped,
    /// The activation waits for the answer to a question.
    Asking,
    /// The activation waits for child runs.
    WaitingForRuns,
    /// The activation waits for a message.
    WaitingForMessage,
    /// The activation waits for a timer.
    Sleeping,
    /// The activation waits for its next attempt.
    Retrying,
    /// The run is paused or waits for another event.
    Waiting,
    /// No process owns the run.
    WaitingForProcess,
    /// A process owns the run, and no record shows a wait.
    Running,
}

impl ActivationPhase {
    /// Returns the phase in a few words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped the run",
            Self::Asking => "waits for an answer",
            Self::WaitingForRuns => "waits for runs that it started",
            Self::WaitingForMessage => "waits for a message",
            Self::Sleeping => "sleeps",
            Self::Retrying => "waits for its next attempt",
            Self::Waiting => "waits",
            Self::WaitingForProcess => "waits for a process",
            Self::Running => "is running",
        }
    }
}

impl fmt::Display for ActivationPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Checkpoint {
    /// Returns the phase of an activation of [`next`](Self::next). `is_driven` says whether a live process owns the run. If the checkpoint is of the
    /// newest record, pass [`RunHead::owner_alive`](crate::store::RunHead::owner_alive). For an older record, pass whether the run [had an
    /// owner](Self::owner).
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::ask::Ask;
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::{ActivationPhase, Position, Runtime};
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// # let ask = |_: &Context| Ask::<bool>::new("Pay 120 EUR?");
    /// # let graph = Graph::<Context>::builder("pay").gate("ok", ask, |_, _| ()).entry("ok").build()?;
    /// let run = runtime.start(&graph, Context::new()).await?;
    /// run.wait().await?;
    /// let now = runtime.checkpoint(run.run(), Position::Latest).await?;
    /// assert_eq!(now.phase(&now.next[0], false, now.at), ActivationPhase::Asking);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn phase(&self, pending: &PendingActivation, is_driven: bool, now: Timestamp) -> ActivationPhase {
        let of_it = |node, visit| node == &pending.node && visit == pending.visit;
        if pending.stopped {
            ActivationPhase::Stopped
        } else if self.questions.iter().any(|question| of_it(&question.node, question.visit)) {
            ActivationPhase::Asking
        } else if !pending.children.is_empty() {
            ActivationPhase::WaitingForRuns
        } else if pending.receiving {
            ActivationPhase::WaitingForMessage
        } else if pending.retry_at.is_some_and(|at| at > now) {
            ActivationPhase::Retrying
        } else if pending.timers.iter().any(|at| *at > now) {
            ActivationPhase::Sleeping
        } else if self.status != RunStatus::InProgress {
            ActivationPhase::Waiting
        } else if is_driven {
            ActivationPhase::Running
        } else if self.wake_at.is_some_and(|at| at > now) {
            ActivationPhase::Waiting
        } else {
            ActivationPhase::WaitingForProcess
        }
    }
}

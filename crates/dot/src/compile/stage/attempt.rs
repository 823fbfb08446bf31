//! One attempt of a node: applies its timeout, catches panics, and decides whether another attempt follows.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use ferrata_core::node::NodeError;

use super::StageNode;
use crate::handler::{HandlerError, Stage};
use crate::outcome::{StageOutcome, Status};

/// The result of an attempt's work.
pub(super) struct WorkResult {
    pub(super) outcome: StageOutcome,
    /// Whether the attempt is known to have done no work.
    pub(super) not_done: bool,
}

impl From<StageOutcome> for WorkResult {
    fn from(outcome: StageOutcome) -> Self {
        Self { outcome, not_done: false }
    }
}

impl StageNode {
    /// Does the work once, and decides whether the runtime should repeat it.
    ///
    /// # Errors
    ///
    /// Returns an error if the runtime should make another attempt, or should ask about work that must not be repeated. The runtime counts attempts
    /// durably and waits before the next one.
    pub(super) async fn attempt(&self, stage: &Stage) -> Result<WorkResult, NodeError> {
        let last = stage.cx.attempt() >= self.attempts;
        let came = self.guarded(stage).await;
        let fails_again = |outcome: &StageOutcome| {
            outcome.status == Status::Fail
                && (self.again_on_fail || self.again_on_exit && outcome.is_exit_status)
        };
        if let Ok(outcome) = &came
            && !last
            && (outcome.status == Status::Retry || fails_again(outcome))
        {
            self.keep_usage(&stage.cx, outcome.usage).await?;
        }
        match came {
            Ok(outcome) if outcome.status == Status::Retry && !last => {
                let reason = match &*outcome.failure_reason {
                    "" => "the node requested a retry".to_owned(),
                    reason => reason.to_owned(),
                };
                // A handler that requests a retry declares that a retry is safe.
                Err(NodeError::new(reason).not_done())
            }
            Ok(outcome) if fails_again(&outcome) && !last => {
                Err(NodeError::new(match &*outcome.failure_reason {
                    "" => "the node failed without a reason".to_owned(),
                    reason => reason.to_owned(),
                }))
            }
            Ok(mut outcome) if outcome.status == Status::Retry => {
                if self.has_attribute("allow_partial") {
                    outcome.status = Status::PartialSuccess;
                    outcome.notes = "retries exhausted, partial accepted".to_owned();
                } else {
                    outcome.status = Status::Fail;
                    let reason = std::mem::take(&mut outcome.failure_reason);
                    outcome.failure_reason = match &*reason {
                        "" => "max retries exceeded".to_owned(),
                        reason => format!("max retries exceeded: {reason}"),
                    };
                }
                Ok(WorkResult { outcome, not_done: true })
            }
            Ok(outcome) => Ok(outcome.into()),
            Err(error) if error.is_no_status() && self.has_attribute("auto_status") => {
                Ok(StageOutcome::success().with_notes("auto-status: the handler returned no status").into())
            }
            Err(error) if error.is_transient() && !last => {
                let asks = NodeError::new(stage.printed.explain(&error));
                Err(if error.is_not_done() { asks.not_done() } else { asks })
            }
            Err(error) => match error.into_runtime() {
                Ok(error) => Err(error),
                // If the outcome of the work is unknown, no edge can be chosen. The run asks a question instead.
                Err(error) if self.external && !error.is_not_done() => {
                    Err(NodeError::new(stage.printed.explain(&error)))
                }
                Err(error) => {
                    let outcome = StageOutcome::fail(stage.printed.explain(&error));
                    let outcome = match stage.printed.take() {
                        // The output of the command so far is all that is known of its work.
                        Some(printed) => printed.add_to(outcome, stage.node.id()),
                        None => outcome,
                    };
                    Ok(WorkResult { outcome, not_done: error.is_not_done() })
                }
            },
        }
    }

    /// Runs the handler within its timeout. A panic becomes a permanent error.
    async fn guarded(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let mut work = self.handler.run(stage);
        let mut time = pin!(self.out_of_time(stage));
        poll_fn(|task| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(task))) {
            Ok(Poll::Ready(result)) => Poll::Ready(result),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().copied();
                let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                let message = format!("the handler panicked: {}", text.unwrap_or("no message"));
                Poll::Ready(Err(HandlerError::permanent(message)))
            }
            Ok(Poll::Pending) => time.as_mut().poll(task).map(|why| Err(HandlerError::transient(why))),
        })
        .await
    }

    /// Waits until the attempt exceeds its timeout, or shows no activity for too long. Returns a text that says which.
    async fn out_of_time(&self, stage: &Stage) -> String {
        let timeout = async {
            match self.timeout {
                Some(timeout) => stage.cx.clock().sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        let stalled = async {
            let Some(stall) = self.stall else { return std::future::pending().await };
            loop {
                let before = stage.pulse.activity_count();
                stage.cx.clock().sleep(stall).await;
                if stage.pulse.activity_count() == before {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = timeout => {
                format!("the node exceeded its timeout of {:?}", self.timeout.unwrap_or_default())
            }
            () = stalled => format!(
                "the node showed no activity within the stall timeout of {:?}",
                self.stall.unwrap_or_default()
            ),
        }
    }
}

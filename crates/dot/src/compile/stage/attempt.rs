//! One attempt of a node: with its timeout, with panics caught, and with the decision about another attempt.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use ferrata_core::node::NodeError;

use super::StageNode;
use crate::handler::{HandlerError, Stage};
use crate::outcome::{StageOutcome, Status};

/// The result of the work.
pub(super) struct WorkResult {
    pub(super) outcome: StageOutcome,
    /// Whether no work was done.
    pub(super) not_done: bool,
}

impl From<StageOutcome> for WorkResult {
    fn from(outcome: StageOutcome) -> Self {
        Self { outcome, not_done: false }
    }
}

impl StageNode {
    /// Does the work once, and decides whether to repeat it.
    ///
    /// # Errors
    ///
    /// Returns an error to request another attempt from the runtime, which counts it durably and waits, or to ask about work that must not be
    /// repeated.
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
                // A handler that requests a retry states that it is safe.
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
                // Work with an unknown outcome has no outcome for an edge: the run asks.
                Err(error) if self.external && !error.is_not_done() => {
                    Err(NodeError::new(stage.printed.explain(&error)))
                }
                Err(error) => {
                    let outcome = StageOutcome::fail(stage.printed.explain(&error));
                    let outcome = match stage.printed.take() {
                        // Its output until then is all that remains of its work.
                        Some(printed) => printed.add_to(outcome, stage.node.id()),
                        None => outcome,
                    };
                    Ok(WorkResult { outcome, not_done: error.is_not_done() })
                }
            },
        }
    }

    /// Runs the handler within its timeout; a panic is a permanent error.
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

    /// Waits until the attempt exceeds its time, or has given no sign of life for too long, and returns which.
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

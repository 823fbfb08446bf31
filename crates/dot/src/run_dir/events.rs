//! The events of a run's log, as lines of JSON.
// Large: one type lists every event, and its fields are a format.

use std::borrow::Cow;

use ferrata_core::ask::{Answer, Resolution};
use ferrata_core::record::body::{AttemptFailed, NodeDone, SignalKind, StatusChange};
use ferrata_core::record::outbox::LetterChange;
use ferrata_core::record::{RecordHeader, RunStatus};
use ferrata_core::{Epoch, Error, ErrorKind, ExecutorId, NodeName, RunId, Seq, Timestamp, Visit};
use serde::Serialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::outcome::Status;
use crate::pipeline::Pipeline;

/// An event. Its name in a line is the field `type`, and its fields follow. A line omits fields without a value.
#[derive(Debug, Serialize)]
#[serde(tag = "type")]
pub(super) enum LogEvent<'a> {
    #[serde(rename = "run.started")]
    RunStarted,
    /// A process claimed the run.
    #[serde(rename = "run.resumed")]
    RunResumed { epoch: Epoch, executor: ExecutorId },
    #[serde(rename = "run.released")]
    RunReleased { reason: &'a str },
    /// The run became idle.
    #[serde(rename = "run.waiting")]
    RunWaiting { status: RunStatus },
    #[serde(rename = "run.completed")]
    RunCompleted,
    #[serde(rename = "run.failed")]
    RunFailed { reason: &'a str },
    /// A caller cancelled the run. The owner of the run has not carried it out.
    #[serde(rename = "run.cancelling")]
    RunCancelling { reason: &'a str },
    #[serde(rename = "run.cancelled")]
    RunCancelled {
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
    },
    #[serde(rename = "run.paused")]
    RunPaused { reason: &'a str },
    #[serde(rename = "run.unpaused")]
    RunUnpaused,
    #[serde(rename = "run.retried")]
    RunRetried,
    #[serde(rename = "run.moved")]
    RunMoved { to: &'a [NodeName], reason: &'a str },
    /// A prune keeps the record with this number and all later records.
    #[serde(rename = "run.pinned")]
    RunPinned { record: Seq },
    #[serde(rename = "run.unpinned")]
    RunUnpinned { record: Seq },
    /// The last attempt of an activation began.
    #[serde(rename = "node.started")]
    NodeStarted { node: &'a NodeName, visit: Visit, attempt: u32 },
    #[serde(rename = "node.finished")]
    NodeFinished(NodeEnd<'a>),
    #[serde(rename = "node.failed")]
    NodeFailed(NodeEnd<'a>),
    /// An attempt failed, and another attempt follows.
    #[serde(rename = "node.retrying")]
    NodeRetrying { node: &'a NodeName, visit: Visit, attempt: u32, reason: &'a str, retry_at: String },
    /// An attempt that must not be repeated has an unknown outcome.
    #[serde(rename = "node.in_doubt")]
    NodeInDoubt { node: &'a NodeName, visit: Visit, attempt: u32, reason: &'a str },
    /// A node recorded a result, a timer or a message that it took.
    #[serde(rename = "node.noted")]
    NodeNoted { node: &'a NodeName, visit: Visit, name: &'a str },
    /// An attempt that must not be repeated is about to start.
    #[serde(rename = "node.intended")]
    NodeIntended { node: &'a NodeName, visit: Visit },
    #[serde(rename = "edge.selected")]
    EdgeSelected {
        from: &'a NodeName,
        visit: Visit,
        to: &'a str,
        reason: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        label: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        condition: Option<Cow<'a, str>>,
    },
    #[serde(rename = "parallel.started")]
    ParallelStarted { node: &'a NodeName, visit: Visit, branches: Vec<String> },
    #[serde(rename = "parallel.branch_finished")]
    ParallelBranchFinished {
        node: &'a NodeName,
        visit: Visit,
        #[serde(skip_serializing_if = "Option::is_none")]
        branch: Option<&'a Json>,
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<&'a Json>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a Json>,
    },
    #[serde(rename = "parallel.finished")]
    ParallelFinished { node: &'a NodeName, visit: Visit, branches: usize },
    #[serde(rename = "question.asked")]
    QuestionAsked {
        question: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        deadline: Option<String>,
    },
    #[serde(rename = "question.answered")]
    QuestionAnswered { question: &'a str, answer: LoggedAnswer<'a> },
    #[serde(rename = "question.timed_out")]
    QuestionTimedOut { question: String },
    /// A caller sent a message to the run.
    #[serde(rename = "message.sent")]
    MessageSent,
    /// A process began to deliver the messages of the run's outbox.
    #[serde(rename = "outbox.taken")]
    OutboxTaken,
    #[serde(rename = "outbox.delivered")]
    OutboxDelivered { numbers: &'a [u64] },
    /// A delivery failed. Without `retry_at`, the message is rejected.
    #[serde(rename = "outbox.failed")]
    OutboxFailed {
        number: u64,
        tries: u32,
        reason: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_at: Option<String>,
    },
    /// Rejected messages are delivered again; without numbers, all of them.
    #[serde(rename = "outbox.retried")]
    OutboxRetried { numbers: &'a [u64] },
    /// Rejected messages are dropped; without numbers, all of them.
    #[serde(rename = "outbox.dropped")]
    OutboxDropped { numbers: &'a [u64] },
    #[serde(rename = "state.edited")]
    StateEdited,
    #[serde(rename = "checkpoint.saved")]
    CheckpointSaved,
}

/// The end of an activation.
#[derive(Debug, Serialize)]
pub(super) struct NodeEnd<'a> {
    pub(super) node: &'a NodeName,
    pub(super) visit: Visit,
    pub(super) attempt: u32,
    pub(super) outcome: Status,
    /// The duration of the last attempt in milliseconds.
    pub(super) ms: u64,
    /// The nodes to which the run went next.
    pub(super) next: Vec<&'a NodeName>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) reason: &'a str,
}

/// The answer to a question.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum LoggedAnswer<'a> {
    Answer(&'a Answer),
    Resolution(&'a Resolution),
}

impl<'a> LogEvent<'a> {
    /// Returns the event of a failed attempt.
    pub(super) fn of_attempt(failed: &'a AttemptFailed) -> Self {
        let (node, visit, attempt, reason) =
            (&failed.node, failed.visit, failed.failed, &*failed.failure.message);
        match failed.retry_at {
            Some(at) => Self::NodeRetrying { node, visit, attempt, reason, retry_at: at.to_string() },
            None => Self::NodeInDoubt { node, visit, attempt, reason },
        }
    }

    /// Returns the event of a change, after which the run has this status.
    pub(super) fn of_status(status: RunStatus, change: &'a StatusChange) -> Self {
        match change {
            StatusChange::Interrupted | StatusChange::Rested(_) => Self::RunWaiting { status },
            StatusChange::Failed(failure) => Self::RunFailed { reason: &failure.message },
            StatusChange::Cancelled => Self::RunCancelled { reason: None },
            StatusChange::Asked(asked) => Self::QuestionAsked {
                question: asked.id(),
                text: Some(&*asked.ask.question).filter(|text| text.get() != "null"),
                deadline: asked.ask.deadline.map(|at| at.to_string()),
            },
            StatusChange::Expired(expired) => Self::QuestionTimedOut { question: expired.id() },
        }
    }

    /// Returns the event of a signal, after which the run has this status.
    pub(super) fn of_signal(status: RunStatus, signal: &'a SignalKind) -> Self {
        match signal {
            SignalKind::Respond { question, resolution } => {
                Self::QuestionAnswered { question, answer: LoggedAnswer::Resolution(resolution) }
            }
            SignalKind::Answer { question, answer } => {
                Self::QuestionAnswered { question, answer: LoggedAnswer::Answer(answer) }
            }
            SignalKind::Message { .. } => Self::MessageSent,
            SignalKind::Pin { seq } => Self::RunPinned { record: *seq },
            SignalKind::Unpin { seq } => Self::RunUnpinned { record: *seq },
            SignalKind::Pause { reason } => Self::RunPaused { reason },
            SignalKind::Unpause => Self::RunUnpaused,
            SignalKind::Cancel { reason } if status == RunStatus::Cancelled => {
                Self::RunCancelled { reason: Some(reason) }
            }
            SignalKind::Cancel { reason } => Self::RunCancelling { reason },
            SignalKind::Letters { change, .. } => match &**change {
                LetterChange::Taken => Self::OutboxTaken,
                LetterChange::Delivered { numbers } => Self::OutboxDelivered { numbers },
                LetterChange::Failed { number, tries, why, retry_at } => Self::OutboxFailed {
                    number: *number,
                    tries: *tries,
                    reason: why,
                    retry_at: retry_at.map(|at| at.to_string()),
                },
                LetterChange::Retry { numbers } => Self::OutboxRetried { numbers },
                LetterChange::Drop { numbers } => Self::OutboxDropped { numbers },
            },
            SignalKind::GoTo { nodes, reason } => Self::RunMoved { to: nodes, reason },
            SignalKind::Retry { .. } => Self::RunRetried,
        }
    }
}

/// Returns the events of an ended activation that follow its end: the chosen edge, or the branches that began or finished.
pub(super) fn route_events<'a>(
    pipeline: &'a Pipeline,
    done: &'a NodeDone,
    route: &ChosenRoute<'a>,
) -> Vec<LogEvent<'a>> {
    let (node, visit) = (&done.node, done.visit);
    if route.is_fork {
        return vec![LogEvent::ParallelStarted { node, visit, branches: branches(done) }];
    }
    let mut events = Vec::new();
    if let Some(results) = route.results {
        events.extend(results.iter().map(|result| {
            let part =
                |key: &str| result.get(key).filter(|value| !value.is_null() && value.as_str() != Some(""));
            LogEvent::ParallelBranchFinished {
                node,
                visit,
                branch: part("id"),
                outcome: part("outcome"),
                reason: part("failure_reason"),
            }
        }));
        events.push(LogEvent::ParallelFinished { node, visit, branches: results.len() });
    }
    if let (Some(fired), Some(reason)) = (done.fired.first(), route.why) {
        let mut edges = pipeline.edges().iter().filter(|edge| *edge.from == *node.as_str());
        let edge = route.edge.and_then(|place| edges.nth(place));
        events.push(LogEvent::EdgeSelected {
            from: node,
            visit,
            to: edge.map_or(fired.to.as_str(), |edge| &*edge.to),
            reason,
            label: edge.map(|edge| edge.label()).filter(|label| !label.is_empty()),
            condition: edge.map(|edge| edge.condition()).filter(|condition| !condition.is_empty()),
        });
    }
    events
}

/// Returns the first nodes of the branches that began. A node with items occurs once for each item.
fn branches(done: &NodeDone) -> Vec<String> {
    let branches = done.fired.iter().flat_map(|fired| match &fired.items {
        Some(items) => (0..items.len()).map(|at| format!("{}:{at}", fired.to)).collect(),
        None => vec![fired.to.to_string()],
    });
    branches.collect()
}

/// The route that a node chose.
pub(super) struct ChosenRoute<'a> {
    pub(super) is_fork: bool,
    pub(super) edge: Option<usize>,
    pub(super) why: Option<&'a str>,
    /// The results of the branches that met at the node.
    pub(super) results: Option<&'a [Json]>,
}

/// A line of JSON with an event.
#[derive(Debug, Serialize)]
pub(super) struct EventLine<'a> {
    v: u32,
    seq: Seq,
    ts: String,
    run: &'a RunId,
    #[serde(flatten)]
    event: LogEvent<'a>,
    /// The author of the signal or the edit, if the caller named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
}

impl<'a> EventLine<'a> {
    /// Creates the line for an event of a record.
    pub(super) fn new(header: &RecordHeader, run: &'a RunId, event: LogEvent<'a>) -> Self {
        Self { v: 1, seq: header.seq, ts: header.at.to_string(), run, event, by: None }
    }

    /// Sets the time of an event that happened at another time than its record.
    pub(super) fn at(self, at: Timestamp) -> Self {
        Self { ts: at.to_string(), ..self }
    }

    /// Sets the author of the event.
    pub(super) fn by(self, by: Option<&'a str>) -> Self {
        Self { by, ..self }
    }

    /// Appends the line to a text.
    pub(super) fn write(&self, text: &mut String) -> Result<(), Error> {
        let line = serde_json::to_string(self).map_err(|source| {
            Error::new(ErrorKind::Invalid, "cannot write the event as JSON").with_source(source)
        })?;
        text.push_str(&line);
        text.push('\n');
        Ok(())
    }
}

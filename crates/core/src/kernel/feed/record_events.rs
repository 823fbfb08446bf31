//! Converts records of the log into events of a watch. No other module does this.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::error::Result;
use crate::id::{NodeName, RunId, RunKey, Visit};
use crate::kernel::feed::watch_event::RecordedEvent;
use crate::past::Verdict;
use crate::record::body::{NodeDone, RecordEvent, Signal, SignalKind, StatusChange};
use crate::record::child::{ChildEnd, ChildNote, Note, ParentBond, parse_note_name};
use crate::record::chunks::{ChunkSeries, stream_of};
use crate::record::memo::PROGRESS;
use crate::record::pause::{ActivationNote, StepRecord};
use crate::record::{Record, RecordHeader, RunStatus, codec};
use crate::state::{Patch, Secrets};

/// A record in the form for watchers.
#[derive(Debug)]
pub(crate) struct WatchedRecord {
    pub(crate) header: RecordHeader,
    /// The events of the record, in order.
    pub(crate) told: Vec<RecordedEvent>,
    /// The channels that the record declares as secret.
    pub(crate) secrets: Secrets,
    /// The change of the state by the record.
    pub(crate) patch: Option<Patch>,
    /// The state and its version, if the record is a base.
    pub(crate) base: Option<(u32, Arc<RawValue>)>,
    /// Whether the base replaces the state completely, so that earlier records do not matter.
    pub(crate) begins: bool,
    /// The information of the record about a child, if there is any.
    pub(crate) kin: Option<ChildRelation>,
    /// The status, if it differs from the previous record's.
    pub(crate) status: Option<RunStatus>,
}

/// The information of a record about a child. It contains the segment of the path to the child.
#[derive(Debug)]
pub(crate) enum ChildRelation {
    Begins { way: String, run: RunId },
    Told { way: String },
}

/// Returns one segment of the path to a child.
pub(crate) fn path_segment(node: &NodeName, visit: Visit, name: &str) -> String {
    format!("{node}@{visit}:{name}")
}

impl WatchedRecord {
    /// Converts a record. `before` is the status of the run after the previous record, if it is known.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`codec::decode`].
    pub(crate) fn of(run: &RunKey, record: Record, before: Option<RunStatus>) -> Result<Self> {
        record.verify(run)?;
        let body = codec::decode(run, &record)?;
        let header = record.header;
        let kin = match &body.event {
            RecordEvent::Step(step) => child_relation(step),
            _ => None,
        };
        let secrets = match &body.event {
            RecordEvent::Start(started) => started.secret.clone(),
            RecordEvent::Claim(claimed) => claimed.secret.clone(),
            _ => Secrets::default(),
        };
        Ok(Self {
            secrets,
            told: record_events(&header, &body.event),
            patch: body.event.patch().filter(|patch| !patch.is_empty()).cloned(),
            base: body.base.map(|base| (base.version, base.state.into())),
            begins: matches!(body.event, RecordEvent::Start(_) | RecordEvent::Base),
            kin,
            status: (before != Some(header.status)).then_some(header.status),
            header,
        })
    }

    /// Returns the number of positions for events in the record: its events, the update, the value and the status. Each of them has a fixed index,
    /// whatever the filter of the watcher is.
    pub(crate) fn parts(&self) -> usize {
        self.told.len() + 3
    }
}

fn child_relation(step: &StepRecord) -> Option<ChildRelation> {
    let (note, _, name) = parse_note_name(&step.name)?;
    let way = path_segment(&step.node, step.visit, name);
    match (note, &step.what) {
        (Note::Child, ActivationNote::Result(text)) => {
            let note: ChildNote = serde_json::from_str(text.get()).ok()?;
            (note.bond != ParentBond::Detached).then_some(ChildRelation::Begins { way, run: note.run })
        }
        (Note::Told, _) => Some(ChildRelation::Told { way }),
        _ => None,
    }
}

/// Returns the events of a record.
fn record_events(header: &RecordHeader, event: &RecordEvent) -> Vec<RecordedEvent> {
    let one = |event: RecordedEvent| vec![event];
    match event {
        RecordEvent::Start(started) => {
            let messages = started.messages.iter().map(|_| RecordedEvent::MessageSent { by: None });
            [RecordedEvent::Started { entry: started.entry.clone() }].into_iter().chain(messages).collect()
        }
        RecordEvent::Node(nodes) => nodes.done.iter().map(end_event).collect(),
        RecordEvent::Attempt(attempt) => {
            let (node, visit, failure) = (attempt.node.clone(), attempt.visit, attempt.failure.clone());
            one(match attempt.retry_at {
                Some(retry_at) => {
                    RecordedEvent::AttemptFailed { node, visit, failed: attempt.failed, failure, retry_at }
                }
                None => RecordedEvent::InDoubt { node, visit, failure },
            })
        }
        RecordEvent::Intent(intent) => {
            one(RecordedEvent::Intent { node: intent.node.clone(), visit: intent.visit })
        }
        RecordEvent::Step(step) => note_event(step).into_iter().collect(),
        RecordEvent::Status(change) => match change {
            StatusChange::Asked(asking) => one(RecordedEvent::Asked {
                node: asking.node.clone(),
                visit: asking.visit,
                question: asking.id(),
            }),
            StatusChange::Expired(expired) => one(RecordedEvent::Expired { question: expired.id() }),
            // The status event covers this.
            StatusChange::Interrupted
            | StatusChange::Failed(_)
            | StatusChange::Cancelled
            | StatusChange::Rested(_) => Vec::new(),
        },
        RecordEvent::Signal(signal) => signal_event(signal).into_iter().collect(),
        RecordEvent::Claim(claimed) => {
            one(RecordedEvent::Claimed { executor: claimed.executor, epoch: header.epoch })
        }
        RecordEvent::Release(released) => one(RecordedEvent::Released { reason: released.reason.clone() }),
        RecordEvent::Edit(edited) => one(RecordedEvent::Edited { by: edited.by.clone() }),
        RecordEvent::Base => Vec::new(),
    }
}

fn end_event(done: &NodeDone) -> RecordedEvent {
    let (node, visit, attempts) = (done.node.clone(), done.visit, done.attempts);
    let next = done.fired.iter().map(|fired| fired.to.clone()).collect();
    match &done.failure {
        Some(failure) => RecordedEvent::NodeFailed { node, visit, attempts, failure: failure.clone(), next },
        None => {
            let verdict = done.output.as_deref().and_then(Verdict::of);
            let took = Duration::from_millis(done.took_ms);
            RecordedEvent::NodeCompleted { node, visit, attempts, took, verdict, next }
        }
    }
}

fn note_event(step: &StepRecord) -> Option<RecordedEvent> {
    let (node, visit) = (step.node.clone(), step.visit);
    Some(match &step.what {
        ActivationNote::Result(text) => return result(step, text),
        ActivationNote::Until(until) => RecordedEvent::Waiting { node, visit, until: *until },
        ActivationNote::Took(message) => RecordedEvent::MessageTaken { node, visit, message: *message },
        ActivationNote::Refused { message, why } => {
            RecordedEvent::MessageRefused { node, visit, message: *message, why: why.clone() }
        }
        ActivationNote::Idle => return None,
    })
}

/// Returns the event for a recorded result, which is the result of a step or an internal memo.
fn result(step: &StepRecord, text: &RawValue) -> Option<RecordedEvent> {
    let (node, visit) = (step.node.clone(), step.visit);
    if let Some((round, stream)) = stream_of(&step.name) {
        let ChunkSeries { attempt, first, chunks } = serde_json::from_str(text.get()).ok()?;
        return Some(RecordedEvent::Chunks {
            node,
            visit,
            attempt,
            stream: stream.into(),
            round,
            first,
            chunks,
        });
    }
    if step.name == PROGRESS {
        return Some(RecordedEvent::Progress { node, visit, value: text.to_owned().into() });
    }
    match parse_note_name(&step.name) {
        Some((Note::Child, _, name)) => {
            let ChildNote { run: child, workflow, bond, .. } = serde_json::from_str(text.get()).ok()?;
            let detached = bond == ParentBond::Detached;
            Some(RecordedEvent::ChildStarted {
                node,
                visit,
                name: name.to_owned(),
                child,
                workflow,
                detached,
            })
        }
        Some((Note::Told, _, name)) => {
            let status = match serde_json::from_str(text.get()).ok()? {
                ChildEnd::Completed { .. } => Some(RunStatus::Completed),
                ChildEnd::Failed(_) => Some(RunStatus::Failed),
                ChildEnd::Cancelled { .. } => Some(RunStatus::Cancelled),
                ChildEnd::Gone => None,
            };
            Some(RecordedEvent::ChildEnded { node, visit, name: name.to_owned(), status })
        }
        None if !step.name.starts_with('#') => {
            Some(RecordedEvent::StepDone { node, visit, name: step.name.clone() })
        }
        _ => None,
    }
}

fn signal_event(signal: &Signal) -> Option<RecordedEvent> {
    let by = signal.by.clone();
    Some(match &signal.what {
        SignalKind::Respond { question, .. } | SignalKind::Answer { question, .. } => {
            RecordedEvent::Answered { question: question.clone(), by }
        }
        SignalKind::Message { .. } => RecordedEvent::MessageSent { by },
        SignalKind::Pause { reason } => RecordedEvent::Paused { reason: reason.clone(), by },
        SignalKind::Unpause => RecordedEvent::Unpaused { by },
        SignalKind::Cancel { reason } => RecordedEvent::CancelRequested { reason: reason.clone(), by },
        SignalKind::Retry { .. } => RecordedEvent::RetryRequested { by },
        SignalKind::GoTo { nodes, reason } => {
            RecordedEvent::Moved { to: nodes.clone(), reason: reason.clone(), by }
        }
        SignalKind::Pin { .. } | SignalKind::Unpin { .. } | SignalKind::Letters { .. } => return None,
    })
}

//! Describes each event of a record in one sentence, for the timeline, the post-mortem, the inspector and `ferrata logs`.

use std::fmt::Write;

use serde_json::value::RawValue;

use crate::ask::{Answer, QuestionRequest, prompt_of};
use crate::error::Result;
use crate::id::{NodeName, RunKey};
use crate::log_reader;
use crate::record::body::{AttemptFailed, NodeDone, RecordEvent, RunEnd, Signal, SignalKind, StatusChange};
use crate::record::child::{ChildEnd, ChildNote, Note, parse_note_name};
use crate::record::chunks::{ChunkSeries, stream_of};
use crate::record::memo::PROGRESS;
use crate::record::outbox::LetterChange;
use crate::record::pause::{ActivationNote, StepRecord};
use crate::record::{Failure, RecordHeader};
use crate::state::{HIDDEN, Secrets};
use crate::store::CheckpointStore;
use crate::verdict::Verdict;
use crate::wording::count;

/// Describes records in words.
///
/// If the run has secret channels, values of nodes and callers outside of the state are shown as [`HIDDEN`]. The reason is that such a value may
/// enter a secret channel later. `yes` and `no` stay visible.
#[derive(Default)]
pub(crate) struct Sentences {
    /// Whether the run has secret channels. `None` if this is not known yet.
    has_secrets: Option<bool>,
}

impl Sentences {
    /// Creates a describer for a run with these secret channels.
    pub(crate) fn of_run(secrets: &Secrets) -> Self {
        Self { has_secrets: Some(!secrets.is_empty()) }
    }

    /// Returns whether the description of a record depends on secret channels.
    pub(crate) fn hold_values(event: &RecordEvent) -> bool {
        match event {
            RecordEvent::Signal(signal) => {
                matches!(&signal.what, SignalKind::Answer { answer: Answer::Accept(_), .. })
            }
            RecordEvent::Step(step) => step.name == PROGRESS || stream_of(&step.name).is_some(),
            _ => false,
        }
    }

    /// Reads once whether the run has secret channels.
    pub(crate) async fn read_secrets(&mut self, store: &dyn CheckpointStore, run: &RunKey) -> Result<()> {
        if self.has_secrets.is_none() {
            self.has_secrets = Some(!log_reader::secrets(store, run).await?.is_empty());
        }
        Ok(())
    }

    fn redact(&self, value: String) -> String {
        // An unknown run counts as one with secret channels.
        if self.has_secrets == Some(false) { value } else { HIDDEN.to_owned() }
    }

    /// Describes a record: one sentence per ended activation, or one for any other record.
    pub(crate) fn of(&self, header: &RecordHeader, event: &RecordEvent) -> Vec<String> {
        let one = match event {
            RecordEvent::Node(nodes) => return nodes.done.iter().map(describe_end).collect(),
            RecordEvent::Start(started) => format!("started at `{}`", started.entry),
            RecordEvent::Attempt(attempt) => failed_attempt(attempt),
            RecordEvent::Intent(intent) => {
                format!("`{}@{}` starts work that must not be repeated", intent.node, intent.visit)
            }
            RecordEvent::Step(step) => format!("`{}@{}` {}", step.node, step.visit, self.step(step)),
            RecordEvent::Status(change) => status(change),
            RecordEvent::Signal(signal) => self.signal(signal),
            RecordEvent::Claim(claimed) => {
                format!("process {} claimed it, claim {}", claimed.executor, header.epoch)
            }
            RecordEvent::Release(released) => format!("released: {}", released.reason),
            RecordEvent::Edit(edited) => {
                let who = edited.by.as_deref().unwrap_or(SOMEBODY);
                let ops = edited.patch.ops().unwrap_or_default();
                let mut channels: Vec<String> = ops.iter().map(|op| format!("`{}`", op.channel())).collect();
                channels.dedup();
                match channels.is_empty() {
                    true => format!("{who} changed the state"),
                    false => format!("{who} changed the state: {}", channels.join(", ")),
                }
            }
            RecordEvent::Base => "stored a base".to_owned(),
        };
        vec![one]
    }

    /// Describes a step of an activation.
    fn step(&self, step: &StepRecord) -> String {
        match &step.what {
            ActivationNote::Result(value) if step.name == PROGRESS => {
                format!("reported progress: {}", self.redact(value.get().to_owned()))
            }
            ActivationNote::Result(value) => {
                if let Some((_, stream)) = stream_of(&step.name) {
                    return format!("sent to `{stream}`: {}", self.redact(chunks(value)));
                }
                child(&step.name, value).unwrap_or_else(|| format!("did its step `{}`", step.name))
            }
            ActivationNote::Until(until) => format!("waits until {until}"),
            ActivationNote::Took(number) => format!("took message {number}"),
            ActivationNote::Refused { message, why } => format!("rejected message {message}: {why}"),
            ActivationNote::Idle => "got no message in time".to_owned(),
        }
    }

    fn signal(&self, signal: &Signal) -> String {
        let who = signal.by.as_deref().unwrap_or(SOMEBODY);
        match &signal.what {
            SignalKind::Respond { question, resolution } => {
                format!("{who} answered `{question}`: {resolution}")
            }
            SignalKind::Answer { question, answer } => {
                let answer = match answer {
                    Answer::Accept(value) if !matches!(value.get(), "true" | "false") => {
                        self.redact(answer.to_string())
                    }
                    answer => answer.to_string(),
                };
                format!("{who} answered `{question}`: {answer}")
            }
            SignalKind::Message { .. } => format!("{who} sent a message"),
            SignalKind::Pause { reason } => format!("{who} paused it: {reason}"),
            SignalKind::Pin { seq } => format!("{who} pinned record {seq}"),
            SignalKind::Unpin { seq } => format!("{who} unpinned record {seq}"),
            SignalKind::Letters { change, .. } => letters(change, who),
            SignalKind::Unpause => format!("{who} unpaused it"),
            SignalKind::Cancel { reason } => format!("{who} asked to cancel it: {reason}"),
            SignalKind::Retry { .. } => format!("{who} retried it"),
            SignalKind::GoTo { nodes, reason } => {
                let nodes: Vec<String> = nodes.iter().map(|node| format!("`{node}`")).collect();
                format!("{who} moved it to {}: {reason}", nodes.join(", "))
            }
        }
    }
}

/// The name that is shown for a caller that gave no name.
const SOMEBODY: &str = "somebody";

fn failed_attempt(attempt: &AttemptFailed) -> String {
    let AttemptFailed { node, visit, failed, failure, retry_at } = attempt;
    let next = match retry_at {
        Some(at) => format!("the next attempt is due at {at}"),
        None => "whether its work was done is unknown".to_owned(),
    };
    format!("attempt {failed} of `{node}@{visit}` failed, {next}: {}", chain(failure, Some(node)))
}

fn status(change: &StatusChange) -> String {
    match change {
        StatusChange::Interrupted => "waits for answers".to_owned(),
        StatusChange::Failed(failure) => format!("failed: {}", chain(failure, None)),
        StatusChange::Cancelled => "cancelled".to_owned(),
        StatusChange::Asked(asking) => {
            let asked = format!("`{}@{}` asks `{}`", asking.node, asking.visit, asking.name);
            words(&asking.ask).map_or_else(|| asked.clone(), |words| format!("{asked}: {words}"))
        }
        StatusChange::Expired(expired) => {
            format!("no answer to `{}` came in time", expired.id())
        }
        StatusChange::Rested(rested) => format!("is idle: {}", rested.status),
    }
}

/// Returns the text of a question, or `None` if only its name is shown.
fn words(ask: &QuestionRequest) -> Option<String> {
    Some(prompt_of(ask.question.get())).filter(|words| words != "null")
}

/// Concatenates the chunks of a batch.
fn chunks(batch: &RawValue) -> String {
    let Ok(batch) = serde_json::from_str::<ChunkSeries>(batch.get()) else { return batch.get().to_owned() };
    let texts: Option<String> =
        batch.chunks.iter().map(|chunk| serde_json::from_str::<String>(chunk.get()).ok()).collect();
    let json = || batch.chunks.iter().map(|chunk| chunk.get()).collect::<Vec<_>>().join(" ");
    texts.unwrap_or_else(json)
}

/// Describes a memo about a child. Returns `None` for a memo with another name.
fn child(name: &str, value: &RawValue) -> Option<String> {
    let (note, _, name) = parse_note_name(name)?;
    Some(match note {
        Note::Child => match serde_json::from_str::<ChildNote>(value.get()) {
            Ok(child) => format!("starts the run `{}` as `{name}`", child.run),
            Err(_) => format!("starts a run as `{name}`"),
        },
        Note::Began => format!("has started `{name}`"),
        Note::Told => match serde_json::from_str::<ChildEnd>(value.get()) {
            Ok(ChildEnd::Completed { .. }) => format!("got the result of `{name}`: completed"),
            Ok(ChildEnd::Failed(failure)) => {
                format!("got the result of `{name}`: failed: {}", chain(&failure, None))
            }
            Ok(ChildEnd::Cancelled { reason }) => format!("got the result of `{name}`: cancelled: {reason}"),
            Ok(ChildEnd::Gone) => format!("got the result of `{name}`: it was purged"),
            Err(_) => format!("got the result of `{name}`"),
        },
        Note::Again => format!("starts `{name}` again"),
    })
}

/// Describes a change of outbox messages.
fn letters(change: &LetterChange, who: &str) -> String {
    let named = |numbers: &[u64]| match numbers {
        [] => "all rejected outbox messages".to_owned(),
        numbers => {
            let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
            format!("outbox message {}", numbers.join(", "))
        }
    };
    match change {
        LetterChange::Taken => "a process delivers its outbox messages".to_owned(),
        LetterChange::Delivered { numbers } => format!("delivered {}", named(numbers)),
        LetterChange::Failed { number, why, retry_at: Some(_), .. } => {
            format!("could not deliver outbox message {number}: {why}")
        }
        LetterChange::Failed { number, why, .. } => {
            format!("gave up outbox message {number}: {why}")
        }
        LetterChange::Retry { numbers } => format!("{who} retried {}", named(numbers)),
        LetterChange::Drop { numbers } => format!("{who} dropped {}", named(numbers)),
    }
}

/// Describes the end of an activation, and why the run took its edges.
fn describe_end(done: &NodeDone) -> String {
    let mut text = format!("`{}@{}` ", done.node, done.visit);
    // Writing to a string never fails.
    match &done.failure {
        None => match done.output.as_deref().and_then(Verdict::of) {
            Some(verdict) => _ = write!(text, "ended with {verdict}"),
            None => text.push_str("succeeded"),
        },
        Some(failure) => {
            let attempts = count(done.attempts as usize, "attempt");
            let _ = write!(text, "failed after {attempts}: {}", chain(failure, Some(&done.node)));
        }
    }
    for fired in &done.fired {
        let why = match (&fired.reason, fired.back, &done.failure, &fired.items) {
            (Some(reason), ..) => format!(" back on purpose, because {reason}"),
            (None, true, ..) => " as its retry target".into(),
            (None, false, Some(_), _) => " which takes the failure".into(),
            (None, false, None, Some(items)) => format!(" once for each of {}", count(items.len(), "item")),
            _ => String::new(),
        };
        let _ = write!(text, ", on to `{}`{why}", fired.to);
    }
    if done.hold {
        text.push_str(", once an answer agrees");
    }
    if let Some(notes) = &done.notes {
        let _ = write!(text, ". {notes}");
    }
    match &done.end {
        Some(RunEnd::Completed) => text.push_str("; the run is complete"),
        Some(RunEnd::Failed(failure)) if done.failure.is_none() => {
            let _ = write!(text, "; the run failed: {}", chain(failure, Some(&done.node)));
        }
        _ => {}
    }
    text
}

/// Describes a failure with its causes. The node of the failure is named, unless it is `named`.
pub(crate) fn chain(failure: &Failure, named: Option<&NodeName>) -> String {
    let first = match &failure.node {
        node @ Some(_) if node.as_ref() == named => failure.message.clone(),
        _ => failure.to_string(),
    };
    failure.causes.iter().fold(first, |text, cause| format!("{text}; because: {cause}"))
}

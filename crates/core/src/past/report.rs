//! What happened to a run: as a timeline, and as Markdown for the operator who is called at night, from the log alone.

use std::fmt::Write;

use super::{Verdict, checkpoint, walk};
use crate::ask::Answer;
use crate::error::Result;
use crate::id::{NodeName, RunKey, Seq, Visit};
use crate::record::body::{Event, NodeDone, SignalKind, StatusChange};
use crate::record::chunks::stream_of;
use crate::record::letter::LetterChange;
use crate::record::memo::PROGRESS;
use crate::record::pause::Noted;
use crate::record::{Failure, RecordHeader};
use crate::store::{At, CheckpointStore};

/// One thing that happened to a run, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimelineEntry {
    /// The record that says so.
    pub header: RecordHeader,
    /// The activation it is about, if it is about one: its attempts, steps, questions and end. None for what was said to the run.
    pub activation: Option<(NodeName, Visit)>,
    /// What happened, in one line; it may hold what nodes, answers and errors said.
    pub text: String,
}

/// Says what happened to a run from a record on.
pub(crate) async fn timeline(
    store: &dyn CheckpointStore,
    run: &RunKey,
    from: Seq,
) -> Result<Vec<TimelineEntry>> {
    let mut all = Vec::new();
    for end in walk::segment_ends(store, run, At::Latest).await? {
        if end < from {
            continue;
        }
        let records = walk::segment(store, run, end).await?;
        for (header, body) in records.into_iter().filter(|(header, _)| header.seq >= from) {
            let lines = told(&header, &body.event);
            let mut done = match &body.event {
                Event::Node(nodes) => nodes.done.iter().map(|done| (done.node.clone(), done.visit)).collect(),
                event => about(event).into_iter().collect::<Vec<_>>(),
            }
            .into_iter();
            for text in lines {
                let text = text.replace(['\n', '\r'], " ");
                all.push(TimelineEntry { header: header.clone(), activation: done.next(), text });
            }
        }
    }
    Ok(all)
}

/// Returns the activation that a record is about which ends none.
fn about(event: &Event) -> Option<(NodeName, Visit)> {
    match event {
        Event::Attempt(attempt) => Some((attempt.node.clone(), attempt.visit)),
        Event::Intent(intent) => Some((intent.node.clone(), intent.visit)),
        Event::Step(step) => Some((step.node.clone(), step.visit)),
        Event::Status(StatusChange::Asked(asking)) => Some((asking.node.clone(), asking.visit)),
        Event::Status(StatusChange::Expired(expired)) => Some((expired.node.clone(), expired.visit)),
        _ => None,
    }
}

/// Writes what happened to a run.
pub(crate) async fn post_mortem(store: &dyn CheckpointStore, run: &RunKey) -> Result<String> {
    let (mut now, _) = checkpoint(store, run, At::Latest).await?;
    now.hide_secrets();
    let mut out = String::new();
    // Writing to a string never fails.
    let _ = write_head(&mut out, &now);
    let _ = writeln!(out, "\n## What happened\n");
    let _ = writeln!(out, "| record | after | what |\n|---|---|---|");
    for end in walk::segment_ends(store, run, At::Latest).await? {
        for (header, body) in walk::segment(store, run, end).await? {
            for line in told(&header, &body.event) {
                let after = header.at.since(now.created);
                let _ = writeln!(out, "| {} | {after:?} | {} |", header.seq, escaped(&line));
            }
        }
    }
    let _ = writeln!(out, "\n## The state\n\n```json\n{:#}\n```", now.state);
    Ok(out)
}

fn write_head(out: &mut String, now: &super::Checkpoint) -> std::fmt::Result {
    writeln!(out, "# Run {}: {}\n", now.run, now.status)?;
    writeln!(out, "- workflow `{}`, version {}, graph {}", now.workflow, now.version, now.graph)?;
    let age = now.at.since(now.created);
    writeln!(
        out,
        "- started at {}, last record {} after {age:?}, claimed {} times",
        now.created, now.index, now.epoch
    )?;
    if let Some(parent) = &now.parent {
        writeln!(out, "- forked from {} at record {}", parent.run, parent.at.seq)?;
    }
    if let Some(failure) = &now.failure {
        writeln!(out, "- failed: {}", escaped(&chain(failure)))?;
    }
    if let Some(reason) = &now.paused {
        writeln!(out, "- paused: {}", escaped(reason))?;
    }
    if let Some(reason) = &now.cancelled {
        writeln!(out, "- cancelled: {}", escaped(reason))?;
    }
    for question in &now.questions {
        writeln!(out, "- open question `{}`", question.id)?;
    }
    for pending in &now.next {
        let (node, visit) = (&pending.node, pending.visit);
        let how = if pending.stopped { "stopped the run" } else { "has begun and not ended" };
        writeln!(out, "- `{node}@{visit}` {how}, {} attempts failed", pending.failed)?;
    }
    Ok(())
}

/// Says in a few words what a record says.
fn told(header: &RecordHeader, event: &Event) -> Vec<String> {
    let one = |text: String| vec![text];
    match event {
        Event::Start(started) => one(format!("started at `{}`", started.entry)),
        Event::Node(nodes) => nodes.done.iter().map(ended).collect(),
        Event::Attempt(attempt) => {
            let next = match attempt.retry_at {
                Some(at) => format!("the next from {at}"),
                None => "and nobody knows whether it was done".to_owned(),
            };
            let (failed, why) = (attempt.failed, chain(&attempt.failure));
            one(format!("attempt {failed} of `{}@{}` failed, {next}: {why}", attempt.node, attempt.visit))
        }
        Event::Intent(intent) => {
            one(format!("`{}@{}` is about to do what must not be done twice", intent.node, intent.visit))
        }
        Event::Step(step) => one(match &step.what {
            Noted::Result(_) if step.name == PROGRESS => {
                format!("`{}@{}` said how far it has come", step.node, step.visit)
            }
            Noted::Result(_) => match stream_of(&step.name) {
                Some((_, stream)) => format!("`{}@{}` sent a part of `{stream}`", step.node, step.visit),
                None => format!("`{}@{}` did its step `{}`", step.node, step.visit, step.name),
            },
            Noted::Until(until) => format!("`{}@{}` waits until {until}", step.node, step.visit),
            Noted::Took(number) => format!("`{}@{}` took message {number}", step.node, step.visit),
            Noted::Refused { message, why } => {
                format!("`{}@{}` set message {message} aside: {why}", step.node, step.visit)
            }
            Noted::Idle => format!("`{}@{}` waited long enough for a message", step.node, step.visit),
        }),
        Event::Status(change) => one(match change {
            StatusChange::Interrupted => "waits for answers".into(),
            StatusChange::Failed(failure) => format!("failed: {}", chain(failure)),
            StatusChange::Cancelled => "cancelled".into(),
            StatusChange::Asked(asking) => {
                format!("`{}@{}` asks `{}`", asking.node, asking.visit, asking.name)
            }
            StatusChange::Expired(expired) => {
                format!("nobody answered `{}@{}:{}` in time", expired.node, expired.visit, expired.name)
            }
            StatusChange::Rested(rested) => format!("came to rest: {}", rested.status),
        }),
        Event::Signal(signal) => {
            let who = signal.by.as_deref().unwrap_or("somebody");
            one(match &signal.what {
                SignalKind::Respond { question, resolution } => {
                    format!("{who} resolved `{question}`: {resolution:?}")
                }
                SignalKind::Answer { question, answer } => {
                    let how = match answer {
                        Answer::Accept(_) => "accepted".to_owned(),
                        other => other.to_string(),
                    };
                    format!("{who} answered `{question}`: {how}")
                }
                SignalKind::Message { .. } => format!("{who} sent a message"),
                SignalKind::Pause { reason } => format!("{who} paused it: {reason}"),
                SignalKind::Pin { seq } => format!("{who} pinned record {seq}"),
                SignalKind::Unpin { seq } => format!("{who} unpinned record {seq}"),
                SignalKind::Letters { change, .. } => letters(change, signal.by.as_deref()),
                SignalKind::Unpause => format!("{who} let it go on"),
                SignalKind::Cancel { reason } => format!("{who} asked to cancel it: {reason}"),
                SignalKind::Retry { .. } => format!("{who} had it tried again"),
                SignalKind::GoTo { nodes, reason } => {
                    let nodes: Vec<String> = nodes.iter().map(|node| format!("`{node}`")).collect();
                    format!("{who} had it go on at {}: {reason}", nodes.join(", "))
                }
            })
        }
        Event::Claim(claimed) => {
            one(format!("executor {} took it, claim {}", claimed.executor, header.epoch))
        }
        Event::Release(released) => one(format!("let go: {}", released.reason)),
        Event::Edit(edited) => {
            one(format!("{} changed the state", edited.by.as_deref().unwrap_or("somebody")))
        }
        Event::Base => one("written down whole".into()),
    }
}

/// Says what became of letters.
fn letters(change: &LetterChange, by: Option<&str>) -> String {
    let who = by.unwrap_or("somebody");
    let named = |numbers: &[u64]| match numbers {
        [] => "what was put aside".to_owned(),
        numbers => {
            let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
            format!("letter {}", numbers.join(", "))
        }
    };
    match change {
        LetterChange::Taken => "a process delivers its letters".to_owned(),
        LetterChange::Delivered { numbers } => format!("delivered {}", named(numbers)),
        LetterChange::Failed { number, why, retry_at: Some(_), .. } => {
            format!("could not deliver letter {number}: {why}")
        }
        LetterChange::Failed { number, why, .. } => format!("put letter {number} aside: {why}"),
        LetterChange::Retry { numbers } => format!("{who} had {} delivered again", named(numbers)),
        LetterChange::Drop { numbers } => format!("{who} dropped {}", named(numbers)),
    }
}

/// Says how an activation ended, and why the run went where it went.
fn ended(done: &NodeDone) -> String {
    let mut text = format!("`{}@{}` ", done.node, done.visit);
    match &done.failure {
        None => match done.output.as_deref().and_then(Verdict::of) {
            Some(verdict) => _ = write!(text, "came to {verdict}"),
            None => text.push_str("succeeded"),
        },
        Some(failure) => {
            let _ = write!(text, "failed for good after {} attempts: {}", done.attempts, chain(failure));
        }
    }
    for fired in &done.fired {
        let why = match (&fired.reason, fired.back, &done.failure, &fired.items) {
            (Some(reason), ..) => format!(" back on purpose, because {reason}"),
            (None, true, ..) => " as its retry target".into(),
            (None, false, Some(_), _) => " which takes the failure".into(),
            (None, false, None, Some(items)) => format!(" once for each of {} items", items.len()),
            _ => String::new(),
        };
        let _ = write!(text, ", on to `{}`{why}", fired.to);
    }
    if done.hold {
        text.push_str(", held until somebody agrees");
    }
    if let Some(notes) = &done.notes {
        let _ = write!(text, ". {notes}");
    }
    match &done.end {
        Some(crate::record::body::End::Completed) => text.push_str("; the run is complete"),
        Some(crate::record::body::End::Failed(failure)) if done.failure.is_none() => {
            let _ = write!(text, "; the run failed: {}", chain(failure));
        }
        _ => {}
    }
    text
}

fn chain(failure: &Failure) -> String {
    failure.causes.iter().fold(failure.to_string(), |text, cause| format!("{text}; because: {cause}"))
}

/// Keeps a text within its cell of a table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

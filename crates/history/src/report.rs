//! Describes the history of a run from its log, as a timeline and as a Markdown report for the operator on call.

use std::fmt::Write;

use crate::checkpoint::{Checkpoint, checkpoint};
use crate::error::Result;
use crate::id::{NodeName, RunKey, Seq, Visit};
use crate::log_reader;
use crate::record::RecordHeader;
use crate::record::body::{RecordEvent, StatusChange};
use crate::sentence::{Sentences, chain};
use crate::store::{At, CheckpointStore};
use crate::wording::{count, duration, times};

/// An event of a run, described in words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimelineEntry {
    /// The header of the event's record.
    pub header: RecordHeader,
    /// The activation to which the event belongs, such as the activation of a step or a question. `None` for an event of the whole run, such as a
    /// signal.
    pub activation: Option<(NodeName, Visit)>,
    /// The description of the event in one line. It may contain text of nodes, answers and errors.
    pub text: String,
}

/// Returns the events of a run from a record on.
///
/// # Errors
///
/// Returns `ErrorKind::NotFound` if there is no such run, `ErrorKind::Corrupt` if the log is unreadable, and the errors of the store.
pub async fn timeline(store: &dyn CheckpointStore, run: &RunKey, from: Seq) -> Result<Vec<TimelineEntry>> {
    let (mut all, mut sentences) = (Vec::new(), Sentences::default());
    for end in log_reader::segment_ends(store, run, At::Latest).await? {
        if end < from {
            continue;
        }
        let records = log_reader::segment(store, run, end).await?;
        for (header, body) in records.into_iter().filter(|(header, _)| header.seq >= from) {
            if Sentences::hold_values(&body.event) {
                sentences.read_secrets(store, run).await?;
            }
            let lines = sentences.of(&header, &body.event);
            let mut done = match &body.event {
                RecordEvent::Node(nodes) => {
                    nodes.done.iter().map(|done| (done.node.clone(), done.visit)).collect()
                }
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

/// Returns the activation of a record that ends no activation.
fn about(event: &RecordEvent) -> Option<(NodeName, Visit)> {
    match event {
        RecordEvent::Attempt(attempt) => Some((attempt.node.clone(), attempt.visit)),
        RecordEvent::Intent(intent) => Some((intent.node.clone(), intent.visit)),
        RecordEvent::Step(step) => Some((step.node.clone(), step.visit)),
        RecordEvent::Status(StatusChange::Asked(asking)) => Some((asking.node.clone(), asking.visit)),
        RecordEvent::Status(StatusChange::Expired(expired)) => Some((expired.node.clone(), expired.visit)),
        _ => None,
    }
}

/// Writes a report of a run's history.
///
/// # Errors
///
/// Returns `ErrorKind::NotFound` if there is no such run, `ErrorKind::Corrupt` if the log is unreadable, and the errors of the store.
pub async fn post_mortem(store: &dyn CheckpointStore, run: &RunKey) -> Result<String> {
    let (mut now, _) = checkpoint(store, run, At::Latest).await?;
    now.hide_secrets();
    let sentences = Sentences::of_run(&now.secret);
    let mut out = String::new();
    // Writing to a string never fails.
    let _ = write_head(&mut out, &now);
    let _ = writeln!(out, "\n## What happened\n");
    let _ = writeln!(out, "| record | after | what |\n|---|---|---|");
    for end in log_reader::segment_ends(store, run, At::Latest).await? {
        for (header, body) in log_reader::segment(store, run, end).await? {
            for line in sentences.of(&header, &body.event) {
                let after = duration(header.at.since(now.created));
                let _ = writeln!(out, "| {} | {after} | {} |", header.seq, escaped(&line));
            }
        }
    }
    let _ = writeln!(out, "\n## The state\n\n```json\n{:#}\n```", now.state);
    Ok(out)
}

fn write_head(out: &mut String, now: &Checkpoint) -> std::fmt::Result {
    writeln!(out, "# Run {}: {}\n", now.run, now.status)?;
    writeln!(out, "- workflow `{}`, version {}, graph {}", now.workflow, now.version, now.graph)?;
    let age = duration(now.at.since(now.created));
    let claims = match now.epoch.get() {
        0 => "not claimed by any process".to_owned(),
        claims => format!("claimed {}", times(claims.into())),
    };
    writeln!(out, "- started at {}, last record {} after {age}, {claims}", now.created, now.index)?;
    if let Some(parent) = &now.parent {
        writeln!(out, "- forked from {} at record {}", parent.run, parent.at.seq)?;
    }
    if let Some(failure) = &now.failure {
        writeln!(out, "- failed: {}", escaped(&chain(failure, None)))?;
    }
    if let Some(reason) = &now.paused {
        writeln!(out, "- paused: {}", escaped(reason))?;
    }
    if let Some(reason) = &now.cancelled {
        writeln!(out, "- cancelled: {}", escaped(reason))?;
    }
    for question in &now.questions {
        writeln!(out, "- open question `{}`: {}", question.id, escaped(&question.prompt()))?;
    }
    for pending in &now.next {
        let (node, visit) = (&pending.node, pending.visit);
        let how = if pending.stopped { "stopped the run" } else { "has not ended" };
        let failed = match pending.failed {
            0 => String::new(),
            failed => format!(", {} failed", count(failed as usize, "attempt")),
        };
        writeln!(out, "- `{node}@{visit}` {how}{failed}")?;
    }
    Ok(())
}

/// Escapes a text for a table cell.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

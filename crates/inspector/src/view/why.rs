//! Why a run stands as it does: who is at work, whom it waits for, or why it stopped.

use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Checkpoint;
use ferrata_core::store::RunHead;
use serde_json::{Value, json};

use super::text::LONG;
use crate::redact::Redaction;

/// Says why a run stands as it does, the most urgent first, each with a word for programs.
pub(crate) fn why(head: &RunHead, now: &Checkpoint, hides: &Redaction) -> Vec<Value> {
    let mut all = Vec::new();
    let mut say = |kind: &str, text: String| all.push(json!({ "kind": kind, "text": text }));
    if let Some(failure) = now.failure.as_ref().filter(|_| now.status == RunStatus::Failed) {
        let node = now.next.iter().find(|pending| pending.stopped);
        let at = node.map(|pending| format!("{}@{}: ", pending.node, pending.visit)).unwrap_or_default();
        say("failed", hides.cut(&format!("{at}{failure}"), LONG));
    }
    if let Some(reason) = &now.cancelled {
        let done = now.status == RunStatus::Cancelled;
        let word = if done { "cancelled" } else { "is being cancelled" };
        say("cancelled", hides.cut(&format!("{word}: {reason}"), LONG));
    }
    if now.status.is_finished() {
        return all;
    }
    if let Some(reason) = &now.paused {
        say("paused", hides.cut(&format!("paused: {reason}"), LONG));
    }
    match now.questions.len() {
        0 => {}
        1 => say("question", format!("`{}` waits for an answer", now.questions[0].id)),
        many => say("question", format!("{many} questions wait for an answer")),
    }
    if now.status == RunStatus::AwaitingInput {
        say("message", "a node waits for a message".to_owned());
    }
    for pending in now.next.iter().filter(|pending| pending.retry_at.is_some()).take(10) {
        let text =
            format!("{}@{} failed {} times and is tried again", pending.node, pending.visit, pending.failed);
        all.push(json!({ "kind": "retry", "text": text, "until": pending.retry_at }));
    }
    if let Some(until) = now.wake_at {
        all.push(json!({ "kind": "timer", "text": "a timer moves it on", "until": until }));
    }
    if now.status == RunStatus::InProgress && now.wake_at.is_none() {
        let (kind, text) = match head.owner {
            _ if head.is_queued() => (
                "queued",
                "no executor has begun with it: it waits for room, or for a process that serves its workflow"
                    .to_owned(),
            ),
            Some(owner) if head.owner_alive => ("working", format!("executor {owner} is at work")),
            Some(owner) => (
                "orphaned",
                format!(
                    "executor {owner} is not heard of any more; a process that serves `{}` takes the run up",
                    now.workflow
                ),
            ),
            None => {
                ("orphaned", format!("no process drives it; one that serves `{}` takes it up", now.workflow))
            }
        };
        all.push(json!({ "kind": kind, "text": text }));
    }
    all
}

//! What a list says of a run beyond its head: where it failed, and whom it waits for.

use ferrata_core::runtime::{Checkpoint, PastActivation, ReasonKind, RunReason};
use serde_json::{Value, json};

use super::text::SHORT;
use super::why::why;
use crate::redact::Redaction;

/// Says where a run failed and what it waits for. Which process has it is said by its head.
pub(crate) fn brief(now: &Checkpoint, reasons: &[RunReason], hides: &Redaction) -> Value {
    let stopped = now.next.iter().find(|pending| pending.stopped);
    let failed = now.history.iter().rev().find(|past| !past.ok);
    let node =
        stopped.map(|pending| &pending.node).or_else(|| failed.map(|past: &PastActivation| &past.node));
    json!({
        "why": told(reasons, hides),
        "failed_node": node.filter(|_| now.failure.is_some()),
        "failure": now.failure.as_ref().map(|failure| hides.cut(&failure.message, SHORT)),
        "questions": now.questions.len(),
        "at": now.next.iter().take(5).map(|pending| format!("{}@{}", pending.node, pending.visit)).collect::<Vec<_>>(),
    })
}

/// Returns the most urgent reason that is no matter of the head.
pub(crate) fn told(reasons: &[RunReason], hides: &Redaction) -> Value {
    let of_log = |kind| !matches!(kind, ReasonKind::Working | ReasonKind::Orphaned | ReasonKind::Queued);
    json!(reasons.iter().find(|reason| of_log(reason.kind)).map(|reason| why(reason, hides)))
}

//! Details of a run for a list, beyond its head: the place of a failure, and the reason of a wait.

use ferrata_core::runtime::{Checkpoint, PastActivation, ReasonKind, RunReason};
use serde_json::{Value, json};

use super::reason::reason_json;
use super::text::SHORT;
use crate::redact::Redaction;

/// Returns where a run failed and what it waits for. The head has its process.
pub(crate) fn brief(now: &Checkpoint, reasons: &[RunReason], hides: &Redaction) -> Value {
    let stopped = now.next.iter().find(|pending| pending.stopped);
    let failed = now.history.iter().rev().find(|past| !past.ok);
    let node =
        stopped.map(|pending| &pending.node).or_else(|| failed.map(|past: &PastActivation| &past.node));
    json!({
        "why": urgent_reason(reasons, hides),
        "failed_node": node.filter(|_| now.failure.is_some()),
        "failure": now.failure.as_ref().map(|failure| hides.cut(&failure.message, SHORT)),
        "questions": now.questions.len(),
        "at": now.next.iter().take(5).map(|pending| format!("{}@{}", pending.node, pending.visit)).collect::<Vec<_>>(),
    })
}

/// Returns the most urgent reason that the head does not contain.
pub(crate) fn urgent_reason(reasons: &[RunReason], hides: &Redaction) -> Value {
    let of_log = |kind| !matches!(kind, ReasonKind::Working | ReasonKind::Orphaned | ReasonKind::Queued);
    json!(reasons.iter().find(|reason| of_log(reason.kind)).map(|reason| reason_json(reason, hides)))
}

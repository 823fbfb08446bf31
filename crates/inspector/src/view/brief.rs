//! Details of a run for a list: the node that failed, and the reason for a wait. The head of a run does not contain them.

use ferrata_core::runtime::{Checkpoint, PastActivation, ReasonKind, RunReason};
use serde_json::{Value, json};

use super::reason::reason_json;
use super::text::SHORT;
use crate::redact::Redaction;

/// Returns the node at which a run failed, and the reason for its wait.
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

/// Returns the most urgent reason that is not already in the head.
pub(crate) fn urgent_reason(reasons: &[RunReason], hides: &Redaction) -> Value {
    let of_log = |kind| !matches!(kind, ReasonKind::Working | ReasonKind::Orphaned | ReasonKind::Queued);
    json!(reasons.iter().find(|reason| of_log(reason.kind)).map(|reason| reason_json(reason, hides)))
}

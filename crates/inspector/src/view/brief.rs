//! What a list says of a run beyond its head: where it failed, and whom it waits for.

use ferrata_core::runtime::{Checkpoint, Past};
use serde_json::{Value, json};

use super::text::SHORT;
use crate::redact::Redaction;

/// Says where a run failed and what it waits for.
pub(crate) fn brief(now: &Checkpoint, hides: &Redaction) -> Value {
    let stopped = now.next.iter().find(|pending| pending.stopped);
    let failed = now.history.iter().rev().find(|past| !past.ok);
    let node = stopped.map(|pending| &pending.node).or_else(|| failed.map(|past: &Past| &past.node));
    json!({
        "failed_node": node.filter(|_| now.failure.is_some()),
        "failure": now.failure.as_ref().map(|failure| hides.cut(&failure.to_string(), SHORT)),
        "questions": now.questions.len(),
        "asks": now.questions.first().map(|question| &question.id),
        "paused": now.paused.as_ref().map(|reason| hides.cut(reason, SHORT)),
        "at": now.next.iter().take(5).map(|pending| format!("{}@{}", pending.node, pending.visit)).collect::<Vec<_>>(),
    })
}

//! The reasons for a run's status, as JSON for the page.

use ferrata_core::runtime::RunReason;
use serde_json::{Value, json};

use super::summary::key;
use super::text::LONG;
use crate::redact::Redaction;

/// Writes a reason as JSON: the predicate of a sentence whose subject is the run, and the time that ends the sentence.
pub(crate) fn reason_json(reason: &RunReason, hides: &Redaction) -> Value {
    json!({
        "kind": reason.kind,
        "text": hides.cut(&reason.text, LONG),
        "until": reason.until,
        "run": reason.run.as_ref().map(key),
        "question": reason.question,
    })
}

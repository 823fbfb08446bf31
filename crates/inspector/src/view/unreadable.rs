//! Unreadable runs: their number, names and reasons. Each answer that omits unreadable runs says so.

use ferrata_core::{Error, ErrorKind, RunKey};
use serde_json::{Value, json};

use super::summary::key;
use super::text::LONG;
use crate::redact::Redaction;

/// Maximum number of unreadable runs that an answer names.
const NAMED: usize = 20;

/// Returns whether an error means that only the log of one run is unreadable.
pub(crate) fn is_unreadable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}

/// Returns the reason why a run is unreadable, and what to do.
pub(crate) fn why_unreadable(error: &Error, hides: &Redaction) -> String {
    hides.cut(error.message(), LONG)
}

/// The unreadable runs of one answer.
#[derive(Debug, Default)]
pub(crate) struct UnreadableList {
    count: usize,
    named: Vec<Value>,
}

impl UnreadableList {
    pub(crate) fn add(&mut self, run: &RunKey, why: &str) {
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push(json!({ "run": key(run), "why": why }));
        }
    }

    /// Adds the run that an error names.
    pub(crate) fn add_error(&mut self, error: &Error) {
        self.count += 1;
        self.named.push(json!({ "run": error.run().map(key), "why": error.message() }));
    }

    pub(crate) fn shown(self) -> Value {
        json!({ "count": self.count, "items": self.named })
    }
}

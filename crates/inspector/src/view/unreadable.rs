//! Runs that cannot be read: how many, which, and why. Nothing that cannot be read is shown as if it were not there.

use ferrata_core::{Error, ErrorKind, RunKey};
use serde_json::{Value, json};

use super::summary::key;
use super::text::LONG;
use crate::redact::Redaction;

/// How many runs are named.
const NAMED: usize = 20;

/// Tells whether an error says that the log of one run cannot be read, so that others can.
pub(crate) fn is_unreadable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}

/// Says why a run cannot be read, and what to do.
pub(crate) fn why_unreadable(error: &Error, hides: &Redaction) -> String {
    hides.cut(error.message(), LONG)
}

/// The runs of one answer that cannot be read.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    count: usize,
    named: Vec<Value>,
}

impl Unreadable {
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

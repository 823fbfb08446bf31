//! Checks that the random sequences reach every situation that the model covers.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ferrata_core::ErrorKind;

use crate::oracle::Stand;

static SEEN: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

fn count(what: String) {
    *SEEN.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
}

/// Counts a successful operation.
pub(crate) fn done(operation: &str) {
    count(operation.to_owned());
}

/// Counts an error that the oracle predicted.
pub(crate) fn met(kind: ErrorKind) {
    count(format!("error {kind}"));
}

/// Counts the outcome of a handle.
pub(crate) fn stood(stand: &Stand) {
    let name = format!("{stand:?}");
    count(format!("outcome {}", name.split(['(', '{']).next().unwrap_or_default()));
}

/// Situations that must occur at least once.
const WANTED: [&str; 48] = [
    "fork",
    "hang",
    "judged",
    "met",
    "weather",
    "bank",
    "most",
    "start",
    "start again",
    "resume",
    "resume by taking over",
    "respond: accept",
    "respond: reject",
    "respond: cancel",
    "respond: resolve by retry",
    "respond: resolve by supply",
    "respond: resolve by skip",
    "respond: resolve by fail",
    "send",
    "cancel",
    "pause",
    "unpause",
    "retry",
    "edit",
    "advance",
    "crash",
    "shutdown",
    "head",
    "questions",
    "inbox",
    "outcome Completed",
    "outcome Failed",
    "outcome Interrupted",
    "outcome AwaitingInput",
    "outcome Paused",
    "outcome Sleeping",
    "outcome Cancelled",
    "outcome Released",
    "outcome Error",
    "error NOT_FOUND",
    "error ALREADY_EXISTS",
    "error CONFLICT",
    "error FENCED",
    "error INVALID",
    "error TOO_LARGE",
    "error GRAPH_CHANGED",
    "error WRONG_STATUS",
    "error CLOSED",
];

/// Returns the situations that never occurred, and the counts of all others.
pub(crate) fn missing() -> (Vec<&'static str>, BTreeMap<String, u64>) {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (WANTED.into_iter().filter(|what| !seen.contains_key(*what)).collect(), seen)
}

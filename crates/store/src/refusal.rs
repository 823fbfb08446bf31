//! The shared error messages of all stores.

use crate::error::{Error, ErrorKind};
use crate::id::{HeadRef, RunKey, Seq};
use crate::query::At;

/// Message for an operation on a run that does not exist.
#[doc(hidden)]
pub const NO_RUN: &str = "the run does not exist; it was purged, or never started";

/// Message for the second entry of a run in a batch.
#[doc(hidden)]
pub const DOUBLED: &str = "the batch has two entries for the run; join its records into one entry";

/// Describes the expected head and the actual head; `None` means that the run does not exist.
#[doc(hidden)]
pub fn differs(expected: Option<HeadRef>, actual: Option<HeadRef>) -> String {
    let found = match (expected, actual) {
        (Some(expected), Some(actual)) => format!("the run's head is {actual}, not {expected}"),
        (Some(expected), None) => {
            format!("the run does not exist, and its head was expected to be {expected}")
        }
        (None, Some(actual)) => format!("the run already exists, and its head is {actual}"),
        (None, None) => "the run does not exist".to_owned(),
    };
    format!("{found}; load the run, check its new records, and decide again")
}

/// Returns the error for an append or a purge that expected another head; `None` means that the run does not exist.
pub fn conflict(run: &RunKey, expected: Option<HeadRef>, actual: Option<HeadRef>) -> Error {
    Error::new(ErrorKind::Conflict, differs(expected, actual))
        .with_operation("store.append")
        .with_run(run)
        .with_actual_head(actual)
}

/// Returns the error for a run's second entry in a batch.
pub fn doubled(run: &RunKey) -> Error {
    Error::new(ErrorKind::Invalid, DOUBLED).with_operation("store.append").with_run(run)
}

/// Returns the error for an operation on a run that does not exist.
pub fn no_run(operation: &'static str, run: &RunKey) -> Error {
    Error::new(ErrorKind::NotFound, NO_RUN).with_operation(operation).with_run(run)
}

/// Returns the error for a run that has no record at `at`.
pub fn no_record(operation: &'static str, run: &RunKey, at: At) -> Error {
    let message = format!("the run has no {at}; it was pruned, or never written");
    let error = Error::new(ErrorKind::NotFound, message).with_operation(operation).with_run(run);
    match at {
        At::Seq(seq) => error.with_seq(seq),
        _ => error,
    }
}

/// Returns the error for a record that is missing although it must exist.
pub fn gone(run: &RunKey, seq: Seq) -> Error {
    corrupt(run, seq, "the record is missing")
}

/// Returns the error for a damaged record. `what` names the damage.
pub fn corrupt(run: &RunKey, seq: Seq, what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{what}; restore the run from a backup"))
        .with_run(run)
        .with_seq(seq)
}

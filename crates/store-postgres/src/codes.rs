//! The letters that stand for kinds and statuses in the tables: one byte each, and readable in SQL.

use ferrata_store::{RecordKind, RunStatus};

const KINDS: [(RecordKind, u8); 11] = [
    (RecordKind::Start, b's'),
    (RecordKind::Node, b'n'),
    (RecordKind::Attempt, b'a'),
    (RecordKind::Step, b't'),
    (RecordKind::Intent, b'i'),
    (RecordKind::Status, b'u'),
    (RecordKind::Signal, b'g'),
    (RecordKind::Claim, b'c'),
    (RecordKind::Release, b'r'),
    (RecordKind::Edit, b'e'),
    (RecordKind::Base, b'b'),
];

const STATUSES: [(RunStatus, u8); 6] = [
    (RunStatus::InProgress, b'p'),
    (RunStatus::Completed, b'c'),
    (RunStatus::Failed, b'f'),
    (RunStatus::Interrupted, b'i'),
    (RunStatus::AwaitingInput, b'w'),
    (RunStatus::Cancelled, b'x'),
];

fn code<T: Copy + PartialEq>(table: &[(T, u8)], value: T) -> Option<i8> {
    table.iter().find(|(known, _)| *known == value).map(|(_, code)| code.cast_signed())
}

fn value<T: Copy>(table: &[(T, u8)], code: i8) -> Option<T> {
    table.iter().find(|(_, known)| known.cast_signed() == code).map(|(value, _)| *value)
}

/// Returns the letter of a kind; `None` for one that this version does not know.
pub(crate) fn of_kind(kind: RecordKind) -> Option<i8> {
    code(&KINDS, kind)
}

/// Returns the letter of a status; `None` for one that this version does not know.
pub(crate) fn of_status(status: RunStatus) -> Option<i8> {
    code(&STATUSES, status)
}

pub(crate) fn kind(code: i8) -> Option<RecordKind> {
    value(&KINDS, code)
}

pub(crate) fn status(code: i8) -> Option<RunStatus> {
    value(&STATUSES, code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_status_has_a_letter_of_its_own() {
        for known in RecordKind::ALL {
            assert_eq!(of_kind(known).and_then(kind), Some(known));
        }
        for known in RunStatus::ALL {
            assert_eq!(of_status(known).and_then(status), Some(known));
        }
        assert_eq!((kind(0), status(-1)), (None, None));
    }

    #[test]
    fn the_views_know_every_letter_by_its_name() {
        let script = include_str!("../migrations/0001_runs_and_records.sql");
        for (status, code) in STATUSES {
            let text = format!("WHEN '{}' THEN '{status}'", char::from(code));
            assert_eq!(script.matches(&text).count(), 2, "{text}");
        }
        for (kind, code) in KINDS {
            let text = format!("WHEN '{}' THEN '{}'", char::from(code), format!("{kind:?}").to_lowercase());
            assert!(script.contains(&text), "{text}");
        }
    }
}

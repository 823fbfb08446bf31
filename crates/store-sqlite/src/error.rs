//! The table that maps errors of the driver and of SQLite to error kinds and advice.

use std::path::Path;

use ferrata_store::{Error, ErrorKind, RunKey};

/// The possible effect of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqliteCallEffect {
    /// The call writes nothing, or has not started to write.
    Read,
    /// The call may have been committed although it failed.
    Write,
}

/// A classified error of the driver or of SQLite.
#[derive(Clone, Debug)]
pub(crate) struct SqliteStoreError {
    kind: ErrorKind,
    message: String,
    cause: Option<String>,
    code: i32,
}

const BUSY: i32 = 5;
const CORRUPT: i32 = 11;
const CONSTRAINT: i32 = 19;
const READ_ONLY: i32 = 8;
const CANNOT_OPEN: i32 = 14;

impl SqliteStoreError {
    /// Creates an error with the library's own message.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), cause: None, code: 0 }
    }

    /// Returns the error for a path that now names another file than the opened file.
    pub(crate) fn moved_error(path: &Path, call: SqliteCallEffect) -> Self {
        let kind =
            if call == SqliteCallEffect::Read { ErrorKind::Unavailable } else { ErrorKind::Indeterminate };
        let message = format!(
            "{} or its write-ahead log was removed or replaced while open; restore it, or restart the process on the current file",
            path.display()
        );
        Self::new(kind, message)
    }

    /// Returns the error for a call whose caller has stopped waiting.
    pub(crate) fn abandoned_error() -> Self {
        Self::new(ErrorKind::Unavailable, "the caller abandoned the call; nothing was written, retry")
    }

    /// Converts an error of the commit. If SQLite checks a constraint at the commit, the constraint belongs to the application: those of the
    /// store's tables are checked by each statement.
    pub(crate) fn at_commit(self) -> Self {
        if self.code & 0xff != CONSTRAINT {
            return self;
        }
        let message = format!(
            "a deferred constraint rejected the rows at the commit; correct the rows that the node writes (SQLite {})",
            self.code
        );
        Self { kind: ErrorKind::Invalid, message, ..self }
    }

    /// Returns whether another connection holds the needed lock.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.code & 0xff, BUSY | 6)
    }

    /// Returns whether SQLite cannot open or create a file that it needs.
    pub(crate) fn is_cannot_open(&self) -> bool {
        matches!(self.code & 0xff, CANNOT_OPEN | READ_ONLY)
    }

    /// Returns whether the tables are missing, or do not belong to this library.
    pub(crate) fn is_invalid(&self) -> bool {
        self.kind == ErrorKind::Invalid
    }

    /// Returns whether a page is damaged.
    pub(crate) fn is_damage(&self) -> bool {
        self.code & 0xff == CORRUPT
    }

    /// Returns whether the error concerns only one entry's values or pages, so that the other entries can be written without it.
    pub(crate) fn is_of_one(&self) -> bool {
        matches!(self.kind, ErrorKind::Corrupt | ErrorKind::TooLarge)
    }

    /// Converts to the library's error.
    pub(crate) fn into_error(self, operation: &'static str) -> Error {
        let error = Error::new(self.kind, self.message).with_operation(operation);
        match self.cause {
            Some(cause) => error.with_source(cause),
            None => error,
        }
    }

    /// Converts to the library's error, about a run.
    pub(crate) fn of_run(self, operation: &'static str, run: &RunKey) -> Error {
        self.into_error(operation).with_run(run)
    }
}

/// Maps an error of the driver to an error kind.
pub(crate) fn classify_error(error: &sqlx::Error, call: SqliteCallEffect) -> SqliteStoreError {
    let lost = if call == SqliteCallEffect::Read { ErrorKind::Unavailable } else { ErrorKind::Indeterminate };
    let (kind, message, code) = match error {
        sqlx::Error::Database(error) => {
            let code = error.code().and_then(|code| code.parse().ok()).unwrap_or(0);
            let (kind, what) = verdict(code, error.message(), lost);
            (kind, format!("{what} (SQLite {code})"), code)
        }
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. } => {
            let what =
                "a row is not in the format of this library; restore the run from a backup, or purge it";
            (ErrorKind::Corrupt, what.to_owned(), CORRUPT)
        }
        sqlx::Error::Configuration(_) => {
            (ErrorKind::Invalid, "the path is invalid; correct the store's URL".to_owned(), 0)
        }
        sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::InvalidData => {
            (ErrorKind::Invalid, "the path is not UTF-8, which SQLite needs; name another".to_owned(), 0)
        }
        _ => (lost, "the connection to the database ended; retry".to_owned(), 0),
    };
    SqliteStoreError { kind, message, cause: Some(error.to_string()), code }
}

/// Maps a code of SQLite to an error kind and advice. Uses the primary code, which is the low byte.
///
/// Within a transaction, every error except `IOERR` means that nothing was written. `IOERR` may come from the sync after the commit was written.
fn verdict(code: i32, message: &str, lost: ErrorKind) -> (ErrorKind, &'static str) {
    use ErrorKind::{Corrupt, Invalid, TooLarge, Unavailable, Unsupported};
    match code & 0xff {
        1 if message.contains("no such table") => {
            (Invalid, "the tables do not exist; call `setup`, or correct the path")
        }
        1 => (Unsupported, "SQLite rejected the statement; another version or program created the tables"),
        3 | 23 => (Unavailable, "permission denied; grant this process access to the file and its directory"),
        BUSY | 6 => (Unavailable, "another process holds the lock; nothing was written, retry"),
        7 => (Unavailable, "SQLite is out of memory; retry"),
        READ_ONLY => (Unavailable, "the database is read-only; make the file and its directory writable"),
        9 => (Unavailable, "the statement was interrupted; retry"),
        10 => (lost, "the disk failed; check it, then retry"),
        CORRUPT => {
            (Corrupt, "the database is damaged; run `PRAGMA integrity_check`, and restore it from a backup")
        }
        13 => {
            (Unavailable, "no space is left, or the database has `max_bytes`; free space, or raise the limit")
        }
        CANNOT_OPEN => (
            Unavailable,
            "cannot open the file; check its path, its permissions, and the number of open files",
        ),
        15 => (Unavailable, "too many processes opened the database at once; retry"),
        18 => (TooLarge, "a body exceeds SQLite's maximum; store the value elsewhere, and store a reference"),
        CONSTRAINT => (Corrupt, "an unexpected record has this number; restore the run from a backup"),
        26 => (
            Invalid,
            "the file is not an SQLite database; correct the path, or restore the file from a backup",
        ),
        _ => (lost, "SQLite failed; retry"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: SQLITE-16.
    #[test]
    fn only_a_failing_disk_leaves_a_commit_open() {
        let lost = ErrorKind::Indeterminate;
        for code in 1..=26 {
            let open = verdict(code, "", lost).0 == lost;
            assert_eq!(open, matches!(code, 2 | 4 | 10 | 12 | 16 | 17 | 20 | 21 | 22 | 24 | 25), "{code}");
            assert_eq!(verdict(code, "", lost).0, verdict(code | 3 << 8, "", lost).0, "{code} extended");
        }
        assert_eq!(verdict(10, "", ErrorKind::Unavailable).0, ErrorKind::Unavailable);
    }

    /// Guarantees: SQLITE-16.
    #[test]
    fn dropped_connection_is_indeterminate_only_for_writes() {
        assert_eq!(
            classify_error(&sqlx::Error::WorkerCrashed, SqliteCallEffect::Write).kind,
            ErrorKind::Indeterminate
        );
        assert_eq!(
            classify_error(&sqlx::Error::WorkerCrashed, SqliteCallEffect::Read).kind,
            ErrorKind::Unavailable
        );
    }
}

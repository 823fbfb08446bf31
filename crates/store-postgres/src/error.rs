//! The table that maps errors of the driver and the server to error kinds and advice.

use std::error::Error as StdError;
use std::fmt;

use ferrata_store::{Error, ErrorKind, RunKey};
use sqlx::postgres::PgDatabaseError;

/// The effect that a call with a lost connection may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostgresCallEffect {
    /// The call sent nothing, or only a read, so a lost reply has no effect.
    Read,
    /// The write may have been executed although the reply was lost.
    Write,
}

/// A classified error of the driver or of the server.
#[derive(Debug)]
pub(crate) struct PostgresStoreError {
    kind: ErrorKind,
    message: String,
    source: Option<ErrorCause>,
    obstacle: RetryReason,
}

/// The reason to send the statement again in another form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetryReason {
    /// The server refused a value. It may accept the other entries of the batch without that value.
    Values,
    /// Another transaction held a needed lock, or inserted the same key.
    OtherWriter,
    Other,
}

/// The code and the message of the server's or the driver's error, without the detail, which may contain values.
#[derive(Debug)]
struct ErrorCause(String);

impl fmt::Display for ErrorCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for ErrorCause {}

impl PostgresStoreError {
    /// Creates an error with the library's own message.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None, obstacle: RetryReason::Other }
    }

    #[cfg(test)]
    pub(crate) fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the server refused a value, so that it may accept the other entries of the batch.
    pub(crate) fn is_of_values(&self) -> bool {
        self.obstacle == RetryReason::Values
    }

    /// Returns whether the server rolled the statement back because it waited for another transaction, or because another transaction inserted a
    /// record with the same number.
    pub(crate) fn is_of_other_writers(&self) -> bool {
        self.obstacle == RetryReason::OtherWriter
    }

    /// Converts to the library's error.
    pub(crate) fn into_error(self, operation: &'static str) -> Error {
        let error = Error::new(self.kind, self.message).with_operation(operation);
        match self.source {
            Some(cause) => error.with_source(cause),
            None => error,
        }
    }

    /// Converts to the library's error, about a run.
    pub(crate) fn of_run(self, operation: &'static str, run: &RunKey) -> Error {
        self.into_error(operation).with_run(run)
    }

    /// Converts an error of the commit. The server then refuses rows of the application, by a constraint that it checks at the commit.
    pub(crate) fn at_commit(self) -> Self {
        match self.kind {
            ErrorKind::Corrupt => Self {
                kind: ErrorKind::Invalid,
                message: "a deferred constraint rejected the rows at the commit; correct the rows that the node writes".to_owned(),
                ..self
            },
            _ => self,
        }
    }

    /// Copies the error for another entry of the batch.
    pub(crate) fn copy(&self) -> Self {
        let source = self.source.as_ref().map(|cause| ErrorCause(cause.0.clone()));
        Self { kind: self.kind, message: self.message.clone(), source, obstacle: self.obstacle }
    }
}

/// Returns whether the connection is gone, so that the call may use another one.
pub(crate) fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(error) => {
            error.code().is_some_and(|code| matches!(verdict(&code).0, Verdict::Ended))
        }
        _ => false,
    }
}

/// Maps an error of the driver to an error kind.
pub(crate) fn fault(error: &sqlx::Error, call: PostgresCallEffect) -> PostgresStoreError {
    let lost = match call {
        PostgresCallEffect::Read => ErrorKind::Unavailable,
        PostgresCallEffect::Write => ErrorKind::Indeterminate,
    };
    let (kind, message) = match error {
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default().into_owned();
            let (verdict, what) = verdict(&code);
            let kind = match verdict {
                Verdict::Kind(kind) => *kind,
                Verdict::Ended => lost,
            };
            (kind, format!("{what} (SQLSTATE {code})"))
        }
        sqlx::Error::PoolTimedOut => (
            ErrorKind::Unavailable,
            "no connection was free in time, or the server accepts none; retry, allow more connections, or check that the server \
             runs"
                .to_owned(),
        ),
        sqlx::Error::PoolClosed => (ErrorKind::Closed, "the connection pool was closed; open the store again".to_owned()),
        sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::TimedOut => (
            lost,
            "the server did not answer within `response_timeout`, so the connection was closed; retry, and check the network"
                .to_owned(),
        ),
        sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed => {
            (lost, "the connection to the server was lost; retry".to_owned())
        }
        sqlx::Error::Protocol(_) => (
            lost,
            "the driver does not understand the reply of the server; behind a pooler with transaction pooling, set `prepared` to \
             false"
                .to_owned(),
        ),
        sqlx::Error::Tls(_) => (
            ErrorKind::Unsupported,
            "the server and this process share no encryption; check sslmode and the certificates".to_owned(),
        ),
        sqlx::Error::Configuration(_) => (
            ErrorKind::Invalid,
            "the connection settings are invalid; correct the store's URL".to_owned(),
        ),
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::TypeNotFound { .. } => (
            ErrorKind::Corrupt,
            "a table differs from the migrations of this library; compare them".to_owned(),
        ),
        sqlx::Error::Encode(_) => {
            (ErrorKind::TooLarge, "the values exceed one message; write fewer at once".to_owned())
        }
        _ => (lost, "the driver failed; retry".to_owned()),
    };
    let obstacle = match error {
        sqlx::Error::Encode(_) => RetryReason::Values,
        sqlx::Error::Database(error) => match error.code().unwrap_or_default() {
            code if code.starts_with("22") || code.starts_with("54") => RetryReason::Values,
            code if code == "55P03" || code == "40P01" || code == "23505" => RetryReason::OtherWriter,
            _ => RetryReason::Other,
        },
        _ => RetryReason::Other,
    };
    PostgresStoreError { kind, message, source: Some(cause(error)), obstacle }
}

/// Returns the error for a connection timeout, with the reason of the last attempt. Nothing was sent.
pub(crate) fn unreachable(error: &sqlx::Error, what: &str) -> PostgresStoreError {
    let refused = fault(error, PostgresCallEffect::Read);
    if refused.kind != ErrorKind::Unavailable {
        return refused;
    }
    let message = format!(
        "{what} within `acquire_timeout`; check that the server runs and that the network reaches it"
    );
    PostgresStoreError { message, ..refused }
}

fn cause(error: &sqlx::Error) -> ErrorCause {
    match error {
        sqlx::Error::Database(error) => match error.try_downcast_ref::<PgDatabaseError>() {
            Some(error) => ErrorCause(format!("{}: {}", error.code(), error.message())),
            None => ErrorCause("the server refused".to_owned()),
        },
        // Do not show the driver's text, which may repeat the settings.
        sqlx::Error::Configuration(_) => ErrorCause("the driver refused the settings".to_owned()),
        other => ErrorCause(other.to_string()),
    }
}

enum Verdict {
    /// The server rolled the statement back and returned the reason.
    Kind(ErrorKind),
    /// The server ended the session before, during or just after the statement.
    Ended,
}

/// Maps error codes to kinds and advice. The first matching row applies. A row has a code of five characters, or the class with which a code
/// begins.
///
/// If the server returns an error, it has rolled the statement back, so nothing was written. The only exception is an error that ends the session:
/// it may come after the commit and before the reply.
const TABLE: &[(&str, Verdict, &str)] = {
    use ErrorKind::{Corrupt, Invalid, TooLarge, Unavailable, Unsupported};
    use Verdict::{Ended, Kind};
    &[
        ("08", Ended, "the connection to the server was lost; retry"),
        ("0A", Kind(Unsupported), "the server cannot do this; use PostgreSQL 14 or later"),
        ("22", Kind(Invalid), "the server refused a value"),
        ("23", Kind(Corrupt), "an unexpected record has this number; restore the tables from a backup"),
        (
            "25006",
            Kind(Unavailable),
            "the server is read-only, as a standby or by its settings; connect to the primary, or wait for the failover",
        ),
        (
            "25P02",
            Kind(Invalid),
            "the transaction failed before this call; roll it back, and start a new one",
        ),
        ("25P03", Ended, "the transaction was idle for too long; start a new one"),
        ("25P04", Ended, "the transaction took too long; start a new one"),
        (
            "26",
            Kind(Unavailable),
            "the prepared statement is not on this connection; behind a pooler with transaction pooling, set `prepared` to false",
        ),
        ("28P01", Kind(Invalid), "the server refused the password; correct the store's URL"),
        ("28", Kind(Invalid), "the server rejects this user; correct the store's URL or pg_hba.conf"),
        ("3D000", Kind(Invalid), "the database does not exist; create it, or correct the store's URL"),
        ("3F000", Kind(Invalid), "the schema does not exist; call `setup`, or correct the schema"),
        (
            "40001",
            Kind(Unavailable),
            "the transaction conflicted with another one; nothing was written, retry",
        ),
        ("40P01", Kind(Unavailable), "the server ended a deadlock; nothing was written, retry"),
        ("40", Kind(Unavailable), "the server rolled back the transaction; retry"),
        (
            "42501",
            Kind(Invalid),
            "the user lacks permission; grant it the tables, or let another user run the migrations",
        ),
        ("42P01", Kind(Invalid), "the tables do not exist; call `setup`, or correct schema and prefix"),
        (
            "42703",
            Kind(Unsupported),
            "a table lacks a column; another version made it: call `setup`, or use that version",
        ),
        (
            "42P05",
            Kind(Unavailable),
            "the prepared statement already exists; behind a pooler with transaction pooling, set `prepared` to false",
        ),
        (
            "42",
            Kind(Unsupported),
            "the server rejected the statement; compare the tables with the migrations",
        ),
        ("53100", Kind(Unavailable), "the server's disk is full; free space"),
        ("53200", Kind(Unavailable), "the server is out of memory; retry, or write less at once"),
        (
            "53300",
            Kind(Unavailable),
            "the server has its maximum of connections; retry, or use smaller pools",
        ),
        ("53400", Kind(Unavailable), "the server reached a limit; retry, or raise the limit"),
        ("53", Kind(Unavailable), "the server is out of a resource; retry"),
        ("54", Kind(TooLarge), "a value exceeds a limit of the server; make it smaller"),
        ("55P03", Kind(Unavailable), "another transaction holds the lock; retry"),
        ("55", Kind(Unavailable), "the server cannot do this in its current state; retry"),
        (
            "57014",
            Kind(Unavailable),
            "a time limit or an operator cancelled the statement; nothing was written, retry",
        ),
        ("57P03", Kind(Unavailable), "the server is starting or stopping; retry"),
        ("57P04", Kind(Invalid), "the database was dropped; correct the store's URL"),
        ("57", Ended, "the server ended the session; retry"),
        ("58", Kind(Unavailable), "the server cannot read or write its files; check its log"),
        ("F0", Kind(Unavailable), "the server's configuration is invalid; check its log"),
        ("XX001", Kind(Corrupt), "the server found damaged data; check its log, and restore from a backup"),
        ("XX002", Kind(Corrupt), "the server found a damaged index; check its log, and rebuild the index"),
        ("XX", Kind(Unavailable), "the server had an internal error; check its log, and retry"),
    ]
};

fn verdict(code: &str) -> (&'static Verdict, &'static str) {
    const OTHER: &Verdict = &Verdict::Kind(ErrorKind::Unavailable);
    TABLE
        .iter()
        .find(|(start, ..)| code.starts_with(start))
        .map_or((OTHER, "the server rejected the request; check its log"), |(_, verdict, what)| {
            (verdict, what)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_hides_a_later_one() {
        for (place, (code, ..)) in TABLE.iter().enumerate() {
            let first = TABLE.iter().position(|(start, ..)| code.starts_with(start));
            assert_eq!(first, Some(place), "the row {code} is never reached");
        }
    }

    #[test]
    fn lost_connection_is_indeterminate_only_for_writes() {
        let lost = || sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert_eq!(fault(&lost(), PostgresCallEffect::Read).kind(), ErrorKind::Unavailable);
        assert_eq!(fault(&lost(), PostgresCallEffect::Write).kind(), ErrorKind::Indeterminate);
        assert!(is_lost(&lost()));
        assert_eq!(
            fault(&sqlx::Error::PoolTimedOut, PostgresCallEffect::Write).kind(),
            ErrorKind::Unavailable
        );
        assert!(!is_lost(&sqlx::Error::PoolTimedOut));
    }
}

//! The errors of the servers, and the table that maps them to error kinds and advice.

use ferrata_store::{Error, ErrorKind, RunKey, Seq};
use thiserror::Error as ThisError;

/// An error of this store.
#[derive(Clone, Debug, ThisError)]
pub(crate) enum NatsStoreError {
    /// There was no connection, so the call sent nothing.
    #[error(
        "cannot reach any NATS server ({why}); check that they run and that the network allows the connection"
    )]
    Unreachable { why: String },
    /// The servers reject the user.
    #[error("the NATS server rejects this user; correct the URL or the credentials")]
    Forbidden,
    /// The request was sent, but no reply came.
    #[error("{why} before the reply")]
    Lost { why: String },
    /// No stream accepts the subject, or no server has JetStream. Nothing was written.
    #[error(
        "the stream does not answer; it was deleted, its servers are starting, or JetStream is off; set up the store again, retry, or enable JetStream"
    )]
    Absent,
    /// The server refused the request, which had no effect.
    #[error("the server answered {code}, {description}; {}", meaning(*code, *status).1)]
    Refused { code: u64, status: u64, description: String },
    /// A message is larger than the server accepts.
    #[error(
        "the records of the append have {bytes} bytes with their headers, and one message has at most {most}; make them smaller, or raise the server's max_payload"
    )]
    TooLarge { bytes: usize, most: usize },
    /// The answer has a form that this call never returns.
    #[error(
        "{what}, which is not a reply of this store's server; check that no other program writes under its namespace"
    )]
    Strange { what: String },
    /// Stored data is damaged.
    #[error("{what}; restore the run from a backup")]
    Corrupt { what: String, seq: Option<Seq> },
    /// A newer version wrote the stored data.
    #[error("{what} of a newer version; upgrade this process")]
    Newer { what: String, seq: Option<Seq> },
    /// A stream cannot fulfill the contract with its settings.
    #[error("{what}")]
    Unfit { what: String },
    /// At each attempt, other callers had changed the run, or a replica was behind.
    #[error("{what}; retry")]
    Busy { what: &'static str },
}

/// The code of a refusal because the subject has another last message than expected.
pub(crate) const WRONG_LAST: u64 = 10_071;

/// The code of a refusal because a message that may become the last is still on its way to the replicas. The outcome of that message is not known
/// yet.
pub(crate) const IN_FLIGHT: u64 = 10_164;

/// The code for a missing message.
pub(crate) const NO_MESSAGE: u64 = 10_037;

/// The code for a missing stream.
pub(crate) const NO_STREAM: u64 = 10_059;

/// The code for a missing consumer.
pub(crate) const NO_CONSUMER: u64 = 10_014;

/// The code of a refusal because another stream has the subjects, or because a stream of this name is being created.
pub(crate) const OVERLAP: u64 = 10_065;

/// Maps error codes of JetStream to kinds and advice. A refused request never wrote anything.
const MEANINGS: &[(u64, ErrorKind, &str)] = &[
    (
        10_002,
        ErrorKind::Unavailable,
        "the account has no space left; raise its limits, because prune and purge need space, too",
    ),
    (
        10_005,
        // Servers that have just started may not know each other yet.
        ErrorKind::Unavailable,
        "the cluster has too few servers for the requested replicas; start more servers, or request fewer replicas",
    ),
    (10_008, ErrorKind::Unavailable, "the cluster lacks servers; check them"),
    (10_009, ErrorKind::Unavailable, "the cluster is electing a leader; retry"),
    (
        10_023,
        ErrorKind::Unavailable,
        "the server has no space left; raise its limits, because prune and purge need space, too",
    ),
    (
        10_026,
        ErrorKind::Unavailable,
        "the account or the stream has its maximum of consumers; raise max_consumers",
    ),
    (
        10_028,
        ErrorKind::Unavailable,
        "the server's memory for JetStream is full; raise max_mem, or list less often",
    ),
    (10_039, ErrorKind::Unsupported, "JetStream is disabled for this account; enable it"),
    (
        10_047,
        ErrorKind::Unavailable,
        "the server's space for JetStream is full; raise its max_file_store, because prune and purge need space, too",
    ),
    (
        10_052,
        ErrorKind::Unsupported,
        "the server rejects the stream's settings; docs/reference/store-nats.md lists the required settings",
    ),
    (10_054, ErrorKind::TooLarge, "make the record smaller, or raise max_msg_size of the stream"),
    (NO_STREAM, ErrorKind::Invalid, "set up the store, or use the namespace of its runs"),
    (
        OVERLAP,
        ErrorKind::Unsupported,
        "another stream has the subjects of this namespace; use another namespace, or remove the subjects from that stream",
    ),
    (10_074, ErrorKind::Unsupported, "replicas need a cluster; request 1 replica, or connect to a cluster"),
    (10_076, ErrorKind::Unsupported, "JetStream is disabled; start the server with JetStream"),
    (
        10_077,
        ErrorKind::Unavailable,
        "the stream is full; raise its max_bytes, because prune and purge need space, too",
    ),
    (10_109, ErrorKind::Unsupported, "the stream is sealed and takes no more records; use another namespace"),
    (
        10_110,
        ErrorKind::Unsupported,
        "the stream forbids an operation that the store needs; docs/reference/store-nats.md lists the required settings",
    ),
    (10_118, ErrorKind::Unavailable, "the stream is offline; check its servers"),
];

/// Returns the kind and the advice for a code. For a code that is not in the table the outcome is unknown. Status 503 is an exception: it means
/// that the server is not ready.
fn meaning(code: u64, status: u64) -> (ErrorKind, &'static str) {
    match MEANINGS.iter().find(|(known, ..)| *known == code) {
        Some((_, kind, remedy)) => (*kind, remedy),
        None if status == 503 => (ErrorKind::Unavailable, "check the server's log, and retry"),
        None => (ErrorKind::Indeterminate, "check the server's log"),
    }
}

/// The possible effect of a call whose reply was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NatsCallEffect {
    /// The record may have been written: retry the same append.
    Written,
    /// The call has no effect that matters: call again.
    None,
}

impl NatsStoreError {
    /// A call had to repeat its read too often.
    pub(crate) const CHANGES: Self = Self::Busy { what: "other processes kept changing the run" };

    pub(crate) fn lost(why: &str) -> Self {
        Self::Lost { why: why.to_owned() }
    }

    pub(crate) fn strange(what: impl Into<String>) -> Self {
        Self::Strange { what: what.into() }
    }

    pub(crate) fn corrupt(seq: Option<Seq>, what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), seq }
    }

    /// Returns the code of a refusal.
    pub(crate) fn code(&self) -> Option<u64> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    pub(crate) fn kind(&self, doubt: NatsCallEffect) -> ErrorKind {
        let kind = match self {
            Self::Unreachable { .. } | Self::Absent | Self::Busy { .. } => ErrorKind::Unavailable,
            Self::Lost { .. } => ErrorKind::Indeterminate,
            Self::Forbidden => ErrorKind::Invalid,
            Self::Refused { code, status, .. } => meaning(*code, *status).0,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Strange { .. } | Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::Newer { .. } | Self::Unfit { .. } => ErrorKind::Unsupported,
        };
        match (kind, doubt) {
            (ErrorKind::Indeterminate, NatsCallEffect::None) => ErrorKind::Unavailable,
            (kind, _) => kind,
        }
    }

    pub(crate) fn into_error(self, operation: &'static str, doubt: NatsCallEffect) -> Error {
        let error = Error::new(self.kind(doubt), self.to_string()).with_operation(operation);
        match &self {
            Self::Corrupt { seq: Some(seq), .. } | Self::Newer { seq: Some(seq), .. } => error.with_seq(*seq),
            _ => error,
        }
    }

    pub(crate) fn of_run(self, operation: &'static str, run: &RunKey, doubt: NatsCallEffect) -> Error {
        self.into_error(operation, doubt).with_run(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: NATS-3.
    #[test]
    fn only_possible_writes_are_indeterminate() {
        let refused = |code, status| NatsStoreError::Refused { code, status, description: "why".to_owned() };
        let lost = NatsStoreError::Lost { why: "the connection was lost".to_owned() };
        for (fault, write, read) in [
            (lost, ErrorKind::Indeterminate, ErrorKind::Unavailable),
            (NatsStoreError::Absent, ErrorKind::Unavailable, ErrorKind::Unavailable),
            (refused(10_077, 503), ErrorKind::Unavailable, ErrorKind::Unavailable),
            (refused(NO_STREAM, 404), ErrorKind::Invalid, ErrorKind::Invalid),
            (refused(10_054, 400), ErrorKind::TooLarge, ErrorKind::TooLarge),
            (refused(1, 503), ErrorKind::Unavailable, ErrorKind::Unavailable),
            (refused(1, 500), ErrorKind::Indeterminate, ErrorKind::Unavailable),
        ] {
            assert_eq!(
                (fault.kind(NatsCallEffect::Written), fault.kind(NatsCallEffect::None)),
                (write, read),
                "{fault}"
            );
        }
    }
}

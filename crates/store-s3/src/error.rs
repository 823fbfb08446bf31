//! The errors of this store, and their conversion to errors of the library.

use ferrata_store::{At, Error, ErrorKind, HeadRef, Listing, RunKey, Seq, refusal};

use crate::codes::{CodeVerdict, RefusalKind, verdict};

/// The operation of a request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum S3Operation {
    Get,
    Put,
    Delete,
    List,
    Versions,
}

impl S3Operation {
    const fn words(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Versions => "list the versions of",
        }
    }
}

/// An error of this store. None contains a header, an address or a credential.
#[derive(Debug, thiserror::Error)]
pub(crate) enum S3StoreError {
    #[error("cannot {} {key}: {} ({code}, status {status})", doing.words(), verdict(code, *status).remedy)]
    Refused { doing: S3Operation, key: String, status: u16, code: String },
    #[error("cannot {} {key}: {what}; check the network and the endpoint, then retry", doing.words())]
    Unreached { doing: S3Operation, key: String, what: String, was_sent: bool },
    #[error(
        "found no credentials ({what}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role"
    )]
    NoCredentials { what: String },
    #[error("cannot build the request: {what}; correct the store's URL or options")]
    Unmakeable { what: String },
    #[error("the answer for {key} is invalid: {what}; check the endpoint")]
    Nonsense { key: String, what: String },
    #[error("{0}; retry with the same records")]
    Unsure(Box<S3StoreError>),
    #[error("{key} is damaged: {what}; restore the run from a backup, or purge it")]
    Damaged { key: String, seq: Option<Seq>, what: String },
    #[error("{key} is missing; restore the run from a backup, or purge it")]
    Missing { key: String, seq: Option<Seq> },
    #[error("{key} has version {found}, and this version reads {known}; upgrade this process")]
    Newer { key: String, found: u32, known: u32 },
    #[error("{key} is of an unreleased version, which no release reads; use an empty prefix")]
    Unreleased { key: String },
    #[error(
        "{key} has a record of format {found}, and this version reads up to {known}; upgrade this process"
    )]
    NewerRecord { key: String, seq: Option<Seq>, found: u64, known: u16 },
    #[error("the server does not support conditional writes: {what}; use a server that does")]
    Unfit { what: String },
    #[error("{}", refusal::differs(*expected, *actual))]
    Conflict { expected: Option<HeadRef>, actual: Option<HeadRef> },
    #[error("{}", refusal::NO_RUN)]
    NoRun,
    #[error("the run has no {at}; it has records {first} to {last}")]
    NoRecord { at: At, first: Seq, last: Seq },
    #[error("the records have {len} bytes, and an append has at most {max}; write fewer or smaller records")]
    Large { len: u64, max: u64 },
    #[error("{}", Listing::foreign().message())]
    Cursor,
    #[error("{}", refusal::DOUBLED)]
    Doubled,
    #[error("{what} kept changing during the read; retry")]
    Restless { what: String },
    #[error("the run was pruned past {key} before its write was confirmed in the log")]
    Passed { key: String },
    #[error("{0}")]
    Checked(#[source] Error),
}

impl S3StoreError {
    fn verdict(&self) -> Option<CodeVerdict> {
        match self {
            Self::Refused { code, status, .. } => Some(verdict(code, *status)),
            _ => None,
        }
    }

    /// Returns the outcome of the failed request.
    pub(crate) fn sort(&self) -> RefusalKind {
        match self {
            Self::Unreached { was_sent: true, .. } | Self::Nonsense { .. } | Self::Unsure(_) => {
                RefusalKind::Unsure
            }
            Self::Unreached { .. } | Self::Restless { .. } => RefusalKind::Busy,
            _ => self.verdict().map_or(RefusalKind::Refused, |verdict| verdict.sort),
        }
    }

    /// Returns whether the data read is damaged, which a concurrent prune or purge may explain.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Missing { .. })
    }

    /// Returns whether the fault concerns only this run, so that a listing continues with other runs.
    pub(crate) fn is_of_run(&self) -> bool {
        self.is_damage() || matches!(self, Self::Newer { .. } | Self::NewerRecord { .. })
    }

    /// Returns whether the server refuses an object of the run, or the run changes constantly. If only this run is affected, a listing continues
    /// with other runs.
    pub(crate) fn may_be_of_run(&self) -> bool {
        matches!(self, Self::Refused { doing: S3Operation::Get, status: 403, .. } | Self::Restless { .. })
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused { .. } => self.verdict().map_or(ErrorKind::Unavailable, |verdict| verdict.kind),
            Self::Unreached { .. } | Self::Nonsense { .. } | Self::Restless { .. } | Self::Passed { .. } => {
                ErrorKind::Unavailable
            }
            Self::Unsure(_) => ErrorKind::Indeterminate,
            Self::Damaged { .. } | Self::Missing { .. } => ErrorKind::Corrupt,
            Self::Newer { .. } | Self::Unreleased { .. } | Self::NewerRecord { .. } | Self::Unfit { .. } => {
                ErrorKind::Unsupported
            }
            Self::Conflict { .. } => ErrorKind::Conflict,
            Self::NoRun | Self::NoRecord { .. } => ErrorKind::NotFound,
            Self::NoCredentials { .. } | Self::Unmakeable { .. } | Self::Cursor | Self::Doubled => {
                ErrorKind::Invalid
            }
            Self::Large { .. } => ErrorKind::TooLarge,
            Self::Checked(error) => error.kind(),
        }
    }

    fn seq(&self) -> Option<Seq> {
        match self {
            Self::Damaged { seq, .. } | Self::Missing { seq, .. } | Self::NewerRecord { seq, .. } => *seq,
            Self::NoRecord { at: At::Seq(seq), .. } => Some(*seq),
            _ => None,
        }
    }

    /// Converts to the library's error for an operation on `run`.
    pub(crate) fn of_run(self, operation: &'static str, run: &RunKey) -> Error {
        match self {
            // The error already names its run and record.
            Self::Checked(error) => error.with_operation(operation),
            fault => Error::from(fault).with_operation(operation).with_run(run),
        }
    }
}

impl From<S3StoreError> for Error {
    fn from(fault: S3StoreError) -> Self {
        let mut error = Error::new(fault.kind(), fault.to_string());
        if let Some(seq) = fault.seq() {
            error = error.with_seq(seq);
        }
        match fault {
            S3StoreError::Checked(error) => error,
            S3StoreError::Conflict { actual, .. } => error.with_actual_head(actual),
            _ => error,
        }
    }
}

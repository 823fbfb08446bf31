//! The exit codes of the command, in one table.

use std::process::ExitCode;

use ferrata::ErrorKind;
use ferrata::RunStatus;

/// The reason of an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitReason {
    /// The command succeeded.
    Done,
    /// The run failed, or a check found a problem.
    RunFailed,
    /// The command line is wrong.
    Usage,
    /// A pipeline file is invalid.
    InvalidFile,
    /// The run, record, question or file does not exist.
    NotFound,
    /// The run waits for an answer or a message.
    Waiting,
    /// The run was cancelled.
    Cancelled,
    /// The command reached the limit of `--timeout`.
    TimedOut,
    /// The command met a conflict: another process drives the run, its status does not allow the command, its graph changed, or an id is already
    /// used.
    Conflict,
    /// The store or the command itself failed.
    Internal,
    /// The person at the terminal pressed Ctrl-C.
    Interrupted,
}

impl ExitReason {
    /// All reasons, in the order of the codes.
    pub(crate) const ALL: [Self; 11] = [
        Self::Done,
        Self::RunFailed,
        Self::Usage,
        Self::InvalidFile,
        Self::NotFound,
        Self::Waiting,
        Self::Cancelled,
        Self::TimedOut,
        Self::Conflict,
        Self::Internal,
        Self::Interrupted,
    ];

    /// Returns the exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::RunFailed => 1,
            Self::Usage => 2,
            Self::InvalidFile => 3,
            Self::NotFound => 4,
            Self::Waiting => 5,
            Self::Cancelled => 6,
            Self::TimedOut => 7,
            Self::Conflict => 8,
            Self::Internal => 70,
            Self::Interrupted => 130,
        }
    }

    /// Describes the code in a few words.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::RunFailed => "the run failed, or a check found something",
            Self::Usage => "the command line is wrong",
            Self::InvalidFile => "a pipeline's file is wrong",
            Self::NotFound => "no such run, record, question or file",
            Self::Waiting => "the run waits for an answer or a message; nothing is lost",
            Self::Cancelled => "the run was cancelled",
            Self::TimedOut => "--timeout expired; the run continues",
            Self::Conflict => "conflict with another process, the run's status, a changed graph or a used id",
            Self::Internal => "the store or the command itself failed",
            Self::Interrupted => "Ctrl-C; recorded results are kept",
        }
    }

    /// Returns the exit reason for an error of this kind.
    pub(crate) fn for_error(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Invalid | ErrorKind::TooLarge => Self::Usage,
            ErrorKind::AlreadyExists
            | ErrorKind::Conflict
            | ErrorKind::Fenced
            | ErrorKind::GraphChanged
            | ErrorKind::WrongStatus => Self::Conflict,
            // Unavailable, Indeterminate, Unsupported, Corrupt, Closed, and unknown kinds.
            _ => Self::Internal,
        }
    }

    /// Returns the exit reason of a command that waits for a run, from the status of the run. Returns `None` for a run in progress.
    pub(crate) fn for_status(status: RunStatus) -> Option<Self> {
        match status {
            RunStatus::Completed => Some(Self::Done),
            RunStatus::Failed => Some(Self::RunFailed),
            RunStatus::Cancelled => Some(Self::Cancelled),
            RunStatus::Interrupted | RunStatus::AwaitingInput => Some(Self::Waiting),
            _ => None,
        }
    }
}

impl From<ExitReason> for ExitCode {
    fn from(exit: ExitReason) -> Self {
        exit.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: CLI-2.
    #[test]
    fn each_kind_of_error_has_an_exit_code() {
        let told: Vec<String> = ErrorKind::ALL
            .iter()
            .map(|&kind| format!("{kind} {}", ExitReason::for_error(kind).code()))
            .collect();
        let expected = [
            "NOT_FOUND 4",
            "ALREADY_EXISTS 8",
            "CONFLICT 8",
            "FENCED 8",
            "UNAVAILABLE 70",
            "INDETERMINATE 70",
            "UNSUPPORTED 70",
            "INVALID 2",
            "TOO_LARGE 2",
            "CORRUPT 70",
            "GRAPH_CHANGED 8",
            "WRONG_STATUS 8",
            "CLOSED 70",
        ];
        assert_eq!(told, expected);
    }

    /// Guarantees: CLI-2.
    #[test]
    fn exit_codes_differ_and_errors_are_nonzero() {
        let codes: std::collections::BTreeSet<u8> = ExitReason::ALL.iter().map(|exit| exit.code()).collect();
        assert_eq!(codes.len(), ExitReason::ALL.len());
        assert!(ErrorKind::ALL.iter().all(|&kind| ExitReason::for_error(kind) != ExitReason::Done));
    }
}

//! The errors of file operations, and the table that maps them to the error kinds of the library.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferrata_store::{At, Error, ErrorKind, HeadRef, Listing, RunKey, Seq, refusal};
use rustix::io::Errno;

use crate::fd_limits::is_exhaustion;

/// The operation on a file that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileOperation {
    Open,
    Read,
    Write,
    Cut,
    Sync,
    Lock,
    MakeDir,
    Rename,
    Remove,
    List,
    /// Setup of the root. If the system refuses it, the setting is wrong.
    SetUp,
}

impl FileOperation {
    const fn words(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write to",
            Self::Cut => "shorten",
            Self::Sync => "sync",
            Self::Lock => "lock",
            Self::MakeDir => "make the directory",
            Self::Rename => "give its name to",
            Self::Remove => "remove",
            Self::List => "list",
            Self::SetUp => "set up",
        }
    }
}

/// An error of this store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FsStoreError {
    #[error("cannot {} {}: {}", doing.words(), path.display(), remedy(*doing, source))]
    Io { doing: FileOperation, path: PathBuf, source: io::Error },
    #[error(
        "it is unknown whether {} is durable; retry with the same records, and check the disk",
        path.display()
    )]
    Unsure { path: PathBuf, source: io::Error },
    #[error(
        "another process has held the lock on {} for {waited:?}; check for a stopped process, or retry",
        path.display()
    )]
    Locked { path: PathBuf, waited: Duration },
    #[error("{} was replaced repeatedly while it was opened; retry", path.display())]
    Restless { path: PathBuf },
    #[error(
        "{} is missing: it was removed, or its file system is not mounted; restore it, or start a new process on it to create \
         an empty store",
        path.display()
    )]
    Gone { path: PathBuf },
    #[error(
        "the folder {} is missing: it was moved or removed, or its file system is not mounted; restore it, or create an empty \
         folder to declare its content purged",
        path.display()
    )]
    FolderGone { path: PathBuf },
    #[error("{} is damaged at byte {at}: {what}; restore the run from a backup, or purge it", path.display())]
    Damaged { path: PathBuf, at: u64, seq: Option<Seq>, what: String },
    #[error(
        "the journal {} is damaged at byte {at}: {what}; restore the folder from a backup, or move the file away to \
         continue without the records that only this journal holds: those of runs that were written just before the machine stopped",
        path.display()
    )]
    DamagedJournal { path: PathBuf, at: usize, what: String },
    #[error(
        "{} may lack its newest records, which are in a journal, and recovery failed; correct the cause, which the program's log names",
        path.display()
    )]
    Withheld { path: PathBuf },
    #[error("{} has layout {found}, and this version reads up to {known}; upgrade this process", path.display())]
    NewerLayout { path: PathBuf, found: u64, known: u64 },
    #[error(
        "{} belongs to a folder of an unreleased version, which no release reads; move the folder away, and start with an empty folder",
        path.display()
    )]
    Unreleased { path: PathBuf },
    #[error("{} has a line of version {found}, and this version reads up to {known}; upgrade this process", path.display())]
    NewerRecord { path: PathBuf, seq: Option<Seq>, found: u64, known: u64 },
    #[error(
        "the file system of {} ignores case in names; use a case-sensitive file system",
        path.display()
    )]
    FoldsCase { path: PathBuf },
    #[error(
        "locks on {} do not exclude other processes, as on many network file systems; use a local file system",
        path.display()
    )]
    NoLocks { path: PathBuf },
    #[error("{}", refusal::differs(*expected, *actual))]
    Conflict { expected: Option<HeadRef>, actual: Option<HeadRef> },
    #[error("{}", refusal::NO_RUN)]
    NoRun,
    #[error("the run has no {at}; it has records {first} to {last}")]
    NoRecord { at: At, first: Seq, last: Seq },
    #[error(
        "the body has {len} bytes, and a line has at most {max}; store the value elsewhere, and store a reference"
    )]
    LargeBody { seq: Seq, len: usize, max: usize },
    #[error("{}", Listing::foreign().message())]
    Cursor,
    #[error("the async runtime shut down during the operation; retry")]
    GivenUp,
    #[error("{0}")]
    Refused(#[source] Error),
}

/// Returns the error kind for an error of the system, and the advice for the caller.
fn verdict(doing: FileOperation, source: &io::Error) -> (ErrorKind, &'static str) {
    use io::ErrorKind as Io;
    match source.kind() {
        Io::StorageFull | Io::QuotaExceeded => {
            (ErrorKind::Unavailable, "no space is left; free space on that file system, or raise the quota")
        }
        Io::FileTooLarge => (
            ErrorKind::TooLarge,
            "the file may not grow further; raise the limit on file sizes, or prune the run",
        ),
        Io::Unsupported => (
            ErrorKind::Unsupported,
            "the file system does not support the operation; use a local file system with locks",
        ),
        Io::PermissionDenied | Io::ReadOnlyFilesystem if doing == FileOperation::SetUp => (
            ErrorKind::Invalid,
            "it is not writable; use another directory, or grant this process permission",
        ),
        Io::PermissionDenied => {
            (ErrorKind::Unavailable, "permission denied; grant this process permission, then retry")
        }
        Io::ReadOnlyFilesystem => {
            (ErrorKind::Unavailable, "the file system is read-only; remount it for writing, then retry")
        }
        _ if is_link(source) => {
            (ErrorKind::Corrupt, "the store does not follow links in its directory; remove the link")
        }
        Io::IsADirectory => {
            (ErrorKind::Corrupt, "expected a file, and found a directory; move the directory away")
        }
        Io::NotADirectory => {
            (ErrorKind::Corrupt, "expected a directory, and found a file; move the file away")
        }
        Io::NotFound if doing == FileOperation::SetUp => {
            (ErrorKind::Invalid, "the parent directory does not exist; create it, or use another path")
        }
        _ if is_exhaustion(source) => {
            (ErrorKind::Unavailable, "too many files are open; lower `open_files` or raise the limit")
        }
        _ => (ErrorKind::Unavailable, "check the disk, then retry"),
    }
}

/// Returns whether an open failed because the file's name is a link, or because the file has another name.
fn is_link(source: &io::Error) -> bool {
    [Errno::LOOP, Errno::MLINK].iter().any(|link| source.raw_os_error() == Some(link.raw_os_error()))
}

fn remedy(doing: FileOperation, source: &io::Error) -> &'static str {
    verdict(doing, source).1
}

impl FsStoreError {
    pub(crate) fn io(doing: FileOperation, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.into(), source }
    }

    pub(crate) fn damaged(path: &Path, at: u64, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.into(), at, seq: None, what: what.into() }
    }

    /// Sets the number of the record, if the error had only the offset.
    pub(crate) fn with_seq(mut self, number: Seq) -> Self {
        if let Self::Damaged { seq, .. } | Self::NewerRecord { seq, .. } = &mut self {
            seq.get_or_insert(number);
        }
        self
    }

    /// Returns whether the file does not exist.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns whether this process has too many open files. The error says nothing about this file.
    pub(crate) fn is_exhaustion(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_exhaustion(source))
    }

    /// Returns whether this process lacks the permission.
    pub(crate) fn is_of_permission(&self) -> bool {
        let kind = if let Self::Io { source, .. } = self { source.kind() } else { return false };
        matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    }

    /// Returns whether reading a directory's names failed.
    pub(crate) fn is_of_listing(&self) -> bool {
        matches!(self, Self::Io { doing: FileOperation::List, .. })
    }

    /// Returns whether the path of a directory names a file instead.
    pub(crate) fn is_no_directory(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotADirectory)
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { doing, source, .. } => verdict(*doing, source).0,
            Self::Unsure { .. } | Self::GivenUp => ErrorKind::Indeterminate,
            Self::Locked { .. }
            | Self::Restless { .. }
            | Self::Gone { .. }
            | Self::FolderGone { .. }
            | Self::Withheld { .. } => ErrorKind::Unavailable,
            Self::Damaged { .. } | Self::DamagedJournal { .. } => ErrorKind::Corrupt,
            Self::NewerLayout { .. }
            | Self::Unreleased { .. }
            | Self::NewerRecord { .. }
            | Self::FoldsCase { .. }
            | Self::NoLocks { .. } => ErrorKind::Unsupported,
            Self::Conflict { .. } => ErrorKind::Conflict,
            Self::NoRun | Self::NoRecord { .. } => ErrorKind::NotFound,
            Self::Cursor => ErrorKind::Invalid,
            Self::LargeBody { .. } => ErrorKind::TooLarge,
            Self::Refused(error) => error.kind(),
        }
    }

    fn seq(&self) -> Option<Seq> {
        match self {
            Self::Damaged { seq, .. } | Self::NewerRecord { seq, .. } => *seq,
            Self::LargeBody { seq, .. } => Some(*seq),
            Self::NoRecord { at: At::Seq(seq), .. } => Some(*seq),
            _ => None,
        }
    }

    /// Converts the error to the library's error for an operation on `run`.
    pub(crate) fn of_run(self, operation: &'static str, run: &RunKey) -> Error {
        match self {
            // The error already names its run and record.
            Self::Refused(error) => error.with_operation(operation),
            fault => Error::from(fault).with_operation(operation).with_run(run),
        }
    }
}

impl From<FsStoreError> for Error {
    fn from(fault: FsStoreError) -> Self {
        let mut error = Error::new(fault.kind(), fault.to_string());
        if let Some(seq) = fault.seq() {
            error = error.with_seq(seq);
        }
        match fault {
            FsStoreError::Refused(error) => error,
            FsStoreError::Conflict { actual, .. } => error.with_actual_head(actual),
            FsStoreError::Io { source, .. } | FsStoreError::Unsure { source, .. } => {
                error.with_source(source)
            }
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests;

//! Checks the table that maps faults to error kinds, row by row.

use std::error::Error as _;

use ferrata_store::RecordId;

use super::*;

fn io(doing: FileOperation, source: io::Error) -> FsStoreError {
    FsStoreError::io(doing, Path::new("/r/runs/t/a.jsonl"), source)
}

#[test]
fn system_errors_have_kind_and_remedy() {
    use ErrorKind::{Corrupt, Invalid, TooLarge, Unavailable, Unsupported};
    // The numbers of Linux. Other systems number the other errors differently; those are tested by their portable kind below.
    let (eperm, eio, emfile, enfile, eacces, eexist) = (1, 5, 24, 23, 13, 17);
    let (enotdir, eisdir, efbig, enospc, erofs, edquot) = (20, 21, 27, 28, 30, 122);
    let mut rows = vec![
        (FileOperation::Write, eio, Unavailable, "check the disk"),
        (FileOperation::Read, eio, Unavailable, "check the disk"),
        (FileOperation::Open, emfile, Unavailable, "too many files"),
        (FileOperation::List, enfile, Unavailable, "too many files"),
        (FileOperation::Open, eacces, Unavailable, "permission denied"),
        (FileOperation::Remove, eperm, Unavailable, "permission denied"),
        (FileOperation::SetUp, eacces, Invalid, "not writable"),
        (FileOperation::SetUp, eexist, Unavailable, "check the disk"),
        (FileOperation::MakeDir, enotdir, Corrupt, "found a file"),
    ];
    if cfg!(target_os = "linux") {
        rows.extend([
            (FileOperation::Open, eisdir, Corrupt, "found a directory"),
            (FileOperation::Write, efbig, TooLarge, "may not grow"),
            (FileOperation::Write, enospc, Unavailable, "no space"),
            (FileOperation::Write, edquot, Unavailable, "no space"),
            (FileOperation::Write, erofs, Unavailable, "read-only"),
            (FileOperation::SetUp, erofs, Invalid, "not writable"),
        ]);
    }
    for (doing, number, kind, remedy) in rows {
        let error = Error::from(io(doing, io::Error::from_raw_os_error(number)));
        assert_eq!(error.kind(), kind, "{doing:?} {number}");
        assert!(error.message().contains(remedy), "{doing:?} {number}: {error}");
        assert!(error.message().contains("/r/runs/t/a.jsonl"), "{error}");
        assert!(error.source().is_some());
    }
    for (source, kind) in [
        (io::ErrorKind::StorageFull, Unavailable),
        (io::ErrorKind::QuotaExceeded, Unavailable),
        (io::ErrorKind::FileTooLarge, TooLarge),
        (io::ErrorKind::ReadOnlyFilesystem, Unavailable),
        (io::ErrorKind::IsADirectory, Corrupt),
        (io::ErrorKind::NotADirectory, Corrupt),
        (io::ErrorKind::Unsupported, Unsupported),
        (io::ErrorKind::TimedOut, Unavailable),
    ] {
        assert_eq!(Error::from(io(FileOperation::Lock, source.into())).kind(), kind, "{source:?}");
    }
    assert_eq!(Error::from(io(FileOperation::SetUp, io::ErrorKind::NotFound.into())).kind(), Invalid);
    for doing in [FileOperation::Cut, FileOperation::Sync, FileOperation::Rename, FileOperation::MakeDir] {
        let shown = io(doing, io::ErrorKind::TimedOut.into()).to_string();
        assert!(shown.starts_with(&format!("cannot {} /r", doing.words())), "{shown}");
    }
}

#[test]
fn store_errors_have_kind_and_record() {
    let path = || PathBuf::from("/r/runs/t/a.jsonl");
    let seq = Seq::new(7);
    let head = HeadRef { seq, id: RecordId::from_uuid(*crate::tests::author::fresh_id().as_uuid()) };
    let source = || io::Error::from(io::ErrorKind::TimedOut);
    let refused = Error::new(ErrorKind::Invalid, "bad").with_seq(seq);
    let rows = [
        (FsStoreError::Unsure { path: path(), source: source() }, ErrorKind::Indeterminate, None),
        (FsStoreError::GivenUp, ErrorKind::Indeterminate, None),
        (FsStoreError::Locked { path: path(), waited: Duration::from_secs(1) }, ErrorKind::Unavailable, None),
        (FsStoreError::Restless { path: path() }, ErrorKind::Unavailable, None),
        (FsStoreError::damaged(&path(), 9, "wrong"), ErrorKind::Corrupt, None),
        (FsStoreError::damaged(&path(), 9, "wrong").with_seq(seq), ErrorKind::Corrupt, Some(seq)),
        (FsStoreError::NewerLayout { path: path(), found: 2, known: 1 }, ErrorKind::Unsupported, None),
        (FsStoreError::Unreleased { path: path() }, ErrorKind::Unsupported, None),
        (
            FsStoreError::NewerRecord { path: path(), seq: Some(seq), found: 2, known: 1 },
            ErrorKind::Unsupported,
            Some(seq),
        ),
        (FsStoreError::FoldsCase { path: path() }, ErrorKind::Unsupported, None),
        (FsStoreError::NoLocks { path: path() }, ErrorKind::Unsupported, None),
        (FsStoreError::Conflict { expected: None, actual: Some(head) }, ErrorKind::Conflict, None),
        (FsStoreError::NoRun, ErrorKind::NotFound, None),
        (FsStoreError::NoRecord { at: At::Seq(seq), first: seq, last: seq }, ErrorKind::NotFound, Some(seq)),
        (
            FsStoreError::NoRecord { at: At::Record(head.id), first: seq, last: seq },
            ErrorKind::NotFound,
            None,
        ),
        (FsStoreError::LargeBody { seq, len: 2, max: 1 }, ErrorKind::TooLarge, Some(seq)),
        (FsStoreError::Cursor, ErrorKind::Invalid, None),
        (FsStoreError::Refused(refused), ErrorKind::Invalid, Some(seq)),
    ];
    let run = crate::tests::author::key("a");
    for (fault, kind, seq) in rows {
        let shown = fault.to_string();
        let error = fault.of_run("store.append", &run);
        assert_eq!((error.kind(), error.seq()), (kind, seq), "{shown}");
        assert_eq!(error.operation(), Some("store.append"));
        assert!(!shown.ends_with('.') && shown.chars().next().is_some_and(|c| !c.is_uppercase()), "{shown}");
        if kind != ErrorKind::Invalid {
            assert_eq!(error.run(), Some(&run), "{shown}");
        }
    }
}

#[test]
fn a_conflict_says_what_was_found() {
    let head = HeadRef { seq: Seq::new(7), id: crate::tests::author::fresh_id() };
    for (expected, actual) in [(Some(head), None), (None, Some(head)), (Some(head), Some(head))] {
        let error = Error::from(FsStoreError::Conflict { expected, actual });
        assert_eq!(error.actual_head(), Some(actual));
        let names_it = error.message().contains("record 7");
        assert!(names_it, "{error}");
    }
}

//! A store on a read-only file system, such as a backup or a snapshot.

use std::path::Path;
use std::process::Command;

use ferrata_store::{CheckpointStore, ErrorKind, Page, RunId, RunQuery};
use ferrata_store_sqlite::{SqliteOptions, SqliteStore};
use ferrata_testing::{Log, SeqIds};

use crate::support::{copy, execute, is_kept, is_refused, place};

/// The environment variable for the path of the mount, in the process that has it.
const MOUNTED: &str = "FERRATA_SQLITE_MOUNTED";

/// If set, the test fails on a machine that cannot mount file systems.
const REQUIRED: &str = "FERRATA_MOUNTS";

/// The log of the run in both files. It is the same in both processes.
fn log() -> Log {
    Log::new(RunId::new("r").unwrap()).with_ids(std::sync::Arc::new(SeqIds::new(1)))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Writes a backup, a file with its last records in the write-ahead log, and a file of a closed store.
async fn write(folder: &Path) {
    let place = place(SqliteOptions::default()).await;
    let mut log = log();
    log.write(&place.store, 3).await;
    place.store.back_up(folder.join("whole.db")).await.unwrap();
    copy(&place.path(), &folder.join("pending.db"));
    copy(&place.log_path(), &folder.join("pending.db-wal"));
    execute(&mut place.connection().await, "PRAGMA wal_checkpoint(TRUNCATE)").await;
    assert_eq!(std::fs::metadata(place.log_path()).unwrap().len(), 0);
    copy(&place.path(), &folder.join("closed.db"));
}

/// Reads the files on a read-only mount, in the process that has the mount.
async fn read(folder: &Path) {
    let open = |name: &str| {
        SqliteStore::open(folder.join(name), SqliteOptions::default().with_read_only(true)).unwrap()
    };
    let mut written = log();
    let entry = written.next(3);
    written.note_append(&entry);
    for name in ["whole.db", "closed.db"] {
        let store = open(name);
        store.setup().await.unwrap();
        is_kept(&store, &written).await;
        assert_eq!(store.runs(&RunQuery::default(), Page::default()).await.unwrap().items.len(), 1);
        is_refused(&store, &written, ErrorKind::Unavailable).await;
    }

    let pending = open("pending.db");
    for refused in [pending.setup().await.map(drop), pending.head(&written.key).await.map(drop)] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused:?}");
        assert!(refused.message().contains("pending.db-wal holds records"), "{refused:?}");
    }
}

/// A store on a read-only file system can be read. It is refused if its write-ahead log is not empty, because the data without that log would be
/// outdated.
///
/// Guarantees: SQLITE-15.
#[test]
fn read_only_mount_is_read() {
    const MOUNT: &str = "mount -t tmpfs -o size=10m none \"$1\" && cp \"$0\"/* \"$1\" && mount -o remount,ro \"$1\" && shift && exec \"$@\"";
    if let Ok(mounted) = std::env::var(MOUNTED) {
        runtime().block_on(read(Path::new(&mounted)));
        return;
    }
    let (files, mounted) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    runtime().block_on(write(files.path()));
    let ways = [&["--mount"][..], &["--user", "--map-root-user", "--mount"]];
    let can = |way: &&&[&str]| {
        Command::new("unshare")
            .args(**way)
            .args(["mount", "-t", "tmpfs", "none"])
            .arg(mounted.path())
            .status()
            .is_ok_and(|ended| ended.success())
    };
    let Some(way) = ways.iter().find(can) else {
        assert_ne!(
            std::env::var(REQUIRED).as_deref(),
            Ok("required"),
            "this machine cannot mount a file system"
        );
        println!("NOT TESTED: no file system can be mounted here");
        return;
    };
    let ended = Command::new("unshare")
        .args(*way)
        .args(["sh", "-c", MOUNT])
        .args([files.path(), mounted.path()])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "read_only_mount::read_only_mount_is_read", "--nocapture"])
        .env(MOUNTED, mounted.path())
        .status()
        .unwrap();
    assert!(ended.success(), "the reading process failed; see its output above");
}

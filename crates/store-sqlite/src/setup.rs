//! Prepares the file: creates its directory and its tables, and checks that the file system supports what the store needs.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use ferrata_store::ErrorKind;
use sqlx::sqlite::SqliteConnection;

use crate::error::{SqliteCallEffect, SqliteStoreError, classify_error};

/// The script that creates the tables. To run it again changes nothing.
pub(crate) const LAYOUT: &str = include_str!("layout.sql");

/// Creates the directory of the file and makes it durable. Refuses a network file system: there, processes of two machines do not see each other's
/// locks and shared memory.
pub(crate) fn make_directory(path: &Path, read_only: bool) -> Result<(), SqliteStoreError> {
    let Some(directory) = path.parent() else {
        return Err(SqliteStoreError::new(
            ErrorKind::Invalid,
            "the path names no file; correct the store's URL",
        ));
    };
    let failed = |error: &io::Error| {
        let message = format!("cannot create or read the directory {}: {error}", directory.display());
        SqliteStoreError::new(ErrorKind::Invalid, message)
    };
    if !read_only && !directory.is_dir() {
        fs::create_dir_all(directory).map_err(|error| failed(&error))?;
        // SQLite syncs the directory of the file, but not the directories above it.
        for above in directory.ancestors().skip(1) {
            File::open(above).and_then(|above| above.sync_all()).map_err(|error| failed(&error))?;
        }
    }
    if is_network(directory) {
        let message = format!(
            "{} is on a network file system, where locks are unreliable; use a local file system",
            path.display()
        );
        return Err(SqliteStoreError::new(ErrorKind::Unsupported, message));
    }
    Ok(())
}

/// Returns whether the directory is on a network file system, according to Linux: NFS, SMB and CIFS, Ceph, AFS, 9P.
#[cfg(target_os = "linux")]
fn is_network(directory: &Path) -> bool {
    const NAMES: [u32; 7] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x00c3_6400, 0x5346_414f, 0x0102_1997];
    // The width of the number differs between architectures. Bits above the 32nd are only the sign.
    rustix::fs::statfs(directory).is_ok_and(|found| {
        NAMES.iter().any(|name| format!("{:x}", found.f_type).ends_with(&format!("{name:x}")))
    })
}

#[cfg(not(target_os = "linux"))]
fn is_network(_directory: &Path) -> bool {
    false
}

/// Refuses a file system without the shared memory that the write-ahead log needs. On such a file system, SQLite continues without the log and
/// reports this only in the answer.
pub(crate) async fn check_journal(connection: &mut SqliteConnection) -> Result<(), SqliteStoreError> {
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode")
        .fetch_one(connection)
        .await
        .map_err(|error| classify_error(&error, SqliteCallEffect::Read))?;
    match mode.as_str() {
        "wal" => Ok(()),
        mode => {
            let message =
                format!("the database has the journal mode `{mode}` and rejects `wal`; use a local disk");
            Err(SqliteStoreError::new(ErrorKind::Unsupported, message))
        }
    }
}

//! A separate database per test, and connections to it outside the store.

use std::path::{Path, PathBuf};
use std::process::Command;

use ferrata_store::{At, CheckpointStore, ErrorKind, HeadRef, Result, RunAppend, RunId};
use ferrata_store_sqlite::{SqliteOptions, SqliteStore};
use ferrata_testing::Log;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _};
use tempfile::TempDir;

pub(crate) struct Place {
    pub(crate) directory: TempDir,
    pub(crate) store: SqliteStore,
}

/// A database that is set up, with a store.
pub(crate) async fn place(options: SqliteOptions) -> Place {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("runs.db"), options).unwrap();
    store.setup().await.unwrap();
    Place { directory, store }
}

impl Place {
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("runs.db")
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.directory.path().join("runs.db-wal")
    }

    /// Another instance with its own connections.
    pub(crate) fn open(&self, options: SqliteOptions) -> SqliteStore {
        SqliteStore::open(self.path(), options).unwrap()
    }

    /// A connection of another program.
    pub(crate) async fn connection(&self) -> SqliteConnection {
        connection(&self.path()).await
    }
}

pub(crate) async fn connection(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(std::time::Duration::ZERO)
        .connect()
        .await
        .unwrap()
}

pub(crate) async fn execute(connection: &mut SqliteConnection, sql: &str) {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.unwrap();
}

/// Copies a file in another process, because closing it in this process would release SQLite's locks on it.
pub(crate) fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

/// The content of the write-ahead log: the page size, and for each frame whether it ends a transaction.
pub(crate) fn frames(log: &[u8]) -> (usize, Vec<bool>) {
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    let page = usize::try_from(number(8)).unwrap();
    let salts = &log[16..24];
    let starts = (0..)
        .map(|frame| HEADER + frame * (FRAME + page))
        .take_while(|start| start + FRAME + page <= log.len());
    let own = starts.take_while(|start| log[start + 8..start + 16] == *salts);
    (page, own.map(|start| number(start + 4) > 0).collect())
}

/// The length of the header of a write-ahead log, and that of the header of a frame.
pub(crate) const HEADER: usize = 32;
pub(crate) const FRAME: usize = 24;

pub(crate) fn log(run: &str) -> Log {
    Log::new(RunId::new(run).unwrap())
}

pub(crate) async fn append(store: &SqliteStore, entry: RunAppend) -> Result<HeadRef> {
    store.append(vec![entry]).await.pop().unwrap()
}

/// Appends one record, and checks that it is refused with this error and leaves nothing.
pub(crate) async fn is_refused(store: &SqliteStore, log: &Log, kind: ErrorKind) {
    let error = append(store, log.next(1)).await.unwrap_err();
    assert_eq!((error.kind(), error.run()), (kind, Some(&log.key)), "{error:?}");
}

/// Checks that the store has exactly this log.
pub(crate) async fn is_kept(store: &SqliteStore, log: &Log) {
    let head = store.head(&log.key).await.unwrap().map(|head| head.head());
    assert_eq!(head, log.head(), "the head of {}", log.key);
    if let Some(head) = head {
        let loaded = store.load(&log.key, At::Latest).await.unwrap().unwrap();
        assert_eq!(loaded, log.loaded(head.seq.get()), "the end of {}", log.key);
    }
}

//! The database file and its connections: opens connections, checks that the path still names the opened file, and keeps the pool of readers.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferrata_store::ErrorKind;
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow,
    SqliteSynchronous, SqliteTransactionManager,
};
use sqlx::{ConnectOptions as _, SqlSafeStr as _};
use sqlx_core::transaction::TransactionManager as _;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::config::{SqliteOptions, Synchronous};
use crate::error::{SqliteCallEffect, SqliteStoreError, classify_error};
use crate::session::WaitDeadline;
use crate::statement::SqlStatement;

/// The version of the table layout that this library creates and uses.
pub(crate) const VERSION: i64 = 1;

/// How long SQLite itself waits for a writer's lock, before the store counts the wait and tries again.
///
/// The longer SQLite waits, the longer its pauses become, up to 100 ms. With such pauses it would never find the short gap between two transactions
/// of a busy writer. If it starts again every few milliseconds, its pauses remain at one or two milliseconds.
const LOOK: Duration = Duration::from_millis(5);

/// The longest wait that the driver can count. The driver panics if the milliseconds need more than 31 bits.
const LONGEST: Duration = Duration::from_secs(24 * 86_400);

/// The size in bytes to which the write-ahead log is cut after a checkpoint has emptied it.
const KEPT_LOG: &str = "4194304";

/// Takes the writer's lock at the start, so that no later statement of the transaction can fail for lack of the lock.
const BEGIN: &str = "BEGIN IMMEDIATE";

/// The maximum number of connections kept for transactions. At any time, all except one of them wait for the lock.
const WRITERS: usize = 4;

/// The size of a page: the default of SQLite.
const PAGE: u64 = 4_096;

/// Returns whether the file system of this file is read-only for every process.
fn is_read_only_mount(path: &Path) -> bool {
    use rustix::fs::StatVfsMountFlags;
    rustix::fs::statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// The identity of a file, which distinguishes it from another file with the same name; `None` if the file does not exist.
type Ident = Option<(u64, u64)>;

fn ident(path: &Path) -> Ident {
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPurpose {
    Read,
    Write,
    SetUp,
}

/// A connection, and the identities of the files that it has open.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    pub(crate) connection: SqliteConnection,
    files: [Ident; 2],
    /// Whether the file was opened as immutable, without locks and without the write-ahead log.
    is_frozen: bool,
}

/// The thread that executes reads, independent of the callers' runtimes. It ends when this value is dropped.
#[derive(Debug)]
struct ReaderThread {
    runtime: Handle,
    _ends: oneshot::Sender<()>,
}

impl ReaderThread {
    fn start() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (ends, ended) = oneshot::channel();
        let started = Self { runtime: runtime.handle().clone(), _ends: ends };
        let serve = move || drop(runtime.block_on(ended));
        std::thread::Builder::new().name("ferrata-sqlite-reads".to_owned()).spawn(serve)?;
        Ok(started)
    }
}

/// The database file with its readers. The only writer has its own thread.
#[derive(Debug)]
pub(crate) struct SqliteDb {
    path: PathBuf,
    pub(crate) options: SqliteOptions,
    idle: Mutex<Vec<OpenConnection>>,
    /// Connections of committed transactions, ready for the next transaction.
    writers: Mutex<Vec<OpenConnection>>,
    turns: Semaphore,
    /// The thread for reads. It starts with the first read.
    reading: Mutex<Option<ReaderThread>>,
    /// Whether the file existed before. If so, a missing file means lost data.
    was_there: AtomicBool,
}

impl SqliteDb {
    pub(crate) fn new(path: PathBuf, options: SqliteOptions) -> Self {
        let turns = Semaphore::new(options.readers.get().min(Semaphore::MAX_PERMITS));
        Self {
            path,
            options,
            idle: Mutex::default(),
            writers: Mutex::default(),
            turns,
            reading: Mutex::default(),
            was_there: AtomicBool::new(false),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn log_path(&self) -> PathBuf {
        let mut path = OsString::from(&self.path);
        path.push("-wal");
        path.into()
    }

    /// Reads the identities without opening the files: when a process closes any open file, the system releases all locks of the process on that
    /// file, including those of SQLite.
    fn files(&self) -> [Ident; 2] {
        [ident(&self.path), ident(&self.log_path())]
    }

    /// Returns the length of the write-ahead log in bytes.
    pub(crate) fn log_bytes(&self) -> u64 {
        std::fs::metadata(self.log_path()).map_or(0, |metadata| metadata.len())
    }

    /// Returns whether the files that the connection has open still have their names. Writes to other files would be lost.
    pub(crate) fn is_there(&self, opened: &OpenConnection) -> bool {
        opened.files == self.files() && (!opened.is_frozen || is_read_only_mount(&self.path))
    }

    /// Opens a connection. Checks that this version may use the layout of the tables.
    pub(crate) async fn open(&self, purpose: ConnectionPurpose) -> Result<OpenConnection, SqliteStoreError> {
        if purpose != ConnectionPurpose::SetUp && ident(&self.path).is_none() {
            return Err(match self.was_there.load(Ordering::Relaxed) {
                true => SqliteStoreError::moved_error(&self.path, SqliteCallEffect::Read),
                false => SqliteStoreError::new(
                    ErrorKind::Invalid,
                    format!(
                        "the database {} does not exist; call `setup`, or correct the path",
                        self.path.display()
                    ),
                ),
            });
        }
        // SQLite needs a second file to read a database with a write-ahead log, unless the database is declared immutable.
        let is_frozen = self.options.read_only && is_read_only_mount(&self.path) && self.log_bytes() == 0;
        let lost =
            |error: sqlx::Error| self.explain_read_only(classify_error(&error, SqliteCallEffect::Read));
        let options = self.connect_options(purpose).immutable(is_frozen);
        let mut connection = options.connect().await.map_err(lost)?;
        if purpose == ConnectionPurpose::SetUp {
            // The first read opens the write-ahead log.
            let read = sqlx::query("SELECT count(*) FROM sqlite_schema").execute(&mut connection).await;
            read.map_err(lost)?;
        } else {
            check_layout(&mut connection).await.map_err(|failed| self.explain_read_only(failed))?;
        }
        self.was_there.store(true, Ordering::Relaxed);
        Ok(OpenConnection { connection, files: self.files(), is_frozen })
    }

    /// Replaces the error of a read-only file that cannot be opened by one with an explanation.
    fn explain_read_only(&self, failed: SqliteStoreError) -> SqliteStoreError {
        if !self.options.read_only || !failed.is_cannot_open() {
            return failed;
        }
        let (path, log) = (self.path.display(), self.log_path());
        let log = log.display();
        let message = match is_read_only_mount(&self.path) {
            true => format!(
                "{path} is on a read-only file system, and {log} holds records that are not in it; copy both files to where they can be written, \
                 and open the copy"
            ),
            false => format!(
                "the directory of {path} is not writable, and SQLite creates a file there even to read; grant this process permission, or open a copy"
            ),
        };
        SqliteStoreError::new(ErrorKind::Unsupported, message)
    }

    fn connect_options(&self, purpose: ConnectionPurpose) -> SqliteConnectOptions {
        let synchronous = match self.options.synchronous {
            Synchronous::Full => SqliteSynchronous::Full,
            Synchronous::Normal => SqliteSynchronous::Normal,
        };
        let mut options = SqliteConnectOptions::new()
            .filename(&self.path)
            .read_only(self.options.read_only)
            .synchronous(synchronous)
            .busy_timeout(if purpose == ConnectionPurpose::Read {
                self.options.lock_wait.min(LONGEST)
            } else {
                LOOK
            })
            .pragma("journal_size_limit", KEPT_LOG)
            .pragma("cell_size_check", "ON")
            .disable_statement_logging()
            .thread_name(|number| format!("ferrata-sqlite-{number}"));
        if let Some(bytes) = self.options.max_bytes {
            options = options.pragma("max_page_count", (bytes / PAGE).max(1).to_string());
        }
        if purpose == ConnectionPurpose::SetUp && !self.options.read_only {
            // Both settings are stored in the file, so no other connection sets them or needs the locks for that.
            options = options
                .create_if_missing(true)
                .auto_vacuum(SqliteAutoVacuum::Incremental)
                .journal_mode(SqliteJournalMode::Wal);
        }
        options
    }

    /// Begins a transaction with the writer's lock. Waits for the lock.
    pub(crate) async fn begin(&self) -> Result<OpenConnection, SqliteStoreError> {
        let deadline = WaitDeadline::after(self.options.lock_wait);
        let kept = self.writers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut opened = match kept {
            Some(opened) if self.is_there(&opened) => opened,
            _ => self.open(ConnectionPurpose::Write).await?,
        };
        loop {
            let begun =
                SqliteTransactionManager::begin(&mut opened.connection, Some(BEGIN.into_sql_str())).await;
            let failed = match begun {
                Ok(()) => return Ok(opened),
                Err(error) => classify_error(&error, SqliteCallEffect::Read),
            };
            if !failed.is_busy() || deadline.is_over() {
                return Err(failed);
            }
        }
    }

    /// Keeps a connection for the next transaction. A connection with an open transaction is dropped instead, which rolls it back.
    pub(crate) fn keep_writer(&self, opened: OpenConnection) {
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        if writers.len() < WRITERS {
            writers.push(opened);
        }
    }

    /// Executes one statement, which reads one consistent state of the database.
    ///
    /// The read runs on its own task, which ends when the caller is dropped. If it ran in the caller, a caller that is not polled would keep its
    /// permit and delay other readers. The task runs on the store's own runtime, because a caller may block its own runtime.
    pub(crate) async fn read(
        self: &Arc<Self>,
        statement: SqlStatement,
    ) -> Result<Vec<SqliteRow>, SqliteStoreError> {
        let (mut task, db, runtime) = (JoinSet::new(), Arc::clone(self), self.reading()?);
        task.spawn_on(async move { db.read_in_turn(statement).await }, &runtime);
        match task.join_next().await {
            Some(Ok(read)) => read,
            _ => Err(SqliteStoreError::new(ErrorKind::Unavailable, "the read ended early; retry")),
        }
    }

    /// Returns the runtime of the thread for reads.
    fn reading(&self) -> Result<Handle, SqliteStoreError> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reading) = &*reading {
            return Ok(reading.runtime.clone());
        }
        let started = ReaderThread::start().map_err(|error| {
            let message = format!("cannot start the thread for reads: {error}; retry");
            SqliteStoreError::new(ErrorKind::Unavailable, message)
        })?;
        Ok(reading.insert(started).runtime.clone())
    }

    async fn read_in_turn(&self, statement: SqlStatement) -> Result<Vec<SqliteRow>, SqliteStoreError> {
        let closed = |_| SqliteStoreError::new(ErrorKind::Closed, "the store was closed; open it again");
        let _turn = self.turns.acquire().await.map_err(closed)?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut opened = match idle {
            Some(opened) if self.is_there(&opened) => opened,
            _ => self.open(ConnectionPurpose::Read).await?,
        };
        // After an error, or if the caller is dropped, the connection is closed.
        let rows = statement.query().fetch_all(&mut opened.connection).await;
        let rows = rows.map_err(|error| classify_error(&error, SqliteCallEffect::Read))?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(opened);
        Ok(rows)
    }
}

/// Checks the layout of the tables. Fails with `Unsupported` if a newer version created it, or a version from before the first release, whose
/// version table has one more column.
async fn check_layout(connection: &mut SqliteConnection) -> Result<(), SqliteStoreError> {
    let found = sqlx::query_as(
        "SELECT (SELECT max(version) FROM ferrata_layout), \
         EXISTS (SELECT * FROM pragma_table_info('ferrata_layout') WHERE name = 'usable_by')",
    );
    let found: (Option<i64>, bool) =
        found.fetch_one(connection).await.map_err(|error| classify_error(&error, SqliteCallEffect::Read))?;
    let refuse = |kind: ErrorKind, message: String| Err(SqliteStoreError::new(kind, message));
    match found {
        (_, true) => refuse(
            ErrorKind::Unsupported,
            "an unreleased version created the tables, which no release reads; use a new file, or drop all tables named `ferrata_*`"
                .to_owned(),
        ),
        (Some(VERSION), false) => Ok(()),
        (Some(version), false) if version > VERSION => refuse(
            ErrorKind::Unsupported,
            format!("the database has layout {version}, and this version reads {VERSION}; upgrade this process"),
        ),
        _ => refuse(ErrorKind::Invalid, "the tables do not exist; call `setup`, or correct the path".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each connection sets its own sync level, whatever the file and other connections have.
    ///
    /// Guarantees: SQLITE-1.
    #[tokio::test]
    async fn each_connection_syncs_as_said() {
        let directory = tempfile::tempdir().unwrap();
        for (synchronous, number) in [(Synchronous::Full, 2_i64), (Synchronous::Normal, 1)] {
            let options = SqliteOptions::default().with_synchronous(synchronous);
            // Each case has its own file, because a connection that closes locks the file exclusively for a moment.
            let db = SqliteDb::new(directory.path().join(format!("{number}.db")), options);
            let mut made = db.open(ConnectionPurpose::SetUp).await.unwrap();
            let layout = SqlStatement::new(crate::setup::LAYOUT).query();
            layout.execute(&mut made.connection).await.unwrap();
            for purpose in [ConnectionPurpose::Read, ConnectionPurpose::Write, ConnectionPurpose::SetUp] {
                let mut opened = db.open(purpose).await.unwrap();
                for (pragma, value) in [
                    ("synchronous", number),
                    ("auto_vacuum", 2),
                    ("cell_size_check", 1),
                    ("page_size", 4_096),
                ] {
                    let asked = sqlx::AssertSqlSafe(format!("PRAGMA {pragma}"));
                    let found: i64 =
                        sqlx::query_scalar(asked).fetch_one(&mut opened.connection).await.unwrap();
                    assert_eq!(found, value, "{purpose:?}, {pragma}");
                }
                crate::setup::check_journal(&mut opened.connection).await.unwrap();
            }
        }
    }
}

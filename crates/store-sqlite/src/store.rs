//! The store. Writes go through the one writer, and reads through the pool of readers.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{
    At, Capabilities, CheckpointStore, Clock, Error, ErrorKind, ExecutorId, HeadRef, HeaderRange, Headers,
    Notices, Page, Paged, PruneCut, Record, Removed, Result, RunAppend, RunHead, RunKey, RunQuery,
    SystemClock, Transactions, check_append, check_batch,
};
use sqlx::SqliteConnection;

use crate::config::{SqliteOptions, read_url};
use crate::db::SqliteDb;
use crate::error::{SqliteCallEffect, SqliteStoreError, classify_error};
use crate::statement::SqlStatement;
use crate::writer::{WriterHandle, WriterJob};
use crate::{append, list, load, prune, reseal};

/// The longest time to live: a thousand years. A longer value is cut to this, so that the sum stays in range.
const LONGEST: Duration = Duration::from_secs(1_000 * 365 * 86_400);

/// How long an expired heartbeat remains. It has no meaning, so it may be removed late.
const KEEP_EXPIRED_MS: i64 = 3_600_000;

/// A store that keeps each run as rows of an SQLite database, which is one file.
///
/// A clone is cheap and shares the connections and the writer. Any number of instances, in any number of processes of one machine, may use the file
/// at the same time.
#[derive(Clone)]
pub struct SqliteStore {
    db: Arc<SqliteDb>,
    writer: Arc<WriterHandle>,
    clock: Arc<dyn Clock>,
}

impl SqliteStore {
    /// Creates a store in a file. Touches no file: [`setup`](CheckpointStore::setup) creates it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the path is empty, or if the path is relative and the current directory is unknown.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self> {
        let path = path.as_ref();
        // Make the path absolute, so that the store stays the same when the process changes its current directory, and so that SQLite does not take
        // the name for a URL or for a memory database.
        let path = std::path::absolute(path).map_err(|source| {
            let message =
                format!("\"{}\" is not a valid file for a store; use the path of a file", path.display());
            Error::new(ErrorKind::Invalid, message).with_source(source)
        })?;
        Ok(Self::with(Arc::new(SqliteDb::new(path, options)), Arc::new(SystemClock::new())))
    }

    /// Creates a store in the file of a URL: `sqlite:///absolute/path.db`, or `sqlite:relative/path.db`.
    ///
    /// The URL may set options, as in `?synchronous=normal`: `synchronous` (`full` or `normal`), `lock_wait_ms`, `readers`, `read_only`,
    /// `max_bytes`. Options of the URL take precedence over `options`. An unknown option is an error.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the URL does not have this form, or if an option is wrong.
    pub fn from_url(url: &str, options: SqliteOptions) -> Result<Self> {
        let (path, options) = read_url(url, options)?;
        Self::open(path, options)
    }

    /// Replaces the system clock. The clock must be the same for every process that uses the file. Call it before the store is used or cloned.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    fn with(db: Arc<SqliteDb>, clock: Arc<dyn Clock>) -> Self {
        Self { writer: Arc::new(WriterHandle::new(Arc::clone(&db))), db, clock }
    }

    /// Appends to one run within the caller's transaction on the same file. The records exist if and only if the transaction commits.
    ///
    /// So a node's writes to tables of this database and its record are committed together or not at all. After `Ok`, the records exist once the
    /// transaction has committed, not before.
    ///
    /// Start the transaction with `BEGIN IMMEDIATE`: SQLite may refuse the first write of a transaction that has read before, even if you retry.
    /// The transaction holds the only write lock of the file, so keep it short.
    ///
    /// # Errors
    ///
    /// The errors of [`append`](CheckpointStore::append). After `Conflict` or `Invalid`, nothing was written, and the transaction is still usable:
    /// roll it back unless its other writes should remain. After any other error, roll it back.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: roll the transaction back.
    pub async fn append_in(&self, connection: &mut SqliteConnection, append: RunAppend) -> Result<HeadRef> {
        check_append(&append)?;
        let of_run = |error: &sqlx::Error| {
            classify_error(error, SqliteCallEffect::Read).of_run("store.append", &append.run)
        };
        let entries = std::slice::from_ref(&append);
        let rows = append::find_runs(entries).query().fetch_all(&mut *connection).await;
        let rows = rows.map_err(|error| of_run(&error))?;
        let decided = append::decide(&mut *connection, entries, &rows, |_| true).await;
        let (mut results, statements) =
            decided.map_err(|failed| failed.of_run("store.append", &append.run))?;
        for statement in statements {
            statement.query().execute(&mut *connection).await.map_err(|error| of_run(&error))?;
        }
        results.swap_remove(0)
    }

    pub(crate) fn db(&self) -> &SqliteDb {
        &self.db
    }

    /// Copies a consistent snapshot of the database into a new file, compact and synced. The database can be used meanwhile.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::AlreadyExists`]: the file exists.
    /// - [`ErrorKind::Unavailable`]: the file cannot be written.
    /// - [`ErrorKind::Corrupt`]: the database is damaged.
    ///
    /// After an error, a partial file may remain.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: remove the partial file.
    pub async fn back_up(&self, to: impl AsRef<Path>) -> Result<()> {
        const OPERATION: &str = "store.back_up";
        let to = to.as_ref();
        let refuse = |kind, what: &str| {
            Err(Error::new(kind, format!("{} {what}", to.display())).with_operation(OPERATION))
        };
        let Some(name) = to.to_str() else {
            return refuse(ErrorKind::Invalid, "is not UTF-8; use another file");
        };
        if to.exists() {
            return refuse(ErrorKind::AlreadyExists, "already exists; use another file");
        }
        let name =
            std::path::absolute(name).map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        let copied = self.db.read(SqlStatement::new("VACUUM INTO ?").bind(name)).await;
        copied.map_err(|failed| failed.into_error(OPERATION))?;
        // SQLite does not sync the copy.
        let sync = |path: &Path| std::fs::File::open(path).and_then(|file| file.sync_all());
        match sync(to)
            .and_then(|()| to.parent().filter(|above| !above.as_os_str().is_empty()).map_or(Ok(()), sync))
        {
            Ok(()) => Ok(()),
            Err(_) => refuse(ErrorKind::Unavailable, "cannot be synced; check the disk"),
        }
    }

    /// Sends the writer a job for one run.
    async fn send_job<T>(
        &self,
        operation: &'static str,
        run: &RunKey,
        job: impl FnOnce(tokio::sync::oneshot::Sender<Result<T>>) -> WriterJob,
    ) -> Result<T> {
        self.writer.run(job).await.map_err(|failed| failed.of_run(operation, run))?
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.db.path()).finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("sqlite").with_durable(true).with_shared(true)
    }

    async fn setup(&self) -> Result<()> {
        let done = self.writer.run(WriterJob::SetUp).await;
        done.flatten().map_err(|failed| failed.into_error("store.setup"))
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let admitted = check_batch(&batch, check_append);
        let runs: Vec<RunKey> = batch.iter().map(|append| append.run.clone()).collect();
        let entries: Vec<RunAppend> = batch
            .into_iter()
            .zip(&admitted)
            .filter(|(_, admitted)| admitted.is_ok())
            .map(|(entry, _)| entry)
            .collect();
        let written = match entries.is_empty() {
            true => Ok(Vec::new()),
            false => self.writer.append(entries).await,
        };
        let (written, failed) = match written {
            Ok(written) => {
                (written, SqliteStoreError::new(ErrorKind::Indeterminate, "the entry got no result; retry"))
            }
            Err(failed) => (Vec::new(), failed),
        };
        let mut written = written.into_iter();
        let mut answer =
            |run| written.next().unwrap_or_else(|| Err(failed.clone().of_run("store.append", run)));
        admitted.into_iter().zip(&runs).map(|(admitted, run)| admitted.and_then(|()| answer(run))).collect()
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        load::load(&self.db, run, at).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        load::load_since(&self.db, run, known).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        load::headers(&self.db, run, range).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        load::head(&self.db, run, self.clock.now()).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        list::run(&self.db, query, &page, self.clock.now()).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.send_job(prune::PRUNE, run, |reply| WriterJob::Prune(run.clone(), cut, reply)).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.send_job(prune::PURGE, run, |reply| WriterJob::Purge(run.clone(), expected, reply)).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        let now = self.clock.now();
        let until = now.plus(ttl.min(LONGEST)).unix_ms();
        let beat = SqlStatement::new("DELETE FROM ferrata_heartbeats WHERE until < ?;")
            .bind(now.unix_ms().saturating_sub(KEEP_EXPIRED_MS))
            .and(
                "INSERT INTO ferrata_heartbeats (executor, until, twin) VALUES (?, ?, ?) \
                 ON CONFLICT DO UPDATE SET until = excluded.until, twin = excluded.twin;",
            )
            .bind(executor.to_string())
            .bind(until)
            .bind(until.saturating_neg());
        self.writer.write_heartbeat(beat).await.map_err(|failed| failed.into_error("store.heartbeat"))
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        let read = SqlStatement::new("SELECT 1 FROM ferrata_heartbeats WHERE until > ?1 AND executor = ?2")
            .bind(self.clock.now().unix_ms())
            .bind(executor.to_string());
        let rows = self.db.read(read).await;
        rows.map(|rows| !rows.is_empty()).map_err(|failed| failed.into_error("store.is_alive"))
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }

    fn part(&self, _run: &RunKey) -> u64 {
        0
    }

    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        Some(self)
    }

    fn relay(&self) -> Option<&dyn ferrata_store::Relay> {
        None
    }

    fn subscribe(&self) -> Option<Notices> {
        None
    }
}

#[async_trait]
impl ferrata_store::Resealing for SqliteStore {
    /// Reseals all records in one transaction.
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        ferrata_store::check_reseal(run, records)?;
        self.send_job(reseal::RESEAL, run, |reply| WriterJob::Reseal(run.clone(), records.to_vec(), reply))
            .await
    }
}

//! The connection for writes. Transactions take the lock at their start, so no transaction fails midway for lack of the lock.

use std::sync::Arc;
use std::time::Duration;

use ferrata_store::{
    Clock as _, Error, HeadRef, PruneCut, Record, Removed, Result, RunAppend, RunKey, SystemClock,
};
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::db::{ConnectionPurpose, OpenConnection, SqliteDb};
use crate::error::{SqliteCallEffect, SqliteStoreError, classify_error};
use crate::statement::SqlStatement;
use crate::{append, prune, reseal, setup};

const APPEND: &str = "store.append";

/// The pause before another attempt of a setup that needs exclusive access to the file.
const PAUSE: Duration = Duration::from_millis(2);

/// The connection of the writer. It is opened when it is first needed.
#[derive(Debug)]
pub(crate) struct WriterSession {
    db: Arc<SqliteDb>,
    opened: Option<OpenConnection>,
    log: LogBound,
}

impl WriterSession {
    pub(crate) fn new(db: Arc<SqliteDb>) -> Self {
        Self { db, opened: None, log: LogBound::default() }
    }

    /// Takes the connection out of the session. Opens a new connection if none is open to the file that has the name now. The caller puts the
    /// connection back. If the caller is dropped meanwhile, the connection is closed, which rolls the transaction back.
    async fn take_connection(&mut self) -> Result<OpenConnection, SqliteStoreError> {
        match self.opened.take() {
            Some(opened) if self.db.is_there(&opened) => Ok(opened),
            _ => self.db.open(ConnectionPurpose::Write).await,
        }
    }

    /// Begins a transaction with the writer's lock, and reads within it.
    ///
    /// Only this statement waits for other writers. Once the transaction has the lock, no statement can be refused, so every `BUSY` means that
    /// nothing was written.
    async fn begin(&mut self, look: SqlStatement) -> Result<Vec<SqliteRow>, SqliteStoreError> {
        let begin = SqlStatement::new("BEGIN IMMEDIATE;").join(look);
        self.lock(begin, SqliteCallEffect::Read, async |begin, connection| {
            begin.query().fetch_all(connection).await
        })
        .await
    }

    /// Executes statements that begin by taking the lock, and waits for the lock.
    async fn lock<T>(
        &mut self,
        statement: SqlStatement,
        call: SqliteCallEffect,
        carry_out: impl AsyncFn(SqlStatement, &mut SqliteConnection) -> sqlx::Result<T>,
    ) -> Result<T, SqliteStoreError> {
        let deadline = WaitDeadline::after(self.db.options.lock_wait);
        loop {
            let failed = match self.take_connection().await {
                Ok(mut opened) => {
                    let done = carry_out(statement.clone(), &mut opened.connection).await;
                    let done = done.map_err(|error| classify_error(&error, call));
                    self.opened =
                        done.as_ref().map_or_else(SqliteStoreError::is_busy, |_| true).then_some(opened);
                    match done {
                        Ok(done) => return Ok(done),
                        Err(failed) => failed,
                    }
                }
                Err(failed) => failed,
            };
            if !failed.is_busy() || deadline.is_over() {
                return Err(failed);
            }
        }
    }

    /// Executes the statements and commits. After an error the connection is closed, which rolls the transaction back.
    async fn commit(&mut self, mut statements: Vec<SqlStatement>) -> Result<(), SqliteStoreError> {
        let Some(mut opened) = self.opened.take() else { return Err(self.moved_error()) };
        let last = statements.pop().unwrap_or_default().and("COMMIT");
        for statement in statements {
            let done = statement.query().execute(&mut opened.connection).await;
            done.map_err(|error| classify_error(&error, SqliteCallEffect::Read))?;
        }
        let done = last.query().execute(&mut opened.connection).await;
        done.map_err(|error| classify_error(&error, SqliteCallEffect::Write))?;
        self.opened = Some(opened);
        self.check_not_moved()
    }

    fn moved_error(&self) -> SqliteStoreError {
        SqliteStoreError::moved_error(self.db.path(), SqliteCallEffect::Read)
    }

    /// Checks that the committed transaction went to the file that the path names.
    fn check_not_moved(&mut self) -> Result<(), SqliteStoreError> {
        match self.opened.take_if(|opened| !self.db.is_there(opened)) {
            Some(_) => Err(SqliteStoreError::moved_error(self.db.path(), SqliteCallEffect::Write)),
            None => Ok(()),
        }
    }

    /// Appends all entries in one transaction. If one entry makes the transaction fail, appends each entry in its own transaction.
    pub(crate) async fn append(
        &mut self,
        entries: &[RunAppend],
        is_awaited: impl Fn(usize) -> bool,
    ) -> Vec<Result<HeadRef>> {
        let failed = match self.append_together(entries, &is_awaited).await {
            Ok(results) => return results,
            Err(failed) => failed,
        };
        let mut results = Vec::with_capacity(entries.len());
        for (place, entry) in entries.iter().enumerate() {
            let alone = match failed.is_of_one() && entries.len() > 1 {
                true => self.append_together(std::slice::from_ref(entry), |_| is_awaited(place)).await,
                false => Err(failed.clone()),
            };
            let alone = alone.and_then(|mut results| results.pop().ok_or(failed.clone()));
            results.push(alone.unwrap_or_else(|failed| Err(failed.of_run(APPEND, &entry.run))));
        }
        results
    }

    /// Appends the records of one run in one statement, which is its own transaction. It needs one round trip to the driver's thread. Returns
    /// `None`, and writes nothing, if the entry needs more work.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the statement may still be executed; the connection is then closed.
    pub(crate) async fn step(&mut self, entry: &RunAppend) -> Option<Result<HeadRef>> {
        let (step, head) = append::step(entry)?;
        // The driver wakes the caller once for each row, so this statement returns no rows.
        let written = self.lock(step, SqliteCallEffect::Write, async |step, connection| {
            step.query().execute(connection).await.map(|done| done.rows_affected())
        });
        let done = match written.await {
            Ok(0) => return None,
            Ok(_) => self.check_not_moved(),
            Err(failed) => Err(failed),
        };
        self.bound_log().await;
        Some(done.map(|()| head).map_err(|failed| failed.of_run(APPEND, &entry.run)))
    }

    async fn append_together(
        &mut self,
        entries: &[RunAppend],
        is_awaited: impl Fn(usize) -> bool,
    ) -> Result<Vec<Result<HeadRef>>, SqliteStoreError> {
        if let [entry] = entries
            && let Some(done) = self.step(entry).await
        {
            return Ok(vec![done]);
        }
        let rows = self.begin(append::find_runs(entries)).await?;
        let Some(mut opened) = self.opened.take() else { return Err(self.moved_error()) };
        let (results, statements) =
            append::decide(&mut opened.connection, entries, &rows, is_awaited).await?;
        self.opened = Some(opened);
        self.commit(statements).await?;
        Ok(results)
    }

    pub(crate) async fn prune(
        &mut self,
        run: &RunKey,
        cut: &PruneCut,
        is_awaited: impl Fn() -> bool,
    ) -> Result<Removed> {
        let planned = |rows: &[SqliteRow]| prune::plan_prune(rows, run, cut);
        self.change(prune::PRUNE, run, prune::prune_lookup(run, cut), planned, is_awaited).await
    }

    pub(crate) async fn purge(
        &mut self,
        run: &RunKey,
        expected: Option<HeadRef>,
        is_awaited: impl Fn() -> bool,
    ) -> Result<Removed> {
        let planned = |rows: &[SqliteRow]| prune::plan_purge(rows, run, expected);
        self.change(prune::PURGE, run, prune::purge_lookup(run), planned, is_awaited).await
    }

    pub(crate) async fn reseal(
        &mut self,
        run: &RunKey,
        records: &[Record],
        is_awaited: impl Fn() -> bool,
    ) -> Result<u64> {
        let planned = |rows: &[SqliteRow]| reseal::plan(rows, run, records);
        self.change(reseal::RESEAL, run, reseal::reseal_lookup(run, records), planned, is_awaited).await
    }

    /// Reads a run, and changes it in the same transaction. Does nothing if the caller has stopped waiting: during the wait for the lock, a new run
    /// with the same id may have started.
    async fn change<T>(
        &mut self,
        operation: &'static str,
        run: &RunKey,
        look: SqlStatement,
        plan: impl Fn(&[SqliteRow]) -> Result<(T, Vec<SqlStatement>)>,
        is_awaited: impl Fn() -> bool,
    ) -> Result<T> {
        let of_run = |failed: SqliteStoreError| failed.of_run(operation, run);
        let rows = self.begin(look).await.map_err(of_run)?;
        let planned =
            if is_awaited() { plan(&rows) } else { Err(of_run(SqliteStoreError::abandoned_error())) };
        let (said, statements) = match planned {
            Ok((said, statements)) => (Ok(said), statements),
            Err(refused) => (Err(refused), Vec::new()),
        };
        let committed = self.commit(statements).await;
        let said = said.map_err(|error: Error| error.with_operation(operation).with_run(run))?;
        committed.map_err(of_run)?;
        Ok(said)
    }

    /// Executes a write that does not depend on stored data, in one command of the driver. So a caller that is not polled holds no lock.
    pub(crate) async fn write(&mut self, statement: SqlStatement) -> Result<(), SqliteStoreError> {
        let whole = SqlStatement::new("BEGIN IMMEDIATE;").join(statement).and("COMMIT");
        let write = async |whole: SqlStatement, connection: &mut SqliteConnection| {
            whole.query().execute(connection).await.map(drop)
        };
        self.lock(whole, SqliteCallEffect::Write, write).await?;
        self.check_not_moved()
    }

    /// Creates the file and its tables; writes nothing if they exist.
    pub(crate) async fn set_up(&mut self) -> Result<(), SqliteStoreError> {
        setup::make_directory(self.db.path(), self.db.options.read_only)?;
        let deadline = WaitDeadline::after(self.db.options.lock_wait);
        loop {
            match self.try_set_up().await {
                // To enable the write-ahead log, SQLite needs the file exclusively for a moment, but does not wait for that.
                Err(failed) if failed.is_busy() && !deadline.is_over() => {
                    SystemClock::new().sleep(PAUSE).await
                }
                done => return done,
            }
        }
    }

    async fn try_set_up(&mut self) -> Result<(), SqliteStoreError> {
        self.opened = None;
        let read_only = self.db.options.read_only;
        // If everything exists, the setup needs no lock, which another process may hold for long.
        match self.db.open(ConnectionPurpose::Write).await {
            Ok(mut opened) => {
                if read_only || setup::check_journal(&mut opened.connection).await.is_ok() {
                    return Ok(());
                }
            }
            Err(failed) if read_only || !failed.is_invalid() => return Err(failed),
            Err(_) => {}
        }
        let mut opened = self.db.open(ConnectionPurpose::SetUp).await?;
        setup::check_journal(&mut opened.connection).await?;
        self.opened = Some(opened);
        self.begin(SqlStatement::default()).await?;
        self.commit(vec![SqlStatement::new(setup::LAYOUT)]).await
    }

    /// Empties a write-ahead log that has become long. If there is always some reader, the checkpoints of commits cannot empty it. This checkpoint
    /// waits for the readers, for a short time.
    pub(crate) async fn bound_log(&mut self) {
        let bytes = self.db.log_bytes();
        if let Some(opened) = &mut self.opened
            && let Some(wait) = self.log.wait(bytes)
        {
            let wait = format!(
                "PRAGMA busy_timeout = {}; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA busy_timeout = 5",
                wait.as_millis()
            );
            if SqlStatement::new(&wait).query().execute(&mut opened.connection).await.is_err() {
                self.opened = None;
            }
        }
    }

    pub(crate) async fn close(&mut self) {
        if let Some(opened) = self.opened.take() {
            // If this fails, the next process that opens the file completes the checkpoint.
            let _closed = opened.connection.close().await;
        }
    }
}

/// The size of the write-ahead log at which a checkpoint waits for readers, and the limit of that wait. During the wait the checkpoint holds the
/// writer's lock, so every other writer of the file waits, too.
///
/// If a reader never ends, each such checkpoint waits in vain. So the next one comes only when the log is half as long again; this keeps them few,
/// however long the log becomes. Each checkpoint may wait twice as long as the previous one, up to a second, because the readers may be slow.
#[derive(Debug)]
struct LogBound {
    bytes: u64,
    wait: Duration,
}

impl LogBound {
    const SHORTEST: u64 = 16 << 20;
    const FIRST_WAIT: Duration = Duration::from_millis(100);
    const LONGEST_WAIT: Duration = Duration::from_secs(1);

    /// Returns how long to wait for readers if a log of this length should be emptied now; otherwise `None`.
    fn wait(&mut self, bytes: u64) -> Option<Duration> {
        if bytes < Self::SHORTEST {
            *self = Self::default();
        }
        if bytes < self.bytes {
            return None;
        }
        let next = Self {
            bytes: bytes.saturating_add(bytes / 2),
            wait: self.wait.saturating_mul(2).min(Self::LONGEST_WAIT),
        };
        Some(std::mem::replace(self, next).wait)
    }
}

impl Default for LogBound {
    fn default() -> Self {
        Self { bytes: Self::SHORTEST, wait: Self::FIRST_WAIT }
    }
}

/// The time at which a wait ends.
pub(crate) struct WaitDeadline(SystemClock, Duration);

impl WaitDeadline {
    pub(crate) fn after(wait: Duration) -> Self {
        let clock = SystemClock::new();
        let end = clock.monotonic().saturating_add(wait);
        Self(clock, end)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.monotonic() >= self.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While a reader never ends, a log that grows to 4 GiB makes the writers wait about a dozen times, not a thousand times. After the log was
    /// emptied, the limits start again.
    ///
    /// Guarantees: SQLITE-8.
    #[test]
    fn log_bound_waits_seldom_in_vain() {
        let mut bound = LogBound::default();
        let mut waits = |from: u64, to: u64| {
            (from >> 16..=to >> 16).filter_map(|length| bound.wait(length << 16)).collect::<Vec<_>>()
        };
        assert!(waits(0, (16 << 20) - 1).is_empty());
        let in_vain = waits(16 << 20, 4 << 30);
        assert!((10..=15).contains(&in_vain.len()), "{in_vain:?}");
        assert!(in_vain.iter().sum::<Duration>() < Duration::from_secs(13), "{in_vain:?}");
        assert_eq!(in_vain[0], LogBound::FIRST_WAIT);
        assert!(waits(0, 15 << 20).is_empty());
        assert_eq!(waits(16 << 20, 20 << 20), [LogBound::FIRST_WAIT]);
    }
}

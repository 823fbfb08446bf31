//! A memory store with transactions: runs, and a table of numbers.

use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{
    AnyTransaction, At, Capabilities, CheckpointStore, Database, Error, ErrorKind, ExecutorId, HeadRef,
    HeaderRange, Headers, MemoryStore, Notices, Page, Paged, PruneCut, Record, Removed, Result, RunAppend,
    RunHead, RunKey, RunQuery, Transactions, causes, check_append, refusal,
};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

/// The kind of database of a [`LedgerStore`].
#[derive(Debug)]
pub enum LedgerDatabase {}

impl Database for LedgerDatabase {
    const NAME: &'static str = "ledger";
    type Connection = LedgerRows;
    type Transaction = LedgerTransaction;
}

/// A row: the number of its changes, and its value.
type Row = (u64, i64);

/// A memory store with a table of numbers. Transactions change the table together with the logs of runs.
///
/// The store simulates a database for tests of code that uses transactions. A transaction sees the table as of its start. Its commit fails, like a
/// serialization failure, if a row that it read or wrote has changed since. A clone is cheap and shares the content.
///
/// ```
/// use ferrata_testing::{LedgerStore, Log};
/// use ferrata_store::{RunId, Transactions};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let (store, log) = (LedgerStore::new(), Log::new(RunId::new("r").unwrap()));
/// let mut transaction = store.transaction().await?;
/// transaction.add("cash", 7);
/// store.commit(Box::new(transaction), log.next(1)).await?;
/// assert_eq!(store.row("cash").await, 7);
/// # Ok::<(), ferrata_store::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct LedgerStore {
    runs: MemoryStore,
    rows: Arc<Mutex<BTreeMap<String, Row>>>,
    connections: Arc<Semaphore>,
    /// The number of transactions that are still to be refused.
    refused: Arc<AtomicU32>,
    minimum: i64,
}

impl Default for LedgerStore {
    fn default() -> Self {
        Self::new()
    }
}

impl LedgerStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::with_connections(Semaphore::MAX_PERMITS)
    }

    /// Creates an empty store with this number of connections. A call or a transaction needs a connection; further callers wait.
    #[doc(hidden)]
    pub fn with_connections(connections: usize) -> Self {
        Self {
            runs: MemoryStore::new(),
            rows: Arc::default(),
            connections: Arc::new(Semaphore::new(connections)),
            refused: Arc::default(),
            minimum: i64::MIN,
        }
    }

    /// Refuses a commit that would leave a row below `minimum`. It simulates a constraint that a database checks at the commit.
    #[must_use]
    #[doc(hidden)]
    pub fn with_minimum(self, minimum: i64) -> Self {
        Self { minimum, ..self }
    }

    /// Keeps the runs in the given store.
    #[must_use]
    #[doc(hidden)]
    pub fn with_runs(self, runs: MemoryStore) -> Self {
        Self { runs, ..self }
    }

    /// Refuses the next `times` transactions that nodes begin, as a database does that cannot be reached.
    #[doc(hidden)]
    pub fn reject_begins(&self, times: u32) {
        self.refused.store(times, Ordering::SeqCst);
    }

    /// Returns the store of the runs. Tests can read it without a connection.
    #[doc(hidden)]
    pub fn runs(&self) -> &MemoryStore {
        &self.runs
    }

    /// Returns the value of a row. A row is 0 until it is set.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn row(&self, name: &str) -> i64 {
        self.rows.lock().await.get(name).map_or(0, |row| row.1)
    }

    /// Begins a transaction of the application. [`finish`](Self::finish) commits it.
    ///
    /// # Errors
    ///
    /// Only [`ErrorKind::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    #[doc(hidden)]
    pub async fn transaction(&self) -> Result<LedgerTransaction> {
        let connection = self.connect().await?;
        let before = self.rows.lock().await.clone();
        let rows = LedgerRows {
            before,
            seen: BTreeMap::new(),
            changes: BTreeMap::new(),
            marks: Vec::new(),
            is_over: false,
            appends: Vec::new(),
        };
        Ok(LedgerTransaction { rows, _connection: connection })
    }

    /// Commits a transaction.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unavailable`]: another transaction has changed a row that this one read or wrote.
    /// - [`ErrorKind::Invalid`]: the transaction has already ended, a mark in it is still open, or a row is below the minimum.
    /// - The errors of [`CheckpointStore::append`], if the transaction has appended records.
    ///
    /// After every error, the transaction is rolled back.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the transaction is either committed or rolled back.
    #[doc(hidden)]
    pub async fn finish(&self, transaction: LedgerTransaction) -> Result<()> {
        let LedgerRows { seen, changes, appends, marks, is_over, .. } = transaction.rows;
        let refuse = |message: &str| Err(Error::new(ErrorKind::Invalid, message));
        if is_over {
            return refuse("the transaction has ended before its commit; leave the commit to the run");
        }
        if !marks.is_empty() {
            return refuse("a mark of the transaction is open; keep or undo what was done since");
        }
        if changes.values().any(|value| *value < self.minimum) {
            return refuse("a deferred constraint rejected the rows at the commit");
        }
        let mut rows = self.rows.lock().await;
        if seen.iter().any(|(name, version)| rows.get(name).map_or(0, |row| row.0) != *version) {
            let message = "the transaction conflicted with another one; nothing was written, retry";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        for append in &appends {
            self.check(append).await?;
        }
        for result in self.runs.append(appends).await {
            result?;
        }
        for (name, value) in changes {
            let row = rows.entry(name).or_default();
            *row = (row.0 + 1, value);
        }
        Ok(())
    }

    async fn connect(&self) -> Result<OwnedSemaphorePermit> {
        let closed = |_| Error::new(ErrorKind::Closed, "the ledger was closed");
        Arc::clone(&self.connections).acquire_owned().await.map_err(closed)
    }

    /// Refuses an append that the store of the runs would refuse.
    async fn check(&self, append: &RunAppend) -> Result<()> {
        check_append(append)?;
        let actual = self.runs.head(&append.run).await?.map(|head| head.head());
        match actual == append.expected {
            true => Ok(()),
            false => Err(refusal::conflict(&append.run, append.expected, actual)),
        }
    }
}

impl fmt::Debug for LedgerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerStore").field("runs", &self.runs).finish_non_exhaustive()
    }
}

/// The table in the view of a transaction.
#[derive(Debug)]
pub struct LedgerRows {
    before: BTreeMap<String, Row>,
    /// The version of each row that the transaction read or wrote.
    seen: BTreeMap<String, u64>,
    changes: BTreeMap<String, i64>,
    /// The changes at the time of each open mark.
    marks: Vec<BTreeMap<String, i64>>,
    is_over: bool,
    appends: Vec<RunAppend>,
}

impl LedgerRows {
    /// Returns the value of a row. A row is 0 until it is set.
    pub fn get(&mut self, name: &str) -> i64 {
        let (version, value) = self.before.get(name).copied().unwrap_or_default();
        self.seen.insert(name.to_owned(), version);
        self.changes.get(name).copied().unwrap_or(value)
    }

    /// Sets the value of a row.
    pub fn set(&mut self, name: &str, value: i64) {
        self.get(name);
        self.changes.insert(name.to_owned(), value);
    }

    /// Sets a mark at the current state of the rows, like `SAVEPOINT`.
    #[doc(hidden)]
    pub fn mark(&mut self) {
        self.marks.push(self.changes.clone());
    }

    /// Removes the last mark, and keeps the changes made after it.
    #[doc(hidden)]
    pub fn keep_since_mark(&mut self) {
        self.marks.pop();
    }

    /// Removes the last mark, and undoes the changes made after it.
    #[doc(hidden)]
    pub fn undo_since_mark(&mut self) {
        if let Some(changes) = self.marks.pop() {
            self.changes = changes;
        }
    }

    /// Rolls the transaction back, so that its commit fails. It simulates a statement that ends the transaction, or a database that ends it by
    /// itself.
    #[doc(hidden)]
    pub fn roll_back(&mut self) {
        self.is_over = true;
    }

    /// Adds `more` to a row.
    pub fn add(&mut self, name: &str, more: i64) {
        let value = self.get(name);
        self.set(name, value + more);
    }
}

/// A transaction of a [`LedgerStore`]. Dropping it rolls it back.
#[derive(Debug)]
#[doc(hidden)]
pub struct LedgerTransaction {
    rows: LedgerRows,
    _connection: OwnedSemaphorePermit,
}

impl Deref for LedgerTransaction {
    type Target = LedgerRows;

    fn deref(&self) -> &LedgerRows {
        &self.rows
    }
}

impl DerefMut for LedgerTransaction {
    fn deref_mut(&mut self) -> &mut LedgerRows {
        &mut self.rows
    }
}

#[async_trait]
impl Transactions for LedgerStore {
    async fn begin(&self, _run: &RunKey) -> Result<AnyTransaction> {
        let is_away =
            self.refused.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if is_away {
            let message = "injected: the database is away; retry with a growing delay";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Ok(Box::new(self.transaction().await?))
    }

    async fn commit(&self, transaction: AnyTransaction, append: RunAppend) -> Result<HeadRef> {
        let mut transaction = transaction.downcast::<LedgerTransaction>().map_err(|_| foreign())?;
        let last = append.records.last().map(|record| record.header.head());
        transaction.rows.appends.push(append);
        self.finish(*transaction).await?;
        last.ok_or_else(|| Error::new(ErrorKind::Invalid, "nothing to append; pass at least one record"))
    }

    async fn append_in(&self, connection: &mut (dyn Any + Send), append: RunAppend) -> Result<HeadRef> {
        let rows = connection.downcast_mut::<LedgerRows>().ok_or_else(wrong_connection)?;
        self.check(&append).await?;
        let last = append.records.last().map(|record| record.header.head());
        rows.appends.push(append);
        last.ok_or_else(|| Error::new(ErrorKind::Invalid, "nothing to append; pass at least one record"))
    }

    fn is_transient(&self, error: &(dyn StdError + 'static)) -> bool {
        causes(error)
            .filter_map(|error| error.downcast_ref::<Error>())
            .any(|error| error.kind() == ErrorKind::Unavailable)
    }
}

fn wrong_connection() -> Error {
    let message =
        "the connection is not a `LedgerRows`; of a transaction `tx` of the ledger, pass `&mut *tx`";
    Error::new(ErrorKind::Invalid, message)
}

fn foreign() -> Error {
    Error::new(ErrorKind::Invalid, "the transaction belongs to another kind of store than `ledger`")
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for LedgerStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(LedgerDatabase::NAME).with_notices(true)
    }

    async fn setup(&self) -> Result<()> {
        self.runs.setup().await
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let Ok(_connection) = self.connect().await else { return Vec::new() };
        self.runs.append(batch).await
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        let _connection = self.connect().await?;
        self.runs.load(run, at).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        let _connection = self.connect().await?;
        self.runs.load_since(run, known).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        let _connection = self.connect().await?;
        self.runs.headers(run, range).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        let _connection = self.connect().await?;
        self.runs.head(run).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        let _connection = self.connect().await?;
        CheckpointStore::runs(&self.runs, query, page).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        let _connection = self.connect().await?;
        self.runs.prune(run, cut).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        let _connection = self.connect().await?;
        self.runs.purge(run, expected).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        let _connection = self.connect().await?;
        self.runs.heartbeat(executor, ttl).await
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        let _connection = self.connect().await?;
        self.runs.is_alive(executor).await
    }

    fn part(&self, run: &RunKey) -> u64 {
        self.runs.part(run)
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }

    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        self.runs.resealing()
    }

    fn relay(&self) -> Option<&dyn ferrata_store::Relay> {
        self.runs.relay()
    }

    fn subscribe(&self) -> Option<Notices> {
        self.runs.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use ferrata_store::RunId;

    use super::*;
    use crate::Log;

    #[tokio::test]
    async fn rows_and_records_commit_together_or_neither() {
        let (store, mut log) = (LedgerStore::with_connections(1), Log::new(RunId::new("r").unwrap()));
        let mut transaction = store.transaction().await.unwrap();
        transaction.add("cash", 7);
        drop(transaction);
        let mut transaction = store.transaction().await.unwrap();
        transaction.add("cash", 5);
        let entry = log.next(2);
        store.commit(Box::new(transaction), entry.clone()).await.unwrap();
        let stale = log.next(1);
        log.note_append(&entry);
        let mut transaction = store.transaction().await.unwrap();
        transaction.add("cash", 3);
        let refused = store.commit(Box::new(transaction), stale).await.unwrap_err();
        assert_eq!((refused.kind(), refused.actual_head()), (ErrorKind::Conflict, Some(log.head())));
        assert_eq!(store.row("cash").await, 5);
        assert_eq!(store.load(&log.key, At::Latest).await.unwrap().unwrap(), log.records);
        let mut own = store.transaction().await.unwrap();
        let entry = log.next(1);
        store.append_in(&mut *own, entry.clone()).await.unwrap();
        assert_eq!(store.runs().head(&log.key).await.unwrap().unwrap().head(), log.head().unwrap());
        store.finish(own).await.unwrap();
        log.note_append(&entry);
        assert_eq!(store.head(&log.key).await.unwrap().unwrap().head(), log.head().unwrap());
    }

    #[tokio::test]
    async fn of_two_who_saw_one_row_one_commits() {
        let store = LedgerStore::new();
        let (mut first, mut second, mut third) = (
            store.transaction().await.unwrap(),
            store.transaction().await.unwrap(),
            store.transaction().await.unwrap(),
        );
        first.add("cash", 1);
        let seen = second.get("cash");
        second.set("elsewhere", seen);
        third.add("other", 1);
        store.finish(first).await.unwrap();
        let refused = store.finish(second).await.unwrap_err();
        assert!(refused.kind() == ErrorKind::Unavailable && store.is_transient(&refused));
        store.finish(third).await.unwrap();
        assert_eq!((store.row("cash").await, store.row("other").await), (1, 1));
    }
}

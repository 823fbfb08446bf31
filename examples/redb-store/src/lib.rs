//! A store on `redb`, an embedded key-value database. It changes runs with conditional writes, in the style of DynamoDB.
//!
//! | Table | Key | Value |
//! |---|---|---|
//! | `runs` | tenant and run id | the *item* of the run: numbers of its first and last record, facts as JSON |
//! | `records` | tenant and run id, number | checksum of run and header, header, body |
//! | `index` | list, position in the list, tenant and run id | none |
//!
//! Each change of a run is one call of `Writer::put_if`: it replaces the item if the run's head is the expected one, and moves the run in the
//! index. The records change in the same transaction, so a reader sees all of a change or nothing.
// Large: a whole store in one file, to be read from top to bottom.

use std::collections::HashMap;
use std::ops::{Bound, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::codec::binary::{self, InvalidHeader};
use ferrata_store::{
    At, Capabilities, CheckpointStore, Clock, Error, ErrorKind, ExecutorId, Fingerprint, HeadRef,
    HeaderRange, Headers, Listing, Order, Page, Paged, PruneCut, Record, RecordHeader, Removed, Result,
    RunAppend, RunFacts, RunFilter, RunHead, RunId, RunKey, RunQuery, RunStatus, Seq, TenantId, Timestamp,
    check_append, check_batch, check_loaded, check_prune, is_repeat, page, refusal,
};
use redb::{AccessGuard, Database, ReadOnlyTable as Snapshot, ReadTransaction, ReadableDatabase};
use redb::{ReadableTable, Table, TableDefinition, WriteTransaction};
use tokio::task::spawn_blocking;

type ItemKey = (&'static str, &'static str);
type ItemRow = (u64, u64, &'static str);
type RecordKey = (ItemKey, u64);
type RecordRow = (&'static str, &'static [u8], &'static [u8]);
type IndexKey = (u8, u128, ItemKey);
type TxResult<T> = std::result::Result<T, TxError>;
/// The header of a record, the number of its newest base, and its row.
type RecordResult<'a> = TxResult<((RecordHeader, Seq), AccessGuard<'a, RecordRow>)>;
type Reader = Tables<Snapshot<ItemKey, ItemRow>, Snapshot<RecordKey, RecordRow>, Snapshot<IndexKey, ()>>;
type Writer<'t> =
    Tables<Table<'t, ItemKey, ItemRow>, Table<'t, RecordKey, RecordRow>, Table<'t, IndexKey, ()>>;

// `redb` stores the types of a table. A new layout needs other types, so that old processes refuse it.
const RUNS: TableDefinition<'_, ItemKey, ItemRow> = TableDefinition::new("runs");
const RECORDS: TableDefinition<'_, RecordKey, RecordRow> = TableDefinition::new("records");
const INDEX: TableDefinition<'_, IndexKey, ()> = TableDefinition::new("index");

const CREATED: u8 = 0; // list of all runs, by time of creation
const OWNED: u8 = 1; // list of runs in progress without a wake-up time, by owner; 0 if a run has none
const WAKING: u8 = 2; // list of runs with a wake-up time, by that time

/// A store in a `redb` database, which one process can open at a time. A clone is another handle to the same store.
#[derive(Clone, Debug)]
pub struct RedbStore {
    db: Arc<Database>,
    // A fair lock, taken before a blocking thread starts. The thread finishes a write even if the caller drops it. Without the lock, a later start
    // of the same id could overtake a dropped purge, which would then remove the new run.
    write_lock: Arc<tokio::sync::Mutex<()>>,
    heartbeats: Arc<Heartbeats>,
}

/// The heartbeats. They need no table: only one process can open the file, so the executors of other processes have ended.
#[derive(Debug)]
struct Heartbeats {
    clock: Arc<dyn Clock>,
    alive_until: Mutex<HashMap<u128, Duration>>,
}

impl Heartbeats {
    /// Returns the executors that are alive, each with the monotonic time of its expiry.
    fn alive(&self) -> MutexGuard<'_, HashMap<u128, Duration>> {
        let mut alive = self.alive_until.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.monotonic();
        alive.retain(|_, until| now < *until);
        alive
    }
}

/// The reason why a transaction ends without a commit: an error that the contract demands, or a failure of the database.
enum TxError {
    Refused(Error),
    Failed(redb::Error),
}

impl From<Error> for TxError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

macro_rules! failed {
    ($($error:ident)*) => {
        $(impl From<redb::$error> for TxError {
            fn from(error: redb::$error) -> Self {
                Self::Failed(error.into())
            }
        })*
    };
}
failed!(Error StorageError TableError TransactionError);

impl TxError {
    fn into_error(self, operation: &'static str) -> Error {
        use redb::Error::{Corrupted, TableDoesNotExist, TableTypeMismatch, ValueTooLarge};
        let error = match self {
            Self::Refused(error) => return error.with_operation(operation),
            Self::Failed(error) => error,
        };
        let (kind, message) = match &error {
            Corrupted(_) => (ErrorKind::Corrupt, "the file is damaged; restore it from a backup"),
            TableDoesNotExist(_) => (ErrorKind::Invalid, "a table is missing; call `setup` first"),
            TableTypeMismatch { .. } => (ErrorKind::Unsupported, "a newer version wrote the file; upgrade"),
            ValueTooLarge(_) => (ErrorKind::TooLarge, "a body exceeds 3 GiB; make it smaller"),
            _ => (ErrorKind::Unavailable, "the database failed; retry, or open the file again"),
        };
        Error::new(kind, message).with_operation(operation).with_source(error)
    }
}

impl RedbStore {
    /// Creates the only store of a database; clone it for more users. Heartbeats and wake-ups follow `clock`.
    pub fn new(db: Arc<Database>, clock: Arc<dyn Clock>) -> Self {
        let heartbeats = Arc::new(Heartbeats { clock, alive_until: Mutex::default() });
        Self { db, write_lock: Arc::default(), heartbeats }
    }

    /// Reads from a snapshot of the database, in a blocking thread.
    async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Reader) -> TxResult<T> + Send + 'static,
    ) -> Result<T> {
        let db = Arc::clone(&self.db);
        let work = move || read(&Reader::open(&db.begin_read()?)?);
        let stopped = |error| Error::new(ErrorKind::Unavailable, "stopped; retry").with_source(error);
        spawn_blocking(work).await.map_err(stopped)?.map_err(|error: TxError| error.into_error(operation))
    }

    /// Writes in one transaction, in a blocking thread. Returns once the transaction is synced to disk.
    async fn write<T: Send + 'static>(
        &self,
        operation: &'static str,
        write: impl FnOnce(&mut Writer<'_>) -> TxResult<T> + Send + 'static,
    ) -> Result<T> {
        let (guard, db) = (Arc::clone(&self.write_lock).lock_owned().await, Arc::clone(&self.db));
        let work = move || {
            let _guard = guard;
            // An error drops the transaction, which aborts it. By default, `redb` syncs each commit.
            let transaction = db.begin_write()?;
            let result = write(&mut Writer::open(&transaction)?)?;
            transaction.commit().map_err(unknown)?;
            Ok(result)
        };
        spawn_blocking(work).await.map_err(unknown)?.map_err(|error: TxError| error.into_error(operation))
    }
}

fn unknown(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Indeterminate, "the write may be done or not; retry it").with_source(error)
}

/// The item of a run, with the header of its last record, and the number of its newest base.
struct RunItem {
    first: Seq,
    head: RecordHeader,
    base: Seq,
    facts: RunFacts,
}

impl RunItem {
    /// Returns the index entries of the run: each list in which it appears, with its position.
    fn entries(&self) -> [Option<(u8, u128)>; 2] {
        let RecordHeader { status, owner, wake_at, .. } = self.head;
        let is_owned = status == RunStatus::InProgress && wake_at.is_none();
        let owned = is_owned.then(|| (OWNED, owner.map_or(0, |id| id.as_uuid().as_u128())));
        [Some((CREATED, position(self.facts.created))), owned.or(wake_at.map(|at| (WAKING, position(at))))]
    }

    fn into_head(self, run: RunKey, heartbeats: &Heartbeats) -> RunHead {
        let is_alive =
            self.head.owner.is_some_and(|id| heartbeats.alive().contains_key(&id.as_uuid().as_u128()));
        RunHead::after(run, self.first, &self.head, is_alive, self.facts)
    }
}

fn key(run: &RunKey) -> (&str, &str) {
    (run.tenant.as_str(), run.run.as_str())
}

/// Returns a number that sorts like the time.
fn position(at: Timestamp) -> u128 {
    u128::from(at.unix_ms().cast_unsigned() ^ 1 << 63)
}

/// Returns the checksum of a header. It covers the name of the run, so that a record is never read as one of another run.
fn checksum(run: &RunKey, header: &[u8]) -> String {
    Fingerprint::of(&[run.to_string().as_bytes(), b" ", header].concat()).to_string()
}

/// The open tables of a transaction.
struct Tables<I, R, X> {
    items: I,
    records: R,
    index: X,
}

impl<I: ReadableTable<ItemKey, ItemRow>, R: ReadableTable<RecordKey, RecordRow>, X> Tables<I, R, X> {
    fn item(&self, run: &RunKey) -> TxResult<Option<RunItem>> {
        let Some(row) = self.items.get(key(run))? else { return Ok(None) };
        let (first, last, facts) = row.value();
        let (first, last) = (Seq::new(first), Seq::new(last));
        let facts = serde_json::from_str(facts)
            .map_err(|error| refusal::corrupt(run, first, "the facts are damaged").with_source(error))?;
        let (head, base) = self.header(run, last)?;
        // A prune can make the first record a base. The headers of later records still name an earlier base.
        Ok(Some(RunItem { first, head, base: base.max(first), facts }))
    }

    /// Returns the header of a record that must exist, with the number of the newest base at or before it.
    fn header(&self, run: &RunKey, seq: Seq) -> TxResult<(RecordHeader, Seq)> {
        Ok(self.rows(run, seq..=seq)?.next().ok_or_else(|| refusal::gone(run, seq))??.0)
    }

    fn rows<'a>(
        &'a self,
        run: &'a RunKey,
        range: RangeInclusive<Seq>,
    ) -> TxResult<impl DoubleEndedIterator<Item = RecordResult<'a>>> {
        let range = (key(run), range.start().get())..=(key(run), range.end().get());
        Ok(self.records.range(range)?.map(|row| {
            let (key, row) = row?;
            let (seq, (sum, header, _)) = (Seq::new(key.value().1), row.value());
            let is_whole = checksum(run, header) == sum;
            match binary::read(header) {
                Ok(found) if is_whole && found.0.seq == seq => Ok((found, row)),
                Err(InvalidHeader::Newer { .. }) if is_whole => {
                    let message = "a newer version wrote the record; upgrade this process";
                    Err(Error::new(ErrorKind::Unsupported, message).with_run(run).with_seq(seq).into())
                }
                _ => Err(refusal::corrupt(run, seq, "the header is damaged").into()),
            }
        }))
    }

    fn load(&self, run: &RunKey, at: At) -> TxResult<Option<Vec<Record>>> {
        let Some(item) = self.item(run)? else { return Ok(None) };
        let stored = item.first..=item.head.seq;
        let end = match at {
            At::Latest => Some(item.head.seq),
            At::Seq(seq) => Some(seq),
            At::Record(id) => {
                let mut rows = self.rows(run, stored.clone())?.rev();
                let found = rows.find(|row| row.as_ref().map_or(true, |((header, _), _)| header.id == id));
                found.transpose()?.map(|((header, _), _)| header.seq)
            }
        };
        let end = end.filter(|end| stored.contains(end));
        let end = end.ok_or_else(|| refusal::no_record("store.load", run, at))?;
        let mut records = Vec::new();
        for row in self.rows(run, self.header(run, end)?.1.max(item.first)..=end)? {
            let ((header, _), row) = row?;
            let record = Record { header, body: row.value().2.to_vec().into() };
            record.verify(run)?;
            records.push(record);
        }
        check_loaded(run, &records, end)?;
        Ok(Some(records))
    }

    fn headers(&self, run: &RunKey, range: HeaderRange) -> TxResult<Headers> {
        let item = self.item(run)?.ok_or_else(|| refusal::no_run("store.headers", run))?;
        let rows = range.within(item.first, item.head.seq).map(|(begin, end)| self.rows(run, begin..=end));
        let rows = rows.transpose()?.into_iter().flatten();
        let headers = rows.map(|row| Ok(row?.0.0)).collect::<TxResult<_>>()?;
        Ok(Headers::whole(run, range, (item.first, item.head.seq), headers)?)
    }
}

impl Reader {
    fn open(transaction: &ReadTransaction) -> TxResult<Self> {
        let (items, records) = (transaction.open_table(RUNS)?, transaction.open_table(RECORDS)?);
        Ok(Self { items, records, index: transaction.open_table(INDEX)? })
    }

    /// Lists runs. `Orphaned` and `Due` read only runs that may match. Other listings read runs in order, until the page is full.
    fn list(&self, query: &RunQuery, asked: &Page, heartbeats: &Heartbeats) -> TxResult<Paged<RunHead>> {
        let now = heartbeats.clock.now();
        let (list, end) = match query.filter {
            RunFilter::Orphaned => (OWNED, u128::MAX),
            RunFilter::Due => (WAKING, position(now)),
            _ => (CREATED, u128::MAX),
        };
        let find = |(list, owner, (tenant, id)): (u8, u128, (&str, &str))| {
            if list == OWNED && heartbeats.alive().contains_key(&owner) {
                return Ok(None);
            }
            let run = RunKey::new(TenantId::new(tenant)?, RunId::new(id)?);
            match self.item(&run) {
                Ok(item) => Ok(item.map(|item| item.into_head(run, heartbeats))),
                Err(TxError::Refused(error)) if !query.fails_without(&run) => {
                    tracing::warn!(%run, %error, "skipped an unreadable run in a listing");
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        };
        let after = Listing::of_runs(query, asked.order).after(asked)?.filter(|_| list == CREATED);
        let after = after.as_ref().map(|after| (CREATED, position(after.created), key(&after.run)));
        let is_reverse = asked.order == Order::NewestFirst;
        let begin = after.filter(|_| !is_reverse).unwrap_or((list, 0, ("", "")));
        // Names are ASCII without DEL, so the key with DEL sorts after all runs.
        let end = after.filter(|_| is_reverse).unwrap_or((list, end, ("\u{7f}", "")));
        let mut entries = self.index.range((Bound::Excluded(begin), Bound::Excluded(end)))?;
        let mut heads = Vec::new();
        // Stop after one run more than the page holds: it shows that another page follows.
        while (list != CREATED || heads.len() <= asked.max_items())
            && let Some(entry) = if is_reverse { entries.next_back() } else { entries.next() }
        {
            heads.extend(find(entry?.0.value())?.filter(|head| query.matches(head, now)));
        }
        Ok(page(query, asked, now, heads)?)
    }
}

impl<'t> Writer<'t> {
    /// Opens the tables, and creates missing ones.
    fn open(transaction: &'t WriteTransaction) -> TxResult<Self> {
        let (items, records) = (transaction.open_table(RUNS)?, transaction.open_table(RECORDS)?);
        Ok(Self { items, records, index: transaction.open_table(INDEX)? })
    }

    /// The conditional write: replaces the item by `new` if the run's head is `expected`, and refuses with the actual head if it is not. In DynamoDB,
    /// this is a `PutItem` or `DeleteItem` with a `ConditionExpression`. The index entries change with the item, as in a secondary index.
    fn put_if(&mut self, run: &RunKey, expected: Option<HeadRef>, new: Option<&RunItem>) -> TxResult<()> {
        let old = self.item(run)?;
        let actual = old.as_ref().map(|item| item.head.head());
        if actual != expected {
            return Err(refusal::conflict(run, expected, actual).into());
        }
        match new {
            Some(RunItem { first, head, facts, .. }) => {
                let invalid =
                    |error| Error::new(ErrorKind::Invalid, "cannot encode facts").with_source(error);
                let facts = serde_json::to_string(facts).map_err(invalid)?;
                self.items.insert(key(run), (first.get(), head.seq.get(), facts.as_str()))?;
            }
            None => drop(self.items.remove(key(run))?),
        }
        let [before, after] = [old.as_ref(), new].map(|item| item.map_or([None; 2], RunItem::entries));
        for (list, position) in before.into_iter().flatten().filter(|_| before != after) {
            self.index.remove((list, position, key(run)))?;
        }
        for (list, position) in after.into_iter().flatten().filter(|_| before != after) {
            self.index.insert((list, position, key(run)), ())?;
        }
        Ok(())
    }

    fn put_record(&mut self, run: &RunKey, base: Seq, record: &Record) -> TxResult<()> {
        // Every log begins with a base, so this error cannot occur. It would abort the transaction.
        let header = binary::write(&record.header, base)
            .ok_or_else(|| redb::Error::Corrupted(format!("record {} has no base", record.header.seq)))?;
        let sum = checksum(run, &header);
        self.records.insert((key(run), record.header.seq.get()), (&*sum, &*header, &*record.body))?;
        Ok(())
    }

    /// Removes the records up to number `end`.
    fn remove_records(&mut self, run: &RunKey, end: Bound<u64>) -> TxResult<Removed> {
        let mut removed = Removed::default();
        let range = (Bound::Included((key(run), 0)), end.map(|end| (key(run), end)));
        self.records.retain_in(range, |_, (_, _, body)| {
            removed = Removed { records: removed.records + 1, bytes: removed.bytes + body.len() as u64 };
            false
        })?;
        Ok(removed)
    }

    /// Appends an entry. A refusal comes before the first write, so that the other entries of the transaction can commit.
    fn append(&mut self, append: &RunAppend) -> TxResult<HeadRef> {
        let RunAppend { run, expected, records, facts } = append;
        let old = self.item(run)?;
        let facts = old.as_ref().map(|item| &item.facts).or(facts.as_ref());
        let (Some(last), Some(facts)) = (records.last(), facts) else {
            return Err(refusal::conflict(run, *expected, None).into());
        };
        let (mut base, first) = old.as_ref().map_or_else(Default::default, |item| (item.base, item.first));
        if old.as_ref().is_some_and(|item| item.head.id == last.header.id) {
            let newest = self.rows(run, first..=last.header.seq)?.rev().take(records.len());
            let newest: Vec<_> = newest.map(|row| Ok(row?.0.0)).collect::<TxResult<_>>()?;
            if is_repeat(&newest, append) {
                return Ok(last.header.head());
            }
        }
        let new = RunItem { first, base, head: last.header.clone(), facts: facts.clone() };
        self.put_if(run, *expected, Some(&new))?;
        for record in records {
            base = if record.header.base { record.header.seq } else { base };
            self.put_record(run, base, record)?;
        }
        Ok(last.header.head())
    }

    fn prune(&mut self, run: &RunKey, cut: &PruneCut) -> TxResult<Removed> {
        let item = self.item(run)?.ok_or_else(|| refusal::no_run("store.prune", run))?;
        if cut.at < item.first {
            return Ok(Removed::default());
        }
        if cut.at > item.head.seq {
            return Err(refusal::no_record("store.prune", run, At::Seq(cut.at)).into());
        }
        if let Some(base) = check_prune(run, &self.header(run, cut.at)?.0, cut)? {
            self.put_record(run, cut.at, base)?;
        }
        self.put_if(run, Some(item.head.head()), Some(&RunItem { first: cut.at, ..item }))?;
        self.remove_records(run, Bound::Excluded(cut.at.get()))
    }

    fn purge(&mut self, run: &RunKey, expected: Option<HeadRef>) -> TxResult<Removed> {
        match self.item(run) {
            Ok(None) => return Ok(Removed::default()),
            Ok(Some(item)) => self.put_if(run, expected.or(Some(item.head.head())), None)?,
            // The index entries of an unreadable run are unknown, so search the whole index.
            Err(TxError::Refused(_)) if expected.is_none() => {
                self.items.remove(key(run))?;
                self.index.retain(|(_, _, name), ()| name != key(run))?;
            }
            Err(error) => return Err(error),
        }
        self.remove_records(run, Bound::Included(u64::MAX))
    }
}

#[async_trait]
impl CheckpointStore for RedbStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("redb").with_durable(true)
    }

    async fn setup(&self) -> Result<()> {
        self.write("store.setup", |_| Ok(())).await
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let count = batch.len();
        let append_all = move |writer: &mut Writer<'_>| {
            let mut results = Vec::with_capacity(batch.len());
            for (append, check) in batch.iter().zip(check_batch(&batch, check_append)) {
                results.push(match check.map_err(TxError::Refused).and_then(|()| writer.append(append)) {
                    Err(TxError::Refused(error)) => Err(error),
                    result => Ok(result?),
                });
            }
            Ok(results)
        };
        // The batch is one transaction. If it fails, all of its entries have the same outcome.
        self.write("store.append", append_all).await.unwrap_or_else(|error| vec![Err(error); count])
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        let run = run.clone();
        self.read("store.load", move |tables| tables.load(&run, at)).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        let run = run.clone();
        self.read("store.headers", move |tables| tables.headers(&run, range)).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        let (run, heartbeats) = (run.clone(), Arc::clone(&self.heartbeats));
        let read = move |tables: &Reader| Ok(tables.item(&run)?.map(|item| item.into_head(run, &heartbeats)));
        self.read("store.head", read).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        let (query, heartbeats) = (query.clone(), Arc::clone(&self.heartbeats));
        self.read("store.runs", move |tables| tables.list(&query, &page, &heartbeats)).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        let run = run.clone();
        self.write("store.prune", move |writer| writer.prune(&run, &cut)).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        let run = run.clone();
        self.write("store.purge", move |writer| writer.purge(&run, expected)).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        let until = self.heartbeats.clock.monotonic().saturating_add(ttl);
        self.heartbeats.alive().insert(executor.as_uuid().as_u128(), until);
        Ok(())
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        Ok(self.heartbeats.alive().contains_key(&executor.as_uuid().as_u128()))
    }
}

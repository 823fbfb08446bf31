//! The writer of an instance: a thread that takes the waiting jobs and commits the appends of many runs in one transaction. If no other job is in
//! progress, the caller commits an append of one run itself, which saves the round trip to the thread.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferrata_store::{
    Clock as _, ErrorKind, HeadRef, PruneCut, Record, Removed, Result, RunAppend, RunKey, SystemClock, within,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::db::SqliteDb;
use crate::error::SqliteStoreError;
use crate::session::WriterSession;
use crate::statement::SqlStatement;

/// The maximum number of entries, and of bytes of bodies, in one transaction, unless one call has more. The limit exists because other writers wait
/// for the end of the transaction.
const MAX_ENTRIES: usize = 1_000;
const MAX_BYTES: usize = 16 << 20;

/// How long a busy writer works before it releases the lock, and how long it then pauses. The pause is longer than the polling interval of a
/// waiting writer, so another process can take the lock.
const TURN: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(3);

/// A job of the writer, with the channel to its waiting caller.
pub(crate) enum WriterJob {
    Append(Vec<RunAppend>, oneshot::Sender<Vec<Result<HeadRef>>>),
    Prune(RunKey, PruneCut, oneshot::Sender<Result<Removed>>),
    Purge(RunKey, Option<HeadRef>, oneshot::Sender<Result<Removed>>),
    Reseal(RunKey, Vec<Record>, oneshot::Sender<Result<u64>>),
    SetUp(oneshot::Sender<Result<(), SqliteStoreError>>),
}

/// A handle to the writer thread. The thread starts with the first job and ends with the store.
#[derive(Debug)]
pub(crate) struct WriterHandle {
    jobs: Mutex<Option<UnboundedSender<WriterJob>>>,
    shared: Arc<WriterShared>,
}

/// The state that callers share with the writer thread.
#[derive(Debug)]
struct WriterShared {
    db: Arc<SqliteDb>,
    session: tokio::sync::Mutex<WriterSession>,
    /// The connection for heartbeats.
    beats: tokio::sync::Mutex<WriterSession>,
    /// The number of pending jobs of the thread. A caller that writes by itself must not overtake them.
    waiting: AtomicUsize,
    /// Whether the last transaction had several callers. If so, the next callers will probably come together, too, and a caller that writes by
    /// itself would make the others wait for one more commit.
    is_crowd: AtomicBool,
}

impl WriterHandle {
    pub(crate) fn new(db: Arc<SqliteDb>) -> Self {
        let new_session = || tokio::sync::Mutex::new(WriterSession::new(Arc::clone(&db)));
        let (session, beats) = (new_session(), new_session());
        let shared = WriterShared {
            db,
            session,
            beats,
            waiting: AtomicUsize::new(0),
            is_crowd: AtomicBool::new(false),
        };
        Self { jobs: Mutex::default(), shared: Arc::new(shared) }
    }

    /// Appends each entry.
    pub(crate) async fn append(
        &self,
        entries: Vec<RunAppend>,
    ) -> Result<Vec<Result<HeadRef>>, SqliteStoreError> {
        if let [entry] = &entries[..]
            && self.shared.waiting.load(Ordering::Acquire) == 0
            && !self.shared.is_crowd.load(Ordering::Relaxed)
            && let Ok(mut session) = self.shared.session.try_lock()
            && let Some(done) = session.step(entry).await
        {
            return Ok(vec![done]);
        }
        self.run(|reply| WriterJob::Append(entries, reply)).await
    }

    /// Writes a heartbeat over its own connection. So a heartbeat waits only for the lock of the file, however many jobs the thread has. A second
    /// heartbeat at the same time opens another connection, because a caller that is not polled keeps the first one.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the heartbeat may still be written; the connection is then closed.
    pub(crate) async fn write_heartbeat(&self, statement: SqlStatement) -> Result<(), SqliteStoreError> {
        match self.shared.beats.try_lock() {
            Ok(mut session) => session.write(statement).await,
            Err(_) => WriterSession::new(Arc::clone(&self.shared.db)).write(statement).await,
        }
    }

    /// Sends a job to the thread and waits for its result. If the caller is dropped, a job that has the lock of the file still runs. A start, a
    /// prune or a purge that waits for the lock then does nothing.
    pub(crate) async fn run<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<T>) -> WriterJob,
    ) -> Result<T, SqliteStoreError> {
        let (reply, replied) = oneshot::channel();
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        self.send(job(reply)).inspect_err(|_| self.shared.count_done(1))?;
        // If the thread ended, the outcome of its job is unknown.
        let ended =
            |_| SqliteStoreError::new(ErrorKind::Indeterminate, "the writer of the database ended; retry");
        replied.await.map_err(ended)
    }

    fn send(&self, job: WriterJob) -> Result<(), SqliteStoreError> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = match jobs.as_ref() {
            Some(sender) => match sender.send(job) {
                Ok(()) => return Ok(()),
                Err(refused) => refused.0,
            },
            None => job,
        };
        let started = start(Arc::clone(&self.shared)).map_err(|error| {
            let message = format!("cannot start the writer of the database: {error}; retry");
            SqliteStoreError::new(ErrorKind::Unavailable, message)
        })?;
        // The receiver exists, because this function holds it.
        let _sent = started.send(refused);
        *jobs = Some(started);
        Ok(())
    }
}

impl WriterShared {
    fn count_done(&self, count: usize) {
        self.waiting.fetch_sub(count, Ordering::AcqRel);
    }
}

/// Starts the thread. The driver's futures run on it, so that the end of an application's runtime does not stop them.
fn start(shared: Arc<WriterShared>) -> std::io::Result<UnboundedSender<WriterJob>> {
    let (sender, jobs) = unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let serve = move || runtime.block_on(serve(&shared, jobs));
    std::thread::Builder::new().name("ferrata-sqlite".to_owned()).spawn(serve)?;
    Ok(sender)
}

async fn serve(shared: &WriterShared, mut jobs: UnboundedReceiver<WriterJob>) {
    let clock = SystemClock::new();
    let (mut next, mut since) = (None, clock.monotonic());
    let (mut own, mut patience) = (WriterSession::new(Arc::clone(&shared.db)), TURN);
    loop {
        let job = match next.take() {
            Some(job) => job,
            None => {
                let Some(job) = jobs.recv().await else { break };
                job
            }
        };
        // A caller that is not polled may keep the session for any time. The thread then uses its own session; SQLite's lock excludes the two from
        // each other.
        let mut lent = within(&clock, patience, shared.session.lock()).await;
        patience = if lent.is_some() { TURN } else { Duration::ZERO };
        let session = lent.as_deref_mut().unwrap_or(&mut own);
        let mut count = 1;
        match job {
            WriterJob::Append(entries, reply) => {
                let mut group = AppendGroup::new(entries, reply);
                while let Ok(more) = jobs.try_recv() {
                    next = group.take(more);
                    if next.is_some() {
                        break;
                    }
                }
                count = group.waiting.len();
                shared.is_crowd.store(count > 1, Ordering::Relaxed);
                let results = session.append(&group.entries, |place| group.is_awaited(place)).await;
                group.answer(results);
            }
            WriterJob::Prune(run, cut, reply) => {
                let done = session.prune(&run, &cut, || !reply.is_closed()).await;
                drop(reply.send(done));
            }
            WriterJob::Purge(run, expected, reply) => {
                let done = session.purge(&run, expected, || !reply.is_closed()).await;
                drop(reply.send(done));
            }
            WriterJob::Reseal(run, records, reply) => {
                let done = session.reseal(&run, &records, || !reply.is_closed()).await;
                drop(reply.send(done));
            }
            WriterJob::SetUp(reply) => drop(reply.send(session.set_up().await)),
        }
        session.bound_log().await;
        drop(lent);
        shared.count_done(count);
        if next.is_none() && jobs.is_empty() {
            since = clock.monotonic();
        } else if clock.monotonic().saturating_sub(since) > TURN {
            clock.sleep(PAUSE).await;
            since = clock.monotonic();
        }
    }
    own.close().await;
    shared.session.lock().await.close().await;
    if let Ok(mut beats) = shared.beats.try_lock() {
        beats.close().await;
    }
}

/// Appends of several calls that go into one transaction. A run occurs only once, because a second append of the run needs the result of the first.
struct AppendGroup {
    entries: Vec<RunAppend>,
    runs: HashSet<RunKey>,
    bytes: usize,
    waiting: Vec<(usize, oneshot::Sender<Vec<Result<HeadRef>>>)>,
}

impl AppendGroup {
    fn new(entries: Vec<RunAppend>, reply: oneshot::Sender<Vec<Result<HeadRef>>>) -> Self {
        let runs = entries.iter().map(|entry| entry.run.clone()).collect();
        let (bytes, count) = (bytes(&entries), entries.len());
        Self { entries, runs, bytes, waiting: vec![(count, reply)] }
    }

    /// Adds a job to the group. Returns the job if it cannot be in this transaction.
    fn take(&mut self, job: WriterJob) -> Option<WriterJob> {
        let WriterJob::Append(entries, reply) = job else { return Some(job) };
        let more = bytes(&entries);
        if self.entries.len() + entries.len() > MAX_ENTRIES
            || self.bytes + more > MAX_BYTES
            || entries.iter().any(|entry| self.runs.contains(&entry.run))
        {
            return Some(WriterJob::Append(entries, reply));
        }
        self.bytes += more;
        self.runs.extend(entries.iter().map(|entry| entry.run.clone()));
        self.waiting.push((entries.len(), reply));
        self.entries.extend(entries);
        None
    }

    /// Returns whether the caller of the entry at index `place` still waits.
    fn is_awaited(&self, place: usize) -> bool {
        let mut end = 0;
        let caller = self.waiting.iter().find(|(count, _)| {
            end += count;
            place < end
        });
        caller.is_some_and(|(_, reply)| !reply.is_closed())
    }

    fn answer(self, mut results: Vec<Result<HeadRef>>) {
        for (count, reply) in self.waiting {
            let rest = results.split_off(count.min(results.len()));
            // Fails if the caller was dropped: then no caller waits.
            let _sent = reply.send(std::mem::replace(&mut results, rest));
        }
    }
}

fn bytes(entries: &[RunAppend]) -> usize {
    entries.iter().flat_map(|entry| &entry.records).map(|record| record.body.len()).sum()
}

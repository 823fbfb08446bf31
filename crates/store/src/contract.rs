//! The contract between the library and a store: a trait with ten required and seven optional methods, and the types of its arguments and results.

use std::fmt;
use std::future::{Future as _, poll_fn};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::query::{At, Page, Paged, RunHead, RunQuery};
use crate::error::{Error, ErrorKind, Result};
use crate::headers::{HeaderRange, Headers};
use crate::id::{ExecutorId, HeadRef, RunKey, Seq, TenantId};
use crate::record::{Record, RunFacts};
use crate::relay::Relay;
use crate::resealing::Resealing;
use crate::transaction::Transactions;

/// An append: the records to add to one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAppend {
    /// The run.
    pub run: RunKey,
    /// The head that the run must have; `None` if the run must not exist.
    pub expected: Option<HeadRef>,
    /// The records to add: at least one, numbered from the expected head and chained by `prev`.
    pub records: Vec<Record>,
    /// The facts of a new run; present if and only if `expected` is `None`.
    pub facts: Option<RunFacts>,
}

impl RunAppend {
    /// Returns whether the append writes an internal record of a sharded store: its map, or a signpost that names the shard of a run.
    ///
    /// Stores treat the runs of these records like other finished runs. A store with retention must keep them forever: without its signpost, a run
    /// could be started a second time in another shard.
    #[doc(hidden)]
    pub fn is_mark(&self) -> bool {
        let is_map = self.run.tenant == TenantId::default() && self.run.run.as_str() == SHARD_MAP;
        is_map || self.facts.as_ref().is_some_and(|facts| facts.workflow.is_reserved())
    }
}

/// The id of the run in which a sharded store keeps its map. The run is in the default tenant, and its workflow has the same name.
#[doc(hidden)]
pub const SHARD_MAP: &str = "ferrata:shards";

/// Makes the checks that every store must make before it writes. The append must have records, with dense numbers, chained by `prev`, and sealed.
///
/// # Errors
///
/// [`ErrorKind::Invalid`], with run and record. The store wrote nothing.
pub fn check_append(append: &RunAppend) -> Result<()> {
    let RunAppend { run, expected, records, facts } = append;
    let refuse = |seq: Option<Seq>, message: &str| {
        let error = Error::new(ErrorKind::Invalid, message).with_operation("store.append").with_run(run);
        Err(match seq {
            Some(seq) => error.with_seq(seq),
            None => error,
        })
    };
    if records.is_empty() {
        return refuse(None, "nothing to append; pass at least one record");
    }
    if facts.is_some() == expected.is_some() {
        return refuse(
            None,
            "only the first append of a run has facts; pass facts with the first record and nowhere else",
        );
    }
    if expected.is_some_and(|head| head.seq == head.seq.next()) {
        return refuse(None, "the log has the maximum number of records; start a new run");
    }
    let (mut seq, mut prev) = match expected {
        Some(head) => (head.seq.next(), Some(head.id)),
        None => (Seq::new(0), None),
    };
    for record in records {
        if record.header.seq != seq {
            return refuse(
                Some(record.header.seq),
                "the record does not follow the previous record; number records without gaps",
            );
        }
        if record.header.prev != prev {
            return refuse(Some(seq), "the `prev` of the record is not the id of the previous record");
        }
        record.verify(run)?;
        prev = Some(record.header.id);
        seq = seq.next();
    }
    if expected.is_none() && !records[0].header.base {
        return refuse(Some(Seq::new(0)), "the first record of a run must be a base");
    }
    Ok(())
}

/// The position up to which a run is pruned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneCut {
    /// The oldest record to keep.
    pub at: Seq,
    /// The base that replaces the record at `at`: the record with the same header fields, but with the full state. `None` if that record is a base
    /// already.
    pub base: Option<Record>,
}

/// Returns whether `records`, a result of [`load_since`](CheckpointStore::load_since), are only the records after `known`. If not, they are the
/// result of a complete load.
#[doc(hidden)]
pub fn is_news(known: HeadRef, records: &[Record]) -> bool {
    records
        .first()
        .is_none_or(|first| first.header.seq == known.seq.next() && first.header.prev == Some(known.id))
}

/// The result of pruning or purging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The number of removed records.
    pub records: u64,
    /// The size of the removed bodies, in bytes.
    pub bytes: u64,
}

/// The abilities of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The store's name, as in a URL: `memory`, `file`, `postgres`.
    pub name: &'static str,
    /// If true, an acknowledged record survives the end of the process.
    pub durable: bool,
    /// If true, several processes may use the store at the same time.
    pub shared: bool,
    /// Whether [`CheckpointStore::subscribe`] returns notices.
    pub notices: bool,
}

impl Capabilities {
    /// Creates the capabilities of a store that is not durable, not shared, and sends no notices.
    pub fn new(name: &'static str) -> Self {
        Self { name, durable: false, shared: false, notices: false }
    }

    /// Sets whether an acknowledged record survives the end of the process.
    #[must_use]
    pub fn with_durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Sets whether several processes may use the store at the same time.
    #[must_use]
    pub fn with_shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// Sets whether the store sends notices of changes.
    #[must_use]
    pub fn with_notices(mut self, notices: bool) -> Self {
        self.notices = notices;
        self
    }
}

/// A hint that a run changed. Notices may be lost, duplicated or late, so a receiver must read the run to learn its state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notice {
    /// The run.
    pub run: RunKey,
    /// The head that an append gave the run, if the store knows it.
    ///
    /// A reader that knows the run up to this head need not read it. So a writer does not read its own records back.
    pub head: Option<HeadRef>,
}

impl Notice {
    /// Creates a notice that a run changed, without its new head.
    pub fn new(run: RunKey) -> Self {
        Self { run, head: None }
    }

    /// Sets the head that an append gave the run.
    #[must_use]
    pub fn with_head(mut self, head: HeadRef) -> Self {
        self.head = Some(head);
        self
    }
}

/// A stream of notices of changed runs.
#[derive(Debug)]
pub struct Notices(Vec<broadcast::Receiver<Notice>>);

impl Notices {
    /// Creates the stream from the receiver of a store's channel.
    pub fn new(receiver: broadcast::Receiver<Notice>) -> Self {
        Self(vec![receiver])
    }

    /// Merges the notices of several stores, for a store that wraps them.
    pub fn merged(all: impl IntoIterator<Item = Self>) -> Self {
        Self(all.into_iter().flat_map(|notices| notices.0).collect())
    }

    /// Waits for the next notice. `Ok(None)` means that notices were missed, so any run may have changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`]: the store, or one of the merged stores, is closed. Poll from now on.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future loses no notice.
    pub async fn next(&mut self) -> Result<Option<Notice>> {
        let (received, from) = match self.take() {
            Some(taken) => taken,
            None => self.wait().await,
        };
        // Start with the next store in the following call, so that one busy store cannot starve the others.
        let count = self.0.len();
        self.0.rotate_left((from + 1).checked_rem(count).unwrap_or_default());
        match received {
            Ok(notice) => Ok(Some(notice)),
            Err(RecvError::Lagged(_)) => Ok(None),
            Err(RecvError::Closed) => {
                Err(Error::new(ErrorKind::Closed, "the store sends no more notices; poll instead"))
            }
        }
    }

    /// Returns a notice that has already arrived, with the index of its store, without waiting.
    fn take(&mut self) -> Option<(Result<Notice, RecvError>, usize)> {
        self.0.iter_mut().enumerate().find_map(|(index, receiver)| match receiver.try_recv() {
            Ok(notice) => Some((Ok(notice), index)),
            Err(TryRecvError::Lagged(missed)) => Some((Err(RecvError::Lagged(missed)), index)),
            Err(TryRecvError::Closed) => Some((Err(RecvError::Closed), index)),
            Err(TryRecvError::Empty) => None,
        })
    }

    /// Waits for the next notice. Also returns the index of its store.
    async fn wait(&mut self) -> (Result<Notice, RecvError>, usize) {
        let mut waiting: Vec<_> = self.0.iter_mut().map(|receiver| Box::pin(receiver.recv())).collect();
        poll_fn(|context| {
            for (index, next) in waiting.iter_mut().enumerate() {
                if let Poll::Ready(received) = next.as_mut().poll(context) {
                    return Poll::Ready((received, index));
                }
            }
            match waiting.is_empty() {
                true => Poll::Ready((Err(RecvError::Closed), 0)),
                false => Poll::Pending,
            }
        })
        .await
    }
}

/// Stores the logs of runs.
///
/// A run is an append-only log of [`Record`]s, numbered densely from 0. All safety of runs relies on one rule: [`append`](Self::append) succeeds
/// only if the run's head is exactly the expected head.
///
/// # To ensure correctness, implementors must
///
/// - make each append visible completely or not at all, to readers in any process, even if the writing process dies in the middle;
/// - if several appends expect the same head, let exactly one succeed, whichever process or instance they come from;
/// - return `Ok` only once the records are durable, to the degree that [`Capabilities::durable`] says;
/// - keep tenants apart: the same run id in two tenants means two runs;
/// - never read bodies, never create an id, and take the time from an injected clock or from the server;
/// - never panic, whatever is stored. Report damage as [`ErrorKind::Corrupt`] with run and record, and a newer format as
///   [`ErrorKind::Unsupported`]. Other runs must stay usable and listable.
///
/// # Callers may assume
///
/// - after `Ok`, every reader sees the records, and no later append that expects an older head succeeds;
/// - after any error except [`ErrorKind::Indeterminate`], the store wrote nothing of that entry;
/// - a stored record never changes, with two exceptions: [`prune`](Self::prune) may turn it into a base, and a wrapper may replace its envelope
///   through [`resealing`](Self::resealing).
#[async_trait]
pub trait CheckpointStore: fmt::Debug + Send + Sync + 'static {
    /// Returns the abilities of this store. They are constant for the lifetime of the instance.
    fn capabilities(&self) -> Capabilities;

    /// Prepares the storage: creates folders or tables, or probes the server.
    ///
    /// The call is idempotent. Many processes may call it at the same time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] (retry), [`ErrorKind::Unsupported`] (the storage cannot satisfy the contract, or a newer version created it),
    /// [`ErrorKind::Invalid`] (a setting is wrong).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again.
    async fn setup(&self) -> Result<()>;

    /// Appends each run's records after that run's head.
    ///
    /// Returns one result for each entry, in order. The records of an entry become visible completely or not at all. They are durable when the
    /// result of the entry is `Ok`. The entries are independent: a refused entry never harms another entry. If a run has more than one entry in a
    /// batch, the store refuses the second and every further entry with [`ErrorKind::Invalid`].
    ///
    /// If the log already ends with exactly these records, the call returns `Ok` and writes nothing. The store recognizes records by their ids.
    ///
    /// # Errors
    ///
    /// Each entry has its own result:
    /// - [`ErrorKind::Conflict`], with [`Error::actual_head`]: the run's head is not the expected record. Or the run exists although it must not,
    ///   or does not exist although it must. The store wrote nothing; load the run, check the other writer's records, and decide again.
    /// - [`ErrorKind::Unavailable`]: the store wrote nothing; retry with a growing delay.
    /// - [`ErrorKind::Indeterminate`]: the reply was lost. Retry the same records: their ids make the retry safe.
    /// - [`ErrorKind::Invalid`]: the entry fails [`check_append`]. The store wrote nothing.
    /// - [`ErrorKind::TooLarge`], [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: the store wrote nothing.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: after a dropped future, as after `Indeterminate`, the records may or may not be stored.
    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>>;

    /// Loads the records that define the run as of `at`: the newest base at or before `at`, and all records from that base up to and including
    /// `at`, in order. Returns `None` if the run does not exist.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: the run exists, but has no record at `at`: `at` is beyond the head, or that record was pruned.
    /// - [`ErrorKind::Corrupt`]: a record is damaged, or the run has no base. The store never returns an empty run instead.
    /// - [`ErrorKind::Unsupported`]: a newer version wrote a record.
    /// - [`ErrorKind::Unavailable`]: the store cannot be reached; retry.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>>;

    /// Lists the headers of a range of the run's records, in the order of their numbers, without reading bodies.
    ///
    /// Numbers are dense, so the headers have no gap. [`HeaderRange::within`] defines which of the stored records a range selects: at most
    /// [`HeaderRange::MAX`]. A store may return fewer headers, namely those next to the range's [`anchor`](HeaderRange::anchor). It returns no
    /// header only if the range selects none. The answer also says which records the run stores, so the caller can continue with
    /// [`HeaderRange::after`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the run does not exist, and the errors of [`load`](Self::load).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers>;

    /// Returns the run's head; `None` if the run does not exist.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Corrupt`]: the run's head is damaged.
    /// - [`ErrorKind::Unsupported`]: a newer version wrote the run's head.
    /// - [`ErrorKind::Unavailable`]: the store cannot be reached; retry.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>>;

    /// Lists the runs that match the query.
    ///
    /// The store logs and omits unreadable runs, so an unreadable run never hides other runs. A caller that needs every run requests a
    /// [`complete`](RunQuery::complete) listing, which fails if a run is unreadable.
    ///
    /// A cursor is valid only for its query and its order. Every instance of the store accepts it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the cursor belongs to another query or order, or is no cursor of this store.
    /// - [`ErrorKind::Unavailable`]: the store cannot be reached; retry.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: only for a complete listing, if a run is unreadable.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>>;

    /// Turns the record at `cut.at` into a base if it is no base yet, then removes every record before it.
    ///
    /// The store makes the base durable before it removes anything. So a crash can leave garbage, but never a gap; a second prune removes the
    /// garbage. The head does not change, and appends may run at the same time. To prune a run that is pruned already is `Ok`.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: the run or the record does not exist. The store changed nothing.
    /// - [`ErrorKind::Invalid`]: the record is no base and the caller gave no base, or gave another record. The store changed nothing.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: after a dropped future, the prune may be done, not done, or done except for garbage. Call it again.
    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed>;

    /// Removes the run and all its data. Returns the amount that it removed; zeros if the run does not exist.
    ///
    /// With an `expected` head, the store removes the run only if that is its head. If a purge and an append expect the same head, exactly one of
    /// them succeeds. Without an expected head, the store removes the run whatever was appended meanwhile, even if the run is damaged or has a
    /// newer format.
    ///
    /// The run's id can be used again. The store refuses a writer of the old generation, because that writer expects a record that the new run
    /// never had.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unavailable`]: parts of the run may remain. Call it again with the same expected head.
    /// - [`ErrorKind::Conflict`], with [`Error::actual_head`]: the run's head is not the expected head. The store removed nothing.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: the caller expected a head, but the run's head cannot be read. The store removed
    ///   nothing.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: after a dropped future, the purge may be done, not done, or half done. Call it again. Requests that are on their way to a
    /// server may arrive later. If they have an expected head, they cannot remove a later run with the same id.
    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed>;

    /// Records that an executor is alive for `ttl` from now, by the store's clock. A `ttl` of zero records that the executor has ended.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`], [`ErrorKind::Indeterminate`]: the executor must assume that the heartbeat was lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the store may or may not have recorded the heartbeat.
    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()>;

    /// Returns whether an executor is alive. Returns `false` if its last heartbeat has expired by the store's clock, or if it never sent a
    /// heartbeat.
    ///
    /// The default implementation, for stores that cannot know this, returns `true`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`]: the store cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        let _ = executor;
        Ok(true)
    }

    /// Loads the records after the record `known` up to the head, for a caller that knows the run up to `known`. The result is in order, and empty
    /// if `known` is the head. Returns `None` if the run does not exist.
    ///
    /// If the store no longer has `known`, or cannot load only the later records, it returns the result of a [`load`](Self::load) at the head.
    /// [`is_news`] tells the two results apart. So a store may always answer with a load, which is the default. A run that was purged and started
    /// again never matches `known`.
    ///
    /// The method exists for speed: it reads only as much as was appended since `known`.
    ///
    /// # Errors
    ///
    /// The errors of [`load`](Self::load).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        let _ = known;
        self.load(run, At::Latest).await
    }

    /// Returns the number of the part of the store that holds the run. Work on one part never waits for another part.
    ///
    /// Parts matter for stores that consist of several stores, such as a sharded store. The runtime never mixes runs of several parts in one batch,
    /// so a part that hangs delays only its own runs. Any number is valid, and the number of a run may change. The method does not wait.
    fn part(&self, run: &RunKey) -> u64 {
        let _ = run;
        0
    }

    /// Returns the store's transactions, if nodes can write to the store's database in the same transaction as their records. The result is
    /// constant for the lifetime of the instance.
    fn transactions(&self) -> Option<&dyn Transactions> {
        None
    }

    /// Returns the interface that replaces the envelopes of records, if the store can replace a record's body. Without it, an old encryption key is
    /// needed until all records that it encrypted are removed. The result is constant for the lifetime of the instance.
    fn resealing(&self) -> Option<&dyn Resealing> {
        None
    }

    /// Returns the interface that sends texts between the processes of the store, if the store has one. With it, chunks of streams reach watchers
    /// in all processes. The result is constant for the lifetime of the instance.
    fn relay(&self) -> Option<&dyn Relay> {
        None
    }

    /// Subscribes to notices of changed runs, if the store sends notices. Without them, the runtime polls.
    fn subscribe(&self) -> Option<Notices> {
        None
    }
}

//! The contract between the library and a store: one trait of ten methods that a store must have and six that it may, and what goes in and comes out.

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

/// The records to add to one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAppend {
    /// The run.
    pub run: RunKey,
    /// The head that the run must have; absent if the run must not exist.
    pub expected: Option<HeadRef>,
    /// The records to add: at least one, numbered from the expected head and chained by `prev`.
    pub records: Vec<Record>,
    /// The facts of a new run; present exactly when `expected` is absent.
    pub facts: Option<RunFacts>,
}

impl RunAppend {
    /// Whether it writes what a sharded store keeps for itself: the map, and signposts to runs of other shards.
    ///
    /// Stores treat these like other finished runs, but a store with retention must keep them forever: without its signpost a run may be started a
    /// second time, in another shard.
    pub fn is_mark(&self) -> bool {
        let is_map = self.run.tenant == TenantId::default() && self.run.run.as_str() == SHARD_MAP;
        is_map || self.facts.as_ref().is_some_and(|facts| facts.workflow.is_reserved())
    }
}

/// The id of the run, in the default tenant, in which a sharded store keeps its map; its workflow has the same name.
pub const SHARD_MAP: &str = "ferrata:shards";

/// Checks what every store must refuse before it writes: an append that is empty, not dense, not chained or not sealed.
///
/// # Errors
///
/// [`ErrorKind::Invalid`], naming run and record. Nothing was written.
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

/// Up to where to prune a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneCut {
    /// The oldest record to keep.
    pub at: Seq,
    /// The replacement of that record: the same header, but a base; absent if it is a base already.
    pub base: Option<Record>,
}

/// Returns whether what [`load_since`](CheckpointStore::load_since) returned is what came after the known record, and not all that a load
/// returns.
pub fn is_news(known: HeadRef, records: &[Record]) -> bool {
    records
        .first()
        .is_none_or(|first| first.header.seq == known.seq.next() && first.header.prev == Some(known.id))
}

/// The result of pruning or purging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// How many records.
    pub records: u64,
    /// How many bytes of bodies.
    pub bytes: u64,
}

/// The abilities of a store beyond the contract, and the scope of its notices.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The store's name, as in a URL: `memory`, `file`, `postgres`.
    pub name: &'static str,
    /// Whether an acknowledged record survives the end of the process.
    pub durable: bool,
    /// Whether several processes may use it at once.
    pub shared: bool,
    /// Whether [`CheckpointStore::subscribe`] returns notices.
    pub notices: bool,
}

impl Capabilities {
    /// The capabilities of a store that keeps nothing, alone, and sends no notices.
    pub fn new(name: &'static str) -> Self {
        Self { name, durable: false, shared: false, notices: false }
    }

    /// Sets whether an acknowledged record survives the end of the process.
    #[must_use]
    pub fn with_durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Sets whether several processes may use it at once.
    #[must_use]
    pub fn with_shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// Sets whether it sends change notices.
    #[must_use]
    pub fn with_notices(mut self, notices: bool) -> Self {
        self.notices = notices;
        self
    }
}

/// That a run changed. A hint to look, never a fact: notices may be lost, doubled or late.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notice {
    /// The run.
    pub run: RunKey,
    /// The head that an append gave the run, if the store can say it.
    ///
    /// A reader that knows the run up to this head need not read it, so no writer reads back its own records.
    pub head: Option<HeadRef>,
}

impl Notice {
    /// Says that a run changed, and nothing of how.
    pub fn new(run: RunKey) -> Self {
        Self { run, head: None }
    }

    /// Says that an append gave the run this head.
    #[must_use]
    pub fn with_head(mut self, head: HeadRef) -> Self {
        self.head = Some(head);
        self
    }
}

/// Notices of changed runs, as they come.
#[derive(Debug)]
pub struct Notices(Vec<broadcast::Receiver<Notice>>);

impl Notices {
    /// Wraps the receiving end of a store's channel.
    pub fn new(receiver: broadcast::Receiver<Notice>) -> Self {
        Self(vec![receiver])
    }

    /// Joins the notices of several stores, for a wrapper of them.
    pub fn merged(all: impl IntoIterator<Item = Self>) -> Self {
        Self(all.into_iter().flat_map(|notices| notices.0).collect())
    }

    /// Waits for the next notice; `Ok(None)` says that notices were missed, so any run may have changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`] when the store, or one of the stores, is closed: poll from now on.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no notice is lost by dropping the future.
    pub async fn next(&mut self) -> Result<Option<Notice>> {
        let (received, from) = match self.take() {
            Some(taken) => taken,
            None => self.wait().await,
        };
        // The others come first the next time, so that a busy store does not drown them.
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

    /// Takes a notice that has already arrived, with its store, without waiting.
    fn take(&mut self) -> Option<(Result<Notice, RecvError>, usize)> {
        self.0.iter_mut().enumerate().find_map(|(index, receiver)| match receiver.try_recv() {
            Ok(notice) => Some((Ok(notice), index)),
            Err(TryRecvError::Lagged(missed)) => Some((Err(RecvError::Lagged(missed)), index)),
            Err(TryRecvError::Closed) => Some((Err(RecvError::Closed), index)),
            Err(TryRecvError::Empty) => None,
        })
    }

    /// Waits for the next notice, and returns its store.
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

/// Keeps the logs of runs.
///
/// A run is an append-only log of [`Record`]s, numbered densely from 0. Everything that keeps runs safe rests on one
/// sentence: [`append`](Self::append) succeeds only if the run's head is exactly the expected one.
///
/// # To ensure correctness, implementors must
///
/// - make an append visible whole or not at all, to readers in any process, also when the process dies half-way;
/// - let exactly one of several appends that expect the same head succeed, whichever process or instance they come from;
/// - return `Ok` only when the records are on stable storage, within what [`Capabilities::durable`] says;
/// - keep tenants apart: the same run id in two tenants is two runs;
/// - never look into bodies, never make an id, and take the time from an injected clock or from the server;
/// - never panic, whatever is stored: damage is [`ErrorKind::Corrupt`] with run and record, a newer format is
///   [`ErrorKind::Unsupported`], and other runs stay usable and listable.
///
/// # Callers may assume
///
/// - after `Ok`, every reader sees the records, and no later append to an older head succeeds;
/// - after an error that is not [`ErrorKind::Indeterminate`], nothing of that run's entry was written;
/// - a record once read never changes, except that [`prune`](Self::prune) may turn it into a base, and that a wrapper may put it in another
///   envelope by [`resealing`](Self::resealing).
#[async_trait]
pub trait CheckpointStore: fmt::Debug + Send + Sync + 'static {
    /// Returns what this store can do. Constant for the life of the instance.
    fn capabilities(&self) -> Capabilities;

    /// Prepares the storage of runs: folders, tables, a probe of the server.
    ///
    /// Idempotent, and safe from many processes at once.
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
    /// One result for each entry, in order. An entry's records become visible whole or not at all, and are on stable storage
    /// when its result is `Ok`. The entries are independent: a refusal of one never harms another. A run that stands in a
    /// batch twice is refused from its second entry on ([`ErrorKind::Invalid`]).
    ///
    /// Appending again exactly what already is the end of the log is `Ok` and writes nothing: records are recognised by id.
    ///
    /// # Errors
    ///
    /// Per entry:
    /// - [`ErrorKind::Conflict`], with [`Error::actual_head`]: the head is not the expected record, or the run exists (or does not) against
    ///   expectation. The store wrote nothing; load the run, check the other writer's records, and decide again.
    /// - [`ErrorKind::Unavailable`]: the store wrote nothing; retry with a growing delay.
    /// - [`ErrorKind::Indeterminate`]: the reply was lost. Retry the same records: their ids make the retry safe.
    /// - [`ErrorKind::Invalid`]: the entry fails [`check_append`]. Nothing was written.
    /// - [`ErrorKind::TooLarge`], [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: the store wrote nothing.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a dropped future leaves the same doubt as `Indeterminate`.
    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>>;

    /// Loads what is needed to know the run as of `at`: the newest base at or before it, and the records from there up to
    /// and including it, in order. `None` if there is no such run.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: the run exists, but has no record at `at` (beyond the head, or pruned).
    /// - [`ErrorKind::Corrupt`]: a record is damaged, or there is no base. Never read as empty.
    /// - [`ErrorKind::Unsupported`]: a newer version wrote a record.
    /// - [`ErrorKind::Unavailable`]: the store cannot be reached; retry.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>>;

    /// Lists the headers of a range of the run's records, in the order of their numbers, without reading bodies.
    ///
    /// Numbers are dense, so the headers have no gap. What a range means of the records that are kept is
    /// [`HeaderRange::within`]: [`HeaderRange::MAX`] of them at the most. A store may return fewer, those next to the range's
    /// [`anchor`](HeaderRange::anchor), but returns none only if none is meant. It says which records the run keeps, so that
    /// the caller knows whether there is more: [`HeaderRange::after`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such run, and as for [`load`](Self::load).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers>;

    /// Returns the run's head; `None` if there is no such run.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`], [`ErrorKind::Unavailable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>>;

    /// Lists runs that match the query. The store logs and omits unreadable runs; they never hide others. A caller that needs every run requests a
    /// [`complete`](RunQuery::complete) listing, which fails instead.
    ///
    /// A cursor belongs to its query and its order; any instance understands it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for a cursor of another query or order, or none of this store, [`ErrorKind::Unavailable`]; for a complete listing
    /// also [`ErrorKind::Corrupt`] and [`ErrorKind::Unsupported`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>>;

    /// Creates the record at `cut.at` a base if it is none, then drops every record before it.
    ///
    /// The base is durable before anything is dropped, so that a crash leaves garbage and never a hole; pruning again
    /// removes the garbage. The head is not changed. Appends may go on meanwhile. Pruning what is pruned is `Ok`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such run or record, [`ErrorKind::Invalid`] if the record is no base and the caller gave none, or gave
    /// another record. The store changed nothing.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a dropped future leaves the prune done, not done, or done but for garbage. Call it again.
    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed>;

    /// Removes the run and every trace of it, and says what it removed; zeros if there is no such run.
    ///
    /// With an expected head, the run goes only if that is its head: of a purge and an append that expect the same head,
    /// one succeeds. Without one, the run goes whatever was appended meanwhile, also if it is damaged or of a newer format.
    ///
    /// The run's id can be used again; a writer of the old life is refused, because it expects a record that the new life
    /// never had.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unavailable`]: some of it may be left; call it again, with the same expected head.
    /// - [`ErrorKind::Conflict`], with [`Error::actual_head`]: the head is not the expected one. Nothing was removed.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: the caller expected a head, and the run's head cannot be read. The store removed
    ///   nothing.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: after a dropped future the purge is done, not done, or half done. Call it again. Requests on their way to a server may
    /// arrive later; with an expected head they remove no later life of the id.
    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed>;

    /// Says that an executor is alive for `ttl` from now, by the store's clock. A `ttl` of zero says that it has ended.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`], [`ErrorKind::Indeterminate`]: the executor must take it as lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the heartbeat may or may not have been counted.
    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()>;

    /// Returns whether an executor is alive: `false` if its last heartbeat has expired by the store's clock, or it has sent none.
    ///
    /// A store that cannot tell answers `true`, as it does unless it says otherwise.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`]: it is not known.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        let _ = executor;
        Ok(true)
    }

    /// Loads the records that a caller needs to advance its knowledge of the run from the record `known` to the head. The result is the records
    /// after `known`, in order, and empty if `known` is the head. If the store cannot tell them apart or no longer has `known`, the result is that
    /// of [`load`](Self::load) at the head. `None` if there is no such run.
    ///
    /// [`is_news`] tells the two apart: only records that follow the known one count as new. So a store may answer with a load at any time, which
    /// is the default, and a run that was purged and started again never matches `known`. The benefit of this method is that it reads in proportion
    /// to the new records.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load) of the head.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        let _ = known;
        self.load(run, At::Latest).await
    }

    /// Names the part of the store that answers for the run: what concerns one part never waits for another.
    ///
    /// For stores with several parts, such as a sharded one: the runtime never sends one batch to several parts, so a part that hangs delays only
    /// its own runs. Any number is valid, and the number of a run may change. Never waits.
    fn part(&self, run: &RunKey) -> u64 {
        let _ = run;
        0
    }

    /// Returns the store's transactions, if nodes can write beside their records in them. The same for the life of the instance.
    fn transactions(&self) -> Option<&dyn Transactions> {
        None
    }

    /// Returns what puts records in other envelopes, if the store can replace a record's body: without it, an old key goes only with the records
    /// that it encrypted. The same for the life of the instance.
    fn resealing(&self) -> Option<&dyn Resealing> {
        None
    }

    /// Returns what passes texts on between the processes that use the store, if it can: then chunks of streams reach watchers in all of
    /// them. The same for the life of the instance.
    fn relay(&self) -> Option<&dyn Relay> {
        None
    }

    /// Subscribes to notices of changed runs, if the store sends any; the runtime polls otherwise.
    fn subscribe(&self) -> Option<Notices> {
        None
    }
}

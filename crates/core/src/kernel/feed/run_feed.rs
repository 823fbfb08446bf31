//! The feed of one run, which reads the log of the run once for all watchers in this process, and wakes them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{broadcast, watch};

use crate::error::{Error, ErrorKind, Result};
use crate::id::{HeadRef, RecordId, RunKey, Seq};
use crate::kernel::committer::Committer;
use crate::kernel::event::Event;
use crate::kernel::feed::cursor::LogCursor;
use crate::kernel::feed::record_events::WatchedRecord;
use crate::kernel::feed::relay::StreamRelay;
use crate::kernel::feed::watch_event::{LiveEvent, WatchEventKind};
use crate::record::RunStatus;
use crate::store::{At, CheckpointStore, HeaderRange};

/// The maximum number of records in one read. It limits the memory of a watcher that reads old records.
const BATCH: u32 = 64;

/// The maximum size of the bodies in one read. At least one record is loaded.
const BATCH_BYTES: u64 = 1024 * 1024;

/// The maximum number of records, and the maximum number of bytes, that are cached for further watchers.
const KEPT: usize = 256;
const KEPT_BYTES: u64 = 4 * 1024 * 1024;

/// The number of live events that are retained for a slow watcher.
const LAG: usize = 1_024;

/// The maximum number of times that a read starts again because the log was pruned during it.
const TRIES: u32 = 8;

/// A live signal about a run.
#[derive(Clone, Debug)]
pub(crate) enum LiveSignal {
    Live(LiveEvent),
    /// This number of live events was lost on the way from another process.
    Missed(u64),
}

impl From<LiveSignal> for WatchEventKind {
    fn from(heard: LiveSignal) -> Self {
        match heard {
            LiveSignal::Live(live) => Self::Live(live),
            LiveSignal::Missed(missed) => Self::Lagged { missed },
        }
    }
}

/// The access to the logs of the store, and the time of a read.
#[derive(Clone, Copy)]
pub(crate) struct LogReads<'a> {
    pub(crate) store: &'a dyn CheckpointStore,
    pub(crate) committer: &'a Committer,
    /// The time of the monotonic clock.
    pub(crate) now: Duration,
}

/// The result of reading a log after a position.
pub(crate) enum TailRead {
    /// The next records of the log, at least one.
    Records(Vec<Arc<WatchedRecord>>),
    /// The log has no further record yet. The run has this status.
    Head(RunStatus),
    /// The next records, up to the one before this number, were pruned. The id is that of the last pruned record, if it is known.
    Pruned(Seq, Option<RecordId>),
    /// The run does not exist.
    Missing,
}

/// The feeds of a runtime, by run. A feed exists as long as its run has a watcher.
pub(crate) struct RunFeeds {
    by_run: Mutex<HashMap<RunKey, Weak<RunFeed>>>,
    /// Counts feeds and subscriptions of [`Event`]s, so that an event without a listener takes no lock.
    count: Arc<AtomicUsize>,
    /// Whether a runtime that drives no runs listens to the store's notices.
    listens: AtomicBool,
    /// The relay to other processes.
    relayed: Arc<StreamRelay>,
}

impl RunFeeds {
    pub(crate) fn new(count: Arc<AtomicUsize>, relayed: Arc<StreamRelay>) -> Self {
        let listens = AtomicBool::new(false);
        Self { by_run: Mutex::default(), count, listens, relayed }
    }

    /// Returns whether this is the first call, so that the caller spawns the listener for notices.
    pub(crate) fn begins_to_listen(&self) -> bool {
        !self.listens.swap(true, Ordering::Relaxed)
    }

    /// Returns the feed of a run.
    pub(crate) fn feed(self: &Arc<Self>, run: &RunKey) -> Arc<RunFeed> {
        let mut feeds = self.by_run.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(feed) = feeds.get(run).and_then(Weak::upgrade) {
            return feed;
        }
        self.count.fetch_add(1, Ordering::Release);
        let feed = Arc::new(RunFeed::new(run.clone(), Arc::clone(self)));
        feeds.insert(run.clone(), Arc::downgrade(&feed));
        feed
    }

    /// Sends an event of this process to the watchers of a run.
    pub(crate) fn publish_event(&self, run: &RunKey, event: &Event) {
        match event {
            Event::Durable { .. } => self.wake(Some(run)),
            event => {
                if let Some(live) = to_live_event(event) {
                    self.publish_live(run, || live);
                }
            }
        }
    }

    /// Sends live data of a node to the watchers of its run. Calls `live` only if there is one.
    pub(crate) fn publish_live(&self, run: &RunKey, live: impl FnOnce() -> LiveEvent) {
        if let Some(feed) = self.find(run) {
            feed.publish_live(live());
        }
    }

    /// Returns the runs with chunk watchers.
    pub(crate) fn watched(&self) -> Vec<RunKey> {
        let feeds = self.by_run.lock().unwrap_or_else(PoisonError::into_inner);
        let open: Vec<Arc<RunFeed>> = feeds.values().filter_map(Weak::upgrade).collect();
        // The last owner of a feed takes the lock again.
        drop(feeds);
        let watched = open.iter().filter(|feed| feed.hears_chunks.load(Ordering::Relaxed));
        watched.map(|feed| feed.run.clone()).collect()
    }

    /// Reports to the watchers of a run how many live events were lost.
    pub(crate) fn report_missed(&self, run: &RunKey, missed: u64) {
        if let Some(feed) = self.find(run) {
            // Fails if the last watcher has just left.
            let _ = feed.live.send(LiveSignal::Missed(missed));
        }
    }

    /// Wakes the watchers of a run, so that they read its log. Without a run, it wakes all watchers.
    pub(crate) fn wake(&self, run: Option<&RunKey>) {
        match run {
            Some(run) => {
                if let Some(feed) = self.find(run) {
                    feed.wake();
                }
            }
            None => {
                let feeds = self.by_run.lock().unwrap_or_else(PoisonError::into_inner);
                let all: Vec<_> = feeds.values().filter_map(Weak::upgrade).collect();
                drop(feeds);
                all.iter().for_each(|feed| feed.wake());
            }
        }
    }

    fn find(&self, run: &RunKey) -> Option<Arc<RunFeed>> {
        self.by_run.lock().unwrap_or_else(PoisonError::into_inner).get(run).and_then(Weak::upgrade)
    }
}

/// The shared log reader and live channel of one run.
pub(crate) struct RunFeed {
    pub(crate) run: RunKey,
    feeds: Arc<RunFeeds>,
    /// Counts the hints that the log may have grown.
    wakeups: watch::Sender<u64>,
    live: broadcast::Sender<LiveSignal>,
    /// Whether watchers need chunks of streams, even from other processes.
    hears_chunks: AtomicBool,
    tail: tokio::sync::Mutex<LogTail>,
}

/// The last records of a log that were loaded.
#[derive(Default)]
struct LogTail {
    entries: VecDeque<Arc<WatchedRecord>>,
    bytes: u64,
    /// The last loaded head, with the hint count and the time of the load.
    head: Option<(HeadRef, RunStatus, u64, Duration)>,
}

impl RunFeed {
    fn new(run: RunKey, feeds: Arc<RunFeeds>) -> Self {
        Self {
            run,
            feeds,
            wakeups: watch::Sender::new(0),
            live: broadcast::channel(LAG).0,
            hears_chunks: AtomicBool::new(false),
            tail: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn woken(&self) -> watch::Receiver<u64> {
        self.wakeups.subscribe()
    }

    pub(crate) fn live(&self) -> broadcast::Receiver<LiveSignal> {
        self.live.subscribe()
    }

    /// Announces to other processes that a watcher needs chunks of streams.
    pub(crate) fn request_chunks(&self) {
        if !self.hears_chunks.swap(true, Ordering::Relaxed) {
            self.feeds.relayed.announce_watch(&self.run);
        }
    }

    fn wake(&self) {
        self.wakeups.send_modify(|count| *count += 1);
    }

    fn publish_live(&self, live: LiveEvent) {
        // Fails if the last watcher has just left.
        let _ = self.live.send(LiveSignal::Live(live));
    }

    /// Reads the records after a position. It reuses records that another watcher has loaded, and a head that is newer than the last hint and
    /// younger than `fresh`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the position belongs to another start of the run, and the errors of the store and of
    /// [`WatchedRecord::of`].
    pub(crate) async fn read(
        &self,
        log: LogReads<'_>,
        place: &LogCursor,
        fresh: Duration,
    ) -> Result<TailRead> {
        let mut tail = self.tail.lock().await;
        let (hints, now) = (*self.wakeups.borrow(), log.now);
        // A position without an id fits any start, even one that was purged since the load.
        let is_fresh =
            tail.head.is_some_and(|(.., after, at)| after == hints && now.saturating_sub(at) < fresh);
        if place.id.is_none() && !is_fresh && !tail.is_in_log(log, &self.run).await? {
            *tail = LogTail::default();
        }
        if let Some(read) = tail.cached_after(place) {
            return Ok(read);
        }
        if let Some((head, status, after, at)) = tail.head
            && (after == hints && place.is_at(head) && now.saturating_sub(at) < fresh)
        {
            return Ok(TailRead::Head(status));
        }
        if tail.entries.front().is_some_and(|first| place.next() < first.header.seq) {
            // This watcher catches up on its own, without blocking the others.
            drop(tail);
            return Ok(fetch(log, &self.run, place).await?.0);
        }
        let fetched = fetch(log, &self.run, place).await;
        if fetched.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            // The cache may be of another start as well.
            *tail = LogTail::default();
        }
        let (read, head) = fetched?;
        match &read {
            TailRead::Records(entries) => tail.extend(place, entries),
            TailRead::Head(_) => {}
            TailRead::Pruned(..) | TailRead::Missing => *tail = LogTail::default(),
        }
        tail.head = head.map(|(head, status)| (head, status, hints, now));
        Ok(read)
    }
}

/// Converts an event of this process to a live event, if no record contains the event.
fn to_live_event(event: &Event) -> Option<LiveEvent> {
    Some(match event {
        Event::NodeStarted { node, visit, attempt } => {
            LiveEvent::AttemptStarted { node: node.clone(), visit: *visit, attempt: *attempt }
        }
        Event::Custom { node, visit, name, payload } => {
            let (node, name, payload) = (node.clone(), name.clone(), Arc::clone(payload));
            LiveEvent::Custom { node, visit: *visit, name, payload }
        }
        Event::RecordsLost { acknowledged, found } => {
            LiveEvent::RecordsLost { acknowledged: *acknowledged, found: *found }
        }
        _ => return None,
    })
}

impl Drop for RunFeed {
    fn drop(&mut self) {
        self.feeds.count.fetch_sub(1, Ordering::Release);
        let mut feeds = self.feeds.by_run.lock().unwrap_or_else(PoisonError::into_inner);
        // Another feed may exist by now.
        if feeds.get(&self.run).is_some_and(|feed| feed.strong_count() == 0) {
            feeds.remove(&self.run);
        }
    }
}

impl LogTail {
    /// Returns the cached records after a position, if they follow it in the same start of the run. If they do not, the caller must read the
    /// store.
    fn cached_after(&self, place: &LogCursor) -> Option<TailRead> {
        let first = self.entries.front()?;
        let from = usize::try_from(place.next().get().checked_sub(first.header.seq.get())?).ok()?;
        let next = self.entries.get(from)?;
        if !place.leads_to(&next.header) {
            return None;
        }
        Some(TailRead::Records(self.entries.iter().skip(from).take(BATCH as usize).map(Arc::clone).collect()))
    }

    /// Returns whether the log still contains the last cached record. If not, the run was purged, or its log was truncated.
    async fn is_in_log(&self, log: LogReads<'_>, run: &RunKey) -> Result<bool> {
        let Some(last) = self.entries.back().map(|last| last.header.head()) else { return Ok(true) };
        let range = HeaderRange::from(last.seq, 1);
        match log.committer.read(|| log.store.headers(run, range)).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            found => Ok(found?.items.iter().any(|header| header.head() == last)),
        }
    }

    /// Caches records after a position for further watchers.
    fn extend(&mut self, place: &LogCursor, entries: &[Arc<WatchedRecord>]) {
        if !self.entries.back().is_some_and(|last| place.is_at(last.header.head())) {
            self.entries.clear();
            self.bytes = 0;
        }
        for entry in entries {
            self.bytes += u64::from(entry.header.body_len);
            self.entries.push_back(Arc::clone(entry));
        }
        while self.entries.len() > KEPT || self.bytes > KEPT_BYTES && self.entries.len() > 1 {
            if let Some(gone) = self.entries.pop_front() {
                self.bytes -= u64::from(gone.header.body_len);
            }
        }
    }
}

fn another_start(run: &RunKey, seq: Seq) -> Error {
    let message = "the run does not have the record of the cursor: it was purged and its id started again, or its store lost records; watch \
        it from its start";
    Error::new(ErrorKind::NotFound, message).with_run(run).with_seq(seq)
}

/// The records after a position that the store returned, and the head if it was reached.
type FetchedRecords = (TailRead, Option<(HeadRef, RunStatus)>);

/// Reads the records after a position from the store, up to the next base.
async fn fetch(log: LogReads<'_>, run: &RunKey, place: &LogCursor) -> Result<FetchedRecords> {
    let (store, next) = (log.store, place.next());
    let mut range = place.last.map_or(HeaderRange::oldest(BATCH), |last| HeaderRange::from(last, BATCH + 1));
    let mut before = None;
    for _ in 0..TRIES {
        let found = match log.committer.read(|| store.headers(run, range)).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((TailRead::Missing, None)),
            found => found?,
        };
        if let Some(last) = place.last.filter(|last| *last > found.last) {
            return Err(another_start(run, last));
        }
        if next < found.first {
            let oldest = found.items.iter().find(|header| header.seq == found.first);
            return Ok((TailRead::Pruned(found.first, oldest.and_then(|header| header.prev)), None));
        }
        if let Some(known) = found.items.iter().find(|header| Some(header.seq) == place.last) {
            if place.id.is_some_and(|id| id != known.id) {
                return Err(another_start(run, known.seq));
            }
            before = Some(known.status);
            if found.last == known.seq {
                return Ok((TailRead::Head(known.status), Some((known.head(), known.status))));
            }
        }
        let mut bytes = 0;
        let behind = found.items.iter().filter(|header| header.seq >= next);
        let stretch: Vec<_> = behind
            .take_while(|header| {
                bytes += u64::from(header.body_len);
                header.seq == next || !header.base && bytes <= BATCH_BYTES
            })
            .collect();
        let Some(end) = stretch.last().map(|header| header.head()) else {
            // The store returned fewer records than requested.
            range = HeaderRange::from(next, BATCH);
            continue;
        };
        let records = match log.committer.read(|| store.load(run, At::Seq(end.seq))).await {
            // It was pruned since.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Ok(None) => return Ok((TailRead::Missing, None)),
            records => records?.unwrap_or_default(),
        };
        let mut entries: Vec<Arc<WatchedRecord>> = Vec::with_capacity(stretch.len());
        for record in records.into_iter().filter(|record| record.header.seq >= next) {
            let after = LogCursor {
                id: entries.last().map_or(place.id, |last| Some(last.header.id)),
                last: entries.last().map_or(place.last, |last| Some(last.header.seq)),
                part: 0,
            };
            let entry = WatchedRecord::of(
                run,
                record,
                entries.last().map_or(before, |last| Some(last.header.status)),
            )?;
            if !after.leads_to(&entry.header) {
                return Err(another_start(run, after.last.unwrap_or(entry.header.seq)));
            }
            entries.push(Arc::new(entry));
        }
        if entries.first().is_none_or(|first| first.header.seq != next) {
            continue;
        }
        let head = entries.last().filter(|last| last.header.seq >= found.last);
        let head = head.map(|last| (last.header.head(), last.header.status));
        return Ok((TailRead::Records(entries), head));
    }
    let message = "the log was pruned faster than it could be read; watch it again";
    Err(Error::new(ErrorKind::Unavailable, message).with_run(run))
}

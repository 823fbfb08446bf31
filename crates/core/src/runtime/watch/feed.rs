//! The log of one run, read once for all who watch it here, and who wakes them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{broadcast, watch};

use super::cursor::LogCursor;
use super::derive::Entry;
use super::relay::StreamRelay;
use super::runs::RunsSubscription;
use super::what::{Live, WatchEventKind};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{HeadRef, RecordId, RunKey, Seq};
use crate::record::RunStatus;
use crate::runtime::event::Event;
use crate::runtime::shared::RuntimeInner;
use crate::store::{At, HeaderRange};

/// How many records are read at once: what a watcher holds of a log that it catches up with.
const BATCH: u32 = 64;

/// How many bytes of bodies are read at once, but one record at least.
const BATCH_BYTES: u64 = 1024 * 1024;

/// How many of the last records are kept for further watchers, and how many bytes of them.
const KEPT: usize = 256;
const KEPT_BYTES: u64 = 4 * 1024 * 1024;

/// How many live events a watcher may lag behind.
const LAG: usize = 1_024;

/// How often a read is begun anew because the log was pruned meanwhile.
const TRIES: u32 = 8;

/// What is heard of a run.
#[derive(Clone, Debug)]
pub(super) enum LiveSignal {
    Live(Live),
    /// So many live events were lost on their way.
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

/// What a log says behind some place.
pub(super) enum TailRead {
    /// The records that follow, one at least.
    Records(Vec<Arc<Entry>>),
    /// Nothing yet; the run stands so.
    Head(RunStatus),
    /// The records that follow were pruned, up to this one; with the id of the record before it.
    Pruned(Seq, Option<RecordId>),
    /// There is no such run.
    Missing,
}

/// The feeds of a runtime, by run; each lives as long as a run is watched.
pub(crate) struct Feeds {
    by_run: Mutex<HashMap<RunKey, Weak<RunFeed>>>,
    /// Those who watch all runs that a query selects.
    ears: Mutex<Vec<Arc<RunsSubscription>>>,
    /// Counts the feeds and the ears, so that an event without a listener takes no lock.
    count: Arc<AtomicUsize>,
    /// Whether a runtime that drives no runs hears the store's notices.
    listens: AtomicBool,
    /// What other processes are told to say.
    relayed: Arc<StreamRelay>,
}

impl Feeds {
    pub(crate) fn new(count: Arc<AtomicUsize>, relayed: Arc<StreamRelay>) -> Self {
        let listens = AtomicBool::new(false);
        Self { by_run: Mutex::default(), ears: Mutex::default(), count, listens, relayed }
    }

    /// Whether no task was made before to hear the store's notices.
    pub(crate) fn begins_to_listen(&self) -> bool {
        !self.listens.swap(true, Ordering::Relaxed)
    }

    /// Returns the feed of a run.
    pub(super) fn feed(self: &Arc<Self>, run: &RunKey) -> Arc<RunFeed> {
        let mut feeds = self.by_run.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(feed) = feeds.get(run).and_then(Weak::upgrade) {
            return feed;
        }
        self.count.fetch_add(1, Ordering::Release);
        let feed = Arc::new(RunFeed::new(run.clone(), Arc::clone(self)));
        feeds.insert(run.clone(), Arc::downgrade(&feed));
        feed
    }

    /// Begins to listen to all runs.
    pub(super) fn listen(&self, ear: RunsSubscription) -> Arc<RunsSubscription> {
        let ear = Arc::new(ear);
        self.ears().push(Arc::clone(&ear));
        self.count.fetch_add(1, Ordering::Release);
        if ear.hears_chunks() {
            self.relayed.wants(None);
        }
        ear
    }

    /// Ends what [`listen`](Self::listen) began.
    pub(super) fn forget(&self, ear: &Arc<RunsSubscription>) {
        self.ears().retain(|other| !Arc::ptr_eq(other, ear));
        self.count.fetch_sub(1, Ordering::Release);
    }

    fn ears(&self) -> MutexGuard<'_, Vec<Arc<RunsSubscription>>> {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the watchers of a run what happens in this process.
    pub(crate) fn hear(&self, run: &RunKey, event: &Event) {
        match event {
            Event::Durable { .. } => self.wake(Some(run)),
            event => {
                if let Some(live) = live_of(event) {
                    self.say(run, || live);
                }
            }
        }
    }

    /// Tells the watchers of a run what a node of it sends; it is made only if there is one.
    pub(super) fn say(&self, run: &RunKey, live: impl FnOnce() -> Live) {
        let (feed, ears) = (self.find(run), self.ears());
        if feed.is_none() && ears.is_empty() {
            return;
        }
        let live = live();
        ears.iter().for_each(|ear| ear.say(run, live.clone()));
        drop(ears);
        if let Some(feed) = feed {
            feed.say(live);
        }
    }

    /// Returns which runs are watched for chunks of streams, and whether all are.
    pub(super) fn watched(&self) -> (bool, Vec<RunKey>) {
        let all = self.ears().iter().any(|ear| ear.hears_chunks());
        let feeds = self.by_run.lock().unwrap_or_else(PoisonError::into_inner);
        let open: Vec<Arc<RunFeed>> = feeds.values().filter_map(Weak::upgrade).collect();
        // The last to hold a feed takes the lock again.
        drop(feeds);
        let watched = open.iter().filter(|feed| feed.hears_chunks.load(Ordering::Relaxed));
        (all, watched.map(|feed| feed.run.clone()).collect())
    }

    /// Tells the watchers of a run that so much was said of it and not heard.
    pub(super) fn miss(&self, run: &RunKey, missed: u64) {
        self.ears().iter().for_each(|ear| ear.miss(run, missed));
        if let Some(feed) = self.find(run) {
            // Fails when the last watcher has just gone.
            let _ = feed.live.send(LiveSignal::Missed(missed));
        }
    }

    /// Has the watchers of a run look at its log; without a run, all watchers.
    pub(crate) fn wake(&self, run: Option<&RunKey>) {
        self.ears().iter().for_each(|ear| ear.changed(run));
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

/// What is read and heard of one run.
pub(super) struct RunFeed {
    pub(super) run: RunKey,
    feeds: Arc<Feeds>,
    /// Counts the hints that the log may have grown.
    woken: watch::Sender<u64>,
    live: broadcast::Sender<LiveSignal>,
    /// Whether chunks of streams are wanted, of other processes as well.
    hears_chunks: AtomicBool,
    tail: tokio::sync::Mutex<Tail>,
}

/// The end of a log, as far as it was read.
#[derive(Default)]
struct Tail {
    entries: VecDeque<Arc<Entry>>,
    bytes: u64,
    /// The head when it was looked at last, after how many hints and when.
    head: Option<(HeadRef, RunStatus, u64, Duration)>,
}

impl RunFeed {
    fn new(run: RunKey, feeds: Arc<Feeds>) -> Self {
        Self {
            run,
            feeds,
            woken: watch::Sender::new(0),
            live: broadcast::channel(LAG).0,
            hears_chunks: AtomicBool::new(false),
            tail: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn woken(&self) -> watch::Receiver<u64> {
        self.woken.subscribe()
    }

    pub(super) fn live(&self) -> broadcast::Receiver<LiveSignal> {
        self.live.subscribe()
    }

    /// Has other processes told that chunks of streams are wanted.
    pub(super) fn hear_chunks(&self) {
        if !self.hears_chunks.swap(true, Ordering::Relaxed) {
            self.feeds.relayed.wants(Some(&self.run));
        }
    }

    fn wake(&self) {
        self.woken.send_modify(|count| *count += 1);
    }

    fn say(&self, live: Live) {
        // Fails when the last watcher has just gone.
        let _ = self.live.send(LiveSignal::Live(live));
    }

    /// Whether there was nothing behind a place when the log was read last, and no hint since says that there is.
    pub(super) fn is_at_head(&self, place: &LogCursor) -> bool {
        let hints = *self.woken.borrow();
        let known = self.tail.try_lock().ok().and_then(|tail| tail.head);
        known.is_some_and(|(head, _, after, _)| after == hints && place.part == 0 && place.is_at(head))
    }

    /// Reads what follows a place. What another watcher has read is not read again, and neither is a head that was looked at after the
    /// last hint and less than `fresh` ago.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the place is of another life of the run; what the store says, and as [`Entry::of`].
    pub(super) async fn read(
        &self,
        shared: &RuntimeInner,
        place: &LogCursor,
        fresh: Duration,
    ) -> Result<TailRead> {
        let mut tail = self.tail.lock().await;
        let (hints, now) = (*self.woken.borrow(), shared.clock.monotonic());
        // A place without an id fits any life of the run, also one that was purged since it was read.
        let is_fresh =
            tail.head.is_some_and(|(.., after, at)| after == hints && now.saturating_sub(at) < fresh);
        if place.id.is_none() && !is_fresh && !tail.is_in_log(shared, &self.run).await? {
            *tail = Tail::default();
        }
        if let Some(read) = tail.behind(place) {
            return Ok(read);
        }
        if let Some((head, status, after, at)) = tail.head
            && (after == hints && place.is_at(head) && now.saturating_sub(at) < fresh)
        {
            return Ok(TailRead::Head(status));
        }
        if tail.entries.front().is_some_and(|first| place.next() < first.header.seq) {
            // It catches up by itself, while the others go on.
            drop(tail);
            return Ok(fetch(shared, &self.run, place).await?.0);
        }
        let fetched = fetch(shared, &self.run, place).await;
        if fetched.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            // What was read may be of another life as well.
            *tail = Tail::default();
        }
        let (read, head) = fetched?;
        match &read {
            TailRead::Records(entries) => tail.extend(place, entries),
            TailRead::Head(_) => {}
            TailRead::Pruned(..) | TailRead::Missing => *tail = Tail::default(),
        }
        tail.head = head.map(|(head, status)| (head, status, hints, now));
        Ok(read)
    }
}

/// Returns what an event tells that no record says.
fn live_of(event: &Event) -> Option<Live> {
    Some(match event {
        Event::NodeStarted { node, visit, attempt } => {
            Live::AttemptStarted { node: node.clone(), visit: *visit, attempt: *attempt }
        }
        Event::Custom { node, visit, name, payload } => {
            let (node, name, payload) = (node.clone(), name.clone(), Arc::clone(payload));
            Live::Custom { node, visit: *visit, name, payload }
        }
        Event::RecordsLost { acknowledged, found } => {
            Live::RecordsLost { acknowledged: *acknowledged, found: *found }
        }
        _ => return None,
    })
}

impl Drop for RunFeed {
    fn drop(&mut self) {
        self.feeds.count.fetch_sub(1, Ordering::Release);
        let mut feeds = self.feeds.by_run.lock().unwrap_or_else(PoisonError::into_inner);
        // Another may have been made meanwhile.
        if feeds.get(&self.run).is_some_and(|feed| feed.strong_count() == 0) {
            feeds.remove(&self.run);
        }
    }
}

impl Tail {
    /// Returns what was read behind a place, if anything was that follows it. Of what does not follow, the store says which is of another life.
    fn behind(&self, place: &LogCursor) -> Option<TailRead> {
        let first = self.entries.front()?;
        let from = usize::try_from(place.next().get().checked_sub(first.header.seq.get())?).ok()?;
        let next = self.entries.get(from)?;
        if !place.leads_to(&next.header) {
            return None;
        }
        Some(TailRead::Records(self.entries.iter().skip(from).take(BATCH as usize).map(Arc::clone).collect()))
    }

    /// Whether the last record that was read is in the log still: if not, the run was purged, or its log was cut, since.
    async fn is_in_log(&self, shared: &RuntimeInner, run: &RunKey) -> Result<bool> {
        let Some(last) = self.entries.back().map(|last| last.header.head()) else { return Ok(true) };
        let range = HeaderRange::from(last.seq, 1);
        match shared.committer.read(|| shared.store.headers(run, range)).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            found => Ok(found?.items.iter().any(|header| header.head() == last)),
        }
    }

    /// Keeps what was read behind a place for further watchers.
    fn extend(&mut self, place: &LogCursor, entries: &[Arc<Entry>]) {
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

fn another_life(run: &RunKey, seq: Seq) -> Error {
    let message = "the run has no such record as the cursor names: it was purged and another was started under its name, or its store \
                   lost records; watch it from its start";
    Error::new(ErrorKind::NotFound, message).with_run(run).with_seq(seq)
}

/// What the store says behind a place, and the head if everything up to it was read.
type FetchedRecords = (TailRead, Option<(HeadRef, RunStatus)>);

/// Reads what follows a place from the store, up to the next base.
async fn fetch(shared: &RuntimeInner, run: &RunKey, place: &LogCursor) -> Result<FetchedRecords> {
    let (store, next) = (&*shared.store, place.next());
    let mut range = place.last.map_or(HeaderRange::oldest(BATCH), |last| HeaderRange::from(last, BATCH + 1));
    let mut before = None;
    for _ in 0..TRIES {
        let found = match shared.committer.read(|| store.headers(run, range)).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((TailRead::Missing, None)),
            found => found?,
        };
        if let Some(last) = place.last.filter(|last| *last > found.last) {
            return Err(another_life(run, last));
        }
        if next < found.first {
            let oldest = found.items.iter().find(|header| header.seq == found.first);
            return Ok((TailRead::Pruned(found.first, oldest.and_then(|header| header.prev)), None));
        }
        if let Some(known) = found.items.iter().find(|header| Some(header.seq) == place.last) {
            if place.id.is_some_and(|id| id != known.id) {
                return Err(another_life(run, known.seq));
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
            // The store returned fewer than it was asked for.
            range = HeaderRange::from(next, BATCH);
            continue;
        };
        let records = match shared.committer.read(|| store.load(run, At::Seq(end.seq))).await {
            // It was pruned since.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Ok(None) => return Ok((TailRead::Missing, None)),
            records => records?.unwrap_or_default(),
        };
        let mut entries: Vec<Arc<Entry>> = Vec::with_capacity(stretch.len());
        for record in records.into_iter().filter(|record| record.header.seq >= next) {
            let after = LogCursor {
                id: entries.last().map_or(place.id, |last| Some(last.header.id)),
                last: entries.last().map_or(place.last, |last| Some(last.header.seq)),
                part: 0,
            };
            let entry =
                Entry::of(run, record, entries.last().map_or(before, |last| Some(last.header.status)))?;
            if !after.leads_to(&entry.header) {
                return Err(another_life(run, after.last.unwrap_or(entry.header.seq)));
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

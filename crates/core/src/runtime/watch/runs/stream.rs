//! The stream of events that a watch of many runs delivers.

mod poll;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::cursor::LogCursor;
use super::super::relay;
use super::super::request::WatchFilter;
use super::super::run_feed::TailRead;
use super::super::sse::SseFrames;
use super::super::watch_event::{WatchEvent, WatchEventKind};
use super::super::watched_run::{MemberStep, WatchedRun};
use super::cursor::RunsCursor;
use super::positions::{RunPosition, RunPositions, RunsWatchStart};
use super::store_poll::{PollSchedule, head_of, is_over};
use super::subscription::{ChangedRuns, RunsSubscription};
use crate::error::{ErrorKind, Result};
use crate::id::{RunKey, Seq};
use crate::record::RunStatus;
use crate::runtime::shared::RuntimeInner;
use crate::store::{HeaderRange, RunHead, RunQuery};

/// The number of consecutive live events before the watch checks the logs again.
const STREAK: u32 = 64;

/// The number of headers per read when searching for a run's position.
const HEADERS: u32 = 100;

/// A stream of the events of all runs that a query selects. A [`RunsWatchRequest`](super::RunsWatchRequest) creates it.
///
/// The watch keeps in memory a position for each run that has not ended (about 200 bytes), at most 1,024 live events, and the records of one read of
/// one log. It needs no task and no store call for each idle run. It polls the runs that have not ended in pages of 500. If the store sends notices,
/// it polls every 5 seconds (ten times [`poll_interval`](crate::runtime::RuntimeBuilder::poll_interval)), otherwise every second. It spends at most a
/// tenth of the time on polls.
pub struct RunsWatch {
    shared: Arc<RuntimeInner>,
    /// The query with only those conditions that never change for a run.
    query: RunQuery,
    statuses: Vec<RunStatus>,
    filter: WatchFilter,
    subscription: Arc<RunsSubscription>,
    positions: RunPositions,
    /// The runs to read next, without duplicates.
    pending: VecDeque<RunKey>,
    /// The run with events that are loaded but not delivered.
    current: Option<WatchedRun>,
    ready: VecDeque<WatchEvent>,
    /// Runs that may have changed, according to notices and events.
    changed: BTreeSet<RunKey>,
    polls: PollSchedule,
    /// The number of live events to deliver before the current read, because they arrived before it.
    live_before_read: usize,
    /// The number of consecutive live events.
    streak: u32,
}

impl RunsWatch {
    pub(super) fn begin(
        shared: Arc<RuntimeInner>,
        query: RunQuery,
        statuses: Vec<RunStatus>,
        begin: RunsWatchStart,
        want: WatchFilter,
        settles: Duration,
    ) -> Self {
        shared.listen();
        relay::begin(&shared);
        let ear = shared.feeds().listen(RunsSubscription::new(want.clone()));
        let places = RunPositions::new(begin, shared.clock.now(), settles);
        Self {
            shared,
            query,
            statuses,
            filter: want,
            subscription: ear,
            positions: places,
            pending: VecDeque::new(),
            current: None,
            ready: VecDeque::new(),
            changed: BTreeSet::new(),
            polls: PollSchedule::default(),
            live_before_read: 0,
            streak: 0,
        }
    }

    /// Waits for the next event. The stream never ends.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: a record cannot be loaded. The error names the run. Call the method again to get events
    ///   of the other runs. The watch reads this run again after it has changed.
    /// - [`ErrorKind::Unavailable`]: the store failed. Call it again: no event is lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the next call returns the event.
    pub async fn next(&mut self) -> Result<WatchEvent> {
        loop {
            if let Some(event) = self.take_live().await? {
                return Ok(event);
            }
            if let Some(event) = self.ready.pop_front().or_else(|| self.take()) {
                self.streak = 0;
                return Ok(event);
            }
            self.streak = 0;
            if !self.pending.is_empty() {
                self.read().await?;
            } else if !self.positions.is_catching_up() && self.has_changed() {
                self.compare_changed().await?;
            } else if self.polls.current.is_some() {
                self.continue_poll().await?;
            } else if self.shared.clock.monotonic() >= self.polls.due {
                self.begin_poll();
            } else {
                let left = self.polls.due.saturating_sub(self.shared.clock.monotonic());
                let mut pause = self.shared.clock.sleep(left);
                tokio::select! {
                    biased;
                    () = self.subscription.wait_for_signal() => {}
                    () = &mut pause => {}
                }
            }
        }
    }

    /// Returns the position of the watch, after the last event that [`next`](Self::next) returned.
    pub fn cursor(&self) -> RunsCursor {
        self.positions.cursor()
    }

    /// Returns the events as [server-sent events](https://html.spec.whatwg.org/multipage/server-sent-events.html).
    pub fn sse(self) -> SseFrames {
        SseFrames::of_runs(self)
    }

    pub(in super::super) fn shared(&self) -> &Arc<RuntimeInner> {
        &self.shared
    }

    /// Takes the next live event of a selected run, after all earlier events.
    async fn take_live(&mut self) -> Result<Option<WatchEvent>> {
        while !self.positions.is_catching_up()
            && (self.streak < STREAK || self.live_before_read > 0)
            && let Some(run) = self.subscription.next_live_run()
        {
            if self.is_doubted(&run) {
                if self.live_before_read == 0 {
                    // Read its log first: live events so far precede the new records.
                    self.read_first(run);
                    break;
                }
                self.is_still_selected(&run).await?;
            }
            // A run that is not in the store has no labels to match.
            if !self.is_selected(&run).await? {
                self.subscription.drop_first_of(&run);
                continue;
            }
            let is_live_wanted = self.statuses.is_empty() || self.statuses.contains(&RunStatus::InProgress);
            let Some((run, what)) = self.subscription.take_live() else { break };
            self.live_before_read = self.live_before_read.saturating_sub(1);
            if is_live_wanted {
                self.streak += 1;
                return Ok(Some(WatchEvent { run, path: Arc::from(""), seq: None, at: None, what }));
            }
        }
        if self.subscription.waiting() == 0 {
            self.live_before_read = 0;
        }
        Ok(None)
    }

    /// Takes the next event from the loaded records.
    fn take(&mut self) -> Option<WatchEvent> {
        let member = self.current.as_mut()?;
        let run = member.run.clone();
        while let Some(header) = member.front() {
            let (at, status) = (header.at, header.status);
            let is_status = self.statuses.is_empty() || self.statuses.contains(&status);
            let step = member.next(|_| true, |what| is_status && self.filter.passes("", what));
            let told = self
                .positions
                .positions
                .entry(run.clone())
                .or_insert_with(|| RunPosition::at(member.cursor, at));
            told.place = member.cursor;
            told.is_over = is_over(status);
            if told.place.part == 0 {
                told.at = at;
            }
            if let MemberStep::Tells { event: Some(event), .. } = step {
                return Some(event);
            }
        }
        let is_at_head =
            member.is_at_head() || self.positions.positions.get(&run).is_some_and(RunPosition::is_at_head);
        self.current = None;
        self.pending.pop_front();
        if !is_at_head {
            // Other runs come first.
            self.pending.push_back(run);
        }
        None
    }

    /// Reads the next records of the next run. If the future is dropped, the next call reads them again.
    async fn read(&mut self) -> Result<()> {
        let Some(run) = self.pending.front().cloned() else { return Ok(()) };
        let place = self.positions.positions.get(&run).map_or_else(LogCursor::default, |told| told.place);
        let mut member = WatchedRun::new(&self.shared, run.clone(), Arc::from(""), place);
        let read = member.read(&self.shared, &self.filter).await;
        // Live events so far precede these records.
        self.live_before_read = self.subscription.waiting();
        let is_another = match &read {
            Ok(TailRead::Pruned(..)) => true,
            Err(error) => error.kind() == ErrorKind::NotFound && place != LogCursor::default(),
            Ok(_) => false,
        };
        if is_another && !self.is_still_selected(&run).await? {
            return Ok(());
        }
        if let Some(told) = self.positions.positions.get_mut(&run) {
            told.is_doubted = matches!(&read, Err(error) if error.is_retryable());
        }
        match read {
            Ok(TailRead::Records(_)) => self.current = Some(member),
            Ok(TailRead::Head(status)) => {
                self.pending.pop_front();
                if let Some(told) = self.positions.positions.get_mut(&run) {
                    told.is_over = is_over(status);
                }
            }
            Ok(TailRead::Pruned(first, prev)) => {
                if let Some(told) = self.positions.positions.get_mut(&run) {
                    (told.place, told.at) = (LogCursor::before(first, prev), self.shared.clock.now());
                }
                self.ready.push_back(member.event(None, WatchEventKind::Pruned { first }));
            }
            Ok(TailRead::Missing) => {
                self.pending.pop_front();
                self.positions.positions.remove(&run);
            }
            // Another selected run has its id.
            Err(_) if is_another => {
                self.positions
                    .positions
                    .insert(run, RunPosition::at(LogCursor::default(), self.positions.delivered_until));
            }
            Err(error) => {
                if !error.is_retryable() {
                    self.pending.pop_front();
                    if let Some(told) = self.positions.positions.get_mut(&run) {
                        (told.broken, told.at) = (told.head, self.shared.clock.now());
                    }
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns whether signals reported changed runs.
    fn has_changed(&mut self) -> bool {
        match self.subscription.take_changed() {
            ChangedRuns::Some(mut changed) => self.changed.append(&mut changed),
            ChangedRuns::Any => self.polls.due = self.polls.earliest,
        }
        !self.changed.is_empty()
    }

    /// Schedules a read of the next changed run, if the query selects it.
    async fn compare_changed(&mut self) -> Result<()> {
        while let Some(run) = self.changed.first().cloned()
            && self.pending.is_empty()
        {
            if self.is_selected(&run).await? {
                self.mark_doubtful(&run);
                self.want_read(&run);
            }
            self.changed.remove(&run);
        }
        Ok(())
    }

    /// Returns whether the query selects a run. A new run is registered. If a run is not selected, its later notices are ignored.
    async fn is_selected(&mut self, run: &RunKey) -> Result<bool> {
        if self.positions.positions.contains_key(run) {
            return Ok(true);
        }
        // It may be in the store soon.
        let Some(head) = head_of(&self.shared, run).await? else { return Ok(false) };
        let is_selected = self.query.meets_facts(run, &head.facts);
        match is_selected {
            true => self.compare(&head).await?,
            false => self.subscription.ignore(run),
        }
        Ok(is_selected)
    }

    /// Records that another run may have the id of a known one.
    fn mark_doubtful(&mut self, run: &RunKey) {
        if let Some(told) = self.positions.positions.get_mut(run) {
            told.is_doubted = true;
        }
    }

    /// Returns whether another run may have the id of a known one, because it has changed since the last read.
    fn is_doubted(&mut self, run: &RunKey) -> bool {
        self.has_changed();
        if self.positions.positions.contains_key(run) && self.changed.remove(run) {
            self.mark_doubtful(run);
            self.want_read(run);
        }
        self.positions.positions.get(run).is_some_and(|told| told.is_doubted)
    }

    /// Returns whether the query selects the run that now has a known id. If it does not, the run is removed.
    async fn is_still_selected(&mut self, run: &RunKey) -> Result<bool> {
        let head = head_of(&self.shared, run).await?;
        let is_selected = head.as_ref().is_some_and(|head| self.query.meets_facts(run, &head.facts));
        if let Some(told) = self.positions.positions.get_mut(run).filter(|_| is_selected) {
            told.is_doubted = false;
            return Ok(true);
        }
        self.positions.positions.remove(run);
        if self.current.as_ref().is_none_or(|current| current.run != *run) {
            self.pending.retain(|pending| pending != run);
        }
        if head.is_some() {
            self.subscription.ignore(run);
        }
        Ok(false)
    }

    /// Schedules a run as next, after the current one.
    fn read_first(&mut self, run: RunKey) {
        if self.current.as_ref().is_none_or(|current| current.run != run) {
            self.pending.retain(|pending| *pending != run);
            self.pending.insert(usize::from(self.current.is_some()), run);
        }
    }

    fn want_read(&mut self, run: &RunKey) {
        if !self.pending.contains(run) {
            self.pending.push_back(run.clone());
        }
    }

    /// Compares the head of a run with its position.
    async fn compare(&mut self, head: &RunHead) -> Result<()> {
        let (run, at) = (&head.run, head.head());
        self.subscription.unignore_run(run);
        if let Some(place) = self.positions.before.remove(run) {
            // The time of the last delivered record is unknown.
            self.positions.positions.insert(run.clone(), RunPosition::at(place, self.shared.clock.now()));
        }
        if !self.positions.positions.contains_key(run) {
            // An open run that was not known before is new, whatever its writer's clock.
            let is_new = self.polls.knows_all && !is_over(head.status)
                || head.facts.created > self.positions.delivered_until;
            let place = match () {
                () if is_new => Some(LogCursor::default()),
                () if head.updated <= self.positions.delivered_until => Some(LogCursor::from(at)),
                () => self.place_by_time(run).await?,
            };
            let Some(place) = place else { return Ok(()) };
            self.positions
                .positions
                .insert(run.clone(), RunPosition::at(place, self.positions.delivered_until));
        }
        let round = self.polls.round;
        let has_more = self.positions.positions.get_mut(run).is_some_and(|told| {
            (told.round, told.head, told.is_over) = (round, Some(at), is_over(head.status));
            !told.is_at_head() && told.broken != Some(at)
        });
        if has_more {
            self.want_read(run);
        }
        Ok(())
    }

    /// Finds the position of a run after all records up to the time `low`. Returns `None` if the run does not exist.
    async fn place_by_time(&self, run: &RunKey) -> Result<Option<LogCursor>> {
        let shared = &self.shared;
        let mut range = HeaderRange::newest(HEADERS);
        loop {
            let found = match shared.committer.read(|| shared.store.headers(run, range)).await {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                // The read reports the error.
                Err(error) if !error.is_retryable() => return Ok(Some(LogCursor::default())),
                found => found?,
            };
            if let Some(last) = found.items.iter().rfind(|header| header.at <= self.positions.delivered_until)
            {
                return Ok(Some(LogCursor::after(last)));
            }
            match found.items.first().and_then(|first| first.seq.get().checked_sub(1)) {
                Some(before) if found.items.first().is_some_and(|first| first.seq > found.first) => {
                    range = HeaderRange::up_to(Seq::new(before), HEADERS);
                }
                _ => return Ok(Some(LogCursor::default())),
            }
        }
    }
}

impl Drop for RunsWatch {
    fn drop(&mut self) {
        self.shared.feeds().unsubscribe(&self.subscription);
    }
}

impl fmt::Debug for RunsWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunsWatch")
            .field("query", &self.query)
            .field("low", &self.positions.delivered_until)
            .field("known", &self.positions.positions.len())
            .finish_non_exhaustive()
    }
}

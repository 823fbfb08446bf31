//! The positions of a watcher in the logs of many runs: its cursor, and what this process knows in addition.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::cursor::LogCursor;
use super::cursor::{CatchUp, RunsCursor};
use crate::clock::Timestamp;
use crate::id::{HeadRef, RunKey};
use crate::store::{RunHead, RunPlace};

/// A time before every record.
pub(super) const START: Timestamp = Timestamp::from_unix_ms(i64::MIN);

/// The start of the watch.
#[derive(Clone, Debug, Default)]
pub(super) enum RunsWatchStart {
    #[default]
    Start,
    Now,
    After(RunsCursor),
}

/// The positions of all runs.
#[derive(Debug)]
pub(super) struct RunPositions {
    /// The time up to which all records were delivered, for runs that are not in `positions`.
    pub(super) delivered_until: Timestamp,
    /// The maximum delay until a record becomes visible.
    visibility_delay: Duration,
    catch_up: Option<CatchUp>,
    /// The run in the current step of the catch-up.
    passing: Option<RunPlace>,
    /// The cursor's positions for runs that the catch-up has not reached.
    pub(super) before: BTreeMap<RunKey, LogCursor>,
    /// Open runs, and recently active ones.
    pub(super) positions: BTreeMap<RunKey, RunPosition>,
}

/// The position of a run.
#[derive(Clone, Debug)]
pub(super) struct RunPosition {
    pub(super) place: LogCursor,
    /// Time of the last fully delivered record.
    pub(super) at: Timestamp,
    /// Whether the status of the run is final.
    pub(super) is_over: bool,
    /// The number of the last poll that listed the run.
    pub(super) round: u64,
    /// The head of the run in the last listing.
    pub(super) head: Option<HeadRef>,
    /// The head at which the run could not be loaded, if there is one.
    pub(super) broken: Option<HeadRef>,
    /// Whether the run has changed since the last read, so that another run may have its id.
    pub(super) is_doubted: bool,
}

impl RunPosition {
    pub(super) fn at(place: LogCursor, at: Timestamp) -> Self {
        Self { place, at, is_over: false, round: 0, head: None, broken: None, is_doubted: false }
    }

    /// Returns whether everything up to the listed head was delivered.
    pub(super) fn is_at_head(&self) -> bool {
        self.place.part == 0 && self.head.is_some_and(|head| self.place.is_at(head))
    }
}

fn earlier(time: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_unix_ms(time.unix_ms().saturating_sub(by))
}

impl RunPositions {
    pub(super) fn new(begin: RunsWatchStart, now: Timestamp, settles: Duration) -> Self {
        let settled = earlier(now, settles);
        let anew = CatchUp { high: settled, behind: None };
        let (low, catch_up, places) = match begin {
            RunsWatchStart::Start => (START, Some(anew), BTreeMap::new()),
            // Records within this millisecond may be new.
            RunsWatchStart::Now => (earlier(now, Duration::from_millis(1)), None, BTreeMap::new()),
            RunsWatchStart::After(RunsCursor { low, catch_up, places }) => {
                let is_far = low < earlier(settled, settles);
                (low, catch_up.or(is_far.then_some(anew)), places)
            }
        };
        let (before, told) = match catch_up {
            Some(_) => (places, BTreeMap::new()),
            // The time of their last records is unknown, but not later than now.
            None => {
                let told = places.into_iter().map(|(run, place)| (run, RunPosition::at(place, now)));
                (BTreeMap::new(), told.collect())
            }
        };
        Self {
            delivered_until: low,
            visibility_delay: settles,
            catch_up,
            passing: None,
            before,
            positions: told,
        }
    }

    /// Returns the cursor for a later watch.
    pub(super) fn cursor(&self) -> RunsCursor {
        // The time covers the others: the catch-up's, or the previous cursor's.
        let by_time = self.catch_up.as_ref().map_or(self.delivered_until, |catch_up| catch_up.high);
        let is_passing = |run: &RunKey| self.passing.as_ref().is_some_and(|passing| passing.run == *run);
        let is_named =
            |run: &RunKey, told: &RunPosition| told.at > by_time || told.place.part > 0 || is_passing(run);
        let told = self.positions.iter().filter(|(run, told)| is_named(run, told));
        let places = told.map(|(run, told)| (run.clone(), told.place));
        let before = self.before.iter().map(|(run, place)| (run.clone(), *place));
        RunsCursor {
            low: self.delivered_until,
            catch_up: self.catch_up.clone(),
            places: before.chain(places).collect(),
        }
    }

    /// Returns whether a catch-up is in progress.
    pub(super) fn is_catching_up(&self) -> bool {
        self.catch_up.is_some()
    }

    /// Returns the creation time from which runs still need a catch-up, if a catch-up is in progress.
    pub(super) fn caught_up_to(&self) -> Option<Timestamp> {
        let behind = &self.catch_up.as_ref()?.behind;
        Some(behind.as_ref().map_or(START, |behind| behind.created))
    }

    /// Returns whether a listed run must be compared with its position. Returns `None` if neither this run nor the following runs of the listing need
    /// it.
    pub(super) fn is_to_be_compared(&self, head: &RunHead) -> Option<bool> {
        let Some(CatchUp { high, behind }) = &self.catch_up else { return Some(true) };
        if head.facts.created > *high {
            return None;
        }
        Some(behind.as_ref().is_none_or(|behind| *behind < RunPlace::of(head)))
    }

    /// Starts the catch-up of a run.
    pub(super) fn begin_to_pass(&mut self, head: &RunHead) {
        if self.catch_up.is_some() {
            self.pass();
            self.passing = Some(RunPlace::of(head));
        }
    }

    /// Completes the catch-up of the current run.
    pub(super) fn pass(&mut self) {
        if let (Some(catch_up), Some(passed)) = (&mut self.catch_up, self.passing.take()) {
            catch_up.behind = Some(passed);
        }
    }

    /// Completes the catch-up of all runs.
    pub(super) fn end_catch_up(&mut self, now: Timestamp) {
        if let Some(CatchUp { high, .. }) = self.catch_up.take() {
            self.delivered_until = high;
            // They were created later, or are gone.
            let left = std::mem::take(&mut self.before);
            self.positions.extend(left.into_iter().map(|(run, place)| (run, RunPosition::at(place, now))));
        }
    }

    /// Returns the open runs that a poll did not list.
    pub(super) fn not_listed(&self, round: u64) -> impl Iterator<Item = RunKey> {
        let left = self.positions.iter().filter(move |(_, told)| !told.is_over && told.round != round);
        left.map(|(run, _)| run.clone())
    }

    /// Returns the time up to which all records are visible at `now`.
    pub(super) fn settled_until(&self, now: Timestamp) -> Timestamp {
        earlier(now, self.visibility_delay)
    }

    /// Marks all records as delivered that a poll found. The poll began at `began`. Positions that are no longer needed because of the new time are
    /// dropped.
    pub(super) fn mark_delivered(&mut self, began: Timestamp) {
        let low = self.delivered_until.max(self.settled_until(began));
        self.delivered_until = low;
        self.positions.retain(|_, told| !told.is_over || told.at > low || told.place.part > 0);
    }
}

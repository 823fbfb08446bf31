//! Where the runs stand that a watcher of many runs follows: what its cursor says, and what it knows beyond that.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::cursor::LogCursor;
use super::cursor::{CatchUp, RunsCursor};
use crate::clock::Timestamp;
use crate::id::{HeadRef, RunKey};
use crate::store::{RunHead, RunPlace};

/// Before everything.
pub(super) const START: Timestamp = Timestamp::from_unix_ms(i64::MIN);

/// From when on runs are told.
#[derive(Clone, Debug, Default)]
pub(super) enum Begin {
    #[default]
    Start,
    Now,
    After(RunsCursor),
}

/// Where all runs stand.
#[derive(Debug)]
pub(super) struct RunPositions {
    /// Of runs that `told` does not name, everything was told that was recorded up to then.
    pub(super) low: Timestamp,
    /// How late a record may become visible.
    settles: Duration,
    catch_up: Option<CatchUp>,
    /// The run that is being caught up with.
    passing: Option<RunPlace>,
    /// The places of the cursor of runs that were not caught up with yet.
    pub(super) before: BTreeMap<RunKey, LogCursor>,
    /// Those that may change, and those that did something lately.
    pub(super) told: BTreeMap<RunKey, RunPosition>,
}

/// Where a run stands.
#[derive(Clone, Debug)]
pub(super) struct RunPosition {
    pub(super) place: LogCursor,
    /// When the last record was made of which everything was told.
    pub(super) at: Timestamp,
    /// Whether it may not change any more.
    pub(super) is_over: bool,
    /// The look that listed it last.
    pub(super) round: u64,
    /// The head as it was listed.
    pub(super) head: Option<HeadRef>,
    /// The head with which it could not be read.
    pub(super) broken: Option<HeadRef>,
    /// Whether it has changed since it was read: another run may have its id.
    pub(super) is_doubted: bool,
}

impl RunPosition {
    pub(super) fn at(place: LogCursor, at: Timestamp) -> Self {
        Self { place, at, is_over: false, round: 0, head: None, broken: None, is_doubted: false }
    }

    /// Whether everything was told up to the head that was listed.
    pub(super) fn is_at_head(&self) -> bool {
        self.place.part == 0 && self.head.is_some_and(|head| self.place.is_at(head))
    }
}

fn earlier(time: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_unix_ms(time.unix_ms().saturating_sub(by))
}

impl RunPositions {
    pub(super) fn new(begin: Begin, now: Timestamp, settles: Duration) -> Self {
        let settled = earlier(now, settles);
        let anew = CatchUp { high: settled, behind: None };
        let (low, catch_up, places) = match begin {
            Begin::Start => (START, Some(anew), BTreeMap::new()),
            // What is recorded within this millisecond may be new.
            Begin::Now => (earlier(now, Duration::from_millis(1)), None, BTreeMap::new()),
            Begin::After(RunsCursor { low, catch_up, places }) => {
                let is_far = low < earlier(settled, settles);
                (low, catch_up.or(is_far.then_some(anew)), places)
            }
        };
        let (before, told) = match catch_up {
            Some(_) => (places, BTreeMap::new()),
            // When their last records were made is not known, but it was not later than now.
            None => {
                let told = places.into_iter().map(|(run, place)| (run, RunPosition::at(place, now)));
                (BTreeMap::new(), told.collect())
            }
        };
        Self { low, settles, catch_up, passing: None, before, told }
    }

    /// Returns what says so to a later watch.
    pub(super) fn cursor(&self) -> RunsCursor {
        // The others stand where the time says: the one up to which is caught up, or the one of the cursor before.
        let by_time = self.catch_up.as_ref().map_or(self.low, |catch_up| catch_up.high);
        let is_passing = |run: &RunKey| self.passing.as_ref().is_some_and(|passing| passing.run == *run);
        let is_named =
            |run: &RunKey, told: &RunPosition| told.at > by_time || told.place.part > 0 || is_passing(run);
        let told = self.told.iter().filter(|(run, told)| is_named(run, told));
        let places = told.map(|(run, told)| (run.clone(), told.place));
        let before = self.before.iter().map(|(run, place)| (run.clone(), *place));
        RunsCursor { low: self.low, catch_up: self.catch_up.clone(), places: before.chain(places).collect() }
    }

    /// Whether it goes through all runs, in the order of their creation.
    pub(super) fn is_catching_up(&self) -> bool {
        self.catch_up.is_some()
    }

    /// Returns from when on runs were created that are to be caught up with, if any are.
    pub(super) fn caught_up_to(&self) -> Option<Timestamp> {
        let behind = &self.catch_up.as_ref()?.behind;
        Some(behind.as_ref().map_or(START, |behind| behind.created))
    }

    /// Whether a listed run is to be compared with what was told of it; `None` if neither it nor what follows is.
    pub(super) fn is_to_be_compared(&self, head: &RunHead) -> Option<bool> {
        let Some(CatchUp { high, behind }) = &self.catch_up else { return Some(true) };
        if head.facts.created > *high {
            return None;
        }
        Some(behind.as_ref().is_none_or(|behind| *behind < RunPlace::of(head)))
    }

    /// Begins to catch up with a run.
    pub(super) fn begin_to_pass(&mut self, head: &RunHead) {
        if self.catch_up.is_some() {
            self.pass();
            self.passing = Some(RunPlace::of(head));
        }
    }

    /// Has caught up with the run that it was at.
    pub(super) fn pass(&mut self) {
        if let (Some(catch_up), Some(passed)) = (&mut self.catch_up, self.passing.take()) {
            catch_up.behind = Some(passed);
        }
    }

    /// Has caught up with all runs.
    pub(super) fn end_catch_up(&mut self, now: Timestamp) {
        if let Some(CatchUp { high, .. }) = self.catch_up.take() {
            self.low = high;
            // They were created later, or are gone.
            let left = std::mem::take(&mut self.before);
            self.told.extend(left.into_iter().map(|(run, place)| (run, RunPosition::at(place, now))));
        }
    }

    /// Lists the runs that may have changed and that a look did not list.
    pub(super) fn not_listed(&self, round: u64) -> impl Iterator<Item = RunKey> {
        let left = self.told.iter().filter(move |(_, told)| !told.is_over && told.round != round);
        left.map(|(run, _)| run.clone())
    }

    /// Returns up to when everything is visible at this time.
    pub(super) fn settled(&self, now: Timestamp) -> Timestamp {
        earlier(now, self.settles)
    }

    /// Everything was told that a look found which began then: forgets what the time says from now on.
    pub(super) fn settle(&mut self, began: Timestamp) {
        let low = self.low.max(self.settled(began));
        self.low = low;
        self.told.retain(|_, told| !told.is_over || told.at > low || told.place.part > 0);
    }
}

//! The subscription of one watcher of many runs, by which it learns of changed runs and live events in this process.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::super::request::WatchFilter;
use super::super::watch_event::{LiveEvent, WatchEventKind};
use crate::id::RunKey;

/// The number of live events that are retained for a slow watcher.
const LAG: usize = 1_024;

/// The maximum number of changed runs that are stored. If there are more, the watcher checks all runs.
const CHANGED: usize = 10_000;

/// The maximum number of runs that are stored because the query does not select them.
const OTHERS: usize = 10_000;

/// The subscription of a [`RunsWatch`](super::RunsWatch).
#[derive(Debug)]
pub(in super::super) struct RunsSubscription {
    want: WatchFilter,
    heard: Mutex<RunsNotice>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct RunsNotice {
    changed: BTreeSet<RunKey>,
    /// Whether any run may have changed.
    any: bool,
    live: VecDeque<(RunKey, LiveEvent)>,
    /// The number of dropped live events by run.
    missed: BTreeMap<RunKey, u64>,
    /// Runs that the query does not select.
    others: HashSet<RunKey>,
}

/// The runs that may have changed.
pub(super) enum ChangedRuns {
    Some(BTreeSet<RunKey>),
    Any,
}

impl RunsSubscription {
    pub(super) fn new(want: WatchFilter) -> Self {
        Self { want, heard: Mutex::default(), bell: Notify::new() }
    }

    fn lock_notice(&self) -> MutexGuard<'_, RunsNotice> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the watcher wants chunks of streams.
    pub(in super::super) fn hears_chunks(&self) -> bool {
        self.want.hears_chunks()
    }

    /// Records that a run may have changed. Without a run, it records that any run may have changed.
    pub(in super::super) fn changed(&self, run: Option<&RunKey>) {
        let mut heard = self.lock_notice();
        match run {
            Some(run) if heard.others.contains(run) => return,
            Some(run) if heard.changed.len() < CHANGED => {
                heard.changed.insert(run.clone());
            }
            _ => heard.any = true,
        }
        drop(heard);
        self.bell.notify_one();
    }

    /// Queues live data of a node, and drops the oldest if there is too much.
    pub(in super::super) fn queue_live(&self, run: &RunKey, live: LiveEvent) {
        let what = WatchEventKind::Live(live);
        if !self.want.passes("", &what) {
            return;
        }
        let WatchEventKind::Live(live) = what else { return };
        let mut heard = self.lock_notice();
        if heard.others.contains(run) {
            return;
        }
        if heard.live.len() >= LAG
            && let Some((run, _)) = heard.live.pop_front()
        {
            *heard.missed.entry(run).or_default() += 1;
        }
        heard.live.push_back((run.clone(), live));
        drop(heard);
        self.bell.notify_one();
    }

    /// Records the number of lost live events of a run.
    pub(in super::super) fn count_missed(&self, run: &RunKey, missed: u64) {
        let mut heard = self.lock_notice();
        if !heard.others.contains(run) {
            *heard.missed.entry(run.clone()).or_default() += missed;
        }
    }

    /// Records that the query does not select a run.
    pub(super) fn ignore(&self, run: &RunKey) {
        let mut heard = self.lock_notice();
        if heard.others.len() >= OTHERS {
            heard.others.clear();
        }
        heard.others.insert(run.clone());
        heard.live.retain(|(other, _)| other != run);
        heard.missed.remove(run);
    }

    /// Records that the query selects a run: another run may have had its id before.
    pub(super) fn unignore_run(&self, run: &RunKey) {
        self.lock_notice().others.remove(run);
    }

    /// Takes the runs that may have changed since the last call.
    pub(super) fn take_changed(&self) -> ChangedRuns {
        let mut heard = self.lock_notice();
        let changed = std::mem::take(&mut heard.changed);
        match std::mem::take(&mut heard.any) {
            true => ChangedRuns::Any,
            false => ChangedRuns::Some(changed),
        }
    }

    /// Returns the run of the next live event.
    pub(super) fn next_live_run(&self) -> Option<RunKey> {
        let heard = self.lock_notice();
        heard.missed.keys().next().or_else(|| heard.live.front().map(|(run, _)| run)).cloned()
    }

    /// Takes the next live event. A gap comes first, because the lost events are older than the queued ones.
    pub(super) fn take_live(&self) -> Option<(RunKey, WatchEventKind)> {
        let mut heard = self.lock_notice();
        if let Some((run, missed)) = heard.missed.pop_first() {
            return Some((run, WatchEventKind::Lagged { missed }));
        }
        heard.live.pop_front().map(|(run, live)| (run, WatchEventKind::Live(live)))
    }

    /// Drops the next live event if it is of this run.
    pub(super) fn drop_first_of(&self, run: &RunKey) {
        let mut heard = self.lock_notice();
        if heard.missed.remove(run).is_none() && heard.live.front().is_some_and(|(first, _)| first == run) {
            heard.live.pop_front();
        }
    }

    /// Returns the number of queued live events.
    pub(super) fn waiting(&self) -> usize {
        let heard = self.lock_notice();
        heard.live.len() + heard.missed.len()
    }

    /// Waits for a signal since the last wait.
    pub(super) async fn wait_for_signal(&self) {
        self.bell.notified().await;
    }
}

//! The workflows that this process serves, and the runs of these workflows that it could not claim.

use crate::kernel::run_writer::RunWriter;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{RunKey, WorkflowName};
use crate::kernel::admission::RunPermit;
use crate::kernel::read_budget::ReadBudget;
use crate::store::{RunAppend, RunFilter, RunHead};

/// The first and the longest delay after a failed claim.
const FIRST_REST: Duration = Duration::from_secs(2);
const LONGEST_REST: Duration = Duration::from_secs(300);

/// The longest delay after a store failure.
const STORE_REST: Duration = Duration::from_secs(15);

type RecoveredRun = Pin<Box<dyn Future<Output = Result<ClaimOutcome>> + Send>>;

/// A function that claims a run of a workflow. It hides the user's state type.
pub(crate) type Claimer = Arc<dyn Fn(ClaimTarget, RunPermit) -> RecoveredRun + Send + Sync>;

/// The knowledge about a run that a caller already has when it claims the run.
pub(crate) struct ClaimTarget {
    pub(crate) head: RunHead,
    /// The run in its state at this head, if this process has just written the head.
    pub(crate) tip: Option<Box<RunWriter>>,
    /// The records before this head that are not yet in the store. The append of the claim also writes them, or writes nothing.
    pub(crate) unwritten: Option<RunAppend>,
}

impl From<RunHead> for ClaimTarget {
    fn from(head: RunHead) -> Self {
        Self { head, tip: None, unwritten: None }
    }
}

/// The result of a recovery claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimOutcome {
    /// This process has claimed the run and drives it.
    Driven,
    /// The run needs no driver in this process, or another action for the run is complete.
    Done,
    /// Another process claimed the run first, or the run has ended.
    Late,
}

/// A run that needs a driver but that this process could not claim, or a run that waits for something that a library reported.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StalledRun {
    /// The key of the run.
    pub run: RunKey,
    /// The error of the last attempt to claim the run.
    ///
    /// - [`ErrorKind::GraphChanged`]: the graph that this process serves does not fit the run.
    /// - [`ErrorKind::Unsupported`]: this process does not serve the workflow or lacks a [tag](crate::runtime::RuntimeBuilder::tags), and no other
    ///   process has claimed the run.
    /// - [`ErrorKind::Unavailable`] with zero attempts: a library [reported](crate::runtime::Runtime::report_waits) that the run waits.
    pub error: Error,
    /// The number of failed attempts to claim the run. It is 0 if this process made no attempt, because it does not serve the workflow or the run
    /// waits in a queue.
    pub tries: u32,
    /// The time of the next attempt. If no attempt is planned, the time when this process last saw the run in this condition.
    pub next: Timestamp,
}

/// A stalled run, with the time at which a sweep last found it.
struct StalledEntry {
    stalled: StalledRun,
    since: Timestamp,
    /// The listing and the number of the sweep that last found the run.
    filter: RunFilter,
    found: u64,
}

/// The workflows that this process serves, and the runs that it could not claim.
pub(crate) struct Recovery {
    /// The served workflows, ordered by name so that sweeps are deterministic.
    pub(crate) served: Mutex<BTreeMap<WorkflowName, Claimer>>,
    stalled: Mutex<HashMap<RunKey, StalledEntry>>,
    /// The last report of each library, by its name. A report contains waits, each with its start.
    waits: Mutex<HashMap<String, Vec<(Timestamp, StalledRun)>>>,
    /// The claims in progress, by part of the store.
    claiming: Arc<Mutex<Claims>>,
    /// Notified when there may be work.
    pub(crate) bell: Notify,
    /// Whether the last sweep stopped for lack of capacity.
    is_full: AtomicBool,
    /// Limits the log bytes that claims read.
    pub(crate) read_budget: Arc<ReadBudget>,
    /// The number of sweeps that have started. With it, the end of a sweep does not remove runs that a later sweep has found.
    round: AtomicU64,
}

impl Recovery {
    pub(crate) fn new(most_bytes: u64) -> Self {
        Self {
            served: Mutex::default(),
            stalled: Mutex::default(),
            waits: Mutex::default(),
            claiming: Arc::default(),
            bell: Notify::new(),
            is_full: AtomicBool::new(false),
            read_budget: ReadBudget::new(most_bytes),
            round: AtomicU64::new(0),
        }
    }

    /// Signals that there may be work.
    pub(crate) fn notify_work(&self) {
        self.bell.notify_one();
    }

    /// Starts a round of sweeps and returns its number.
    pub(crate) fn begin_round(&self) -> u64 {
        self.round.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn round(&self) -> u64 {
        self.round.load(Ordering::Relaxed)
    }

    /// Signals that a run has ended in this process, so that there may be capacity for another run.
    pub(crate) fn notify_ended(&self) {
        if self.is_full.swap(false, Ordering::Relaxed) {
            self.notify_work();
        }
    }

    pub(crate) fn fill(&self) {
        self.is_full.store(true, Ordering::Relaxed);
    }

    /// Returns whether a claim of the run is in progress, or its part has reached the limit of concurrent claims.
    pub(crate) fn is_claiming(&self, part: u64, run: &RunKey, at_once: u32) -> bool {
        let claiming = self.claiming.lock().unwrap_or_else(PoisonError::into_inner);
        claiming.get(&part).is_some_and(|runs| runs.contains(run) || runs.len() >= 2 * at_once as usize)
    }

    /// Marks a claim of the run as in progress, until the guard is dropped.
    pub(crate) fn begin_claim(&self, part: u64, run: &RunKey) -> ClaimGuard {
        let mut claiming = self.claiming.lock().unwrap_or_else(PoisonError::into_inner);
        claiming.entry(part).or_default().insert(run.clone());
        ClaimGuard { all: Arc::clone(&self.claiming), part, run: run.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunKey, StalledEntry>> {
        self.stalled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists stalled runs. These are runs whose claim failed, and runs that for at least `patience` were not served by any process or waited for
    /// something that a library reported.
    pub(crate) fn stalled(&self, now: Timestamp, patience: Duration) -> Vec<StalledRun> {
        let late = |since: Timestamp| now.since(since) >= patience;
        let mut all: Vec<_> = {
            let listed = self.lock();
            let late = listed.values().filter(|one| one.stalled.tries > 0 || late(one.since));
            late.map(|one| one.stalled.clone()).collect()
        };
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(waits.values().flatten().filter(|(since, _)| late(*since)).map(|(_, one)| one.clone()));
        all.sort_by(|one, other| one.run.cmp(&other.run));
        all
    }

    /// Replaces the waits that were reported under this name.
    pub(crate) fn report_waits(
        &self,
        name: &str,
        waits: impl IntoIterator<Item = (RunKey, Timestamp, Error)>,
        now: Timestamp,
    ) {
        let waits: Vec<_> = waits
            .into_iter()
            .map(|(run, since, error)| (since, StalledRun { run, error, tries: 0, next: now }))
            .collect();
        let mut all = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        match waits.is_empty() {
            true => drop(all.remove(name)),
            false => drop(all.insert(name.to_owned(), waits)),
        }
    }

    /// Returns two numbers: the runs whose claim failed, and the runs that no process serves.
    pub(crate) fn count(&self) -> (usize, usize) {
        let listed = self.lock();
        let failed = listed.values().filter(|one| one.stalled.tries > 0).count();
        (failed, listed.len() - failed)
    }

    /// Returns the error with which this process failed to claim a run, if there is one.
    pub(crate) fn claim_failure(&self, run: &RunKey) -> Option<Error> {
        self.lock().get(run).filter(|one| one.stalled.tries > 0).map(|one| one.stalled.error.clone())
    }

    pub(crate) fn serves(&self, workflow: &WorkflowName) -> bool {
        self.claimer(workflow).is_some()
    }

    pub(crate) fn serves_any(&self) -> bool {
        !self.served.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(crate) fn claimer(&self, workflow: &WorkflowName) -> Option<Claimer> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).get(workflow).cloned()
    }

    pub(crate) fn workflows(&self) -> Vec<WorkflowName> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Records that a sweep found a stalled run again, and returns whether the run must be skipped until its next attempt.
    pub(crate) fn should_skip(&self, run: &RunKey, filter: RunFilter, now: Timestamp) -> bool {
        self.lock().get_mut(run).is_some_and(|one| {
            (one.filter, one.found) = (filter, self.round());
            one.stalled.tries > 0 && one.stalled.next > now
        })
    }

    /// Records a run that only other processes can claim, because this process does not serve its workflow or lacks a tag.
    pub(crate) fn note_unserved(
        &self,
        head: &RunHead,
        lacking: Option<&str>,
        filter: RunFilter,
        now: Timestamp,
    ) {
        let round = self.round();
        let mut listed = self.lock();
        let one = listed.entry(head.run.clone()).or_insert_with(|| {
            let workflow = &head.facts.workflow;
            let message = match lacking {
                Some(tags) => format!(
                    "only a process with the tags `{tags}` can claim the run, and none has claimed it; serve `{workflow}` in such a process"
                ),
                None => format!(
                    "this process does not serve the workflow `{workflow}`, and no other process has claimed the run; serve it in a process"
                ),
            };
            let error = Error::new(ErrorKind::Unsupported, message).with_run(&head.run);
            let stalled = StalledRun { run: head.run.clone(), error, tries: 0, next: now };
            StalledEntry { stalled, since: now, filter, found: round }
        });
        (one.filter, one.found, one.stalled.next) = (filter, round, now);
    }

    /// Removes the runs that no sweep has found since this round, because they need no driver any more.
    pub(crate) fn drop_unseen(&self, filter: RunFilter, round: u64) {
        self.lock().retain(|_, one| one.filter != filter || one.found >= round);
    }

    /// Records the result of a claim.
    pub(crate) fn record_claim(&self, run: RunKey, result: Result<()>, filter: RunFilter, now: Timestamp) {
        let mut listed = self.lock();
        match result {
            Ok(()) => drop(listed.remove(&run)),
            Err(error) => {
                let (tries, since) =
                    listed.get(&run).map_or((1, now), |one| (one.stalled.tries + 1, one.since));
                let longest = if error.is_retryable() { STORE_REST } else { LONGEST_REST };
                let rest = FIRST_REST.saturating_mul(1 << tries.min(10)).min(longest);
                tracing::warn!(%run, %error, tries, "cannot claim a run; will retry");
                let stalled = StalledRun { run: run.clone(), error, tries, next: now.plus(rest) };
                listed.insert(run, StalledEntry { stalled, since, filter, found: self.round() });
            }
        }
    }
}

type Claims = HashMap<u64, HashSet<RunKey>>;

/// A claim in progress.
pub(crate) struct ClaimGuard {
    all: Arc<Mutex<Claims>>,
    part: u64,
    run: RunKey,
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runs) = all.get_mut(&self.part) {
            runs.remove(&self.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim after a signal may fail during a sweep that has already passed the run.
    #[test]
    fn failure_during_sweep_persists_until_later_sweep() {
        let (recovery, run) = (Recovery::new(1), RunKey::try_from("r").unwrap());
        let (now, filter) = (Timestamp::from_unix_ms(0), RunFilter::Orphaned);
        let since = recovery.begin_round();
        let failed = Error::new(ErrorKind::GraphChanged, "the graph changed where the run is");
        recovery.record_claim(run.clone(), Err(failed), filter, now);
        recovery.drop_unseen(filter, since);
        assert!(recovery.should_skip(&run, filter, now), "the run is skipped until its next attempt");
        assert_eq!(recovery.stalled(now, Duration::MAX).len(), 1);
        let since = recovery.begin_round();
        recovery.drop_unseen(filter, since);
        assert!(recovery.stalled(now, Duration::MAX).is_empty(), "the run needs no driver any more");
    }
}

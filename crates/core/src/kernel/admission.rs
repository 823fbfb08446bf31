//! Limits on active runs in this process, and the line of runs that wait for capacity.
//!
//! A run that waits in this line is already stored and has no owner. If this process ends, or another process has capacity earlier, the other process
//! claims the run. The line only decides in which order this process claims runs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{RunKey, TenantId, WorkflowName};
use crate::record::RunFacts;
use crate::telemetry::QueueMeter;

/// The limits on the number of active runs in one runtime: in total, for each workflow, for each tenant, and for each value of a label.
///
/// An idle run, which waits for an answer, a message or a distant time, does not count. If a start would exceed a limit, the run is recorded and
/// waits in line in this process. The line serves each tenant and label value one after another, and for each of them the oldest run first. Any other
/// process with capacity may claim the run earlier. A run that you [resume](crate::runtime::Runtime::resume) never waits in line, but it counts.
///
/// ```
/// use ferrata_core::runtime::RunLimits;
///
/// let limits = RunLimits::new().with_runs(200).with_runs_of("import", 4).with_runs_per_tenant(20).with_runs_per_label("customer", 5);
/// # assert!(format!("{limits:?}").contains("import"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunLimits {
    runs: Option<usize>,
    workflows: BTreeMap<String, usize>,
    tenant: Option<usize>,
    labels: BTreeMap<String, usize>,
}

impl RunLimits {
    /// Creates limits that restrict nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of active runs in total. Here and in the other methods, 0 has the same effect as 1.
    #[must_use]
    pub fn with_runs(mut self, most: usize) -> Self {
        self.runs = Some(most.max(1));
        self
    }

    /// Sets the maximum number of active runs of a workflow.
    #[must_use]
    pub fn with_runs_of(mut self, workflow: impl Into<String>, most: usize) -> Self {
        self.workflows.insert(workflow.into(), most.max(1));
        self
    }

    /// Sets the maximum number of active runs of each tenant.
    #[must_use]
    pub fn with_runs_per_tenant(mut self, most: usize) -> Self {
        self.tenant = Some(most.max(1));
        self
    }

    /// Sets the maximum number of active runs with the same value of a label. Runs without the label do not count.
    #[must_use]
    pub fn with_runs_per_label(mut self, label: impl Into<String>, most: usize) -> Self {
        self.labels.insert(label.into(), most.max(1));
        self
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The key by which the line is fair: a tenant, and the values of the labels that are limited.
type Key = (TenantId, Vec<Option<String>>);

/// The waiting runs of one key and workflow, ordered by age.
type AdmissionQueue = BTreeMap<(Timestamp, RunKey), RunStarter>;

/// The limits for which a run counts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RunCounters {
    key: Key,
    workflow: WorkflowName,
}

type AdmittedRun = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A function that continues a run after it got capacity. It owns a reference to the runtime, so the runtime exists as long as a run is in line.
pub(crate) type RunStarter = Box<dyn FnOnce(RunPermit) -> AdmittedRun + Send>;

/// Admits runs as long as there is capacity.
pub(crate) struct AdmissionControl {
    limits: RunLimits,
    state: Mutex<AdmissionState>,
    /// Notified when there may be capacity for a run in line.
    bell: Notify,
    meter: QueueMeter,
}

#[derive(Default)]
struct AdmissionState {
    runs: usize,
    workflows: HashMap<WorkflowName, usize>,
    tenants: HashMap<TenantId, usize>,
    labels: HashMap<(usize, String), usize>,
    /// The waiting runs, by key, then by workflow, then by age.
    line: BTreeMap<Key, BTreeMap<WorkflowName, AdmissionQueue>>,
    waiting: HashSet<RunKey>,
    /// Listeners that are notified when a run in line is admitted. They are dropped if the run leaves the line without being admitted.
    admission_listeners: HashMap<RunKey, Vec<oneshot::Sender<()>>>,
    /// The key of the last admission.
    last: Option<Key>,
    is_closed: bool,
}

/// The permit of one active run. The capacity is free again when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct RunPermit {
    _room: Option<Arc<RoomGuard>>,
}

struct RoomGuard {
    admission: Arc<AdmissionControl>,
    kind: RunCounters,
}

impl Drop for RoomGuard {
    fn drop(&mut self) {
        self.admission.lock().count(&self.kind, |count| *count = count.saturating_sub(1));
        self.admission.bell.notify_one();
    }
}

impl AdmissionControl {
    pub(crate) fn new(limits: RunLimits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default(), bell: Notify::new(), meter: QueueMeter::new() })
    }

    fn lock(&self) -> MutexGuard<'_, AdmissionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kind(&self, run: &RunKey, facts: &RunFacts) -> RunCounters {
        let value = |label: &String| facts.labels.get(label).map(ToOwned::to_owned);
        let labels = self.limits.labels.keys().map(value).collect();
        RunCounters { key: (run.tenant.clone(), labels), workflow: facts.workflow.clone() }
    }

    /// Returns whether there are any limits.
    pub(crate) fn is_limited(&self) -> bool {
        !self.limits.is_none()
    }

    /// Reserves capacity for a run, even if this exceeds the limits.
    pub(crate) fn admit(self: &Arc<Self>, run: &RunKey, facts: &RunFacts) -> RunPermit {
        if !self.is_limited() {
            return RunPermit { _room: None };
        }
        let kind = self.kind(run, facts);
        self.lock().count(&kind, |count| *count += 1);
        RunPermit { _room: Some(Arc::new(RoomGuard { admission: Arc::clone(self), kind })) }
    }

    /// Reserves capacity for a run, if there is capacity and no other run waits for it.
    pub(crate) fn try_admit(self: &Arc<Self>, run: &RunKey, facts: &RunFacts) -> Option<RunPermit> {
        if !self.is_limited() {
            return Some(RunPermit { _room: None });
        }
        let kind = self.kind(run, facts);
        let mut state = self.lock();
        let is_first = !state.line.get(&kind.key).is_some_and(|line| line.contains_key(&kind.workflow));
        if !(is_first && state.has_room(&self.limits, &kind) && state.next(&self.limits).is_none()) {
            return None;
        }
        state.count(&kind, |count| *count += 1);
        drop(state);
        Some(RunPermit { _room: Some(Arc::new(RoomGuard { admission: Arc::clone(self), kind })) })
    }

    /// Puts a run in line. A run that is in line already keeps its position.
    pub(crate) fn line_up(&self, run: &RunKey, facts: &RunFacts, go: RunStarter) {
        self.enqueue_or_listen(run, facts, go, None);
    }

    /// Puts a run in line like [`line_up`](Self::line_up). If the run is in line already, returns false, and notifies the caller on its
    /// admission.
    fn enqueue_or_listen(
        &self,
        run: &RunKey,
        facts: &RunFacts,
        go: RunStarter,
        told: Option<oneshot::Sender<()>>,
    ) -> bool {
        let RunCounters { key, workflow } = self.kind(run, facts);
        let mut state = self.lock();
        if state.is_closed {
            drop(state);
            // Drop outside the lock: the drop notifies a handle, which may check the line.
            drop(go);
            return true;
        }
        let is_new = state.waiting.insert(run.clone());
        if is_new {
            let line = state.line.entry(key).or_default().entry(workflow).or_default();
            line.insert((facts.created, run.clone()), go);
        } else if let Some(told) = told {
            state.admission_listeners.entry(run.clone()).or_default().push(told);
        }
        self.meter.set(state.waiting.len());
        drop(state);
        self.bell.notify_one();
        is_new
    }

    /// Returns whether a run is in line here.
    pub(crate) fn is_waiting(&self, run: &RunKey) -> bool {
        self.lock().waiting.contains(run)
    }

    /// Removes a run from the line.
    pub(crate) fn remove_waiting(&self, run: &RunKey, facts: &RunFacts) {
        if !self.is_limited() {
            return;
        }
        let kind = self.kind(run, facts);
        let mut state = self.lock();
        let gone = state.waiting.remove(run).then(|| state.remove(&kind, &(facts.created, run.clone())));
        state.admission_listeners.remove(run);
        self.meter.set(state.waiting.len());
        drop(state);
        // Drop outside the lock: the drop notifies a handle, which may check the line.
        drop(gone);
    }

    /// Returns the number of runs in line.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Removes all runs from the line. Other processes will continue them.
    pub(crate) fn close(&self) {
        let gone = {
            let mut state = self.lock();
            state.is_closed = true;
            state.waiting.clear();
            state.admission_listeners.clear();
            self.meter.set(0);
            std::mem::take(&mut state.line)
        };
        // Drop outside the lock: the drop notifies handles, which may check the line.
        drop(gone);
    }

    /// Waits until there may be capacity.
    pub(crate) async fn wait_for_capacity(&self) {
        self.bell.notified().await;
    }

    /// Removes the next admissible run from the line, and reserves its capacity.
    pub(crate) fn pop(self: &Arc<Self>) -> Option<(RunStarter, RunPermit)> {
        let mut state = self.lock();
        let (kind, place) = state.next(&self.limits)?;
        state.last = Some(kind.key.clone());
        let go = state.remove(&kind, &place)?;
        state.waiting.remove(&place.1);
        let told = state.admission_listeners.remove(&place.1).unwrap_or_default();
        self.meter.set(state.waiting.len());
        state.count(&kind, |count| *count += 1);
        drop(state);
        // The listener may be gone.
        told.into_iter().for_each(|told| _ = told.send(()));
        Some((go, RunPermit { _room: Some(Arc::new(RoomGuard { admission: Arc::clone(self), kind })) }))
    }
}

impl AdmissionState {
    /// Removes the entry at a position from the line.
    fn remove(&mut self, kind: &RunCounters, place: &(Timestamp, RunKey)) -> Option<RunStarter> {
        let lines = self.line.get_mut(&kind.key)?;
        let line = lines.get_mut(&kind.workflow)?;
        let go = line.remove(place)?;
        if line.is_empty() {
            lines.remove(&kind.workflow);
        }
        if lines.is_empty() {
            self.line.remove(&kind.key);
        }
        Some(go)
    }

    fn count(&mut self, kind: &RunCounters, change: impl Fn(&mut usize)) {
        change(&mut self.runs);
        let tenant = kind.key.0.clone();
        change(self.workflows.entry(kind.workflow.clone()).or_default());
        change(self.tenants.entry(tenant.clone()).or_default());
        for (place, value) in kind.key.1.iter().enumerate() {
            if let Some(value) = value {
                let slot = (place, value.clone());
                change(self.labels.entry(slot.clone()).or_default());
                if self.labels.get(&slot) == Some(&0) {
                    self.labels.remove(&slot);
                }
            }
        }
        if self.tenants.get(&tenant) == Some(&0) {
            self.tenants.remove(&tenant);
        }
    }

    fn has_room(&self, limits: &RunLimits, kind: &RunCounters) -> bool {
        let below = |most: Option<usize>, count: usize| most.is_none_or(|most| count < most);
        let count = |count: Option<&usize>| count.copied().unwrap_or_default();
        below(limits.runs, self.runs)
            && below(
                limits.workflows.get(kind.workflow.as_str()).copied(),
                count(self.workflows.get(&kind.workflow)),
            )
            && below(limits.tenant, count(self.tenants.get(&kind.key.0)))
            && kind.key.1.iter().zip(limits.labels.values()).enumerate().all(|(place, (value, most))| {
                let used = value.as_ref().map(|value| count(self.labels.get(&(place, value.clone()))));
                used.is_none_or(|used| used < *most)
            })
    }

    /// Returns the next run to admit. It tries the keys after the key that was served last, and takes the first key with an admissible run. Of the
    /// runs of this key, it takes the oldest admissible one.
    fn next(&self, limits: &RunLimits) -> Option<(RunCounters, (Timestamp, RunKey))> {
        if limits.runs.is_some_and(|most| self.runs >= most) {
            return None;
        }
        let after = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let until = self.last.as_ref().map_or(Bound::Unbounded, Bound::Included);
        let later = self.line.range::<Key, _>((after, Bound::Unbounded));
        // Without a last key, the first round covers all keys.
        let sooner = self.last.is_some().then(|| self.line.range::<Key, _>((Bound::Unbounded, until)));
        later.chain(sooner.into_iter().flatten()).find_map(|(key, lines)| {
            let kind = |workflow: &WorkflowName| RunCounters { key: key.clone(), workflow: workflow.clone() };
            lines
                .iter()
                .map(|(workflow, line)| (kind(workflow), line))
                .filter(|(kind, _)| self.has_room(limits, kind))
                .filter_map(|(kind, line)| line.keys().next().map(|place| (kind, place.clone())))
                .min_by(|(_, one), (_, other)| one.cmp(other))
        })
    }
}

/// The result of waiting for capacity.
pub(crate) enum AdmissionResult {
    /// There is capacity for the run.
    Room(RunPermit),
    /// The run was already in line, and its earlier entry was admitted.
    Had,
    /// The run was already in line, and its earlier entry left the line without being admitted.
    Left,
}

/// Returns the error of a start or a claim in a runtime that is closing.
pub(crate) fn closed_error(run: &RunKey) -> Error {
    let message = "the runtime is shutting down; start or resume the run with another";
    Error::new(ErrorKind::Closed, message).with_run(run)
}

/// Waits in line until there is capacity for a run that has no record yet. If the run is already in line, the call waits until this earlier entry
/// leaves the line.
pub(crate) async fn room(
    admission: &AdmissionControl,
    run: &RunKey,
    facts: &RunFacts,
) -> Result<AdmissionResult> {
    let (sender, permit) = oneshot::channel();
    let (told, hears) = oneshot::channel();
    let go: RunStarter = Box::new(move |permit| {
        // If the receiver is gone, the drop frees the capacity.
        drop(sender.send(permit));
        Box::pin(std::future::ready(()))
    });
    if !admission.enqueue_or_listen(run, facts, go, Some(told)) {
        return Ok(hears.await.map_or(AdmissionResult::Left, |()| AdmissionResult::Had));
    }
    permit.await.map(AdmissionResult::Room).map_err(|_| closed_error(run))
}

#[cfg(test)]
mod tests;

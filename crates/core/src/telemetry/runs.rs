//! The metrics of the runs of one workflow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, SharedString};

use super::catalogue::{self as all, ERROR, NODE, OUTCOME, STATUS, WORKFLOW};
use super::instrument::{Pair, counter, gauge, histogram};
use super::{AttemptResult, LostClaim};
use crate::error::ErrorKind;
use crate::id::NodeName;
use crate::record::{FailureKind, RunStatus};

/// The maximum number of names of one kind that get their own time series in a runtime. It is limited because a recorder of metrics keeps every
/// series forever.
pub(super) const MOST_NAMES: usize = 500;

/// The label value for all further names, by OpenTelemetry's conventions.
pub(super) const OTHER: &str = "_OTHER";

/// The meter of the runs of one workflow. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RunMeter(Option<Arc<WorkflowMeters>>);

struct WorkflowMeters {
    workflow: SharedString,
    started: Counter,
    active: Gauge,
    settled: [Counter; RunStatus::ALL.len()],
    /// The histograms of run durations, one for each status.
    lasted: [Histogram; RunStatus::ALL.len()],
    won: Counter,
    late: Counter,
    delay: Histogram,
    nodes: NodeMeters,
}

enum NodeMeters {
    Together(Arc<NodeMeter>),
    Apart(Mutex<HashMap<NodeName, Arc<NodeMeter>>>),
}

/// The meter of one node, or of all nodes of a workflow.
struct NodeMeter {
    labels: Vec<Pair>,
    completed: Counter,
    failed: Counter,
    active: Gauge,
    took: [Histogram; 4],
}

impl NodeMeter {
    fn new(labels: Vec<Pair>) -> Self {
        let with = |outcome: &'static str| [&labels[..], &[(OUTCOME, outcome.into())]].concat();
        Self {
            completed: counter(&all::ACTIVATION_ENDED, &with("completed")),
            failed: counter(&all::ACTIVATION_ENDED, &with("failed")),
            active: gauge(&all::ATTEMPT_ACTIVE, &labels),
            took: ["completed", "failed", "unfinished", "dropped"]
                .map(|outcome| histogram(&all::ATTEMPT_DURATION, &with(outcome))),
            labels,
        }
    }

    fn failure(&self, kind: FailureKind) {
        let labels = [&self.labels[..], &[(ERROR, kind.as_str().into())]].concat();
        counter(&all::ACTIVATION_FAILURES, &labels).increment(1);
    }
}

impl RunMeter {
    pub(super) fn new(workflow: &str, by_node: bool) -> Self {
        let workflow = SharedString::from(workflow.to_owned());
        let name = || (WORKFLOW, workflow.clone());
        let of = |status: RunStatus| [name(), (STATUS, status.as_str().into())];
        let claims = |outcome: &'static str| counter(&all::RUN_CLAIMS, &[name(), (OUTCOME, outcome.into())]);
        let nodes = match by_node {
            true => NodeMeters::Apart(Mutex::default()),
            false => NodeMeters::Together(Arc::new(NodeMeter::new(vec![name()]))),
        };
        let lasted = |status: RunStatus| match status.is_finished() {
            true => histogram(&all::RUN_DURATION, &of(status)),
            false => Histogram::noop(),
        };
        Self(Some(Arc::new(WorkflowMeters {
            started: counter(&all::RUN_STARTED, &[name()]),
            active: gauge(&all::RUN_ACTIVE, &[name()]),
            settled: RunStatus::ALL.map(|status| counter(&all::RUN_SETTLED, &of(status))),
            lasted: RunStatus::ALL.map(lasted),
            won: claims("won"),
            late: claims("late"),
            delay: histogram(&all::RUN_CLAIM_DELAY, &[name()]),
            nodes,
            workflow,
        })))
    }

    /// Creates a meter that counts nothing.
    pub(crate) fn silent() -> Self {
        Self(None)
    }

    /// Counts a started run.
    pub(crate) fn started(&self) {
        self.with(|runs| runs.started.increment(1));
    }

    /// Counts a driver as active until the returned guard is dropped.
    pub(crate) fn drive(&self) -> ActiveRun {
        self.with(|runs| runs.active.increment(1));
        ActiveRun(self.clone())
    }

    /// Counts a run that ended or became idle. `lasted` returns the time since its start, if known.
    pub(crate) fn settled(&self, status: RunStatus, lasted: impl FnOnce() -> Option<Duration>) {
        self.with(|runs| {
            let place = RunStatus::ALL.iter().position(|one| *one == status).unwrap_or_default();
            if let Some(settled) = runs.settled.get(place) {
                settled.increment(1);
            }
            let lasted = status.is_finished().then(lasted).flatten();
            if let (Some(lasted), Some(all)) = (lasted, runs.lasted.get(place)) {
                all.record(lasted);
            }
        });
    }

    /// Counts a driver that stopped with an error.
    pub(crate) fn stopped(&self, kind: ErrorKind) {
        self.with(|runs| {
            let labels = [(WORKFLOW, runs.workflow.clone()), (ERROR, kind.code().into())];
            counter(&all::RUN_ERRORS, &labels).increment(1);
        });
    }

    /// Counts a parked run.
    pub(crate) fn parked(&self) {
        self.with(|runs| counter(&all::RUN_PARKED, &[(WORKFLOW, runs.workflow.clone())]).increment(1));
    }

    /// Counts a claimed run that had waited for this time.
    pub(crate) fn claimed(&self, waited: impl FnOnce() -> Duration) {
        self.with(|runs| {
            runs.won.increment(1);
            runs.delay.record(waited());
        });
    }

    /// Counts a failed claim.
    pub(crate) fn not_claimed(&self, why: LostClaim) {
        self.with(|runs| match why {
            LostClaim::Late => runs.late.increment(1),
            LostClaim::Failed => {
                let labels = [(WORKFLOW, runs.workflow.clone()), (OUTCOME, "failed".into())];
                counter(&all::RUN_CLAIMS, &labels).increment(1);
            }
        });
    }

    /// Counts a completed activation.
    pub(crate) fn completed(&self, node: &NodeName) {
        self.with(|runs| runs.of(node, |node| node.completed.increment(1)));
    }

    /// Counts a failed activation.
    pub(crate) fn failed(&self, node: &NodeName, kind: FailureKind) {
        self.with(|runs| {
            runs.of(node, |node| {
                node.failed.increment(1);
                node.failure(kind);
            });
        });
    }

    /// Counts a failed attempt of an activation that continues.
    pub(crate) fn attempt_failed(&self, node: &NodeName, kind: FailureKind) {
        self.with(|runs| runs.of(node, |node| node.failure(kind)));
    }

    /// Counts an attempt as active until the returned guard is dropped.
    pub(crate) fn attempt(&self, node: &NodeName) -> AttemptMeter {
        let Some(runs) = &self.0 else { return AttemptMeter(None) };
        let node = runs.of(node, Arc::clone);
        node.active.increment(1);
        AttemptMeter(Some(node))
    }

    /// Takes the meter and puts a meter in its place that counts nothing. It is used while events are applied again after a conflict, because they
    /// were already counted.
    pub(crate) fn pause(&mut self) -> Self {
        Self(self.0.take())
    }

    #[cfg(test)]
    pub(super) fn is(&self, other: &Self) -> bool {
        matches!((&self.0, &other.0), (Some(one), Some(other)) if Arc::ptr_eq(one, other))
    }

    fn with(&self, count: impl FnOnce(&WorkflowMeters)) {
        if let Some(runs) = &self.0 {
            count(runs);
        }
    }
}

impl WorkflowMeters {
    fn of<T>(&self, name: &NodeName, count: impl FnOnce(&Arc<NodeMeter>) -> T) -> T {
        match &self.nodes {
            NodeMeters::Together(node) => count(node),
            NodeMeters::Apart(nodes) => {
                let mut nodes = nodes.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(node) = nodes.get(name) {
                    return count(node);
                }
                let shown = if nodes.len() < MOST_NAMES { name.as_str() } else { OTHER };
                let labels = vec![(WORKFLOW, self.workflow.clone()), (NODE, shown.to_owned().into())];
                let node = Arc::new(NodeMeter::new(labels));
                if shown != OTHER {
                    nodes.insert(name.clone(), Arc::clone(&node));
                }
                count(&node)
            }
        }
    }
}

/// A run that this process drives.
pub(crate) struct ActiveRun(RunMeter);

impl ActiveRun {
    /// Counts the end of the driver.
    pub(crate) fn end(self) {
        drop(self);
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        self.0.with(|runs| runs.active.decrement(1));
    }
}

/// An attempt in progress.
pub(crate) struct AttemptMeter(Option<Arc<NodeMeter>>);

impl AttemptMeter {
    /// Returns whether the duration of the attempt is measured.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Counts an attempt that ended after this time, or was dropped.
    pub(crate) fn ended(&mut self, result: Option<AttemptResult>, took: Duration) {
        let Some(node) = self.0.take() else { return };
        node.active.decrement(1);
        let [completed, failed, unfinished, dropped] = &node.took;
        let histogram = match result {
            Some(AttemptResult::Completed) => completed,
            Some(AttemptResult::Failed) => failed,
            Some(AttemptResult::Unfinished) => unfinished,
            None => dropped,
        };
        histogram.record(took);
    }
}

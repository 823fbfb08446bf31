//! What is measured of the runs of one workflow.

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

/// How many names of one kind have series of their own in a runtime: recorders keep every series for good.
pub(super) const MOST_NAMES: usize = 500;

/// What stands for the names beyond that, as in OpenTelemetry's conventions.
pub(super) const OTHER: &str = "_OTHER";

/// The meter of the runs of one workflow. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RunMeter(Option<Arc<Runs>>);

struct Runs {
    workflow: SharedString,
    started: Counter,
    active: Gauge,
    settled: [Counter; RunStatus::ALL.len()],
    /// Of the statuses in which a run has ended.
    lasted: [Histogram; RunStatus::ALL.len()],
    won: Counter,
    late: Counter,
    delay: Histogram,
    nodes: Nodes,
}

enum Nodes {
    Together(Arc<Node>),
    Apart(Mutex<HashMap<NodeName, Arc<Node>>>),
}

/// The meter of one node, or of all of a workflow.
struct Node {
    labels: Vec<Pair>,
    completed: Counter,
    failed: Counter,
    active: Gauge,
    took: [Histogram; 4],
}

impl Node {
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
            true => Nodes::Apart(Mutex::default()),
            false => Nodes::Together(Arc::new(Node::new(vec![name()]))),
        };
        let lasted = |status: RunStatus| match status.is_finished() {
            true => histogram(&all::RUN_DURATION, &of(status)),
            false => Histogram::noop(),
        };
        Self(Some(Arc::new(Runs {
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

    /// A meter that counts nothing.
    pub(crate) fn silent() -> Self {
        Self(None)
    }

    /// A run was started.
    pub(crate) fn started(&self) {
        self.with(|runs| runs.started.increment(1));
    }

    /// A driver begins; it counts until what this returns is dropped.
    pub(crate) fn drive(&self) -> ActiveRun {
        self.with(|runs| runs.active.increment(1));
        ActiveRun(self.clone())
    }

    /// A run ended or came to rest; `lasted` since its start, if that is known.
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

    /// A driver stopped with an error.
    pub(crate) fn stopped(&self, kind: ErrorKind) {
        self.with(|runs| {
            let labels = [(WORKFLOW, runs.workflow.clone()), (ERROR, kind.code().into())];
            counter(&all::RUN_ERRORS, &labels).increment(1);
        });
    }

    /// A run was parked.
    pub(crate) fn parked(&self) {
        self.with(|runs| counter(&all::RUN_PARKED, &[(WORKFLOW, runs.workflow.clone())]).increment(1));
    }

    /// A run was claimed that had waited for so long.
    pub(crate) fn claimed(&self, waited: impl FnOnce() -> Duration) {
        self.with(|runs| {
            runs.won.increment(1);
            runs.delay.record(waited());
        });
    }

    /// A claim came to nothing.
    pub(crate) fn not_claimed(&self, why: LostClaim) {
        self.with(|runs| match why {
            LostClaim::Late => runs.late.increment(1),
            LostClaim::Failed => {
                let labels = [(WORKFLOW, runs.workflow.clone()), (OUTCOME, "failed".into())];
                counter(&all::RUN_CLAIMS, &labels).increment(1);
            }
        });
    }

    /// An activation completed.
    pub(crate) fn completed(&self, node: &NodeName) {
        self.with(|runs| runs.of(node, |node| node.completed.increment(1)));
    }

    /// An activation failed.
    pub(crate) fn failed(&self, node: &NodeName, kind: FailureKind) {
        self.with(|runs| {
            runs.of(node, |node| {
                node.failed.increment(1);
                node.failure(kind);
            });
        });
    }

    /// An attempt failed, and the activation is not over.
    pub(crate) fn attempt_failed(&self, node: &NodeName, kind: FailureKind) {
        self.with(|runs| runs.of(node, |node| node.failure(kind)));
    }

    /// An attempt begins; it counts until what this returns is dropped.
    pub(crate) fn attempt(&self, node: &NodeName) -> AttemptMeter {
        let Some(runs) = &self.0 else { return AttemptMeter(None) };
        let node = runs.of(node, Arc::clone);
        node.active.increment(1);
        AttemptMeter(Some(node))
    }

    /// Takes the meter, and leaves one that counts nothing: what is made again after a conflict was counted before.
    pub(crate) fn pause(&mut self) -> Self {
        Self(self.0.take())
    }

    #[cfg(test)]
    pub(super) fn is(&self, other: &Self) -> bool {
        matches!((&self.0, &other.0), (Some(one), Some(other)) if Arc::ptr_eq(one, other))
    }

    fn with(&self, count: impl FnOnce(&Runs)) {
        if let Some(runs) = &self.0 {
            count(runs);
        }
    }
}

impl Runs {
    fn of<T>(&self, name: &NodeName, count: impl FnOnce(&Arc<Node>) -> T) -> T {
        match &self.nodes {
            Nodes::Together(node) => count(node),
            Nodes::Apart(nodes) => {
                let mut nodes = nodes.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(node) = nodes.get(name) {
                    return count(node);
                }
                let shown = if nodes.len() < MOST_NAMES { name.as_str() } else { OTHER };
                let labels = vec![(WORKFLOW, self.workflow.clone()), (NODE, shown.to_owned().into())];
                let node = Arc::new(Node::new(labels));
                if shown != OTHER {
                    nodes.insert(name.clone(), Arc::clone(&node));
                }
                count(&node)
            }
        }
    }
}

/// A run that is driven here.
pub(crate) struct ActiveRun(RunMeter);

impl ActiveRun {
    /// The driver has stopped.
    pub(crate) fn end(self) {
        drop(self);
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        self.0.with(|runs| runs.active.decrement(1));
    }
}

/// An attempt that is under way.
pub(crate) struct AttemptMeter(Option<Arc<Node>>);

impl AttemptMeter {
    /// Tells whether the time of the attempt is wanted.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The attempt ended after this time, or was dropped.
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

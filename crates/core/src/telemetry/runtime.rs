//! The metrics of a runtime that do not belong to a single workflow.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ferrata_store::RunFilter;
use metrics::{Counter, Gauge};

use super::HeartbeatResult;
use super::catalogue::{self as all, LISTING, OUTCOME, QUEUE, STATUS, TOPIC};
use super::instrument::{counter, describe_all, gauge, histogram};
use super::runs::{MOST_NAMES, OTHER, RunMeter};
use crate::clock::Timestamp;
use crate::id::WorkflowName;
use crate::record::RunStatus;

/// All results of a heartbeat.
const TRIED: [HeartbeatResult; 4] =
    [HeartbeatResult::Alive, HeartbeatResult::Failed, HeartbeatResult::Lost, HeartbeatResult::StillLost];

/// The metrics of a runtime.
pub(crate) struct Telemetry {
    by_node: bool,
    workflows: Mutex<HashMap<WorkflowName, RunMeter>>,
    /// The gauges of each queue: the number of waiters, the number of granted slots, and the longest wait.
    queues: Mutex<HashMap<String, [Gauge; 3]>>,
    /// The meter for workflows after the maximum number, and for workflows that this process does not know.
    other: RunMeter,
    /// The counters of heartbeats. They are registered before the first value, because Prometheus shows no increase for a series that starts with 1.
    beats: [Counter; TRIED.len()],
    beat_at: Gauge,
    /// The metrics of recovery. They are registered at the first poll, because otherwise a process that serves no workflow would report zero waiting
    /// runs forever.
    recovery: OnceLock<RecoveryMeter>,
}

/// The metrics of polls for runs without a driver.
struct RecoveryMeter {
    orphaned: Gauge,
    due: Gauge,
    failed: Gauge,
    unserved: Gauge,
}

impl RecoveryMeter {
    fn new() -> Self {
        let lag = |listing: &'static str| gauge(&all::RECOVERY_LAG, &[(LISTING, listing.into())]);
        let stalled = |why: &'static str| gauge(&all::RECOVERY_STALLED, &[(OUTCOME, why.into())]);
        Self {
            orphaned: lag("orphaned"),
            due: lag("due"),
            failed: stalled("failed"),
            unserved: stalled("unserved"),
        }
    }
}

impl Telemetry {
    /// Uses the currently installed recorder. `by_node` adds separate series per node.
    pub(crate) fn new(by_node: bool) -> Self {
        describe_all();
        Self {
            by_node,
            workflows: Mutex::default(),
            queues: Mutex::default(),
            other: RunMeter::new(OTHER, false),
            beats: TRIED.map(beats),
            beat_at: gauge(&all::HEARTBEAT_TIME, &[]),
            recovery: OnceLock::new(),
        }
    }

    /// Returns the meter of a workflow's runs. `None` stands for an unknown workflow.
    pub(crate) fn of(&self, workflow: Option<&WorkflowName>) -> RunMeter {
        let Some(workflow) = workflow else { return self.other.clone() };
        let mut workflows = self.workflows.lock().unwrap_or_else(PoisonError::into_inner);
        match workflows.get(workflow) {
            Some(meter) => meter.clone(),
            None if workflows.len() >= MOST_NAMES => self.other.clone(),
            None => {
                let meter = RunMeter::new(workflow.as_str(), self.by_node);
                workflows.insert(workflow.clone(), meter.clone());
                meter
            }
        }
    }

    /// Records how long a run was idle before a signal made it continue.
    pub(crate) fn rested(&self, status: RunStatus, rested: Duration) {
        histogram(&all::RUN_REST_DURATION, &[(STATUS, status.as_str().into())]).record(rested);
    }

    /// Records the delay from the sending of an outbox message to its delivery.
    pub(crate) fn delivered(&self, topic: &str, delay: Duration) {
        histogram(&all::LETTER_DELAY, &[(TOPIC, topic.to_owned().into())]).record(delay);
    }

    /// Counts an outbox message that a sink did not accept.
    pub(crate) fn undelivered(&self, topic: &str, gives_up: bool) {
        let outcome = if gives_up { "put_aside" } else { "retried" };
        counter(&all::LETTER_FAILURES, &[(TOPIC, topic.to_owned().into()), (OUTCOME, outcome.into())])
            .increment(1);
    }

    /// Counts a heartbeat.
    pub(crate) fn beat(&self, tried: HeartbeatResult, now: impl FnOnce() -> Timestamp) {
        let place = TRIED.iter().position(|one| *one == tried).unwrap_or_default();
        if let Some(beats) = self.beats.get(place) {
            beats.increment(1);
        }
        if tried == HeartbeatResult::Alive {
            self.beat_at.set(now().since(Timestamp::from_unix_ms(0)));
        }
    }

    /// Records the longest waiting time of the runs that a poll of a listing found.
    pub(crate) fn looked(&self, listing: RunFilter, oldest: Duration) {
        let recovery = self.recovery.get_or_init(RecoveryMeter::new);
        match listing {
            RunFilter::Due => recovery.due.set(oldest),
            _ => recovery.orphaned.set(oldest),
        }
    }

    /// Records the metrics of a queue. Queues after the maximum number have no metrics, because the values of several queues cannot be combined.
    pub(crate) fn queue(&self, name: &str, waiting: usize, held: usize, oldest: Duration) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if !queues.contains_key(name) {
            if queues.len() >= MOST_NAMES {
                return;
            }
            let all = [all::QUEUE_WAITING, all::QUEUE_HELD, all::QUEUE_AGE];
            let gauges = all.map(|metric| gauge(&metric, &[(QUEUE, name.to_owned().into())]));
            queues.insert(name.to_owned(), gauges);
        }
        if let Some([lines, places, ages]) = queues.get(name) {
            lines.set(count(waiting));
            places.set(count(held));
            ages.set(oldest);
        }
    }

    /// Records the pruned, purged and failed runs of a part of a sweep. `ended` marks the last part.
    pub(crate) fn swept(
        &self,
        pruned: u64,
        purged: u64,
        failed: u64,
        ended: impl FnOnce() -> Option<Timestamp>,
    ) {
        for (outcome, runs) in [("pruned", pruned), ("purged", purged), ("failed", failed)] {
            counter(&all::SWEEP_RUNS, &[(OUTCOME, outcome.into())]).increment(runs);
        }
        if let Some(at) = ended() {
            gauge(&all::SWEEP_TIME, &[]).set(at.since(Timestamp::from_unix_ms(0)));
        }
    }

    /// Records the numbers of runs that this process could not claim, or does not serve.
    pub(crate) fn stalled(&self, runs: impl FnOnce() -> (usize, usize)) {
        let (failed, unserved) = runs();
        let recovery = self.recovery.get_or_init(RecoveryMeter::new);
        recovery.failed.set(count(failed));
        recovery.unserved.set(count(unserved));
    }
}

/// The metric of runs that wait for capacity.
pub(crate) struct QueueMeter(Gauge);

impl QueueMeter {
    pub(crate) fn new() -> Self {
        Self(gauge(&all::RUN_QUEUED, &[]))
    }

    /// Sets the number of runs that wait for capacity.
    pub(crate) fn set(&self, runs: usize) {
        self.0.set(count(runs));
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53 runs")]
fn count(runs: usize) -> f64 {
    runs as f64
}

fn beats(tried: HeartbeatResult) -> Counter {
    let outcome = match tried {
        HeartbeatResult::Alive => "alive",
        HeartbeatResult::Failed => "failed",
        HeartbeatResult::Lost => "lost",
        HeartbeatResult::StillLost => "still_lost",
    };
    counter(&all::HEARTBEAT_TRIES, &[(OUTCOME, outcome.into())])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users choose the names of pipelines: without a maximum, a recorder would keep series for each forever.
    #[test]
    fn workflows_beyond_the_most_share_one_meter() {
        let telemetry = Telemetry::new(false);
        let meter = |number: usize| telemetry.of(Some(&WorkflowName::new(format!("w{number}")).unwrap()));
        let others = |number: usize| meter(number).is(&telemetry.other);
        assert!((0..MOST_NAMES).all(|number| !others(number)));
        assert!(others(MOST_NAMES) && others(MOST_NAMES + 1));
        assert!(!others(0) && meter(0).is(&meter(0)), "an existing meter is kept");
    }

    #[test]
    fn queues_beyond_the_most_have_no_series() {
        let telemetry = Telemetry::new(false);
        (0..2 * MOST_NAMES).for_each(|number| telemetry.queue(&number.to_string(), 1, 1, Duration::ZERO));
        let queues = telemetry.queues.lock().unwrap();
        assert_eq!(queues.len(), MOST_NAMES);
        assert!(queues.contains_key("0"), "an existing meter is kept");
    }
}

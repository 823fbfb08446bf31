//! The catalogue of the library's metrics, with their names, units, labels and meanings.
//!
//! The library records metrics through the `metrics` facade, into the recorder that the application installs *before* it builds a
//! [`Runtime`](crate::runtime::Runtime). Names, units and labels follow OpenTelemetry's conventions. No label ever contains a run id, a key or a
//! payload.
//!
//! ```
//! use ferrata_core::metrics::{ALL, MetricKind};
//!
//! let duration = ALL.iter().find(|metric| metric.name == "ferrata.run.duration").unwrap();
//! assert_eq!((duration.kind, duration.unit), (MetricKind::Histogram, "s"));
//! ```

/// The kind of a metric: counter, gauge or histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A value that only grows.
    Counter,
    /// A value that can grow and shrink.
    Gauge,
    /// A distribution of values, with their count and sum.
    Histogram,
}

/// A metric of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// The name of the metric, by OpenTelemetry's conventions.
    pub name: &'static str,
    /// The kind of the metric.
    pub kind: MetricKind,
    /// The unit of the metric as a UCUM code, such as `s` or `By`. For a count, it names the counted thing, such as `{run}`.
    pub unit: &'static str,
    /// The labels that the metric may have. The label `error.type` is present only if there is an error. The label `ferrata.node.name` is present only if it is
    /// enabled.
    pub labels: &'static [&'static str],
    /// A description of the metric.
    pub help: &'static str,
}

/// The label with the name of the workflow. The value is `_OTHER` for all workflows after the first 500 in a runtime, and for workflows that the
/// process does not know.
pub(crate) const WORKFLOW: &str = "ferrata.workflow.name";
/// The label with the name of the node. [`RuntimeBuilder::metrics_by_node`](crate::runtime::RuntimeBuilder::metrics_by_node) enables it.
pub(crate) const NODE: &str = "ferrata.node.name";
/// The label with the status of the run.
pub(crate) const STATUS: &str = "ferrata.run.status";
/// The label with the result of an operation.
pub(crate) const OUTCOME: &str = "ferrata.outcome";
/// The label with the kind of an error: an error code, or the kind of a failure.
pub(crate) const ERROR: &str = "error.type";
/// The label with the name of the store, as in the scheme of its URL.
pub(crate) const SYSTEM: &str = "ferrata.store.name";
/// The label with the operation of the store.
pub(crate) const OPERATION: &str = "ferrata.store.operation";
/// The label with the topic of an outbox message. Only topics that have a sink in this process appear.
pub(crate) const TOPIC: &str = "ferrata.letter.topic";
/// The label with the name of a queue of the crate `ferrata-queue`.
pub(crate) const QUEUE: &str = "ferrata.queue.name";
/// The label with the reason why a run needs a driver.
pub(crate) const LISTING: &str = "ferrata.recovery.listing";

macro_rules! catalogue {
    ($($id:ident = $kind:ident $name:literal in $unit:literal by [$($label:ident),*]: $help:literal;)*) => {
        $(#[doc = $help] pub(crate) const $id: Metric = Metric {
            name: $name, kind: MetricKind::$kind, unit: $unit, labels: &[$($label),*], help: $help,
        };)*
        /// All metrics, in the order in which the page on metrics lists them.
        pub const ALL: &[Metric] = &[$($id),*];
    };
}

catalogue! {
    RUN_STARTED = Counter "ferrata.run.started" in "{run}" by [WORKFLOW]: "Runs started by this process.";
    RUN_SETTLED = Counter "ferrata.run.settled" in "{run}" by [WORKFLOW, STATUS]: "Runs that ended or became idle in this process, by their new status; in_progress if released.";
    RUN_DURATION = Histogram "ferrata.run.duration" in "s" by [WORKFLOW, STATUS]: "Time from a run's start to its end, including waits.";
    RUN_ACTIVE = Gauge "ferrata.run.active" in "{run}" by [WORKFLOW]: "Runs driven by this process now.";
    RUN_QUEUED = Gauge "ferrata.run.queued" in "{run}" by []: "Runs that wait in this process for capacity under the run limits.";
    RUN_ERRORS = Counter "ferrata.run.errors" in "{error}" by [WORKFLOW, ERROR]: "Drivers that stopped with an error; the run continues elsewhere or later.";
    RUN_PARKED = Counter "ferrata.run.parked" in "{run}" by [WORKFLOW]: "Runs paused because they were claimed too often without progress.";
    RUN_CLAIMS = Counter "ferrata.run.claims" in "{claim}" by [WORKFLOW, OUTCOME]: "Claims of runs: won, late (another process was faster), failed.";
    RUN_CLAIM_DELAY = Histogram "ferrata.run.claim.delay" in "s" by [WORKFLOW]: "Time that a claimed run had waited for a process, since its last record or since it was due.";
    RUN_REST_DURATION = Histogram "ferrata.run.rest.duration" in "s" by [STATUS]: "Time that a run had waited when a signal of this process continued it, by its status before.";
    ACTIVATION_ENDED = Counter "ferrata.activation.ended" in "{activation}" by [WORKFLOW, NODE, OUTCOME]: "Activations that ended, completed or failed.";
    ACTIVATION_FAILURES = Counter "ferrata.activation.failures" in "{failure}" by [WORKFLOW, NODE, ERROR]: "Failures of activations by kind, including retried ones.";
    ATTEMPT_DURATION = Histogram "ferrata.attempt.duration" in "s" by [WORKFLOW, NODE, OUTCOME]: "Time of an attempt: completed, failed, unfinished (its run was stopping), or dropped (its run is idle or stopped).";
    ATTEMPT_ACTIVE = Gauge "ferrata.attempt.active" in "{attempt}" by [WORKFLOW, NODE]: "Attempts running in this process now.";
    LETTER_DELAY = Histogram "ferrata.letter.delay" in "s" by [TOPIC]: "Time from the record of an outbox message to its delivery by this process.";
    LETTER_FAILURES = Counter "ferrata.letter.failures" in "{letter}" by [TOPIC, OUTCOME]: "Outbox messages that a sink did not accept: retried, or put_aside.";
    QUEUE_WAITING = Gauge "ferrata.queue.waiting" in "{request}" by [QUEUE]: "Nodes and runs of all processes that wait for a slot of the queue, as this process last read it.";
    QUEUE_HELD = Gauge "ferrata.queue.held" in "{place}" by [QUEUE]: "Slots of the queue that nodes and runs of all processes hold, as this process last read it.";
    QUEUE_AGE = Gauge "ferrata.queue.age" in "s" by [QUEUE]: "How long the longest waiter of the queue has waited, since it may get a slot.";
    STORE_DURATION = Histogram "ferrata.store.operation.duration" in "s" by [SYSTEM, OPERATION, ERROR]: "Time of a call to the store.";
    STORE_RECORDS = Counter "ferrata.store.records" in "{record}" by [SYSTEM, OPERATION]: "Records appended, loaded, pruned and purged.";
    STORE_IO = Counter "ferrata.store.io" in "By" by [SYSTEM, OPERATION]: "Bytes of bodies appended, loaded, pruned and purged.";
    STORE_CONFLICTS = Counter "ferrata.store.conflicts" in "{conflict}" by [SYSTEM]: "Appends rejected because another writer was first.";
    APPEND_QUEUED = Gauge "ferrata.append.queued" in "{append}" by []: "Appends that wait for a batch in this process now.";
    APPEND_BATCH_RUNS = Histogram "ferrata.append.batch.runs" in "{run}" by []: "Runs in a batch of appends.";
    APPEND_RETRIES = Counter "ferrata.append.retries" in "{retry}" by [ERROR]: "Appends that failed and are retried.";
    SWEEP_RUNS = Counter "ferrata.sweep.runs" in "{run}" by [OUTCOME]: "Runs processed by sweeps of this process: pruned, purged, failed.";
    SWEEP_TIME = Gauge "ferrata.sweep.time" in "s" by []: "When a sweep of this process last reached the last run, in Unix time.";
    HEARTBEAT_TRIES = Counter "ferrata.heartbeat.tries" in "{heartbeat}" by [OUTCOME]: "Heartbeats: alive, failed, lost, still_lost.";
    HEARTBEAT_TIME = Gauge "ferrata.heartbeat.time" in "s" by []: "When the last heartbeat succeeded, in Unix time.";
    RECOVERY_LAG = Gauge "ferrata.recovery.lag" in "s" by [LISTING]: "How long the oldest run without a driver has waited, among those that this process serves and its last sweep found: since it was due, or since its last record if orphaned.";
    RECOVERY_STALLED = Gauge "ferrata.recovery.stalled" in "{run}" by [OUTCOME]: "Runs without a driver that this process could not claim (failed), or whose workflow it does not serve (unserved).";
}

/// The bounds of histogram buckets for durations in seconds, from half a millisecond to a day.
pub const SECONDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
    1800.0, 3600.0, 21600.0, 86400.0,
];

/// The bounds of histogram buckets for the number of runs in a batch.
pub const BATCHES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

//! The metrics of the calls of a store and of the batches that are sent to it.

use std::sync::Arc;
use std::time::Duration;

use ferrata_store::{Removed, RunAppend};
use metrics::{Counter, Gauge, Histogram, SharedString};

use super::Operation;
use super::catalogue::{self as all, ERROR, OPERATION, SYSTEM};
use super::instrument::{counter, gauge, histogram};
use crate::clock::Clock;
use crate::compact::small_vec::SmallVec;
use crate::error::{ErrorKind, Result};
use crate::id::HeadRef;
use crate::record::Record;

/// The volume of a store operation.
#[derive(Clone)]
struct StoreTraffic {
    records: Counter,
    bytes: Counter,
}

impl StoreTraffic {
    fn add(&self, records: u64, bytes: u64) {
        self.records.increment(records);
        self.bytes.increment(bytes);
    }
}

/// The metrics of calls to one store.
pub(crate) struct StoreMeter {
    store: &'static str,
    /// The histogram of appends. Frequent calls have a field, and the histograms of other calls are found by name.
    append: Histogram,
    load: Histogram,
    head: Histogram,
    appended: StoreTraffic,
    loaded: StoreTraffic,
    conflicts: Counter,
}

impl StoreMeter {
    pub(crate) fn new(store: &'static str) -> Self {
        let moved = |operation| moved(store, operation);
        Self {
            store,
            append: took(store, Operation::Append, None),
            load: took(store, Operation::Load, None),
            head: took(store, Operation::Head, None),
            appended: moved(Operation::Append),
            loaded: moved(Operation::Load),
            conflicts: counter(&all::STORE_CONFLICTS, &[(SYSTEM, store.into())]),
        }
    }

    /// Starts to measure a call.
    pub(crate) fn begin<'a>(&'a self, operation: Operation, clock: &'a dyn Clock) -> Call<'a> {
        Call { meter: self, operation, clock, begun: Some(clock.monotonic()) }
    }

    /// Returns the number of records and their bytes, for each append of a batch.
    pub(crate) fn weigh(batch: &[RunAppend]) -> SmallVec<(u64, u64)> {
        batch.iter().map(|append| weigh(&append.records)).collect()
    }

    /// Counts the results of a batch.
    pub(crate) fn appended(&self, weights: &[(u64, u64)], results: &[Result<HeadRef>]) {
        let (mut records, mut bytes) = (0, 0);
        for (weight, result) in weights.iter().zip(results) {
            match result {
                Ok(_) => (records, bytes) = (records + weight.0, bytes + weight.1),
                Err(error) if error.kind() == ErrorKind::Conflict => self.conflicts.increment(1),
                Err(_) => {}
            }
        }
        self.appended.add(records, bytes);
    }

    /// Counts loaded records.
    pub(crate) fn loaded(&self, records: &[Record]) {
        let (records, bytes) = weigh(records);
        self.loaded.add(records, bytes);
    }

    /// Counts removed records.
    pub(crate) fn removed(&self, operation: Operation, removed: Removed) {
        moved(self.store, operation).add(removed.records, removed.bytes);
    }

    fn took(&self, operation: Operation, error: Option<&'static str>, took_for: Duration) {
        match (operation, error) {
            (Operation::Append, None) => self.append.record(took_for),
            (Operation::Load, None) => self.load.record(took_for),
            (Operation::Head, None) => self.head.record(took_for),
            _ => took(self.store, operation, error).record(took_for),
        }
    }
}

/// A call in progress.
pub(crate) struct Call<'a> {
    meter: &'a StoreMeter,
    operation: Operation,
    clock: &'a dyn Clock,
    begun: Option<Duration>,
}

impl Call<'_> {
    /// Records the end of a call, by an answer or a timeout.
    pub(crate) fn end(mut self, error: Option<ErrorKind>) {
        self.note(error.map(ErrorKind::code));
    }

    fn note(&mut self, error: Option<&'static str>) {
        if let Some(begun) = self.begun.take() {
            self.meter.took(self.operation, error, self.clock.monotonic().saturating_sub(begun));
        }
    }
}

impl Drop for Call<'_> {
    /// Records a call whose future was dropped, with its duration until then.
    fn drop(&mut self) {
        self.note(Some("dropped"));
    }
}

fn took(store: &'static str, operation: Operation, error: Option<&'static str>) -> Histogram {
    let labels = [(SYSTEM, SharedString::from(store)), (OPERATION, shown(operation).into())];
    match error {
        None => histogram(&all::STORE_DURATION, &labels),
        Some(error) => {
            let [store, operation] = labels;
            histogram(&all::STORE_DURATION, &[store, operation, (ERROR, error.into())])
        }
    }
}

fn moved(store: &'static str, operation: Operation) -> StoreTraffic {
    let labels = [(SYSTEM, SharedString::from(store)), (OPERATION, shown(operation).into())];
    StoreTraffic { records: counter(&all::STORE_RECORDS, &labels), bytes: counter(&all::STORE_IO, &labels) }
}

/// Returns the operation's label.
fn shown(operation: Operation) -> &'static str {
    operation.name().trim_start_matches("store.")
}

fn weigh(records: &[Record]) -> (u64, u64) {
    (records.len() as u64, records.iter().map(|record| record.body.len() as u64).sum())
}

/// The metrics of the committer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CommitterMeter(Arc<CommitterMetrics>);

struct CommitterMetrics {
    queued: Gauge,
    batches: Histogram,
}

impl CommitterMeter {
    pub(crate) fn new() -> Self {
        let (queued, batches) = (gauge(&all::APPEND_QUEUED, &[]), histogram(&all::APPEND_BATCH_RUNS, &[]));
        Self(Arc::new(CommitterMetrics { queued, batches }))
    }

    /// Counts an append that waits for a batch.
    pub(crate) fn queued(&self) {
        self.0.queued.increment(1);
    }

    /// Records a batch with this number of appends.
    #[expect(clippy::cast_precision_loss, reason = "a batch has at most some hundred")]
    pub(crate) fn batched(&self, runs: usize) {
        self.0.queued.decrement(runs as f64);
        self.0.batches.record(runs as f64);
    }

    /// Counts a failed append that will be retried.
    pub(crate) fn retried(&self, kind: ErrorKind) {
        counter(&all::APPEND_RETRIES, &[(ERROR, kind.code().into())]).increment(1);
    }
}

//! Reports of a queue from each process: metrics, and the waiters that `Runtime::stalled` returns.

use std::time::Duration;

use ferrata_core::runtime::Runtime;
use ferrata_core::{Clock, Error, ErrorKind, RunKey, Timestamp};

use crate::state::{QueueState, SlotKind, SlotWaiter};

/// Maximum number of waiters in a report.
const TOLD: usize = 100;

/// The last report of this process. The listing of waiters is rebuilt only after the queue has changed, because a long line may stay the same for
/// days.
#[derive(Default)]
pub(super) struct QueueReporter {
    told: Option<Duration>,
    summary: Option<QueueSummary>,
}

struct QueueSummary {
    waiting: usize,
    held: usize,
    /// The time since which the first waiter has waited.
    earliest: Option<Timestamp>,
}

impl QueueReporter {
    /// Marks the report as outdated, because the queue was changed.
    pub(super) fn mark_outdated(&mut self) {
        self.summary = None;
    }

    /// Reports the status of the queue, at most once in each `look` interval, because the queue may change often.
    pub(super) fn report_status(
        &mut self,
        runtime: &Runtime,
        clock: &dyn Clock,
        name: &str,
        ledger: &QueueState,
        look: Duration,
    ) {
        let (now, since) = (clock.now(), clock.monotonic());
        if self.told.is_some_and(|at| since.saturating_sub(at) < look) {
            return;
        }
        self.told = Some(since);
        let summary = self.summary.get_or_insert_with(|| {
            runtime.report_waits(name, list_waits(name, ledger, now));
            QueueSummary {
                waiting: ledger.waiting.len(),
                held: ledger.held.values().map(|held| held.places as usize).sum(),
                earliest: ledger.waiting.values().map(waiting_since).min(),
            }
        });
        let oldest = summary.earliest.map_or(Duration::ZERO, |earliest| now.since(earliest));
        runtime.report_queue(name, summary.waiting, summary.held, oldest);
    }

    /// Reports that the queue no longer exists.
    pub(super) fn report_removed(&mut self, runtime: &Runtime, name: &str) {
        self.mark_outdated();
        runtime.report_waits(name, []);
        runtime.report_queue(name, 0, 0, Duration::ZERO);
    }
}

/// Returns the time since which a waiter waits. A waiter with a later `not_before` waits from that time.
fn waiting_since(one: &SlotWaiter) -> Timestamp {
    one.not_before.map_or(one.since, |at| at.max(one.since))
}

/// Reports the reason for the wait of each of the first waiters, with the number of waiters before it.
fn list_waits(name: &str, ledger: &QueueState, now: Timestamp) -> Vec<(RunKey, Timestamp, Error)> {
    let lacks = ledger.unserved_tags(now);
    let lacks = match lacks.is_empty() {
        true => String::new(),
        false => {
            format!("; a slot is free, and no process with the tags `{}` runs; start one", lacks.join(","))
        }
    };
    let line = ledger.first_waiters(TOLD, now).into_iter().enumerate();
    let told = line.map(|(before, (_, waiting))| {
        let begins = waiting_since(waiting);
        let place = match before {
            0 => "next in line".to_owned(),
            before => format!("with {before} ahead"),
        };
        let lacks = if waiting.kind == SlotKind::Run { lacks.as_str() } else { "" };
        let message = format!("the run waits for a slot of queue `{name}`, {place}, since {begins}{lacks}");
        let error = Error::new(ErrorKind::Unavailable, message).with_run(&waiting.run);
        (waiting.run.clone(), begins, error)
    });
    told.collect()
}

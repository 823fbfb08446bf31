//! Imports of exported runs into a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::{Builder, Uuid, Variant, Version};

use crate::clock::Timestamp;
use crate::engine::fold::fold;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Fingerprint, IdSource, RecordId, RunKey};
use crate::kernel::inner::RuntimeInner;
use crate::kernel::log::LogWriter;
use crate::kernel::run_change::RunChange;
use crate::kernel::run_writer::RunWriter;
use crate::past::{self, ImportedRun};
use crate::record::RunStatus;
use crate::runtime::writes::system_runs::{check_copy, hold_for_queue, is_held_for_queue, queue_name};

/// Writes an exported run into the store. If the run uses a queue and has not ended, it is paused afterwards, because the slot belonged to the
/// exported run.
///
/// # Errors
///
/// Returns the errors of [`past::import`], and of [`check_copy`] for a queue or a schedule under another id.
pub(crate) async fn import(shared: &Arc<RuntimeInner>, text: &str, run: Option<RunKey>) -> Result<RunKey> {
    let mut held = None;
    let prepare = |imported: &mut ImportedRun| {
        if !imported.is_same_id {
            check_copy(&imported.facts)?;
        }
        if hold_imported(shared, imported)? {
            held = Some(Arc::new(imported.facts.clone()));
        }
        Ok(())
    };
    let (run, head) = past::import(&*shared.store, text, run, prepare).await?;
    if let Some(facts) = held {
        let held = || RunChange::Held { run: run.clone(), facts: Arc::clone(&facts), head };
        shared.registry.publish(held);
    }
    Ok(run)
}

/// Adds the records that pause the run until it gets a slot of its queue. Returns whether the run is then paused.
fn hold_imported(shared: &RuntimeInner, imported: &mut ImportedRun) -> Result<bool> {
    let ImportedRun { run, facts, records, .. } = imported;
    if queue_name(facts).is_none() {
        return Ok(false);
    }
    let folded = fold(run, records, None).map_err(|error| {
        let message = format!("the records of the file are not the log of a run: {}", error.message());
        Error::new(ErrorKind::Invalid, message).with_source(error)
    })?;
    let status = folded.machine.status();
    if status == RunStatus::Interrupted && is_held_for_queue(&folded.machine, facts) {
        return Ok(true);
    }
    let hold = hold_for_queue(&folded.machine, Some(facts), folded.last.at);
    if status.is_finished() || hold.is_empty() {
        return Ok(false);
    }
    let ids = Arc::new(DerivedIds { from: folded.last.id, count: AtomicU64::new(0) });
    // The time of the last record: a repeated import makes the same record, and is the same run.
    let clock = Arc::new(FixedTime(folded.last.at));
    let mut log = LogWriter::new(run.clone(), shared.executor, shared.limits.max_body, clock, ids);
    log.follow(&folded);
    records.extend(RunWriter::after_start(folded, log).record(&hold)?.records);
    Ok(true)
}

/// A clock that stands still.
#[derive(Debug)]
struct FixedTime(crate::Timestamp);

impl crate::Clock for FixedTime {
    fn now(&self) -> crate::Timestamp {
        self.0
    }

    fn monotonic(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }

    fn sleep(&self, _: std::time::Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }
}

/// Ids derived from the last record of the export, which make a repeated import the same run.
#[derive(Debug)]
struct DerivedIds {
    from: RecordId,
    count: AtomicU64,
}

impl IdSource for DerivedIds {
    fn next(&self, _now: Timestamp) -> Uuid {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let print = Fingerprint::of(format!("hold {count} of {:?}", self.from).as_bytes()).to_string();
        // The fingerprint is hex, with more digits than an id. The time is that of the record before.
        let digits = print.get(..32).and_then(|digits| u128::from_str_radix(digits, 16).ok());
        let (time, random) =
            (self.from.as_uuid().as_u128() >> 80, digits.unwrap_or_default() & ((1 << 80) - 1));
        let made = Builder::from_u128(time << 80 | random);
        made.with_version(Version::SortRand).with_variant(Variant::RFC4122).into_uuid()
    }
}

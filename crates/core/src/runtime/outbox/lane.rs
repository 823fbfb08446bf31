//! The task of an outbox lane, which delivers the messages of one run and topic in order and records the results in the log.

use crate::claim::StartId;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Timestamp, within};
use crate::engine::fold::check_signal;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::commands::{DriverCommand, RuntimePhase};
use crate::kernel::inner::RuntimeInner;
use crate::kernel::outbox::{LaneKey, SinkRoute};
use crate::kernel::outbox::{OutboxMessage, SinkError};
use crate::kernel::tasks::caught;
use crate::past::folded_at;
use crate::record::body::{RecordEvent, Signal, SignalKind};
use crate::record::outbox::LetterChange;
use crate::runtime::writes::run_writer::{WriterRole, amend};
use crate::store::At;

/// The maximum time that a sink may need for a batch. It is shorter than the lease of the delivering process.
const PATIENCE: Duration = Duration::from_secs(20);

/// The first and the longest delay before the result of a delivery is recorded again, if the store failed.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Delivers the messages of a lane until it is empty.
pub(super) async fn deliver(weak: Weak<RuntimeInner>, key: LaneKey, bell: Arc<Notify>) {
    loop {
        let Some(shared) = weak.upgrade() else { return };
        let Some(batch) = shared.post().next(&key) else { return };
        let now = shared.clock.now();
        let until = batch.first().and_then(|letter| letter.retry_at).filter(|at| *at > now);
        if let Some(at) = until {
            shared.post().put_back(&key, 0, batch);
            drop(shared);
            if !pause(&weak, at.since(now), &bell).await {
                return end_lane(&weak, &key);
            }
            // An operator may have dropped waiting messages or retried rejected ones, from any process.
            let known = read_again(&weak, &key).await;
            let (Some(shared), Some((to, waiting))) = (weak.upgrade(), known) else {
                return end_lane(&weak, &key);
            };
            shared.post().put_back(&key, to, waiting);
            continue;
        }
        if is_ending(&shared) {
            return shared.post().end(&key);
        }
        let Some(route) = shared.post().routes.get(&*key.2).cloned() else { return shared.post().end(&key) };
        let result = pass_to_sink(&shared, &route, &batch).await;
        drop(shared);
        let Some((changes, rest)) =
            weak.upgrade().map(|shared| classify_results(&shared, &route, batch, result))
        else {
            return;
        };
        let mut is_overtaken = false;
        for change in changes {
            match record(&weak, &key, change).await {
                RecordResult::Recorded => {}
                RecordResult::Overtaken => is_overtaken = true,
                RecordResult::Nothing => return end_lane(&weak, &key),
            }
        }
        // Another process delivers the same messages. A message that failed here may be waiting there, so only the log shows the next one.
        let known = if is_overtaken { read_again(&weak, &key).await } else { Some((0, rest)) };
        let (Some(shared), Some((to, waiting))) = (weak.upgrade(), known) else {
            return end_lane(&weak, &key);
        };
        shared.post().put_back(&key, to, waiting);
    }
}

fn is_ending(shared: &RuntimeInner) -> bool {
    matches!(shared.registry.stop().phase, RuntimePhase::Ending(_))
}

fn end_lane(weak: &Weak<RuntimeInner>, key: &LaneKey) {
    if let Some(shared) = weak.upgrade() {
        shared.post().end(key);
    }
}

/// Waits until the delay has passed, or until another message is the first of the lane. Returns false if the runtime is closing or has ended.
async fn pause(weak: &Weak<RuntimeInner>, pause: Duration, bell: &Notify) -> bool {
    let Some(shared) = weak.upgrade() else { return false };
    let (clock, mut stop) = (Arc::clone(&shared.clock), shared.registry.watch_stop());
    drop(shared);
    tokio::select! {
        biased;
        _ = stop.wait_for(|stop| stop.phase != RuntimePhase::Open) => false,
        () = bell.notified() => true,
        () = clock.sleep(pause) => true,
    }
}

/// Passes a batch to the sink, with a time limit.
async fn pass_to_sink(
    shared: &RuntimeInner,
    route: &SinkRoute,
    batch: &[OutboxMessage],
) -> Result<(), SinkError> {
    let Some(first) = batch.first() else { return Ok(()) };
    let call = caught(&first.run, Box::pin(route.sink.deliver(batch)));
    match within(&*shared.clock, PATIENCE, call).await {
        Some(Ok(result)) => result,
        Some(Err(_)) => Err(SinkError::new("the sink panicked")),
        None => Err(SinkError::new(format!("the sink took longer than {PATIENCE:?}"))),
    }
}

/// Returns the results of a batch, and the messages to deliver next.
fn classify_results(
    shared: &RuntimeInner,
    route: &SinkRoute,
    mut batch: Vec<OutboxMessage>,
    result: Result<(), SinkError>,
) -> (Vec<LetterChange>, Vec<OutboxMessage>) {
    let now = shared.clock.now();
    let taken = match &result {
        Ok(()) => batch.len(),
        // A sink that reports a failure after the whole batch failed at no message.
        Err(undelivered) => undelivered.taken.min(batch.len()),
    };
    let mut rest = batch.split_off(taken);
    let mut changes = Vec::new();
    if !batch.is_empty() {
        for letter in &batch {
            shared.telemetry().delivered(&letter.topic, now.since(letter.sent));
        }
        changes.push(LetterChange::Delivered { numbers: batch.iter().map(|letter| letter.number).collect() });
    }
    if let (Err(SinkError { why, is_final, .. }), Some(first)) = (result, rest.first_mut()) {
        first.tries += 1;
        let (number, tries) = (first.number, first.tries);
        let gives_up = is_final || tries >= route.retry.attempts();
        // Message numbers start again in each run. Alone they would make the messages of all runs retry at the same time.
        let (high, low) = first.start_id.as_u64_pair();
        let retry_at = (!gives_up).then(|| now.plus(route.retry.delay(tries, number ^ high ^ low)));
        (first.why, first.retry_at) = (Some(why.clone()), retry_at);
        shared.telemetry().undelivered(&first.topic, gives_up);
        let run = &first.run;
        if gives_up {
            tracing::error!(%run, number, topic = %first.topic, why, "gave up an outbox message; retry or drop it");
            rest.remove(0);
        } else {
            tracing::debug!(%run, number, topic = %first.topic, why, "cannot deliver an outbox message; will retry");
        }
        changes.push(LetterChange::Failed { number, tries, why, retry_at });
    }
    (changes, rest)
}

/// The result of recording a delivery.
enum RecordResult {
    Recorded,
    /// Another process recorded a result for the message first, so this result is dropped.
    Overtaken,
    /// The run was purged or its id was started again, or this runtime ends, so nothing more is recorded.
    Nothing,
}

/// Records the results of messages, and retries until the record is durable.
async fn record(weak: &Weak<RuntimeInner>, key: &LaneKey, change: LetterChange) -> RecordResult {
    let mut wait = FIRST_PAUSE;
    loop {
        let Some(shared) = weak.upgrade() else { return RecordResult::Nothing };
        match write_results(&shared, key, change.clone()).await {
            Ok(()) => return RecordResult::Recorded,
            Err(error) if error.kind() == ErrorKind::WrongStatus => return RecordResult::Overtaken,
            Err(error) if passes(&error) => {
                tracing::debug!(run = %key.0, %error, "cannot record the delivery of an outbox message; will retry");
            }
            Err(error) => {
                tracing::warn!(run = %key.0, %error, "cannot record the delivery of an outbox message; another process will deliver it");
                return RecordResult::Nothing;
            }
        }
        if !wait_for_store(shared, &mut wait).await {
            return RecordResult::Nothing;
        }
    }
}

/// Reads the waiting messages of a lane, and the last number that the log covers. Returns `None` if no message of this start waits,
/// or this runtime ends.
async fn read_again(
    weak: &Weak<RuntimeInner>,
    (run, start_id, topic): &LaneKey,
) -> Option<(u64, Vec<OutboxMessage>)> {
    let mut wait = FIRST_PAUSE;
    loop {
        let shared = weak.upgrade()?;
        match folded_at(&*shared.store, run, At::Latest, None).await {
            Ok(folded) => {
                let letters = folded.machine.letters().filter(|_| folded.machine.start_id() == *start_id)?;
                let waiting =
                    letters.waiting().iter().filter(|posted| !posted.dead && posted.topic == *topic);
                return Some((
                    letters.sent_count(),
                    waiting.map(|posted| OutboxMessage::new(run, *start_id, posted)).collect(),
                ));
            }
            // The run was purged.
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) if passes(&error) => {
                tracing::debug!(%run, %error, "cannot read the waiting outbox messages; will retry");
            }
            Err(error) => {
                tracing::warn!(%run, %error, "cannot read the waiting outbox messages; another process will deliver them");
                return None;
            }
        }
        if !wait_for_store(shared, &mut wait).await {
            return None;
        }
    }
}

/// Returns whether a retry may succeed.
fn passes(error: &Error) -> bool {
    use ErrorKind::{Closed, Conflict, Indeterminate, Unavailable};
    matches!(error.kind(), Unavailable | Indeterminate | Closed | Conflict)
}

/// Waits with a growing delay. Returns false if this runtime ends.
async fn wait_for_store(shared: Arc<RuntimeInner>, wait: &mut Duration) -> bool {
    if is_ending(&shared) {
        return false;
    }
    // Also while the runtime drains, because deliveries must be recorded. Hold no reference, so that a dropped runtime can end.
    let clock = Arc::clone(&shared.clock);
    drop(shared);
    clock.sleep(*wait).await;
    *wait = (*wait * 2).min(LONGEST_PAUSE);
    true
}

async fn write_results(
    shared: &Arc<RuntimeInner>,
    (run, start_id, _): &LaneKey,
    change: LetterChange,
) -> Result<()> {
    let signal = signal(Some(*start_id), change, shared.clock.now());
    let message = |reply| DriverCommand::Signal { signal: Box::new(signal.clone()), reply };
    let decide = |tip: &mut crate::kernel::run_writer::RunWriter| {
        check_signal(&tip.folded.machine, &signal, signal.at)?;
        Ok(vec![RecordEvent::Signal(signal.clone())])
    };
    amend(shared, run, WriterRole::Signaller(&message), decide).await.map(|_| ()).map_err(|error: Error| {
        match error.kind() {
            // The run was purged: there is nothing left to record.
            ErrorKind::NotFound => Error::new(ErrorKind::WrongStatus, error.message()),
            _ => error,
        }
    })
}

pub(super) fn signal(start_id: Option<StartId>, change: LetterChange, at: Timestamp) -> Signal {
    Signal {
        what: SignalKind::Letters { start_id, change: Box::new(change) },
        by: None,
        at,
        of_parent: false,
    }
}

//! The task of a line: delivers its letters in order, and says in the log what became of them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::{LineKey, OutboxMessage, SinkError, SinkRoute};
use crate::clock::{Timestamp, within};
use crate::engine::fold::check_signal;
use crate::error::{Error, ErrorKind, Result};
use crate::past::folded_at;
use crate::record::body::{Event, Signal, SignalKind};
use crate::record::letter::LetterChange;
use crate::runtime::requests::amend::{WriterRole, amend};
use crate::runtime::shared::{DriverCommand, RuntimeInner, RuntimePhase};
use crate::runtime::tasks::caught;
use crate::store::At;

/// How long an outlet may take for a batch: less than a run is left to the process that delivers.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long it waits before it says again what the store did not take, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Delivers a line until it has no letters.
pub(super) async fn deliver(weak: Weak<RuntimeInner>, key: LineKey, bell: Arc<Notify>) {
    loop {
        let Some(shared) = weak.upgrade() else { return };
        let Some(batch) = shared.post().next(&key) else { return };
        let now = shared.clock.now();
        let until = batch.first().and_then(|letter| letter.retry_at).filter(|at| *at > now);
        if let Some(at) = until {
            shared.post().put_back(&key, 0, batch);
            drop(shared);
            if !pause(&weak, at.since(now), &bell).await {
                return leave(&weak, &key);
            }
            // An operator may have dropped what waits here, or had what was put aside delivered, in any process.
            let known = read_again(&weak, &key).await;
            let (Some(shared), Some((to, waiting))) = (weak.upgrade(), known) else {
                return leave(&weak, &key);
            };
            shared.post().put_back(&key, to, waiting);
            continue;
        }
        if is_ending(&shared) {
            return shared.post().end(&key);
        }
        let Some(route) = shared.post().routes.get(&*key.2).cloned() else { return shared.post().end(&key) };
        let result = hand_out(&shared, &route, &batch).await;
        drop(shared);
        let Some((changes, rest)) = weak.upgrade().map(|shared| judge(&shared, &route, batch, result)) else {
            return;
        };
        let mut is_overtaken = false;
        for change in changes {
            match record(&weak, &key, change).await {
                RecordResult::Recorded => {}
                RecordResult::Overtaken => is_overtaken = true,
                RecordResult::Nothing => return leave(&weak, &key),
            }
        }
        // Another process delivers the same letters. What failed here may wait there: only the log says which letter is next.
        let known = if is_overtaken { read_again(&weak, &key).await } else { Some((0, rest)) };
        let (Some(shared), Some((to, waiting))) = (weak.upgrade(), known) else { return leave(&weak, &key) };
        shared.post().put_back(&key, to, waiting);
    }
}

fn is_ending(shared: &RuntimeInner) -> bool {
    matches!(shared.registry.stop().phase, RuntimePhase::Ending(_))
}

fn leave(weak: &Weak<RuntimeInner>, key: &LineKey) {
    if let Some(shared) = weak.upgrade() {
        shared.post().end(key);
    }
}

/// Waits until the time is over or another letter is first. Returns false if the runtime takes nothing new any more, or is gone.
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

/// Has the outlet deliver a batch, for a while.
async fn hand_out(
    shared: &RuntimeInner,
    route: &SinkRoute,
    batch: &[OutboxMessage],
) -> Result<(), SinkError> {
    let Some(first) = batch.first() else { return Ok(()) };
    let call = caught(&first.run, Box::pin(route.outlet.deliver(batch)));
    match within(&*shared.clock, PATIENCE, call).await {
        Some(Ok(result)) => result,
        Some(Err(_)) => Err(SinkError::new("the outlet panicked")),
        None => Err(SinkError::new(format!("the outlet took longer than {PATIENCE:?}"))),
    }
}

/// Says what became of a batch, and what of it is to be delivered next.
fn judge(
    shared: &RuntimeInner,
    route: &SinkRoute,
    mut batch: Vec<OutboxMessage>,
    result: Result<(), SinkError>,
) -> (Vec<LetterChange>, Vec<OutboxMessage>) {
    let now = shared.clock.now();
    let taken = match &result {
        Ok(()) => batch.len(),
        // An outlet that says it took all of it and failed failed at none.
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
        // Numbers begin anew in each run: by themselves they would have the letters of all runs come back together.
        let (high, low) = first.life.as_u64_pair();
        let retry_at = (!gives_up).then(|| now.plus(route.retry.delay(tries, number ^ high ^ low)));
        (first.why, first.retry_at) = (Some(why.clone()), retry_at);
        shared.telemetry().undelivered(&first.topic, gives_up);
        let run = &first.run;
        if gives_up {
            tracing::error!(%run, number, topic = %first.topic, why, "a letter is put aside");
            rest.remove(0);
        } else {
            tracing::debug!(%run, number, topic = %first.topic, why, "a letter is delivered later");
        }
        changes.push(LetterChange::Failed { number, tries, why, retry_at });
    }
    (changes, rest)
}

/// What came of saying what became of letters.
enum RecordResult {
    Recorded,
    /// Another process said something first, and this does not follow any more.
    Overtaken,
    /// Nothing more is to be said of this life of the run, or this runtime ends.
    Nothing,
}

/// Says what became of letters, until that is on record.
async fn record(weak: &Weak<RuntimeInner>, key: &LineKey, change: LetterChange) -> RecordResult {
    let mut wait = FIRST_PAUSE;
    loop {
        let Some(shared) = weak.upgrade() else { return RecordResult::Nothing };
        match say(&shared, key, change.clone()).await {
            Ok(()) => return RecordResult::Recorded,
            Err(error) if error.kind() == ErrorKind::WrongStatus => return RecordResult::Overtaken,
            Err(error) if passes(&error) => {
                tracing::debug!(run = %key.0, %error, "what became of a letter cannot be recorded yet");
            }
            Err(error) => {
                tracing::warn!(run = %key.0, %error, "what became of a letter cannot be recorded; another process delivers it");
                return RecordResult::Nothing;
            }
        }
        if !wait_for_store(shared, &mut wait).await {
            return RecordResult::Nothing;
        }
    }
}

/// Reads which letters of a line wait, and up to which number that is told; `None` if none of this life does, or this runtime ends.
async fn read_again(
    weak: &Weak<RuntimeInner>,
    (run, life, topic): &LineKey,
) -> Option<(u64, Vec<OutboxMessage>)> {
    let mut wait = FIRST_PAUSE;
    loop {
        let shared = weak.upgrade()?;
        match folded_at(&*shared.store, run, At::Latest, None).await {
            Ok(folded) => {
                let letters = folded.machine.letters().filter(|_| folded.machine.life() == *life)?;
                let waiting =
                    letters.waiting().iter().filter(|posted| !posted.dead && posted.topic == *topic);
                return Some((
                    letters.sent(),
                    waiting.map(|posted| OutboxMessage::new(run, *life, posted)).collect(),
                ));
            }
            // It was purged.
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) if passes(&error) => {
                tracing::debug!(%run, %error, "which letters wait cannot be read yet");
            }
            Err(error) => {
                tracing::warn!(%run, %error, "which letters wait cannot be read; another process delivers them");
                return None;
            }
        }
        if !wait_for_store(shared, &mut wait).await {
            return None;
        }
    }
}

/// Whether what failed may succeed later.
fn passes(error: &Error) -> bool {
    use ErrorKind::{Closed, Conflict, Indeterminate, Unavailable};
    matches!(error.kind(), Unavailable | Indeterminate | Closed | Conflict)
}

/// Waits, longer each time. Returns false if this runtime ends.
async fn wait_for_store(shared: Arc<RuntimeInner>, wait: &mut Duration) -> bool {
    if is_ending(&shared) {
        return false;
    }
    // Also while the runtime drains: what was delivered is to be on record. A runtime that is dropped is not held up by it.
    let clock = Arc::clone(&shared.clock);
    drop(shared);
    clock.sleep(*wait).await;
    *wait = (*wait * 2).min(LONGEST_PAUSE);
    true
}

async fn say(shared: &Arc<RuntimeInner>, (run, life, _): &LineKey, change: LetterChange) -> Result<()> {
    let signal = signal(Some(*life), change, shared.clock.now());
    let message = |reply| DriverCommand::Signal { signal: Box::new(signal.clone()), reply };
    let decide = |tip: &mut crate::runtime::requests::amend::RunWriter| {
        check_signal(&tip.folded.machine, &signal, signal.at)?;
        Ok(vec![Event::Signal(signal.clone())])
    };
    amend(shared, run, WriterRole::Signaller(&message), decide).await.map(|_| ()).map_err(|error: Error| {
        match error.kind() {
            // The run was purged: nothing is left to say.
            ErrorKind::NotFound => Error::new(ErrorKind::WrongStatus, error.message()),
            _ => error,
        }
    })
}

pub(super) fn signal(life: Option<uuid::Uuid>, change: LetterChange, at: Timestamp) -> Signal {
    Signal { what: SignalKind::Letters { life, change: Box::new(change) }, by: None, at, of_parent: false }
}

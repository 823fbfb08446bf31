//! The task of a line: delivers its letters in order, and says in the log what became of them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Letter, LineKey, Route, Undelivered};
use crate::clock::{Timestamp, within};
use crate::engine::fold::check_signal;
use crate::error::{Error, ErrorKind, Result};
use crate::record::body::{Event, Signal, SignalKind};
use crate::record::letter::LetterChange;
use crate::runtime::requests::amend::{Writer, amend};
use crate::runtime::shared::{Control, Phase, Shared};
use crate::runtime::tasks::caught;

/// How long an outlet may take for a batch: less than a run is left to the process that delivers.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long it waits before it says again what the store did not take, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Delivers a line until it has no letters.
pub(super) async fn deliver(weak: Weak<Shared>, key: LineKey) {
    loop {
        let Some(shared) = weak.upgrade() else { return };
        let Some(batch) = shared.post().next(&key) else { return };
        let now = shared.clock.now();
        let until = batch.first().and_then(|letter| letter.retry_at).filter(|at| *at > now);
        if let Some(at) = until {
            shared.post().put_back(&key, batch);
            drop(shared);
            if !pause(&weak, at.since(now)).await {
                return leave(&weak, &key);
            }
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
        for change in changes {
            if !record(&weak, &key, change).await {
                return leave(&weak, &key);
            }
        }
        let Some(shared) = weak.upgrade() else { return };
        shared.post().put_back(&key, rest);
    }
}

fn is_ending(shared: &Shared) -> bool {
    matches!(shared.registry.stop().phase, Phase::Ending(_))
}

fn leave(weak: &Weak<Shared>, key: &LineKey) {
    if let Some(shared) = weak.upgrade() {
        shared.post().end(key);
    }
}

/// Waits. Returns false if the runtime takes nothing new any more, or is gone.
async fn pause(weak: &Weak<Shared>, pause: Duration) -> bool {
    let Some(shared) = weak.upgrade() else { return false };
    let (clock, mut stop) = (Arc::clone(&shared.clock), shared.registry.watch_stop());
    drop(shared);
    tokio::select! {
        biased;
        _ = stop.wait_for(|stop| stop.phase != Phase::Open) => false,
        () = clock.sleep(pause) => true,
    }
}

/// Has the outlet deliver a batch, for a while.
async fn hand_out(shared: &Shared, route: &Route, batch: &[Letter]) -> Result<(), Undelivered> {
    let Some(first) = batch.first() else { return Ok(()) };
    let call = caught(&first.run, Box::pin(route.outlet.deliver(batch)));
    match within(&*shared.clock, PATIENCE, call).await {
        Some(Ok(result)) => result,
        Some(Err(_)) => Err(Undelivered::new("the outlet panicked")),
        None => Err(Undelivered::new(format!("the outlet took longer than {PATIENCE:?}"))),
    }
}

/// Says what became of a batch, and what of it is to be delivered next.
fn judge(
    shared: &Shared,
    route: &Route,
    mut batch: Vec<Letter>,
    result: Result<(), Undelivered>,
) -> (Vec<LetterChange>, Vec<Letter>) {
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
    if let (Err(Undelivered { why, is_final, .. }), Some(first)) = (result, rest.first_mut()) {
        first.tries += 1;
        let (number, tries) = (first.number, first.tries);
        let gives_up = is_final || tries >= route.retry.attempts();
        let retry_at = (!gives_up).then(|| now.plus(route.retry.delay(tries, number)));
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

/// Says what became of letters, until that is on record. Returns false if nothing more is to be said of this life of the run, or this
/// runtime ends.
async fn record(weak: &Weak<Shared>, key: &LineKey, change: LetterChange) -> bool {
    let mut wait = FIRST_PAUSE;
    loop {
        let Some(shared) = weak.upgrade() else { return false };
        match say(&shared, key, change.clone()).await {
            Ok(()) => return true,
            Err(error) => match error.kind() {
                // Another process said it.
                ErrorKind::WrongStatus => return true,
                ErrorKind::Unavailable
                | ErrorKind::Indeterminate
                | ErrorKind::Closed
                | ErrorKind::Conflict => {
                    tracing::debug!(run = %key.0, %error, "what became of a letter cannot be recorded yet");
                    if is_ending(&shared) {
                        return false;
                    }
                }
                _ => {
                    tracing::warn!(run = %key.0, %error, "what became of a letter cannot be recorded; another process delivers it");
                    return false;
                }
            },
        }
        drop(shared);
        // Also while the runtime drains: what was delivered is to be on record.
        let Some(clock) = weak.upgrade().map(|shared| Arc::clone(&shared.clock)) else { return false };
        clock.sleep(wait).await;
        wait = (wait * 2).min(LONGEST_PAUSE);
    }
}

async fn say(shared: &Arc<Shared>, (run, life, _): &LineKey, change: LetterChange) -> Result<()> {
    let signal = signal(Some(*life), change, shared.clock.now());
    let message = |reply| Control::Signal { signal: signal.clone(), reply };
    let decide = |tip: &mut crate::runtime::requests::amend::Tip| {
        check_signal(&tip.folded.machine, &signal, signal.at)?;
        Ok(vec![Event::Signal(signal.clone())])
    };
    amend(shared, run, Writer::Signaller(&message), decide).await.map(|_| ()).map_err(|error: Error| {
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

//! Saying something to a run, wherever it goes on: to its driver if it is in this process, to its log otherwise.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::inbox::check_room;
use super::life::Tenure;
use super::load::missing;
use super::log::{About, LogWriter};
use super::shared::{Control, Shared};
use super::tasks::finish;
use crate::ask::Answer;
use crate::engine::fold::{check_signal, fold, full_id};
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::record::body::{Event, Released, Signal, SignalKind, StatusChange};
use crate::record::pause::Rested;
use crate::record::{RunStatus, codec};
use crate::store::{At, RunAppend};

/// How often an append is tried again because others write to the run at the same time.
const RACES: u32 = 32;

/// Something that is about to be said to a run; `.await` says it, and comes back when that is durable.
///
/// # Cancel safety
///
/// Cancel safe: once polled it is carried out, whoever drops it.
#[must_use = "nothing is said before it is awaited"]
pub struct SignalRequest {
    shared: Arc<Shared>,
    run: RunKey,
    what: Result<SignalKind>,
    by: Option<String>,
}

impl SignalRequest {
    pub(crate) fn new(shared: &Arc<Shared>, run: &RunKey, what: Result<SignalKind>) -> Self {
        Self { shared: Arc::clone(shared), run: run.clone(), what, by: None }
    }

    /// Says who says it; it is recorded.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }
}

impl IntoFuture for SignalRequest {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(finish(async move {
            let what = self.what.map_err(|error| error.with_run(&self.run))?;
            send(&self.shared, &self.run, what, self.by).await
        }))
    }
}

impl std::fmt::Debug for SignalRequest {
    /// Never shows what is said.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignalRequest").field("run", &self.run).field("by", &self.by).finish_non_exhaustive()
    }
}

/// Records a signal. Returns when it is durable.
pub(crate) async fn send(
    shared: &Arc<Shared>,
    run: &RunKey,
    what: SignalKind,
    by: Option<String>,
) -> Result<()> {
    let signal = Signal { what, by, at: shared.clock.now() };
    attempt(
        shared,
        run,
        |reply| Control::Signal { signal: signal.clone(), reply },
        || append(shared, run, &signal, false),
    )
    .await
}

/// Says something to the driver of a run or to its log, again as long as others write first.
pub(crate) async fn attempt<F: Future<Output = Result<()>>>(
    shared: &Arc<Shared>,
    run: &RunKey,
    control: impl Fn(oneshot::Sender<Result<()>>) -> Control,
    append: impl Fn() -> F,
) -> Result<()> {
    for _ in 0..RACES {
        let result = match shared.driver(run) {
            Some(driver) => {
                let (reply, answer) = oneshot::channel();
                match driver.send(control(reply)) {
                    Ok(()) => answer
                        .await
                        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Conflict, "the driver ended"))),
                    Err(_) => append().await,
                }
            }
            None => append().await,
        };
        match result {
            // In each of these cases it is not on record: others wrote first, or the driver was fenced or had ended.
            Err(error)
                if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Fenced | ErrorKind::Closed) =>
            {
                tokio::task::yield_now().await;
            }
            result => return result,
        }
    }
    let message = "others keep writing to the run; try again";
    Err(Error::new(ErrorKind::Unavailable, message).with_run(run))
}

/// Pauses a run whose owner is dead.
pub(crate) async fn park(shared: &Arc<Shared>, run: &RunKey, reason: String) -> Result<()> {
    let (what, by) = (SignalKind::Pause { reason }, Some("recovery".to_owned()));
    append(shared, run, &Signal { what, by, at: shared.clock.now() }, true).await
}

/// Lets a run go that its log gives to this executor in this tenure. Returns whether it did: not if the run has ended, rests, or is
/// somebody else's or another of its name by now.
pub(crate) async fn release(
    shared: &Arc<Shared>,
    run: &RunKey,
    tenure: Tenure,
    reason: &str,
) -> Result<bool> {
    for _ in 0..RACES {
        let (term, _) = shared.pulse.present()?;
        let Some(head) = shared.store.head(run).await? else { return Ok(false) };
        let owned = (RunStatus::InProgress, tenure.epoch, Some(shared.executor));
        if (head.status, head.epoch, head.owner) != owned {
            return Ok(false);
        }
        let Some(records) = shared.store.load(run, At::Latest).await? else { return Ok(false) };
        let mut folded = fold(run, &records, None)?;
        if folded.last.id != head.id {
            continue;
        }
        if folded.machine.life() != tenure.life {
            return Ok(false);
        }
        let (clock, ids) = (Arc::clone(&shared.clock), Arc::clone(&shared.ids));
        let mut log = LogWriter::new(run.clone(), shared.executor, shared.limits.max_body, clock, ids);
        log.follow(&folded);
        let receiving = folded.machine.is_receiving();
        let event = Event::Release(Released {
            reason: reason.into(),
            wake: head.wake_at,
            receiving,
            begun: Vec::new(),
            receivers: Vec::new(),
        });
        folded.machine.absorb(&event)?;
        let about = About { release: true, ..About::default() };
        let record = log.record(&event, about, &folded.machine, || codec::to_raw(&folded.channels))?;
        let expected = Some(folded.last.head());
        let append = RunAppend { run: run.clone(), expected, records: vec![record], facts: None };
        let gone = |_| Err(Error::new(ErrorKind::Indeterminate, "the append was dropped before its answer"));
        match shared.committer.submit(append, Some(term)).await.unwrap_or_else(gone) {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            Err(error) => return Err(error.with_run(run)),
        }
    }
    let message = "others keep writing to the run; try again";
    Err(Error::new(ErrorKind::Unavailable, message).with_run(run))
}

/// Appends a signal to the log of a run that is not driven here; its owner, if it has one, meets it there. One that is
/// `orphaned` has none that is alive.
async fn append(shared: &Arc<Shared>, run: &RunKey, signal: &Signal, orphaned: bool) -> Result<()> {
    let records = shared.store.load(run, At::Latest).await?.ok_or_else(|| missing(run))?;
    let mut folded = fold(run, &records, None)?;
    let mut signal = signal.clone();
    check_signal(&folded.machine, &signal.what, shared.clock.now())
        .and_then(|()| check_room(&folded.machine, &signal.what, shared.limits.max_waiting_messages))
        .and_then(|()| full_id(&folded.machine, &mut signal.what))
        .map_err(|error| error.with_run(run))?;
    let owner = folded.last.owner;
    let mut log = LogWriter::new(
        run.clone(),
        owner.unwrap_or(shared.executor),
        shared.limits.max_body,
        Arc::clone(&shared.clock),
        Arc::clone(&shared.ids),
    );
    log.follow(&folded);
    let mut records = Vec::new();
    let mut events = vec![Event::Signal(signal.clone())];
    // Nobody drives a run at rest, so whoever stops it also carries that out. Its owner does that otherwise, or whoever takes
    // it up next.
    if orphaned || owner.is_none() {
        let stops = match &signal.what {
            SignalKind::Cancel { .. } => Some(StatusChange::Cancelled),
            SignalKind::Answer { answer: Answer::Cancel(_), .. } => Some(StatusChange::Cancelled),
            SignalKind::Pause { .. } => Some(StatusChange::Rested(Rested {
                status: RunStatus::Interrupted,
                receiving: folded.machine.is_receiving(),
                wake: None,
                receivers: Vec::new(),
            })),
            _ => None,
        };
        events.extend(stops.map(Event::Status));
    }
    for event in events {
        folded.machine.absorb(&event)?;
        let about = About { release: owner.is_none(), ..About::default() };
        records.push(log.record(&event, about, &folded.machine, || codec::to_raw(&folded.channels))?);
    }
    let append = RunAppend { run: run.clone(), expected: Some(folded.last.head()), records, facts: None };
    let gone = |_| Err(Error::new(ErrorKind::Indeterminate, "the append was dropped before its answer"));
    shared.committer.submit(append, None).await.unwrap_or_else(gone)?;
    shared.recovery.ring();
    Ok(())
}

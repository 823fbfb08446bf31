//! Saying something to a run, wherever it goes on: to its driver if it is in this process, to its log otherwise.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::load::missing;
use super::log::{About, LogWriter};
use super::shared::{Control, Shared};
use crate::engine::fold::{check_signal, fold};
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::record::body::{Event, Signal, SignalKind, StatusChange};
use crate::record::codec;
use crate::store::{At, RunAppend};

/// How often an append is tried again because others write to the run at the same time.
const RACES: u32 = 32;

/// Records a signal. Returns when it is durable.
pub(crate) async fn send(
    shared: &Arc<Shared>,
    run: &RunKey,
    what: SignalKind,
    by: Option<String>,
) -> Result<()> {
    let signal = Signal { what, by };
    for _ in 0..RACES {
        let result = match shared.driver(run) {
            Some(driver) => {
                let (reply, answer) = oneshot::channel();
                let control = Control::Signal { signal: signal.clone(), reply };
                match driver.send(control) {
                    Ok(()) => answer
                        .await
                        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Conflict, "the driver ended"))),
                    Err(_) => append(shared, run, &signal).await,
                }
            }
            None => append(shared, run, &signal).await,
        };
        match result {
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Closed) => {
                tokio::task::yield_now().await;
            }
            result => return result,
        }
    }
    let message = "others keep writing to the run; try again";
    Err(Error::new(ErrorKind::Unavailable, message).with_run(run))
}

/// Appends a signal to the log of a run that is not driven here; its owner, if it has one, meets it there.
async fn append(shared: &Arc<Shared>, run: &RunKey, signal: &Signal) -> Result<()> {
    let records = shared.store.load(run, At::Latest).await?.ok_or_else(|| missing(run))?;
    let mut folded = fold(run, &records, None)?;
    check_signal(&folded.machine, &signal.what).map_err(|error| error.with_run(run))?;
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
    // Nobody drives a run that waits for an answer, so that whoever cancels it also carries it out.
    if matches!(signal.what, SignalKind::Cancel { .. })
        && folded.last.status != crate::record::RunStatus::InProgress
    {
        events.push(Event::Status(StatusChange::Cancelled));
    }
    for event in events {
        folded.machine.absorb(&event)?;
        let about = About { release: owner.is_none(), ..About::default() };
        records.push(log.record(&event, about, &folded.machine, || codec::to_raw(&folded.channels))?);
    }
    let append = RunAppend { run: run.clone(), expected: Some(folded.last.head()), records, facts: None };
    let gone = |_| Err(Error::new(ErrorKind::Indeterminate, "the append was dropped before its answer"));
    shared.committer.submit(append).await.unwrap_or_else(gone).map(|_| ())
}

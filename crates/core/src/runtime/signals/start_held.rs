//! Starts a run that was recorded on hold: ends its pause and claims it in one append.

use std::sync::Arc;

use crate::engine::fold::check_signal;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Epoch;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::run_writer::RunWriter;
use crate::record::body::{RecordEvent, Signal, SignalKind};
use crate::runtime::claims::prompt_claim::claim_with;
use crate::runtime::signals::signal::SignalRequest;
use crate::store::RunHead;

/// Ends the pause of a run whose head is still `head`. If no process has claimed the run before, and this process can drive it now, the same append
/// claims the run. Otherwise the pause ends like with any other signal.
///
/// # Errors
///
/// Returns the errors of [`SignalRequest`].
pub(crate) async fn start_held(shared: &Arc<RuntimeInner>, head: &RunHead, by: &str) -> Result<()> {
    if head.epoch == Epoch::NEVER && claim_held(shared, head, by).await? {
        return Ok(());
    }
    SignalRequest::new(shared, &head.run, Ok(SignalKind::Unpause)).by(by).at(head.head()).await
}

/// Returns whether this process has claimed the run. If it has not, nothing was written.
async fn claim_held(shared: &Arc<RuntimeInner>, head: &RunHead, by: &str) -> Result<bool> {
    let run = &head.run;
    if !shared.recovery.serves(&head.facts.workflow) || shared.driver(run).is_some() {
        return Ok(false);
    }
    let mut tip = RunWriter::load(shared, run, None).await?;
    if tip.folded.last.head() != head.head() {
        let message = "the run has changed since the caller read it; read it again";
        return Err(Error::new(ErrorKind::Conflict, message).with_run(run));
    }
    let at = shared.clock.now();
    let signal = Signal { what: SignalKind::Unpause, by: Some(by.into()), at, of_parent: false };
    check_signal(&tip.folded.machine, &signal, at).map_err(|error| error.with_run(run))?;
    let (before, since) = (tip.folded.last.status, tip.folded.last.at);
    let unwritten = tip.record(&[RecordEvent::Signal(signal)]).map_err(|error| error.with_run(run))?;
    let is_claimed = claim_with(shared, head.facts.clone(), tip, unwritten).await;
    if is_claimed {
        shared.telemetry().rested(before, shared.clock.now().since(since));
    }
    Ok(is_claimed)
}

//! Starts a run that was recorded on hold: ends its pause and claims it in one append.

use std::sync::Arc;

use async_trait::async_trait;

use crate::engine::fold::check_signal;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Epoch;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::run_writer::RunWriter;
use crate::record::body::{RecordEvent, Signal, SignalKind};
use crate::runtime::claims::prompt_claim::claim_with;
use crate::runtime::signals::signal::{IsAt, send_if};
use crate::runtime::writes::run_writer::WritePrecondition;
use crate::store::RunHead;

/// Ends the pause of a run whose head is still `head`. If no process has claimed the run before, and this process can drive it now, the same append
/// claims the run. Otherwise the pause ends like with any other signal.
///
/// # Errors
///
/// Returns the errors of a [`SignalRequest`](super::signal::SignalRequest). Returns [`ErrorKind::Conflict`] if the run has changed since `head`, or
/// if its parent is paused: the child would otherwise run while its parent is paused.
pub(crate) async fn start_held(shared: &Arc<RuntimeInner>, head: &RunHead, by: &str) -> Result<()> {
    let run = &head.run;
    let at = shared.clock.now();
    let signal = Signal { what: SignalKind::Unpause, by: Some(by.to_owned()), at, of_parent: false };
    let condition = MayStart(IsAt { shared, run, head: head.head() });
    let may_claim = head.epoch == Epoch::NEVER && shared.recovery.serves(&head.facts.workflow);
    if may_claim && shared.driver(run).is_none() {
        let tip = RunWriter::load(shared, run, None).await?;
        condition.check(Some(&tip)).await?;
        if claim_held(shared, head, tip, &signal).await? {
            return Ok(());
        }
    }
    send_if(shared, run, signal, Some(&condition)).await
}

/// The precondition that the run is unchanged, and not paused with its parent.
struct MayStart<'a>(IsAt<'a>);

#[async_trait]
impl WritePrecondition for MayStart<'_> {
    async fn check(&self, seen: Option<&RunWriter>) -> Result<()> {
        self.0.check(seen).await?;
        if seen.is_some_and(|seen| seen.folded.machine.is_paused_by(true)) {
            let message = "its parent is paused; the run starts after the parent is unpaused";
            return Err(Error::new(ErrorKind::Conflict, message).with_run(self.0.run));
        }
        Ok(())
    }
}

/// Returns whether this process has claimed the run. If it has not, the store is unchanged.
async fn claim_held(
    shared: &Arc<RuntimeInner>,
    head: &RunHead,
    mut tip: RunWriter,
    signal: &Signal,
) -> Result<bool> {
    let run = &head.run;
    check_signal(&tip.folded.machine, signal, signal.at).map_err(|error| error.with_run(run))?;
    let (before, since) = (tip.folded.last.status, tip.folded.last.at);
    let unwritten =
        tip.record(&[RecordEvent::Signal(signal.clone())]).map_err(|error| error.with_run(run))?;
    let is_claimed = claim_with(shared, head.facts.clone(), tip, unwritten).await;
    if is_claimed {
        shared.telemetry().rested(before, shared.clock.now().since(since));
    }
    Ok(is_claimed)
}

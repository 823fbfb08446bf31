//! Claims a run right after this process has written to it, without waiting for the next sweep.

use std::sync::Arc;

use crate::id::{RunKey, Seq};
use crate::kernel::inner::RuntimeInner;
use crate::kernel::recovery::{ClaimOutcome, ClaimTarget, Claimer};
use crate::kernel::run_writer::RunWriter;
use crate::kernel::tasks::spawn;
use crate::record::{RunFacts, RunStatus};
use crate::runtime::claims::sweep::{claim_one, line_up};
use crate::store::{RunAppend, RunFilter, RunHead};

/// The listing to which the claimed runs belong.
const FILTER: RunFilter = RunFilter::Orphaned;

/// Claims a run after a signal, if it has no owner and this process serves its workflow. It works in its own task, with the options of a sweep.
pub(crate) fn claim_after_write(shared: &Arc<RuntimeInner>, tip: RunWriter) {
    let last = &tip.folded.last;
    if last.owner.is_some() {
        // The owner will see the signal. If it is dead, a sweep finds the run.
        return shared.recovery.notify_work();
    }
    let is_due = last.wake_at.is_none_or(|at| at <= shared.clock.now());
    if last.status == RunStatus::InProgress && is_due && shared.recovery.serves_any() {
        let shared = Arc::clone(shared);
        spawn(async move { claim_run(&shared, tip).await });
    }
}

async fn claim_run(shared: &Arc<RuntimeInner>, tip: RunWriter) {
    let run = tip.log.run.clone();
    let Some(facts) = facts(shared, &tip).await else { return shared.recovery.notify_work() };
    let Some(claimer) = claimer(shared, &run, &facts).await else { return };
    if shared.driven() >= shared.limits.max_recovered {
        return shared.recovery.fill();
    }
    let part = shared.store.part(&run);
    if shared.recovery.is_claiming(part, &run, shared.limits.recovered_at_once) {
        return shared.recovery.notify_work();
    }
    // A claim does not use the pruned position.
    let head = RunHead::after(run.clone(), Seq::new(0), &tip.folded.last, false, facts);
    let Some(permit) = shared.admission.try_admit(&run, &head.facts) else {
        return line_up(shared, claimer, head, FILTER);
    };
    let _claiming = shared.recovery.begin_claim(part, &run);
    let known = ClaimTarget { head, tip: Some(Box::new(tip)), unwritten: None };
    claim_one(Arc::clone(shared), claimer, known, permit, FILTER).await;
}

/// Returns the function that claims a run of this workflow; `None` if this process must not claim the run now.
async fn claimer(shared: &RuntimeInner, run: &RunKey, facts: &RunFacts) -> Option<Claimer> {
    let claimer = shared.recovery.claimer(&facts.workflow)?;
    if shared.services.tags.lacking(facts).is_some() {
        return None;
    }
    // Wait for a driver that has just released the run, and for a pending claim.
    let is_busy = shared.is_closing()
        || shared.decided(run).await
        || shared.admission.is_waiting(run)
        || shared.recovery.should_skip(run, FILTER, shared.clock.now());
    (!is_busy).then_some(claimer)
}

/// Claims a run in the append that also writes `unwritten`, the records before its head `tip`. If this process cannot drive the run now, or another
/// writer was faster, the store stays unchanged. Returns whether this process has claimed the run.
pub(crate) async fn claim_with(
    shared: &Arc<RuntimeInner>,
    facts: RunFacts,
    tip: RunWriter,
    unwritten: RunAppend,
) -> bool {
    let run = tip.log.run.clone();
    let Some(claimer) = claimer(shared, &run, &facts).await else { return false };
    let part = shared.store.part(&run);
    if shared.driven() >= shared.limits.max_recovered
        || shared.recovery.is_claiming(part, &run, shared.limits.recovered_at_once)
    {
        return false;
    }
    let Some(permit) = shared.admission.try_admit(&run, &facts) else { return false };
    let _claiming = shared.recovery.begin_claim(part, &run);
    let head = RunHead::after(run, Seq::new(0), &tip.folded.last, false, facts);
    let known = ClaimTarget { head, tip: Some(Box::new(tip)), unwritten: Some(unwritten) };
    let claimed = claim_one(Arc::clone(shared), claimer, known, permit, FILTER).await;
    claimed == Some(ClaimOutcome::Driven)
}

/// Returns the start facts of the run, from the cache of idle runs or from the store. Returns `None` if the store failed or if another writer has
/// changed the run.
async fn facts(shared: &RuntimeInner, tip: &RunWriter) -> Option<RunFacts> {
    if let Some(facts) =
        shared.idle_runs.take(&tip.log.run, tip.folded.machine.start_id()).map(Arc::unwrap_or_clone)
    {
        return Some(facts);
    }
    let head = shared.store.head(&tip.log.run).await.ok().flatten()?;
    (head.id == tip.folded.last.id).then_some(head.facts)
}

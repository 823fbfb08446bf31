//! Claims a run right after this process has written to it, without waiting for the next sweep.

use std::sync::Arc;

use crate::id::Seq;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::recovery::ClaimTarget;
use crate::kernel::run_writer::RunWriter;
use crate::kernel::tasks::spawn;
use crate::record::{RunFacts, RunStatus};
use crate::runtime::claims::sweep::{claim_one, line_up};
use crate::store::{RunFilter, RunHead};

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
    let (limits, filter, now) = (&shared.limits, RunFilter::Orphaned, shared.clock.now());
    let Some(claimer) = shared.recovery.claimer(&facts.workflow) else { return };
    if shared.services.tags.lacking(&facts).is_some() {
        return;
    }
    // Wait for a driver that has just released the run, and for a pending claim.
    if shared.is_closing()
        || shared.decided(&run).await
        || shared.admission.is_waiting(&run)
        || shared.recovery.should_skip(&run, filter, now)
    {
        return;
    }
    if shared.driven() >= limits.max_recovered {
        return shared.recovery.fill();
    }
    let part = shared.store.part(&run);
    if shared.recovery.is_claiming(part, &run, limits.recovered_at_once) {
        return shared.recovery.notify_work();
    }
    // A claim does not use the pruned position.
    let head = RunHead::after(run.clone(), Seq::new(0), &tip.folded.last, false, facts);
    let Some(permit) = shared.admission.try_admit(&run, &head.facts) else {
        return line_up(shared, claimer, head, filter);
    };
    let _claiming = shared.recovery.begin_claim(part, &run);
    let known = ClaimTarget { head, tip: Some(Box::new(tip)) };
    claim_one(Arc::clone(shared), claimer, known, permit, filter).await;
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

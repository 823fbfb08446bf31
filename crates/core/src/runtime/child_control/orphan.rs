//! Orphaned children: the process that starts or claims a child cancels it if its parent no longer waits for it.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{ErrorKind, Result};
use crate::id::RunKey;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tasks::spawn;
use crate::past::run_tree::{ParentRelation, parent_of};
use crate::record::RunFacts;
use crate::record::child::ParentBond;
use crate::record::parent_link::{ChildRef, ParentLink, parent_link};
use crate::runtime::child_control::LONGEST_LOOK;
use crate::runtime::child_control::await_end::cancel_once;
use crate::runtime::child_control::child_pause::hold_once;
use crate::runtime::child_control::parent_signals::SendCondition;

/// The result of checking whether the parent of a run still waits for it.
enum ParentState {
    /// The run is not an orphan: its parent still waits for it, or lets it continue. If `decided` is false, this may change while the run is active.
    No { decided: bool },
    /// The run is an orphan, and this call has cancelled it.
    Told,
    /// The run is an orphan that was already cancelled or has ended. The process that claims it carries out the cancellation.
    ToldBefore,
}

/// Returns whether a process should claim a run. It should if the parent still waits for the run or lets it continue, or if a cancellation of the run
/// is not carried out yet. If the parent no longer waits for the run, this function cancels the run.
///
/// # Errors
///
/// Returns the errors of the store.
pub(crate) async fn is_wanted(shared: &Arc<RuntimeInner>, run: &RunKey, facts: &RunFacts) -> Result<bool> {
    match parent_link(run, facts).filter(|link| link.bond == ParentBond::Cancel) {
        Some(link) => Ok(!matches!(cancel_orphan(shared, run, &link, true).await?, ParentState::Told)),
        None => Ok(true),
    }
}

/// Checks a child that this process has started but whose parent it no longer drives. The parent may have ended, or may not wait for the child any
/// more. The check is repeated until the parent's log shows whether the parent knows the child.
pub(crate) fn check_parent_after_start(shared: &Arc<RuntimeInner>, run: &RunKey, link: ParentLink) {
    if link.bond != ParentBond::Cancel {
        return;
    }
    let (shared, run) = (Arc::clone(shared), run.clone());
    spawn(async move {
        let mut pause = shared.limits.poll;
        loop {
            match check_parent(&shared, &run, &link).await {
                Ok(ParentState::No { decided: false }) => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::debug!(%run, %error, "cannot read the parent of a child; will retry")
                }
            }
            shared.clock.sleep(pause).await;
            pause = pause.saturating_mul(2).min(Duration::max(LONGEST_LOOK, shared.limits.poll));
        }
    });
}

async fn check_parent(shared: &Arc<RuntimeInner>, run: &RunKey, link: &ParentLink) -> Result<ParentState> {
    let is_there = shared.store.head(run).await?.is_some();
    cancel_orphan(shared, run, link, is_there).await
}

/// Cancels a run if its parent no longer waits for it. The caller says whether the run existed before the parent's log was loaded. If the run
/// existed, the parent's log contains or contained the run. If not, the next owner of the parent may have started the run after the read.
async fn cancel_orphan(
    shared: &Arc<RuntimeInner>,
    run: &RunKey,
    link: &ParentLink,
    is_there: bool,
) -> Result<ParentState> {
    let child = ChildRef::of(run, link);
    let reason = match parent_of(&*shared.store, run, link).await? {
        ParentRelation::Waits { began, paused } => {
            if paused && !began {
                // The parent may have become idle before the run existed, so the pause may have missed it.
                hold_once(shared, &child, SendCondition::Always, true).await?;
            }
            return Ok(ParentState::No { decided: began });
        }
        ParentRelation::Unknown | ParentRelation::Told => return Ok(ParentState::No { decided: true }),
        // The process that starts the run checks the parent, too.
        _ if !is_there => return Ok(ParentState::No { decided: true }),
        ParentRelation::Gone => format!("its parent {} was purged", link.parent),
        ParentRelation::Completed => format!("its parent {} is completed", link.parent),
        ParentRelation::Cancelled => format!("its parent {} was cancelled", link.parent),
        ParentRelation::WentOn => format!("its parent {} no longer waits for this run", link.parent),
    };
    match cancel_once(shared, &child, SendCondition::Always, &reason).await {
        Ok(()) => Ok(ParentState::Told),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(ParentState::Told),
        Err(error) if error.kind() == ErrorKind::WrongStatus => Ok(ParentState::ToldBefore),
        Err(error) => Err(error),
    }
}

//! Children that their parents do not wait for any more: they are cancelled by whoever starts or claims them too late.

use std::sync::Arc;
use std::time::Duration;

use super::LONGEST_LOOK;
use super::end::cancel_once;
use super::hold::hold_once;
use super::tell::SendCondition;
use crate::error::{ErrorKind, Result};
use crate::id::RunKey;
use crate::past::family::{Parent, parent_of};
use crate::record::RunFacts;
use crate::record::child::ParentBond;
use crate::record::parent_link::{ChildRef, ParentLink, parent_link};
use crate::runtime::shared::RuntimeInner;
use crate::runtime::tasks::spawn;

/// How a run stands to a parent that may have gone.
enum ParentState {
    /// Its parent waits for it, or leaves it to itself. Unless that is decided, it may change while the run goes on.
    No { decided: bool },
    /// It was told to stop now.
    Told,
    /// It was told to stop before, or has ended: whoever claims it carries that out.
    ToldBefore,
}

/// Tells whether a run is to be claimed: its parent still waits for it, or leaves it to itself, or the run was told to stop, and its owner
/// has not carried that out. If its parent does not wait for it any more, it is told to stop.
///
/// # Errors
///
/// What the store says.
pub(crate) async fn is_wanted(shared: &Arc<RuntimeInner>, run: &RunKey, facts: &RunFacts) -> Result<bool> {
    match parent_link(run, facts).filter(|link| link.bond == ParentBond::Cancel) {
        Some(link) => Ok(!matches!(cancel_orphan(shared, run, &link, true).await?, ParentState::Told)),
        None => Ok(true),
    }
}

/// Looks after a child that was started here, and whose parent is not driven here, or not any more. The parent may have ended, or gone on
/// without the child: so the child is looked after until the parent's log says that it is known there, or that it is not.
pub(crate) fn look_after_start(shared: &Arc<RuntimeInner>, run: &RunKey, link: ParentLink) {
    if link.bond != ParentBond::Cancel {
        return;
    }
    let (shared, run) = (Arc::clone(shared), run.clone());
    spawn(async move {
        let mut pause = shared.limits.poll;
        loop {
            match look_once(&shared, &run, &link).await {
                Ok(ParentState::No { decided: false }) => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::debug!(%run, %error, "cannot look for the parent of a child; trying again")
                }
            }
            shared.clock.sleep(pause).await;
            pause = pause.saturating_mul(2).min(Duration::max(LONGEST_LOOK, shared.limits.poll));
        }
    });
}

async fn look_once(shared: &Arc<RuntimeInner>, run: &RunKey, link: &ParentLink) -> Result<ParentState> {
    let is_there = shared.store.head(run).await?.is_some();
    cancel_orphan(shared, run, link, is_there).await
}

/// Cancels a run that its parent does not wait for any more. The caller says whether the run was there before this looks at the parent: the
/// parent's log knows such a run, or has known it. One that is there only afterwards may be what the parent's next owner has just started.
async fn cancel_orphan(
    shared: &Arc<RuntimeInner>,
    run: &RunKey,
    link: &ParentLink,
    is_there: bool,
) -> Result<ParentState> {
    let child = ChildRef::of(run, link);
    let reason = match parent_of(&*shared.store, run, link).await? {
        Parent::Waits { began, paused } => {
            if paused && !began {
                // The parent may have come to rest before the run was there to be paused with it.
                hold_once(shared, &child, SendCondition::Always, true).await?;
            }
            return Ok(ParentState::No { decided: began });
        }
        Parent::Unknown | Parent::Told => return Ok(ParentState::No { decided: true }),
        // The process that starts it looks at the parent as well.
        _ if !is_there => return Ok(ParentState::No { decided: true }),
        Parent::Gone => format!("its parent {} was purged", link.parent),
        Parent::Completed => format!("its parent {} is completed", link.parent),
        Parent::Cancelled => format!("its parent {} was cancelled", link.parent),
        Parent::WentOn => format!("its parent {} went on without it", link.parent),
    };
    match cancel_once(shared, &child, SendCondition::Always, &reason).await {
        Ok(()) => Ok(ParentState::Told),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(ParentState::Told),
        Err(error) if error.kind() == ErrorKind::WrongStatus => Ok(ParentState::ToldBefore),
        Err(error) => Err(error),
    }
}

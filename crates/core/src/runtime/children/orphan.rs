//! Children that their parents do not wait for any more: they are cancelled by whoever starts or claims them too late.

use std::sync::Arc;
use std::time::Duration;

use super::LONGEST_LOOK;
use super::hold::hold_once;
use crate::error::{ErrorKind, Result};
use crate::id::RunKey;
use crate::past::family::{Parent, parent_of};
use crate::record::RunFacts;
use crate::record::body::SignalKind;
use crate::record::child::Bond;
use crate::record::parent_link::{ChildRef, ParentLink, parent_link};
use crate::runtime::requests::signal::send;
use crate::runtime::shared::Shared;
use crate::runtime::tasks::spawn;

/// How a run stands to a parent that may have gone.
enum Orphan {
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
pub(crate) async fn is_wanted(shared: &Arc<Shared>, run: &RunKey, facts: &RunFacts) -> Result<bool> {
    match parent_link(run, facts).filter(|link| link.bond == Bond::Cancel) {
        Some(link) => Ok(!matches!(cancel_orphan(shared, run, &link).await?, Orphan::Told)),
        None => Ok(true),
    }
}

/// Looks after a child that was started here, and whose parent is not driven here, or not any more. The parent may have ended, or gone on
/// without the child: so the child is looked after until the parent's log says that it is known there, or that it is not.
pub(crate) fn look_after_start(shared: &Arc<Shared>, run: &RunKey, link: ParentLink) {
    if link.bond != Bond::Cancel {
        return;
    }
    let (shared, run) = (Arc::clone(shared), run.clone());
    spawn(async move {
        let mut pause = shared.limits.poll;
        loop {
            match cancel_orphan(&shared, &run, &link).await {
                Ok(Orphan::No { decided: false }) => {}
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

/// Cancels a run that its parent does not wait for any more.
async fn cancel_orphan(shared: &Arc<Shared>, run: &RunKey, link: &ParentLink) -> Result<Orphan> {
    let reason = match parent_of(&*shared.store, run, link).await? {
        Parent::Waits { began, paused } => {
            if paused && !began {
                // The parent may have come to rest before the run was there to be paused with it.
                let child = ChildRef::of(run, link);
                hold_once(shared, &child, true).await?;
            }
            return Ok(Orphan::No { decided: began });
        }
        Parent::Unknown | Parent::Told => return Ok(Orphan::No { decided: true }),
        Parent::Gone => format!("its parent {} was purged", link.parent),
        Parent::Completed => format!("its parent {} is completed", link.parent),
        Parent::Cancelled => format!("its parent {} was cancelled", link.parent),
        Parent::WentOn => format!("its parent {} went on without it", link.parent),
    };
    match send(shared, run, SignalKind::Cancel { reason }, Some("parent".to_owned())).await {
        Ok(()) => Ok(Orphan::Told),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Orphan::Told),
        Err(error) if error.kind() == ErrorKind::WrongStatus => Ok(Orphan::ToldBefore),
        Err(error) => Err(error),
    }
}

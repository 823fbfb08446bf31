//! Pausing the children of a run that is paused, and letting them go on with it.

use std::sync::Arc;

use super::tell::{SendCondition, tell};
use super::tries::ChildBackoff;
use crate::error::{ErrorKind, Result};
use crate::id::RunKey;
use crate::node::RunScope;
use crate::record::RunStatus;
use crate::record::body::SignalKind;
use crate::record::parent_link::ChildRef;
use crate::runtime::shared::RuntimeInner;

/// Pauses a child with its parent, or ends that pause. Returns when that is on record, or when there is nothing to do: the child has
/// ended, is purged, or stands so already, or another process has the parent. A store that fails is asked again, ever less often.
pub(crate) async fn hold(shared: &Arc<RuntimeInner>, child: &ChildRef, parent: &RunScope, pause: bool) {
    let mut tries = ChildBackoff::of(shared, &child.run);
    while let Err(error) = hold_once(shared, child, SendCondition::Owned(parent), pause).await {
        if let Err(error) = tries.failed(error).await {
            tracing::warn!(run = %child.run, pause, %error, "a child cannot be paused with its parent, or let go on");
            return;
        }
    }
}

/// As [`hold`], once.
///
/// # Errors
///
/// What the store says.
pub(super) async fn hold_once(
    shared: &Arc<RuntimeInner>,
    child: &ChildRef,
    parent: SendCondition<'_>,
    pause: bool,
) -> Result<()> {
    let what = match pause {
        true => {
            let run = RunKey::new(child.run.tenant.clone(), child.parent.clone());
            SignalKind::Pause { reason: format!("its parent {run} is paused") }
        }
        false => SignalKind::Unpause,
    };
    use ErrorKind::{Fenced, NotFound, WrongStatus};
    match tell(shared, child, parent, what).await {
        Err(error) if matches!(error.kind(), WrongStatus | NotFound | Fenced) => Ok(()),
        told => told,
    }
}

/// Ends the pause of a child whose parent goes on, if it rests under one: an owner of before may have paused it too late.
///
/// # Errors
///
/// What the store says.
pub(super) async fn let_go_on(
    shared: &Arc<RuntimeInner>,
    child: &ChildRef,
    parent: SendCondition<'_>,
) -> Result<()> {
    match shared.store.head(&child.run).await? {
        Some(head) if head.status == RunStatus::Interrupted => hold_once(shared, child, parent, false).await,
        _ => Ok(()),
    }
}

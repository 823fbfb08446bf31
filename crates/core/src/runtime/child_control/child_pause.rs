//! Pauses and unpauses children together with their parent.

use std::sync::Arc;

use crate::error::{ErrorKind, Result};
use crate::id::RunKey;
use crate::kernel::inner::RuntimeInner;
use crate::node::RunScope;
use crate::record::RunStatus;
use crate::record::body::SignalKind;
use crate::record::parent_link::ChildRef;
use crate::runtime::child_control::child_backoff::ChildBackoff;
use crate::runtime::child_control::parent_signals::{SendCondition, send_signal};

/// Pauses a child together with its parent, or ends this pause. Returns when the change is durable or not needed. The change is not needed if the
/// child has ended, was purged or already has the right pause state, or if the parent has another owner. After an error of the store, it retries with
/// growing delays.
pub(crate) async fn set_pause(shared: &Arc<RuntimeInner>, child: &ChildRef, parent: &RunScope, pause: bool) {
    let mut tries = ChildBackoff::of(shared, &child.run);
    while let Err(error) = hold_once(shared, child, SendCondition::Owned(parent), pause).await {
        if let Err(error) = tries.failed(error).await {
            tracing::warn!(run = %child.run, pause, %error, "cannot pause or unpause a child with its parent; pause or unpause it by its id");
            return;
        }
    }
}

/// Changes the pause of a child, like [`set_pause`], but makes only one attempt.
///
/// # Errors
///
/// Returns the errors of the store.
pub(crate) async fn hold_once(
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
    match send_signal(shared, child, parent, what).await {
        Err(error) if matches!(error.kind(), WrongStatus | NotFound | Fenced) => Ok(()),
        told => told,
    }
}

/// Unpauses a child whose parent is not paused any more. A former owner of the parent may have paused the child too late.
///
/// # Errors
///
/// Returns the errors of the store.
pub(crate) async fn unpause_child(
    shared: &Arc<RuntimeInner>,
    child: &ChildRef,
    parent: SendCondition<'_>,
) -> Result<()> {
    match shared.store.head(&child.run).await? {
        Some(head) if head.status == RunStatus::Interrupted => hold_once(shared, child, parent, false).await,
        _ => Ok(()),
    }
}

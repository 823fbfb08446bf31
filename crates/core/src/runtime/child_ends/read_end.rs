//! Reads how a child ended from the child's own log.

use serde_json::value::RawValue;

use crate::engine::fold::fold;
use crate::engine::machine::Machine;
use crate::error::Result;
use crate::kernel::inner::RuntimeInner;
use crate::record::RunStatus;
use crate::record::child::ChildEnd;
use crate::record::codec::to_raw;
use crate::record::parent_link::ChildRef;
use crate::store::At;

/// Returns the end of a run from its machine, or `None` if the run has not ended. For a completed run, it calls `state`, which returns the state and
/// the version of the state.
///
/// # Errors
///
/// Returns the errors of `state`.
pub(crate) fn end_as(
    machine: &Machine,
    state: impl FnOnce() -> Result<(Box<RawValue>, u32)>,
) -> Result<Option<ChildEnd>> {
    Ok(match machine.status() {
        RunStatus::Completed => {
            let (state, version) = state()?;
            Some(ChildEnd::Completed { state, version })
        }
        RunStatus::Failed => machine.failure().cloned().map(ChildEnd::Failed),
        RunStatus::Cancelled => {
            Some(ChildEnd::Cancelled { reason: machine.cancel().map(str::to_owned).unwrap_or_default() })
        }
        // The run was retried since.
        _ => None,
    })
}

/// The status of a child, read from the child's own log.
pub(crate) enum ChildStand {
    Active,
    Ended(ChildEnd),
    /// Another run started the run with the child's id. The parent is a copy of that other run under another id.
    OfCopy,
}

/// Reads the status of a child. If another run has the child's id, it does not count as the child.
///
/// # Errors
///
/// Returns the errors of the store, and the errors of [`fold`].
pub(crate) async fn read_child_state(shared: &RuntimeInner, child: &ChildRef) -> Result<ChildStand> {
    let run = &child.run;
    let gone = || Ok(ChildStand::Ended(ChildEnd::Gone));
    match shared.store.head(run).await? {
        None => return gone(),
        Some(head) if child.is_of_copy(&head.facts) => return Ok(ChildStand::OfCopy),
        Some(head) if !child.is(&head.facts) => return gone(),
        Some(head) if !head.status.is_finished() => return Ok(ChildStand::Active),
        Some(_) => {}
    }
    let Some(records) = shared.store.load(run, At::Latest).await? else { return gone() };
    let folded = fold(run, &records, None)?;
    let end = end_as(&folded.machine, || Ok((to_raw(&folded.channels)?, folded.version)))?;
    // The run was retried after the read of its head.
    Ok(end.map_or(ChildStand::Active, ChildStand::Ended))
}

/// Returns the end of a child, or `None` if it has not ended.
///
/// # Errors
///
/// Returns the errors of [`read_child_state`].
pub(crate) async fn end_of(shared: &RuntimeInner, child: &ChildRef) -> Result<Option<ChildEnd>> {
    Ok(match read_child_state(shared, child).await? {
        ChildStand::Active => None,
        ChildStand::Ended(end) => Some(end),
        ChildStand::OfCopy => Some(ChildEnd::Gone),
    })
}

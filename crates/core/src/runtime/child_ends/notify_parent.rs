//! Notifies an idle parent that a child has ended. The process that sees the end does this, or a process that polls the children of the parent.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::engine::frontier::ActivationKey;
use crate::engine::machine::Machine;
use crate::error::Result;
use crate::id::RunKey;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::run_writer::RunWriter;
use crate::kernel::tasks::spawn;
use crate::record::RunStatus;
use crate::record::body::{RecordEvent, ReleaseRecord};
use crate::record::child::{ActivationChild, ChildEnd, ParentBond};
use crate::record::parent_link::{ChildRef, ParentLink, parent_link};
use crate::record::pause::{ActivationNote, ChildPolls, StepRecord};
use crate::runtime::child_ends::read_end::end_of;
use crate::runtime::claims::prompt_claim::claim_after_write;
use crate::runtime::writes::run_writer::{WriterRole, amend};

/// Notifies the parent of a run that the run has ended. A parent in this process is notified directly, with the result if it is known. An idle parent
/// is notified by a record in its log.
///
/// A notification may be lost. The parent then finds the end when it polls its children.
pub(crate) fn notify_parent(
    shared: &Arc<RuntimeInner>,
    run: &RunKey,
    link: ParentLink,
    end: Option<Arc<RawValue>>,
) {
    if link.bond == ParentBond::Detached {
        return;
    }
    // A parent that is becoming idle checks again once this process no longer drives it.
    let child = ChildRef::of(run, &link);
    if shared.registry.end_waiters.notify(&child, end) && shared.driver(&link.parent).is_some() {
        return;
    }
    let (shared, parent) = (Arc::clone(shared), link.parent);
    spawn(async move { notify_at_rest(&shared, &parent, &child).await });
}

/// Checks the children of a run that has just become idle. If a child ended shortly before, the process that saw this end relied on the driver of the
/// run, which had already stopped checking. The function records the first ended child that it finds. The process that then claims the run finds the
/// others.
pub(crate) fn check_children_of_idle(shared: &Arc<RuntimeInner>, parent: &RunKey, children: Vec<ChildRef>) {
    let (shared, parent) = (Arc::clone(shared), parent.clone());
    spawn(async move {
        for child in children {
            match shared.store.head(&child.run).await {
                Ok(Some(head)) if child.is(&head.facts) && head.status.is_finished() => {
                    return notify_at_rest(&shared, &parent, &child).await;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(run = %child.run, %error, "cannot read a child; will retry");
                }
            }
        }
    });
}

/// Notifies the parent of a run if a signal has ended the run.
pub(crate) fn notify_parent_after_signal(shared: &Arc<RuntimeInner>, tip: &RunWriter) {
    if !tip.folded.last.status.is_finished() {
        return;
    }
    let (shared, run) = (Arc::clone(shared), tip.log.run.clone());
    spawn(async move {
        if let Ok(Some(head)) = shared.store.head(&run).await
            && let Some(link) = parent_link(&run, &head.facts)
        {
            notify_parent(&shared, &run, link, None);
        }
    });
}

/// Records the end of a child in the log of an idle parent, so that any process can claim the parent.
async fn notify_at_rest(shared: &Arc<RuntimeInner>, parent: &RunKey, child: &ChildRef) {
    if let Err(error) = record_child_end(shared, parent, child).await {
        let run = &child.run;
        tracing::debug!(%run, %parent, %error, "could not notify the parent of a finished child; the parent will poll");
    }
}

async fn record_child_end(shared: &Arc<RuntimeInner>, parent: &RunKey, child: &ChildRef) -> Result<()> {
    let Some(head) = shared.store.head(parent).await? else { return Ok(()) };
    let rests = head.status == RunStatus::InProgress && head.owner.is_none() && head.wake_at.is_some();
    if !rests {
        // The parent checks by itself, or has ended.
        return Ok(());
    }
    let Some(end) = end_of(shared, child).await? else { return Ok(()) };
    let noted = amend(shared, parent, WriterRole::Beside, |tip| {
        let machine = &tip.folded.machine;
        if machine.child_polls().is_none() || tip.folded.last.owner.is_some() {
            return Ok(Vec::new());
        }
        let waits = |(key, known): &(ActivationKey, ActivationChild)| {
            known.is_open() && machine.child_ref(parent, *key, known) == *child
        };
        let waiting: Vec<_> = machine.children().filter(waits).collect();
        let events = waiting.iter().map(|(key, known)| end_event(machine, *key, known, &end));
        let mut events = events.collect::<Result<Vec<_>>>()?;
        if !events.is_empty() {
            events.push(wake());
        }
        Ok(events)
    })
    .await?;
    if let Some(tip) = noted {
        claim_after_write(shared, tip);
    }
    Ok(())
}

/// Returns the record of a child's end.
pub(crate) fn end_event(
    machine: &Machine,
    (node, visit): ActivationKey,
    child: &ActivationChild,
    end: &ChildEnd,
) -> Result<RecordEvent> {
    let what = ActivationNote::Result(end.to_raw()?);
    let (node, name) = (machine.name(node).clone(), child.end_note_name());
    Ok(RecordEvent::Step(StepRecord { node, visit, name, what, first: false }))
}

/// Returns the record that lets any process claim an idle run.
pub(crate) fn wake() -> RecordEvent {
    released("a child has ended", None, None)
}

pub(crate) fn released(reason: &str, wake: Option<Timestamp>, looks: Option<ChildPolls>) -> RecordEvent {
    let reason = reason.to_owned();
    let (begun, receivers) = (Vec::new(), Vec::new());
    RecordEvent::Release(ReleaseRecord {
        reason,
        wake,
        receiving: false,
        begun,
        receivers,
        looks,
        orderly: false,
    })
}

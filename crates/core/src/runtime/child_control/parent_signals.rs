//! Signals that a parent sends to a child. A signal reaches only this child, even if the id of the child belongs to another run after a purge. The
//! signal is appended only if the parent has not changed in a way that makes the signal obsolete.

use std::sync::Arc;

use async_trait::async_trait;

use crate::engine::fold::missing;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{HeadRef, RunKey};
use crate::kernel::inner::RuntimeInner;
use crate::kernel::run_writer::RunWriter;
use crate::node::RunScope;
use crate::record::body::{Signal, SignalKind};
use crate::record::parent_link::ChildRef;
use crate::runtime::signals::signal::send_if;
use crate::runtime::writes::run_writer::WritePrecondition;

/// The condition under which a signal to a child is appended.
#[derive(Clone, Copy)]
pub(crate) enum SendCondition<'a> {
    /// The signal is always written, because no later record of the parent can make it obsolete.
    Always,
    /// The signal is appended only while this process certainly owns the parent.
    Owned(&'a RunScope),
    /// The signal is appended only if the parent's head is still this record.
    At(&'a RunKey, HeadRef),
}

/// Sends a signal to a child in the name of its parent.
///
/// # Errors
///
/// Returns [`ErrorKind::NotFound`] if there is no such child, [`ErrorKind::Fenced`] if the parent's state changed. Also returns the errors of a
/// signal.
pub(crate) async fn send_signal(
    shared: &Arc<RuntimeInner>,
    child: &ChildRef,
    parent: SendCondition<'_>,
    what: SignalKind,
) -> Result<()> {
    let of_parent = matches!(what, SignalKind::Pause { .. } | SignalKind::Unpause);
    let signal = Signal { what, by: Some("parent".to_owned()), at: shared.clock.now(), of_parent };
    send_if(shared, &child.run, signal, Some(&IsOurs { shared, child, parent })).await
}

/// The precondition that a run is the child, and that the parent is in the expected state.
struct IsOurs<'a> {
    shared: &'a RuntimeInner,
    child: &'a ChildRef,
    parent: SendCondition<'a>,
}

#[async_trait]
impl WritePrecondition for IsOurs<'_> {
    async fn check(&self, _seen: Option<&RunWriter>) -> Result<()> {
        let Self { shared, child, parent } = self;
        let head = shared.store.head(&child.run).await?;
        if !head.is_some_and(|head| child.is(&head.facts)) {
            return Err(missing(&child.run));
        }
        match parent {
            SendCondition::Always => Ok(()),
            SendCondition::Owned(parent) => check_owner(shared, parent).await,
            SendCondition::At(run, at) => match shared.store.head(run).await? {
                Some(head) if head.head() == *at => Ok(()),
                _ => Err(Error::new(ErrorKind::Fenced, "another writer wrote to the run; read it again")
                    .with_run(run)),
            },
        }
    }
}

/// Checks that this process still owns a run with the same claim: the log says so, and the heartbeat rules out that another process has claimed the
/// run since.
async fn check_owner(shared: &RuntimeInner, run: &RunScope) -> Result<()> {
    let (term, _) = shared.heartbeat.check_alive()?;
    let gaps = shared.heartbeat.wait_until_certain(term).await?;
    let head = shared.store.head(&run.key).await?;
    if head.is_none_or(|head| (head.epoch, head.owner) != (run.claim.epoch, Some(shared.executor))) {
        let message =
            "another process has claimed the run; that process manages the children of its activations";
        return Err(Error::new(ErrorKind::Fenced, message).with_run(&run.key));
    }
    if shared.heartbeat.late_count_if_certain(term) != Some(gaps) {
        let message = "this process was suspended while it checked the owner of the run; retry";
        return Err(Error::new(ErrorKind::Unavailable, message).with_run(&run.key));
    }
    Ok(())
}

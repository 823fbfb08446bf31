//! What a parent says to a child. The signal reaches the child alone, also if another run has its id by then, and is written only as long as the
//! parent stands as the signaller knows it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::engine::fold::missing;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{HeadRef, RunKey};
use crate::node::RunScope;
use crate::record::body::{Signal, SignalKind};
use crate::record::parent_link::ChildRef;
use crate::runtime::requests::amend::{RunWriter, WritePrecondition};
use crate::runtime::requests::signal::send_if;
use crate::runtime::shared::RuntimeInner;

/// How long a child is told something.
#[derive(Clone, Copy)]
pub(crate) enum SendCondition<'a> {
    /// What is said follows from the parent's log, whatever else comes to that.
    Always,
    /// As long as this process surely owns the parent.
    Owned(&'a RunScope),
    /// As long as nothing was written to the parent since.
    At(&'a RunKey, HeadRef),
}

/// Tells a child something in the name of its parent.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such child, [`ErrorKind::Fenced`] if the parent does not stand so any more, and as a signal.
pub(super) async fn tell(
    shared: &Arc<RuntimeInner>,
    child: &ChildRef,
    parent: SendCondition<'_>,
    what: SignalKind,
) -> Result<()> {
    let of_parent = matches!(what, SignalKind::Pause { .. } | SignalKind::Unpause);
    let signal = Signal { what, by: Some("parent".to_owned()), at: shared.clock.now(), of_parent };
    send_if(shared, &child.run, signal, Some(&IsOurs { shared, child, parent })).await
}

/// That a run is the child, and how its parent stands.
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
                _ => Err(Error::new(ErrorKind::Fenced, "another writer wrote to the run").with_run(run)),
            },
        }
    }
}

/// Checks that this process still owns a run as it did when the run was taken: the log says so, and no claimer could take the run meanwhile.
async fn check_owner(shared: &RuntimeInner, run: &RunScope) -> Result<()> {
    let (term, _) = shared.heartbeat.present()?;
    let gaps = shared.heartbeat.sure(term).await?;
    let head = shared.store.head(&run.key).await?;
    if head.is_none_or(|head| (head.epoch, head.owner) != (run.epoch, Some(shared.executor))) {
        let message =
            "another executor has claimed the run; what its activations have started is left to that";
        return Err(Error::new(ErrorKind::Fenced, message).with_run(&run.key));
    }
    if shared.heartbeat.certain(term) != Some(gaps) {
        let message = "this process was stopped while it looked who owns the run; look again";
        return Err(Error::new(ErrorKind::Unavailable, message).with_run(&run.key));
    }
    Ok(())
}

//! What a parent says to a child: to that run alone, whoever bears its name by then, and, where only the parent's owner may say it, by that.

use std::sync::Arc;

use async_trait::async_trait;

use crate::engine::fold::missing;
use crate::error::{Error, ErrorKind, Result};
use crate::node::RunScope;
use crate::record::body::{Signal, SignalKind};
use crate::record::parent_link::ChildRef;
use crate::runtime::requests::amend::Condition;
use crate::runtime::requests::signal::send_if;
use crate::runtime::shared::Shared;

/// Tells a child something; if `parent` is given, only while this process surely owns that run.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such child, [`ErrorKind::Fenced`] if the parent is not owned any more, and as a signal.
pub(super) async fn tell(
    shared: &Arc<Shared>,
    child: &ChildRef,
    parent: Option<&RunScope>,
    what: SignalKind,
) -> Result<()> {
    let of_parent = matches!(what, SignalKind::Pause { .. } | SignalKind::Unpause);
    let signal = Signal { what, by: Some("parent".to_owned()), at: shared.clock.now(), of_parent };
    send_if(shared, &child.run, signal, Some(&IsOurs { shared, child, parent })).await
}

/// That a run is the child, and that its parent goes on here.
struct IsOurs<'a> {
    shared: &'a Shared,
    child: &'a ChildRef,
    parent: Option<&'a RunScope>,
}

#[async_trait]
impl Condition for IsOurs<'_> {
    async fn check(&self) -> Result<()> {
        let Self { shared, child, parent } = self;
        let head = shared.store.head(&child.run).await?;
        if !head.is_some_and(|head| child.is(&head.facts)) {
            return Err(missing(&child.run));
        }
        match parent {
            Some(parent) => check_owner(shared, parent).await,
            None => Ok(()),
        }
    }
}

/// Checks that this process still owns a run as it did when the run was taken: its log says so, and nobody could claim it meanwhile.
async fn check_owner(shared: &Shared, run: &RunScope) -> Result<()> {
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

//! Registers the workflows whose runs this process claims.

use std::sync::Arc;
use std::sync::PoisonError;

use super::idle_orphans::cancel_idle_orphans;
use super::undriven::release_undriven;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{CheckpointPolicy, Graph};
use crate::kernel::inner::RuntimeInner;
use crate::kernel::recovery::{ClaimOutcome, Claimer};
use crate::kernel::tasks::spawn;
use crate::runtime::claims::sweep::sweep;
use crate::runtime::driver::check_transactions;
use crate::runtime::handle::RunHandle;
use crate::runtime::requests::resume::{ClaimOptions, resume};
use crate::state::State;

/// Makes this process serve a workflow.
///
/// # Errors
///
/// Returns [`ErrorKind::AlreadyExists`] if this process serves the workflow with another graph.
pub(crate) fn serve<S: State>(
    shared: &Arc<RuntimeInner>,
    graph: &Graph<S>,
    policy: CheckpointPolicy,
) -> Result<()> {
    add_served(shared, graph, policy, false)
}

/// Makes this process serve a workflow, like [`serve`]. If it already serves the workflow, the new graph replaces the current graph.
///
/// # Errors
///
/// Returns the errors of [`serve`], except [`ErrorKind::AlreadyExists`].
pub(crate) fn replace_served<S: State>(
    shared: &Arc<RuntimeInner>,
    graph: &Graph<S>,
    policy: CheckpointPolicy,
) -> Result<()> {
    add_served(shared, graph, policy, true)
}

fn add_served<S: State>(
    shared: &Arc<RuntimeInner>,
    graph: &Graph<S>,
    policy: CheckpointPolicy,
    may_replace: bool,
) -> Result<()> {
    check_transactions(shared, graph)?;
    let (graph, name) = (graph.clone(), graph.name().clone());
    let weak = Arc::downgrade(shared);
    let claimer: Claimer = Arc::new(move |known, permit| {
        let (graph, shared) = (graph.clone(), weak.upgrade());
        Box::pin(async move {
            // Without a runtime, another process claims the run.
            let Some(shared) = shared else { return Ok(ClaimOutcome::Late) };
            let terms = ClaimOptions { recovery: true, ..ClaimOptions::default() };
            let run = known.head.run.clone();
            outcome(resume(&shared, &graph, &run, policy, &terms, Some(known), Some(permit)).await)
        })
    });
    let mut served = shared.recovery.served.lock().unwrap_or_else(PoisonError::into_inner);
    if served.contains_key(&name) && !may_replace {
        let message = format!("this runtime already serves the workflow `{name}`; serve each workflow once");
        return Err(Error::new(ErrorKind::AlreadyExists, message));
    }
    let first = served.is_empty();
    served.insert(name, claimer);
    drop(served);
    if first {
        spawn(sweep(Arc::downgrade(shared)));
        spawn(cancel_idle_orphans(Arc::downgrade(shared)));
        spawn(release_undriven(Arc::downgrade(shared)));
    }
    shared.recovery.notify_work();
    Ok(())
}

fn outcome<S: State>(resumed: Result<RunHandle<S>>) -> Result<ClaimOutcome> {
    use ErrorKind::{Closed, Conflict, Fenced, NotFound, WrongStatus};
    match resumed {
        Ok(handle) if handle.is_driven_here() => Ok(ClaimOutcome::Driven),
        Ok(_) => Ok(ClaimOutcome::Done),
        Err(error) if matches!(error.kind(), Conflict | WrongStatus | NotFound | Closed | Fenced) => {
            Ok(ClaimOutcome::Late)
        }
        Err(error) => Err(error),
    }
}

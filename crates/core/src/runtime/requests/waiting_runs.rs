//! Runs that are recorded and wait in this process until it has capacity for another active run.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::resume::{ClaimOptions, resume};
use crate::error::{ErrorKind, Result};
use crate::graph::{CheckpointPolicy, Graph};
use crate::id::RunKey;
use crate::kernel::admission::RunStarter;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tasks::caught;
use crate::record::RunFacts;
use crate::runtime::handle::{OutcomeSource, RunHandle};
use crate::state::State;

/// The first and the longest delay before another claim of an admitted run after a store failure.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Adds a recorded run to the line of runs that wait for capacity in this process. If the runtime is closing, the run is left to other processes.
pub(super) fn line_up<S: State>(
    shared: &Arc<RuntimeInner>,
    graph: &Graph<S>,
    run: &RunKey,
    facts: &RunFacts,
    policy: CheckpointPolicy,
) -> RunHandle<S> {
    if shared.is_closing() {
        return RunHandle::new(Arc::clone(shared), graph.clone(), run.clone(), OutcomeSource::Elsewhere)
            .of_start(facts);
    }
    let (taken, waiting) = watch::channel(None);
    shared.admission.line_up(
        run,
        facts,
        claim_with_room(
            Arc::clone(shared),
            graph.clone(),
            run.clone(),
            facts.clone(),
            policy,
            FIRST_PAUSE,
            taken,
        ),
    );
    RunHandle::new(Arc::clone(shared), graph.clone(), run.clone(), OutcomeSource::Queued(waiting))
        .of_start(facts)
}

/// Claims a run from the line after capacity for it was reserved.
fn claim_with_room<S: State>(
    shared: Arc<RuntimeInner>,
    graph: Graph<S>,
    run: RunKey,
    facts: RunFacts,
    policy: CheckpointPolicy,
    pause: Duration,
    taken: watch::Sender<Option<Result<RunHandle<S>>>>,
) -> RunStarter {
    use ErrorKind::{Conflict, WrongStatus};
    Box::new(move |permit| {
        Box::pin(async move {
            let terms = ClaimOptions::default();
            let resuming = resume(&shared, &graph, &run, policy, &terms, None, Some(permit));
            match caught(&run, Box::pin(resuming)).await.and_then(|resumed| resumed) {
                Ok(handle) => drop(taken.send_replace(Some(Ok(handle)))),
                Err(error) if error.is_retryable() && !shared.is_closing() => {
                    tracing::warn!(%run, %error, "cannot claim an admitted run; will retry");
                    shared.clock.sleep(pause).await;
                    let pause = (pause * 2).min(LONGEST_PAUSE);
                    let next = claim_with_room(
                        Arc::clone(&shared),
                        graph,
                        run.clone(),
                        facts.clone(),
                        policy,
                        pause,
                        taken,
                    );
                    shared.admission.line_up(&run, &facts, next);
                }
                // The run was claimed by another process, has ended, or is left to other processes: follow it there.
                Err(error) if shared.is_closing() || matches!(error.kind(), Conflict | WrongStatus) => {
                    tracing::debug!(%run, %error, "another process drives a run that waited for capacity");
                    let handle =
                        RunHandle::new(shared, graph, run, OutcomeSource::Elsewhere).of_start(&facts);
                    drop(taken.send_replace(Some(Ok(handle))));
                }
                Err(error) => {
                    tracing::warn!(%run, %error, "cannot claim an admitted run");
                    drop(taken.send_replace(Some(Err(error))));
                }
            }
        })
    })
}

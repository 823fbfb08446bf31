//! Going on with runs that nobody drives: orphans of processes that ended, runs that were answered, and runs whose time has come.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};

use super::resume::{Terms, resume};
use super::shared::{Phase, Shared};
use super::tasks::spawn;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{CheckpointPolicy, Graph};
use crate::id::{RunKey, WorkflowName};
use crate::state::State;
use crate::store::{Order, Page, RunFilter, RunHead, RunQuery};

/// How many runs one look at the store returns.
const PAGE: u32 = 200;

/// How many runs are taken up at the same time.
const AT_ONCE: u32 = 32;

/// How long a run that could not be taken up is left alone at first, and at most.
const FIRST_REST: Duration = Duration::from_secs(2);
const LONGEST_REST: Duration = Duration::from_secs(300);

type Taken = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// A workflow as recovery needs it: without the user's type.
type Take = Arc<dyn Fn(Arc<Shared>, RunKey) -> Taken + Send + Sync>;

/// Why a run is not gone on with, though somebody should.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stalled {
    /// The run.
    pub run: RunKey,
    /// Why the last try failed.
    pub error: Error,
    /// How many tries failed.
    pub tries: u32,
    /// When the next one follows.
    pub next: Timestamp,
}

/// The workflows that this process serves, and the runs that it could not take up.
#[derive(Default)]
pub(crate) struct Recovery {
    served: Mutex<HashMap<WorkflowName, Take>>,
    stalled: Mutex<HashMap<RunKey, Stalled>>,
    /// Rings when there may be something to do.
    bell: Notify,
}

impl Recovery {
    /// Says that there may be something to do.
    pub(crate) fn ring(&self) {
        self.bell.notify_one();
    }

    pub(crate) fn stalled(&self) -> Vec<Stalled> {
        let mut all: Vec<_> =
            self.stalled.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.sort_by(|one, other| one.run.cmp(&other.run));
        all
    }

    fn take(&self, workflow: &WorkflowName) -> Option<Take> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).get(workflow).cloned()
    }

    fn rests(&self, run: &RunKey, now: Timestamp) -> bool {
        let stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        stalled.get(run).is_some_and(|stalled| stalled.next > now)
    }

    /// Notes how a try ended.
    fn tried(&self, run: RunKey, result: Result<()>, now: Timestamp) {
        let mut stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => drop(stalled.remove(&run)),
            Err(error) => {
                let tries = stalled.get(&run).map_or(0, |stalled| stalled.tries) + 1;
                let rest = FIRST_REST.saturating_mul(1 << tries.min(10)).min(LONGEST_REST);
                tracing::warn!(%run, %error, tries, "a run cannot be taken up");
                let next = now.plus(rest);
                stalled.insert(run.clone(), Stalled { run, error, tries, next });
            }
        }
    }
}

/// Serves a workflow from now on.
///
/// # Errors
///
/// [`ErrorKind::AlreadyExists`] if the workflow is served with another graph.
pub(crate) fn serve<S: State>(
    shared: &Arc<Shared>,
    graph: &Graph<S>,
    policy: CheckpointPolicy,
) -> Result<()> {
    let (graph, name) = (graph.clone(), graph.name().clone());
    let take: Take = Arc::new(move |shared, run| {
        let graph = graph.clone();
        Box::pin(async move {
            let terms = Terms { recovery: true, ..Terms::default() };
            match resume(&shared, &graph, &run, policy, &terms).await {
                Ok(_) => Ok(()),
                // Somebody else was faster, or the run has ended meanwhile.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Conflict
                            | ErrorKind::WrongStatus
                            | ErrorKind::NotFound
                            | ErrorKind::Closed
                    ) =>
                {
                    Ok(())
                }
                Err(error) => Err(error),
            }
        })
    });
    let mut served = shared.recovery.served.lock().unwrap_or_else(PoisonError::into_inner);
    if served.contains_key(&name) {
        let message =
            format!("the workflow `{name}` is served by this runtime already; serve each workflow once");
        return Err(Error::new(ErrorKind::AlreadyExists, message));
    }
    let first = served.is_empty();
    served.insert(name, take);
    drop(served);
    if first {
        spawn(sweep(Arc::downgrade(shared)));
    }
    shared.recovery.ring();
    Ok(())
}

/// Looks for runs to take up, as long as there is a runtime.
async fn sweep(shared: Weak<Shared>) {
    let mut round: u32 = 0;
    loop {
        let Some(strong) = shared.upgrade() else { return };
        if strong.is_closing() {
            return;
        }
        if let Err(error) = look(&strong).await {
            tracing::warn!(%error, "cannot look for runs to take up; trying again");
        }
        round = round.wrapping_add(1);
        let wait = strong.limits.sweep.mul_f64(jitter(strong.executor.as_uuid().as_u128(), round));
        let (clock, mut stop) = (Arc::clone(&strong.clock), strong.stop.subscribe());
        let recovery = Arc::clone(&strong.recovery);
        drop(strong);
        tokio::select! {
            () = recovery.bell.notified() => {}
            _ = stop.wait_for(|stop| stop.phase != Phase::Open) => return,
            () = clock.sleep(wait) => {}
        }
    }
}

/// Between 0.75 and 1.25, other for each process and each time: a fleet does not look all at once.
fn jitter(executor: u128, round: u32) -> f64 {
    let seed = executor.to_le_bytes().iter().fold(u64::from(round) ^ 0x9e37_79b9_7f4a_7c15, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    0.75 + 0.5 * (f64::from((seed >> 40) as u32 & 0xffff) / 65_536.0)
}

/// Takes up what nobody drives, page by page, what was due first first.
async fn look(shared: &Arc<Shared>) -> Result<()> {
    let room = Arc::new(Semaphore::new(AT_ONCE as usize));
    for filter in [RunFilter::Orphaned, RunFilter::Due] {
        let query = RunQuery { filter, ..RunQuery::default() };
        let mut page = Page::first(PAGE).with_order(Order::OldestFirst);
        loop {
            let found = shared.store.runs(&query, page).await?;
            let mut heads: Vec<RunHead> = found.items;
            heads.sort_by_key(|head| head.wake_at);
            for head in heads {
                if shared.driven() >= shared.limits.max_recovered {
                    return Ok(());
                }
                let (now, run) = (shared.clock.now(), head.run);
                let Some(take) = shared.recovery.take(&head.facts.workflow) else { continue };
                if shared.driver(&run).is_some() || shared.recovery.rests(&run, now) {
                    continue;
                }
                // Never closed.
                let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
                let shared = Arc::clone(shared);
                spawn(async move {
                    let result = take(Arc::clone(&shared), run.clone()).await;
                    shared.recovery.tried(run, result, now);
                    drop(permit);
                });
            }
            match found.next {
                Some(next) => page = Page::first(PAGE).with_order(Order::OldestFirst).with_cursor(next),
                None => break,
            }
        }
    }
    // The next look must not find what is being taken up.
    let _ = room.acquire_many(AT_ONCE).await;
    Ok(())
}

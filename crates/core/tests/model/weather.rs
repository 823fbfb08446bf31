//! Faults between a process and the store: lost replies, unanswered calls and conflicting writers.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ferrata_core::graph::Graph;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Op, Patch};
use ferrata_core::store::{CheckpointStore, RunAppend, RunHead, delegate};
use ferrata_core::{Clock, Error, ErrorKind, HeadRef, Result, RunKey};

/// The fate of the next append of a process, or of its next read of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The append fails.
    Refuses,
    /// The append succeeds, and the reply is lost.
    LosesReply,
    /// There is never a reply, and the append is executed or not.
    Hangs { done: bool },
    /// Another writer edits the run just before.
    Meets,
    /// The read of the head fails.
    FailsRead,
}

/// The store as one process sees it.
pub(crate) struct Weather {
    inner: Arc<dyn CheckpointStore>,
    next: Mutex<Option<Fault>>,
    /// The process that edits the run, and its graph.
    other: Runtime,
    graph: &'static Graph<Context>,
    /// Number of conflicting edits.
    met: Arc<AtomicU32>,
}

impl Weather {
    pub(crate) fn new(
        inner: Arc<dyn CheckpointStore>,
        clock: Arc<dyn Clock>,
        graph: &'static Graph<Context>,
        met: Arc<AtomicU32>,
    ) -> Self {
        let other = Runtime::builder_with(Arc::clone(&inner)).clock(clock).operator();
        Self { inner, next: Mutex::default(), other, graph, met }
    }

    /// Sets the next fault.
    pub(crate) fn set(&self, fault: Option<Fault>) {
        *self.next.lock().unwrap() = fault;
    }

    fn take(&self, is: impl Fn(&Fault) -> bool) -> Option<Fault> {
        self.next.lock().unwrap().take_if(|fault| is(fault))
    }

    /// Edits the run. Counts the edit if the run is active.
    async fn meet(&self, run: &RunKey) {
        let number = self.met.load(Ordering::SeqCst) + 1;
        let patch = Patch::from_ops(&[Op::Set("met".into(), number.into())]).unwrap();
        if self.other.edit(run, patch).check_with(self.graph).by("eve").await.is_ok() {
            self.met.store(number, Ordering::SeqCst);
        }
    }
}

impl fmt::Debug for Weather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weather").field("next", &self.next).finish_non_exhaustive()
    }
}

fn failed(kind: ErrorKind) -> Error {
    Error::new(kind, "the test's weather")
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for Weather {
    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let all = |kind| batch.iter().map(|_| Err(failed(kind))).collect();
        match self.take(|fault| *fault != Fault::FailsRead) {
            Some(Fault::Refuses) => all(ErrorKind::Unavailable),
            Some(Fault::LosesReply) => {
                let lost = all(ErrorKind::Indeterminate);
                drop(self.inner.append(batch).await);
                lost
            }
            Some(Fault::Hangs { done }) => {
                if done {
                    drop(self.inner.append(batch).await);
                }
                std::future::pending().await
            }
            Some(Fault::Meets) => {
                for run in &batch {
                    Box::pin(self.meet(&run.run)).await;
                }
                self.inner.append(batch).await
            }
            _ => self.inner.append(batch).await,
        }
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        match self.take(|fault| *fault == Fault::FailsRead) {
            Some(_) => Err(failed(ErrorKind::Unavailable)),
            None => self.inner.head(run).await,
        }
    }

    fn transactions(&self) -> Option<&dyn ferrata_core::store::Transactions> {
        None
    }

    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        None
    }

    fn relay(&self) -> Option<&dyn ferrata_core::store::Relay> {
        None
    }

    delegate! {
        |this| this.inner;
        capabilities, setup, load, load_since, headers, runs, prune, purge, heartbeat, is_alive, part,
        subscribe
    }
}

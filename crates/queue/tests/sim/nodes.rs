//! The nodes of the runs: each run holds a slot of `mail` while it is active, and its nodes take slots of `gpu` and `api` in turn. Only the nodes
//! write entries and exits to the ledger.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::state::{Context, Draft};
use ferrata_core::{ExecutorId, RunKey};
use ferrata_queue::{GraphQueueExt as _, NodeQueueExt as _};

use super::process::Edition;
use super::rules::Rules;

/// The run in the node with a slot of `gpu`, and its process.
#[derive(Default)]
pub(crate) struct Inside {
    pub(crate) now: BTreeMap<(RunKey, u64), u64>,
    /// Number of entries of each run.
    pub(crate) came: BTreeMap<RunKey, u64>,
    /// Remaining failures of each run.
    pub(crate) failures: BTreeMap<RunKey, u64>,
}

/// The data of one process.
pub(crate) struct Seat {
    pub(crate) process: u64,
    pub(crate) edition: Edition,
    pub(crate) inside: Arc<Mutex<Inside>>,
    rules: Arc<Rules>,
    executor: Mutex<Option<ExecutorId>>,
}

impl Seat {
    pub(crate) fn new(process: u64, edition: Edition, inside: Arc<Mutex<Inside>>, rules: Arc<Rules>) -> Self {
        Self { process, edition, inside, rules, executor: Mutex::default() }
    }

    pub(crate) fn executor(&self) -> Option<ExecutorId> {
        *self.executor.lock().unwrap()
    }

    pub(crate) fn is_executor(&self, executor: ExecutorId) {
        *self.executor.lock().unwrap() = Some(executor);
    }

    /// Whether a run must fail now.
    fn fails(&self, run: &RunKey) -> bool {
        let mut inside = self.inside.lock().unwrap();
        let Some(left) = inside.failures.get_mut(run).filter(|left| **left > 0) else { return false };
        *left -= 1;
        true
    }

    fn enter(self: &Arc<Self>, run: &RunKey) -> Came {
        let mut inside = self.inside.lock().unwrap();
        *inside.now.entry((run.clone(), self.process)).or_default() += 1;
        *inside.came.entry(run.clone()).or_default() += 1;
        self.rules.note(&format!("{run} is in its place in process {}", self.process));
        self.rules.entered(run, self.edition);
        Came(Arc::clone(self), run.clone())
    }
}

/// A run within a node. Dropping it records the exit.
struct Came(Arc<Seat>, RunKey);

impl Drop for Came {
    fn drop(&mut self) {
        let mut inside = self.0.inside.lock().unwrap();
        let place = (self.1.clone(), self.0.process);
        if let Some(times) = inside.now.get_mut(&place) {
            *times -= 1;
            if *times == 0 {
                inside.now.remove(&place);
            }
        }
        self.0.rules.note(&format!("{} leaves its place in process {}", self.1, self.0.process));
    }
}

pub(crate) fn graph(name: &str) -> Graph<Context> {
    let again = || RetryPolicy::none().with_attempts(1_000).with_delay(Duration::from_millis(200));
    Graph::<Context>::builder(name)
        .node("work", async |cx: NodeContext, s: Draft<Context>| {
            let seat = Arc::clone(cx.resource::<Arc<Seat>>());
            let came = seat.enter(cx.run());
            cx.sleep(Duration::from_millis(800)).await?;
            drop(came);
            Ok::<_, NodeError>(s)
        })
        .limit("gpu")
        .retry(again())
        .node("call", async |cx: NodeContext, s: Draft<Context>| {
            cx.acquire("api", 1).key(cx.run().run.as_str()).await?.release().await?;
            match cx.resource::<Arc<Seat>>().fails(cx.run()) {
                true => Err(NodeError::new("the provider is down").fatal()),
                false => Ok(s),
            }
        })
        .retry(again())
        .entry("work")
        .edge("work", "call")
        .build()
        .unwrap()
}

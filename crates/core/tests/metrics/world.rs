//! A store in memory, a clock under the test's control, and a recorder.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{RunHandle, Runtime, RuntimeBuilder};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::MemoryStore;
use ferrata_core::{RunId, RunKey, TenantId, Timestamp};
use ferrata_testing::{FaultPlan, FaultStore, ManualClock};
use tokio::sync::Notify;

use crate::recorder::Remembering;

/// Part of every id, label, input and message of the scenarios.
pub(crate) const MARK: &str = "secret";

pub(crate) const WORKFLOW: (&str, &str) = ("ferrata.workflow.name", "w");

pub(crate) struct World {
    pub(crate) seen: Remembering,
    pub(crate) store: MemoryStore,
    pub(crate) clock: Arc<ManualClock>,
}

thread_local! {
    /// The recorders of the scenarios in this thread.
    static SEEN: RefCell<Vec<Remembering>> = const { RefCell::new(Vec::new()) };
}

/// Takes the recorders of the scenarios in this thread.
pub(crate) fn take_seen() -> Vec<Remembering> {
    SEEN.take()
}

/// Runs a scenario with its own recorder, and compares the recorded metrics with the catalogue.
pub(crate) async fn observe(scenario: impl AsyncFnOnce(&World)) {
    let seen = Remembering::default();
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
    let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
    let recorder = seen.clone();
    // The recorder is local to this thread, on which all tasks of the test run.
    let _installed = metrics::set_default_local_recorder(&recorder);
    scenario(&World { seen: seen.clone(), store, clock }).await;
    seen.check();
    // Every text of a caller or node contains the mark, so no label may contain it.
    let told: Vec<_> = seen.label_values().into_iter().filter(|value| value.contains(MARK)).collect();
    assert!(told.is_empty(), "{told:?}");
    SEEN.with_borrow_mut(|all| all.push(seen));
}

impl World {
    /// Creates the next process.
    pub(crate) async fn process(&self) -> Runtime {
        self.process_with(|builder| builder).await
    }

    pub(crate) async fn process_with(&self, set: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Runtime {
        let builder = Runtime::builder(self.store.clone()).clock(Arc::clone(&self.clock) as _);
        set(builder).build().await.unwrap()
    }

    /// Creates a process whose store can fail or crash.
    pub(crate) async fn mortal(&self) -> (Arc<FaultStore<MemoryStore>>, Runtime) {
        self.mortal_with(|builder| builder).await
    }

    pub(crate) async fn mortal_with(
        &self,
        set: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> (Arc<FaultStore<MemoryStore>>, Runtime) {
        let store = Arc::new(FaultStore::new(self.store.clone(), FaultPlan::new()));
        let builder = Runtime::builder_with(Arc::clone(&store) as _).clock(Arc::clone(&self.clock) as _);
        (store, set(builder).build().await.unwrap())
    }

    /// Starts a run whose id, labels and input contain the mark.
    pub(crate) async fn start(&self, runtime: &Runtime, graph: &Graph<Context>) -> RunHandle<Context> {
        self.start_as(runtime, graph, "secret-1").await
    }

    pub(crate) async fn start_as(
        &self,
        runtime: &Runtime,
        graph: &Graph<Context>,
        id: &str,
    ) -> RunHandle<Context> {
        let mut input = Context::new();
        input.set("topic", "a secret").unwrap();
        let start = runtime.start(graph, input).id(id).tenant("secret-tenant").user("secret-user");
        start.label("secret-label", "secret-value").await.unwrap()
    }

    /// Advances the clock until `done` is ready.
    pub(crate) async fn pass<T>(&self, done: impl Future<Output = T>) -> T {
        let mut done = std::pin::pin!(done);
        for _ in 0..100_000 {
            tokio::select! {
                biased;
                result = &mut done => return result,
                () = tokio::task::yield_now() => self.clock.advance(Duration::from_millis(50)),
            }
        }
        panic!("the future is not ready after 5,000 s of the test's clock");
    }

    /// Advances the clock until the condition is true.
    pub(crate) async fn pass_until(&self, is_so: impl Fn() -> bool) {
        let wait = async {
            while !is_so() {
                tokio::task::yield_now().await;
            }
        };
        self.pass(wait).await;
    }

    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.seen.value(name, labels)
    }
}

/// The run that [`World::start`] starts.
pub(crate) fn key() -> RunKey {
    RunKey::new(TenantId::new("secret-tenant").unwrap(), RunId::new("secret-1").unwrap())
}

/// A workflow of one node that waits for a signal.
pub(crate) fn gated(effect: Effect, word: &Arc<Notify>) -> Graph<Context> {
    let word = Arc::clone(word);
    Graph::<Context>::builder("w")
        .node("gate", move |_cx: NodeContext, _s: Draft<Context>| {
            let word = Arc::clone(&word);
            async move {
                word.notified().await;
                Ok(())
            }
        })
        .effect(effect)
        .entry("gate")
        .build()
        .unwrap()
}

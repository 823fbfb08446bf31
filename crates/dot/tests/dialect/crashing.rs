//! Crashes before or after each write of a run, which another process continues.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Ran, compile, path_of};
use ferrata_core::RunKey;
use ferrata_core::graph::Graph;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_dot::handler::Registry;
use ferrata_testing::{Fault, FaultPlan, FaultStore};

/// The two processes of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    /// The process that crashes.
    First,
    /// The process that continues.
    Second,
}

/// Runs a pipeline once for each crash, and passes the result to `check` with a name of the crash. Returns the number of crashes.
pub(crate) async fn at_each_write(
    text: &str,
    registry: impl Fn() -> Registry,
    check: impl Fn(&str, &Ran),
) -> usize {
    let process =
        async |store: Arc<dyn CheckpointStore>, _| (runtime(store).await, compile(text, registry()));
    between(
        process,
        async |_: &Runtime| {},
        async |crash: &str, _: &MemoryStore, ran: &Ran| check(crash, ran),
    )
    .await
}

/// Creates the runtime of a process.
pub(crate) async fn runtime(store: Arc<dyn CheckpointStore>) -> Runtime {
    Runtime::builder_with(store).store_retries(1, Duration::from_millis(1)).build().await.unwrap()
}

/// Like [`at_each_write`], with processes that the test creates. Each compiles the pipeline itself. The second process runs `before`, and continues
/// the run `r`.
pub(crate) async fn between(
    process: impl AsyncFn(Arc<dyn CheckpointStore>, Process) -> (Runtime, Graph<Context>),
    before: impl AsyncFn(&Runtime),
    check: impl AsyncFn(&str, &MemoryStore, &Ran),
) -> usize {
    let key = RunKey::try_from("r").unwrap();
    let mut crashes = 0;
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        for at in 0.. {
            let memory = MemoryStore::new();
            let store = Arc::new(FaultStore::new(memory.clone(), FaultPlan::new().with_fault(at, fault)));
            let (first, graph) =
                process(Arc::clone(&store) as Arc<dyn CheckpointStore>, Process::First).await;
            if let Ok(run) = first.start(&graph, Context::new()).id("r").await {
                let _ = within(run.wait()).await;
            }
            if !store.is_crashed() {
                break;
            }
            drop((first, graph));
            crashes += 1;
            let (second, graph) = process(Arc::new(memory.clone()), Process::Second).await;
            before(&second).await;
            let run = match second.head(&key).await.unwrap() {
                Some(head) if head.status == RunStatus::InProgress => {
                    second.resume(&graph, "r").take_over().await.unwrap()
                }
                _ => second.start(&graph, Context::new()).id("r").await.unwrap(),
            };
            let outcome = within(run.wait()).await.unwrap();
            let ran = Ran { path: path_of(&memory, &key).await, outcome };
            check(&format!("{fault:?} at write {at}"), &memory, &ran).await;
        }
    }
    crashes
}

#[expect(clippy::disallowed_methods, reason = "a test that would hang ends by a deadline in real time")]
async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("the run does not end")
}

//! A run whose process is lost before or after each of its writes, and which another goes on with.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Ran, compile, path_of};
use ferrata_core::RunKey;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, Fault, FaultPlan, FaultStore, MemoryStore};
use ferrata_dot::handler::Registry;

/// Runs a pipeline once for each crash, and has what came of it checked; the first argument of `check` names the crash. Returns how
/// many crashes there were.
pub(crate) async fn at_each_write(
    text: &str,
    registry: impl Fn() -> Registry,
    check: impl Fn(&str, &Ran),
) -> usize {
    let mut crashes = 0;
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        for at in 0.. {
            let memory = MemoryStore::new();
            let store = Arc::new(FaultStore::new(memory.clone(), FaultPlan::new().with_fault(at, fault)));
            let builder = Runtime::builder_with(Arc::clone(&store) as Arc<dyn CheckpointStore>);
            let first = builder.store_retries(1, Duration::from_millis(1)).build().await.unwrap();
            if let Ok(run) = first.start(&compile(text, registry()), Context::new()).id("r").await {
                let _ = run.wait().await;
            }
            if !store.is_crashed() {
                break;
            }
            drop(first);
            crashes += 1;
            let second = Runtime::builder(memory.clone()).build().await.unwrap();
            let key = RunKey::try_from("r").unwrap();
            // The process that goes on has compiled the pipeline itself.
            let graph = compile(text, registry());
            let run = match second.head(&key).await.unwrap() {
                Some(head) if head.status == RunStatus::InProgress => {
                    second.resume(&graph, "r").take_over().await.unwrap()
                }
                _ => second.start(&graph, Context::new()).id("r").await.unwrap(),
            };
            let outcome = run.wait().await.unwrap();
            let ran = Ran { path: path_of(&memory, &key).await, outcome };
            check(&format!("{fault:?} at write {at}"), &ran);
        }
    }
    crashes
}

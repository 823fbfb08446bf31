//! `selection=random`: the choice is made once, and a node that runs again after a crash takes the same edge.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{compile, path_of, registry, run, source};
use ferrata_core::RunKey;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Event, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_testing::{Fault, FaultPlan, FaultStore};

const TEXT: &str = "a [selection=random] b c d e start -> a a -> b a -> c a -> d [weight=2] a -> e b -> exit c -> exit d -> exit e -> exit";

#[tokio::test]
async fn every_edge_is_chosen_at_some_time() {
    let mut chosen = BTreeSet::new();
    for _ in 0..200 {
        chosen.insert(run(TEXT).await.path[2].clone());
    }
    // One of them is missing with a probability of less than 1 in 10^18.
    assert_eq!(chosen.into_iter().collect::<Vec<_>>(), ["b", "c", "d", "e"]);
}

/// Guarantees: DOT-17.
#[tokio::test]
async fn crash_before_random_choice_preserves_it() {
    let mut told = 0;
    for _ in 0..10 {
        for at in 1..4 {
            let memory = MemoryStore::new();
            let plan = FaultPlan::new().with_fault(at, Fault::CrashBefore);
            let store: Arc<dyn CheckpointStore> = Arc::new(FaultStore::new(memory.clone(), plan));
            let first = Runtime::builder_with(store)
                .store_retries(1, Duration::from_millis(1))
                .build()
                .await
                .unwrap();
            let graph = compile(&source(TEXT), registry());
            let mut events = first.events();
            let run = first.start(&graph, Context::new()).id("r").await.unwrap();
            run.wait().await.unwrap_err();
            drop((first, run));
            let mut before = None;
            while let Ok(Some(event)) = events.next().await {
                if let Event::Custom { node, payload, .. } = event.event
                    && node.as_str() == "a"
                {
                    let payload: serde_json::Value = serde_json::from_str(payload.get()).unwrap();
                    before = payload["to"].as_str().map(str::to_owned);
                    break;
                }
            }
            let second = Runtime::builder(memory.clone()).build().await.unwrap();
            let key = RunKey::try_from("r").unwrap();
            assert_eq!(second.head(&key).await.unwrap().unwrap().status, RunStatus::InProgress);
            let run = second.resume(&graph, "r").take_over().await.unwrap();
            assert!(run.wait().await.unwrap().completed().is_some());
            if let Some(before) = before {
                told += 1;
                assert_eq!(path_of(&memory, &key).await[2], before, "crash at write {at}");
            }
        }
    }
    assert!(told >= 10, "only {told} choices were seen before the crash");
}

//! A store that temporarily has no runs, such as an unmounted folder: its runs continue when they are back.

use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::graph::Effect;
use ferrata_core::record::RunStatus;
use ferrata_core::state::Context;
use ferrata_core::store::CheckpointStore;

use super::world::{Gate, World, key};

/// A process whose runs are missing in the store keeps them when they reappear. It finds its own runs without a driver, and drives or releases them.
///
/// Guarantees: FLEET-7.
#[tokio::test]
async fn missing_run_goes_on_when_it_is_back() {
    // Shorter and longer than the process retries the release. After a longer time, the process finds the run in its listing.
    for away in [6, 60] {
        let world = World::new();
        let (line, runtime) = world.process(|b| b).await;
        let gate = Gate::default();
        let graph = gate.graph("g", Effect::Write);
        runtime.serve(&graph).unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        gate.until_began(1).await;
        line.set_empty(true);
        let error = world.pass(run.wait()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{away} s: {error}");
        world.pass_for(Duration::from_secs(away)).await;
        line.set_empty(false);
        world.pass(gate.until_began(2)).await;
        gate.word.notify_one();
        world.pass(run.completed()).await.unwrap();
        let head = world.store.head(&key("r")).await.unwrap().unwrap();
        assert_eq!((head.status, head.epoch.get()), (RunStatus::Completed, 2), "{away} s");
    }
}

/// The check for own runs never releases a run that has a driver in this process.
///
/// Guarantees: FLEET-7.
#[tokio::test]
async fn driven_run_keeps_its_owner() {
    let world = World::new();
    let (_, runtime) = world.process(|b| b).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    runtime.serve(&graph).unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    gate.until_began(1).await;
    world.pass_for(Duration::from_secs(120)).await;
    gate.word.notify_one();
    world.pass(run.completed()).await.unwrap();
    assert_eq!(world.store.head(&key("r")).await.unwrap().unwrap().epoch.get(), 1);
}

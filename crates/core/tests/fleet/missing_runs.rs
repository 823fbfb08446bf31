//! A store that temporarily has no runs, such as an unmounted folder: its runs continue when they are back.

use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::graph::Effect;
use ferrata_core::record::RunStatus;
use ferrata_core::state::Context;
use ferrata_core::store::CheckpointStore;

use super::world::{Gate, World, key};

/// Sixty runs stayed `InProgress` for good: their process lived and owned them, its drivers had taken the absence for a purge, and nothing looked
/// for own runs without a driver.
///
/// Guarantees: FLEET-7.
#[tokio::test]
async fn missing_run_goes_on_when_it_is_back() {
    // Less than a release is tried, and more: then the process finds the run among its own.
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

/// A run that its driver drives is never released, however often its process looks for own runs.
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

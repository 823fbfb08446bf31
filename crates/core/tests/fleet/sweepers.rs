//! The retention sweeper removes runs by its policy, in every process that enables it.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::ask::Ask;
use ferrata_core::graph::Graph;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{RetentionPolicy, Runtime, SweepLimits, SweeperOptions};
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, Page, RunHead, RunQuery};

use super::world::World;

const MINUTE: Duration = Duration::from_secs(60);

/// More runs than one part of a sweep covers.
const RUNS: usize = 350;

fn options() -> SweeperOptions {
    SweeperOptions::new(RetentionPolicy::keep_all().purge_after(RunStatus::Completed, MINUTE))
        .with_interval(MINUTE)
}

/// Starts runs that end, and `waiting` runs that wait.
async fn start(world: &World, runtime: &Runtime, waiting: usize) {
    let ends = Graph::<Context>::builder("ends").node("only", async |_cx, s| Ok(s)).entry("only");
    let ends = ends.build().unwrap();
    let waits = Graph::<Context>::builder("waits")
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
        .entry("ok")
        .build()
        .unwrap();
    for number in 0..RUNS {
        let graph = if number < waiting { &waits } else { &ends };
        let run = runtime.start(graph, Context::new()).id(format!("r{number}")).await.unwrap();
        world.pass(run.wait()).await.unwrap();
    }
}

async fn all(world: &World) -> Vec<RunHead> {
    world.store.runs(&RunQuery::default(), Page::first(1_000)).await.unwrap().items
}

/// A sweeper follows the cursor of the report, so it removes all runs, also while new ones are created.
///
/// Guarantees: RETAIN-7.
#[tokio::test]
async fn sweeper_removes_all_ended_runs() {
    let world = World::new();
    let (line, runtime) = world.process(|b| b.sweeper(options())).await;
    start(&world, &runtime, 5).await;
    world.pass_for(MINUTE / 2).await;
    assert_eq!(all(&world).await.len(), RUNS, "the runs ended less than a minute ago");
    // A store outage delays the sweeper, and does not end it.
    line.set_down(true);
    world.pass_for(MINUTE * 3).await;
    line.set_down(false);
    world.pass_for(MINUTE * 4).await;
    let left = all(&world).await;
    assert!(left.len() == 5 && left.iter().all(|run| run.status == RunStatus::Interrupted), "{left:?}");
    runtime.shutdown(Duration::ZERO).await.unwrap();
    line.take_calls();
    world.pass_for(MINUTE * 3).await;
    assert_eq!(line.take_calls().get("runs"), None, "the sweeper must end with its runtime");
}

/// Concurrent sweepers of several processes delay neither each other nor the runs.
///
/// Guarantees: RETAIN-7.
#[tokio::test]
async fn several_sweepers_share_store() {
    let world = World::new();
    let mut fleet = Vec::new();
    for _ in 0..4 {
        let options = options().with_interval(Duration::from_secs(1)).with_limits(SweepLimits::default());
        fleet.push(world.process(|b| b.sweeper(options)).await);
    }
    start(&world, &fleet[0].1, 3).await;
    world.pass_for(MINUTE * 2).await;
    let left = all(&world).await;
    assert!(left.len() == 3 && left.iter().all(|run| run.status == RunStatus::Interrupted), "{left:?}");
    for (line, _) in &fleet {
        assert!(line.take_calls()["runs"] > 60, "each process sweeps once a second");
    }
}

/// An invalid interval is refused before any store call.
#[tokio::test]
async fn bad_pace_is_refused() {
    let world = World::new();
    let limits = SweepLimits::default().with_nice_ratio(-1.0);
    let builder = Runtime::builder(world.store.clone()).sweeper(options().with_limits(limits));
    assert_eq!(builder.build().await.unwrap_err().kind(), ErrorKind::Invalid);
}

//! Store calls of an idle fleet.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrata_core::ask::Ask;
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::state::Context;

use super::world::{Gate, World};

/// Ten processes and many idle runs: 2,000, or `FERRATA_IDLE_RUNS`. Calls are counted, and no listing reads all pages. So the number for these four
/// pages also holds for a hundred thousand runs.
///
/// Guarantees: FLEET-10, SCALE-2.
#[tokio::test]
async fn an_idle_fleet_leaves_its_store_alone() {
    let runs: u32 = std::env::var("FERRATA_IDLE_RUNS").map_or(2_000, |runs| runs.parse().unwrap());
    const SECONDS: u32 = 60;
    let world = World::new();
    let graph = Graph::<Context>::builder("g")
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
        .entry("ok")
        .build()
        .unwrap();
    let mut fleet = Vec::new();
    for _ in 0..10 {
        fleet.push(world.process(|b| b).await);
    }
    for number in 0..runs {
        let (_, runtime) = &fleet[number as usize % fleet.len()];
        let run = runtime.start(&graph, Context::new()).id(format!("r{number}")).await.unwrap();
        run.wait().await.unwrap();
    }
    for (_, runtime) in &fleet {
        runtime.serve(&graph).unwrap();
    }
    world.pass_for(Duration::from_secs(10)).await;
    fleet.iter().for_each(|(line, _)| drop(line.take_calls()));
    world.pass_for(Duration::from_secs(u64::from(SECONDS))).await;
    let mut calls = BTreeMap::new();
    for (line, _) in &fleet {
        line.take_calls().into_iter().for_each(|(name, count)| *calls.entry(name).or_insert(0) += count);
    }
    let per_second = calls.values().sum::<u64>() as f64 / f64::from(SECONDS);
    println!("{per_second:.1} calls a second: {calls:?} in {SECONDS} s");
    assert!(per_second < 20.0, "{per_second:.1} calls per second: {calls:?} in {SECONDS} s");
    // The processes do poll and send heartbeats.
    assert!(calls["runs"] > u64::from(SECONDS) && calls["heartbeat"] > u64::from(SECONDS));
}

/// While a node works for long, the driver polls for signals of other processes twice a second, and ten times less often if the store sends notices.
#[tokio::test]
async fn long_node_rarely_polls_store_with_notices() {
    let world = World::new();
    let gate = Gate::default();
    let (line, runtime) = world.process(|b| b).await;
    let _run = runtime.start(&gate.graph("long", Effect::Write), Context::new()).await.unwrap();
    gate.until_began(1).await;
    line.take_calls();
    world.pass_for(Duration::from_secs(60)).await;
    let heads = line.take_calls().get("head").copied().unwrap_or_default();
    assert!((10..=13).contains(&heads), "{heads} reads of heads in a minute");
}

//! Queues that only processes with certain tags serve.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::CheckpointStore;
use ferrata_queue::{Queue, QueueOverview, RuntimeQueueExt, StartQueueExt};
use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore, Key, LabelKey};
use ferrata_testing::{Fault, Process, World};

use crate::support::{MOMENT, WHILE, Witness, empty, in_a_place_as, set_up};

async fn with_tags(world: &World, tags: &[&str]) -> Process {
    let tags: Vec<String> = tags.iter().map(|&tag| tag.to_owned()).collect();
    world.process_with(|b| set_up(b, WHILE).tags(tags)).await.unwrap()
}

/// A workflow that records its process, and takes `time`.
fn placed(witness: &Witness, time: Duration) -> Graph<Context> {
    let witness = witness.clone();
    let work = move |cx: NodeContext, s: Draft<Context>| {
        let witness = witness.clone();
        async move {
            let _inside = witness.enter(&Runtime::of(&cx)?.executor().to_string());
            cx.sleep(time).await?;
            Ok::<_, NodeError>(s)
        }
    };
    Graph::<Context>::builder("placed").node("work", work).entry("work").build().unwrap()
}

#[tokio::test]
async fn only_tagged_processes_claim_queued_runs() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = placed(&witness, 5 * MOMENT);
    let (plain, gpu) = (with_tags(&world, &["eu"]).await, with_tags(&world, &["gpu", "eu"]).await);
    for process in [&plain, &gpu] {
        process.serve(&graph).unwrap();
        process.queue("render").at_once(2).tags(["gpu"]).declare().await.unwrap();
    }
    let mut runs = Vec::new();
    for n in 0..6 {
        let process = if n % 2 == 0 { &plain } else { &gpu };
        let start = process.start(&graph, Context::new()).id(format!("run-{n}")).queue("render");
        runs.push(world.pass(start).await.unwrap());
    }
    for run in &runs {
        assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    }
    assert_eq!((witness.came(), witness.most()), (vec![gpu.executor().to_string(); 6], 2));

    // A started run is not claimed by a process without the tags either, not even by a repeated start.
    let last = world.pass(gpu.start(&graph, Context::new()).id("last").queue("render")).await.unwrap();
    world.pass_for(MOMENT).await;
    let run = last.run().clone();
    drop(last);
    gpu.crash().await;
    world.pass_for(5 * WHILE).await;
    world.pass(plain.start(&graph, Context::new()).id("last").queue("render")).await.unwrap();
    world.pass_for(WHILE).await;
    assert_eq!(witness.came().len(), 7, "{:?}", witness.came());
    let stalled = plain.stalled();
    let [one] = &stalled[..] else { panic!("{stalled:?}") };
    assert_eq!((&one.run, one.tries, one.error.kind()), (&run, 0, ErrorKind::Unsupported));
    assert!(one.error.to_string().contains("with the tags `gpu`"), "{}", one.error);
    let other = with_tags(&world, &["gpu"]).await;
    other.serve(&graph).unwrap();
    world.pass_for(WHILE).await;
    assert_eq!(other.head(&run).await.unwrap().unwrap().status, RunStatus::Completed);
    assert_eq!(witness.came().last(), Some(&other.executor().to_string()));
    assert!(plain.stalled().is_empty(), "{:?}", plain.stalled());
}

#[tokio::test]
async fn unclaimable_run_reports_missing_tags() {
    let (world, witness) = (World::new(), Witness::default());
    let (graph, nodes) = (placed(&witness, MOMENT), in_a_place_as("nodes", &witness, MOMENT));
    let plain = with_tags(&world, &[]).await;
    plain.serve(&graph).unwrap();
    let gpu = plain.queue("gpu").at_once(1).tags(["gpu", "eu"]).declare().await.unwrap();
    let run = world.pass(plain.start(&graph, Context::new()).queue("gpu")).await.unwrap();
    world.pass_for(2 * WHILE).await;
    let half = with_tags(&world, &["gpu"]).await;
    half.serve(&graph).unwrap();
    half.queue("gpu").at_once(1).tags(["eu", "gpu"]).declare().await.unwrap();
    world.pass_for(WHILE).await;
    assert!(run.is_waiting().await.unwrap());
    let lacks = async |process: &Runtime| {
        let mut overview = QueueOverview::new();
        overview.refresh(process).await.unwrap();
        let mut standings = overview.memberships(run.run(), process.clock().now());
        (standings.len() == 1).then(|| standings.remove(0).lacks)
    };
    assert_eq!(lacks(&plain).await, Some(vec!["eu".to_owned(), "gpu".to_owned()]));
    for process in [&plain, &half] {
        let stalled = process.stalled();
        let why = stalled[0].error.to_string();
        assert!(why.contains("a slot is free, and no process with the tags `eu,gpu` runs"), "{why}");
    }
    // A node can hold a slot in any process, and does not block others forever.
    let node = plain.start(&nodes, Context::new()).id("node").await.unwrap();
    world.pass(node.completed()).await.unwrap();
    assert_eq!(witness.came(), ["node"]);

    let whole = with_tags(&world, &["eu", "gpu", "ssd"]).await;
    whole.serve(&graph).unwrap();
    whole.queue("gpu").at_once(1).tags(["eu", "gpu"]).declare().await.unwrap();
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    assert_eq!(witness.came().last(), Some(&whole.executor().to_string()));
    assert_eq!(lacks(&plain).await, None);
    assert_eq!(gpu.status().await.unwrap().limits().tags.len(), 2);
    // The process gets notices of other processes, and polls.
    world.pass_for(WHILE).await;
    assert!(plain.stalled().is_empty(), "{:?}", plain.stalled());
}

#[tokio::test]
async fn tags_that_cannot_be_are_refused() {
    let (world, witness) = (World::new(), Witness::default());
    let plain = with_tags(&world, &["a b"]).await;
    let graph = placed(&witness, MOMENT);
    for tag in ["a b", "", "a,b"] {
        let refused = plain.queue("gpu").tags([tag]).declare().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{tag:?}: {refused}");
        let refused =
            plain.start(&graph, Context::new()).require_tags([tag]).on_hold("not yet").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{tag:?}: {refused}");
    }
    let others = plain.start(&graph, Context::new()).require_tags(["gpu"]).await.unwrap_err();
    assert_eq!(others.kind(), ErrorKind::Unsupported, "{others}");
    let label = plain.start(&graph, Context::new()).label("ferrata.tags", "gpu").await.unwrap_err();
    assert!(label.to_string().contains("only_in"), "{label}");
    plain.queue("gpu").tags(["gpu"]).declare().await.unwrap();
    let differs = plain.queue("gpu").tags(["cpu"]).declare().await.unwrap_err();
    assert!(
        differs.kind() == ErrorKind::AlreadyExists && differs.to_string().contains("set of tags"),
        "{differs}"
    );
}

/// The starting process crashes at any write, and the start is repeated by a process that may not run it.
#[tokio::test]
async fn repeated_start_elsewhere_runs_on_tagged_process() {
    for (fault, n) in
        [Fault::CrashBefore, Fault::CrashAfter].into_iter().flat_map(|fault| (0..6).map(move |n| (fault, n)))
    {
        let (world, witness) = (World::new(), Witness::default());
        let graph = placed(&witness, MOMENT);
        let set_out = async |tags: &[&str]| {
            let process = with_tags(&world, tags).await;
            process.serve(&graph).unwrap();
            world.pass(process.queue("render").at_once(1).tags(["gpu"]).declare()).await.unwrap();
            process
        };
        let first = set_out(&["gpu"]).await;
        first.fail_write(n, fault);
        let start = |process: &Process| process.start(&graph, Context::new()).id("one").queue("render");
        let _ = world.pass(start(&first)).await;
        world.pass_for(MOMENT).await;
        first.crash().await;
        let plain = set_out(&[]).await;
        world.pass(start(&plain)).await.unwrap();
        world.pass_for(WHILE).await;
        let last = set_out(&["gpu"]).await;
        world.pass_for(3 * WHILE).await;
        let said = format!("{fault:?} at write {n}: {:?}", witness.came());
        let head = last.head(&"one".try_into().unwrap()).await.unwrap();
        assert_eq!(head.map(|head| head.status), Some(RunStatus::Completed), "{said}");
        assert!(!witness.came().contains(&plain.executor().to_string()), "{said}");
        empty(&world, &last.queue("render").find().await.unwrap().unwrap()).await;
    }
}

/// Labels and the queue's name are encrypted. The tags of a run are readable by every process.
#[tokio::test]
async fn tags_hold_beside_encrypted_labels() {
    let world = World::new();
    let clock = Arc::clone(world.process().await.unwrap().clock());
    let witness = Witness::default();
    let graph = placed(&witness, MOMENT);
    // The maximum number of tags with the maximum length, which exceeds an encrypted label.
    let tags: Vec<String> = (0..8).map(|n| format!("tag-{n}-{}", "x".repeat(18))).collect();
    let start = async |has: &[String]| {
        let options = EnvelopeOptions::default().with_label_key(LabelKey::new(&Key::from_bytes([7; 32])));
        let store = EnvelopeStore::new(world.store().clone(), options);
        let builder = set_up(Runtime::builder(store).clock(Arc::clone(&clock)), WHILE).tags(has.to_vec());
        let runtime = world.pass(builder.build()).await.unwrap();
        runtime.serve(&graph).unwrap();
        world.pass(runtime.queue("render").at_once(2).tags(tags.clone()).declare()).await.unwrap();
        runtime
    };
    let (none, most, all) = (start(&[]).await, start(&tags[1..]).await, start(&tags).await);
    for (n, process) in [&none, &most, &all, &none].into_iter().enumerate() {
        let run = process.start(&graph, Context::new()).id(format!("run-{n}")).queue("render");
        let run = world.pass(run).await.unwrap();
        assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    }
    assert_eq!(witness.came(), vec![all.executor().to_string(); 4]);
    let stored = world.store().head(&"run-0".try_into().unwrap()).await.unwrap().unwrap();
    assert!(stored.facts.labels.get("queue").unwrap().starts_with("enc1:"), "{:?}", stored.facts.labels);
    assert_eq!(stored.facts.labels.get("ferrata.tags").unwrap(), tags.join(","));
    // Queues are found by their labels, which are queried in their stored form.
    let listed = Queue::list(&all).await.unwrap();
    assert_eq!(listed.iter().map(Queue::name).collect::<Vec<_>>(), ["render"]);
}

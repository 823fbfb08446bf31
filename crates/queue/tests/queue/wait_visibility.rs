//! A wait for a slot is visible in metrics and to watchers of the run.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use ferrata_core::runtime::{LiveEvent, RecordedEvent, Watch, WatchEventKind};
use ferrata_core::state::Context;
use ferrata_core::{Clock as _, ErrorKind, RunKey};
use ferrata_queue::{RuntimeQueueExt, StartQueueExt};
use ferrata_testing::World;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::support::{MOMENT, WHILE, Witness, in_a_place, process, slow};

/// Returns the metrics of a queue: the number of waiters, the number of held slots, and the longest wait.
fn told(handle: &PrometheusHandle, queue: &str) -> [f64; 3] {
    let text = handle.render();
    ["waiting", "held", "age"].map(|what| {
        let series = format!("ferrata_queue_{what}{{ferrata_queue_name=\"{queue}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or("-1").parse().unwrap()
    })
}

#[tokio::test]
async fn how_a_queue_stands_is_told_by_metrics() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    // The recorder is local to this thread, on which all tasks of the test run.
    let _installed = metrics::set_default_local_recorder(&recorder);
    let (world, witness) = (World::new(), Witness::default());
    let graph = in_a_place(&witness, 30 * MOMENT);
    let process = process(&world).await;
    let gpu = process.queue("gpu").at_once(2).declare().await.unwrap();
    let mut runs = Vec::new();
    for number in 0..4 {
        runs.push(process.start(&graph, Context::new()).id(number.to_string()).await.unwrap());
    }
    // A start with a delay does not wait yet.
    let later = world.clock().now().plus(1_000 * MOMENT);
    let later =
        process.start(&slow(&witness, MOMENT), Context::new()).id("later").queue("gpu").not_before(later);
    world.pass(later).await.unwrap();
    world.pass_for(25 * MOMENT).await;
    let [waiting, held, age] = told(&handle, "gpu");
    assert_eq!((waiting, held), (3.0, 2.0));
    let (least, most) = (10 * MOMENT, 26 * MOMENT);
    assert!((least.as_secs_f64()..most.as_secs_f64()).contains(&age), "{age}");
    for run in &runs {
        world.pass(run.completed()).await.unwrap();
    }
    world.pass_for(25 * MOMENT).await;
    assert_eq!(told(&handle, "gpu"), [1.0, 0.0, 0.0]);
    process.purge(&gpu.status().await.unwrap().run).await.unwrap();
    world.pass_for(25 * MOMENT).await;
    assert_eq!(told(&handle, "gpu"), [0.0, 0.0, 0.0], "a purged queue must hold no run");
}

/// Reads all waits of a watch.
async fn waits(mut watch: Watch) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(event) = watch.next().await.unwrap() {
        match event.what {
            WatchEventKind::Live(LiveEvent::Custom { name, payload, .. }) => {
                told.push(format!("{name} {}", payload.get()))
            }
            WatchEventKind::Recorded(RecordedEvent::Paused { reason, .. }) => told.push(reason.to_string()),
            WatchEventKind::Recorded(RecordedEvent::Unpaused { .. }) => told.push("unpaused".to_owned()),
            _ => {}
        }
    }
    told
}

#[tokio::test]
async fn watcher_sees_queue_wait_and_grant() {
    let (world, witness) = (World::new(), Witness::default());
    let process = process(&world).await;
    for name in ["gpu", "mail"] {
        process.queue(name).at_once(1).declare().await.unwrap();
    }
    let watch = async |id: &str| {
        let key = RunKey::try_from(id).unwrap();
        process.watch(&key).before_start().await.unwrap()
    };
    let (nodes, runs) = (in_a_place(&witness, 5 * MOMENT), slow(&witness, 5 * MOMENT));
    process.serve(&runs).unwrap();
    let (first, second) = (watch("first").await, watch("second").await);
    let (third, fourth) = (watch("third").await, watch("fourth").await);
    for id in ["first", "second"] {
        process.start(&nodes, Context::new()).id(id).await.unwrap();
        world.pass_for(MOMENT).await;
    }
    for id in ["third", "fourth"] {
        world.pass(process.start(&runs, Context::new()).id(id).queue("mail")).await.unwrap();
    }
    let all = async { tokio::join!(waits(first), waits(second), waits(third), waits(fourth)) };
    let (first, second, third, fourth) = world.pass(Box::pin(all)).await;
    assert_eq!((first, third), (Vec::new(), Vec::new()), "they must not wait");
    let [waits, turn] = &second[..] else { panic!("{second:?}") };
    assert!(waits.starts_with(r#"queue.waits {"places":1,"queue":"gpu","since":"#), "{waits}");
    assert!(turn.starts_with(r#"queue.turn {"places":1,"queue":"gpu","since":"#), "{turn}");
    assert_eq!(fourth, ["it waits for a slot of queue `mail`", "unpaused"]);
}

#[tokio::test]
async fn long_queue_wait_is_listed_as_stalled() {
    let (world, witness) = (World::new(), Witness::default());
    let process = process(&world).await;
    let mail = process.queue("mail").at_once(1).declare().await.unwrap();
    let runs = slow(&witness, 3 * WHILE);
    process.serve(&runs).unwrap();
    for id in ["first", "second", "third"] {
        world.pass(process.start(&runs, Context::new()).id(id).queue("mail")).await.unwrap();
        world.pass_for(MOMENT).await;
    }
    let told = || -> Vec<String> {
        process.stalled().iter().map(|one| format!("{} {} {}", one.run.run, one.tries, one.error)).collect()
    };
    world.pass_for(WHILE / 2).await;
    assert_eq!(told(), Vec::<String>::new(), "they have not waited for long");
    world.pass_for(WHILE).await;
    let [second, third] = &told()[..] else { panic!("{:?}", told()) };
    assert!(
        second.starts_with("second 0 ") && second.contains("a slot of queue `mail`, next in line, since "),
        "{second}"
    );
    assert!(
        third.starts_with("third 0 ") && third.contains("a slot of queue `mail`, with 1 ahead, since "),
        "{third}"
    );
    assert!(process.stalled().iter().all(|one| one.error.kind() == ErrorKind::Unavailable));
    // The first has ended, and the second continues.
    world.pass_for(2 * WHILE).await;
    let [third] = &told()[..] else { panic!("{:?}", told()) };
    assert!(third.contains("next in line"), "{third}");
    process.purge(&mail.status().await.unwrap().run).await.unwrap();
    world.pass_for(25 * MOMENT).await;
    assert_eq!(told(), Vec::<String>::new(), "no run waits in a purged queue");
}

//! Live events of a watcher: bounded, before the end of their activation, and without delay for the node.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Graph, RetryPolicy};
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{LiveEvent, WatchEventKind, WatchKind};
use ferrata_core::state::{Context, Draft};
use tokio::sync::Notify;

use super::watching::{all, key, shown};
use super::world::World;

/// A node that waits for permission to continue, and sends live events.
pub(crate) fn speaker(says: u32, may: &Arc<Notify>) -> Graph<Context> {
    let may = Arc::clone(may);
    Graph::<Context>::builder("speaker")
        .node("speak", move |cx: NodeContext, s: Draft<Context>| {
            let may = Arc::clone(&may);
            async move {
                may.notified().await;
                for number in 0..says {
                    cx.emit("said", number)?;
                }
                Ok(s)
            }
        })
        .node("end", async |_cx, _s| Ok(()))
        .entry("speak")
        .edge("speak", "end")
        .build()
        .unwrap()
}

/// Guarantees: EVENT-3.
#[tokio::test]
async fn slow_watcher_loses_only_counted_live_events() {
    let (runtime, may) = (World::new().process().await, Arc::new(Notify::new()));
    let mut watch = runtime.watch(&key()).before_start().await.unwrap();
    let run = runtime.start(&speaker(5_000, &may), Context::new()).id("r").await.unwrap();
    may.notify_one();
    run.completed().await.unwrap();
    let events = all(&mut watch).await;
    let missed: u64 = events
        .iter()
        .map(|event| match event.what {
            WatchEventKind::Lagged { missed } => missed,
            _ => 0,
        })
        .sum();
    let live = events.iter().filter(|event| matches!(event.what, WatchEventKind::Live(_))).count();
    assert!(missed > 0 && live <= 1_024, "memory must be bounded: {live} were kept");
    // The live events are those of each node, and one for its start.
    assert_eq!(missed + live as u64, 5_002);
    let nodes = events.iter().filter(|event| event.kind() == WatchKind::NodeCompleted).count();
    assert_eq!(nodes, 2);
}

#[tokio::test]
async fn live_output_precedes_node_end_late_watcher_skips() {
    let (runtime, may) = (World::new().process().await, Arc::new(Notify::new()));
    let mut watch = runtime.watch(&key()).before_start().await.unwrap();
    let run = runtime.start(&speaker(100, &may), Context::new()).id("r").await.unwrap();
    may.notify_one();
    run.completed().await.unwrap();
    let events: Vec<_> = all(&mut watch).await;
    let place = |kind| events.iter().position(|event| event.kind() == kind).unwrap();
    let last = events.iter().rposition(|event| event.kind() == WatchKind::Custom).unwrap();
    assert!(place(WatchKind::AttemptStarted) < place(WatchKind::Custom));
    assert!(last < place(WatchKind::NodeCompleted), "{:?}", events.iter().map(shown).collect::<Vec<_>>());
    let said: Vec<u32> = events
        .iter()
        .filter_map(|event| match &event.what {
            WatchEventKind::Live(LiveEvent::Custom { payload, .. }) => Some(payload.get().parse().unwrap()),
            _ => None,
        })
        .collect();
    assert_eq!(said, (0..100).collect::<Vec<_>>());
    let late = all(&mut run.watch().await.unwrap()).await;
    assert!(late.iter().all(|event| event.seq.is_some()));
}

#[tokio::test]
async fn a_retry_is_seen_to_begin_anew() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("retries")
        .node("talk", async |cx, s| {
            cx.emit("token", format!("attempt {}", cx.attempt()))?;
            match cx.attempt() {
                1 => Err(std::io::Error::other("cut off").into()),
                _ => Ok(s),
            }
        })
        .retry(RetryPolicy::none().with_attempts(2).with_delay(Duration::from_secs(3)))
        .entry("talk")
        .build()
        .unwrap();
    let mut watch = runtime.watch(&key()).before_start().await.unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let events = world.pass(all(&mut watch)).await;
    run.completed().await.unwrap();
    let told: Vec<_> = events.iter().map(shown).filter(|shown| !shown.ends_with("started")).collect();
    let told: Vec<_> = told.iter().map(String::as_str).collect();
    assert_eq!(
        told,
        [
            "live attempt_started talk@1",
            "live custom talk@1",
            "0 status",
            "1 attempt_failed talk@1",
            "live attempt_started talk@1",
            "live custom talk@1",
            "2 node_completed talk@1",
            "2 status"
        ]
    );
    let attempts: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.what {
            WatchEventKind::Live(LiveEvent::AttemptStarted { attempt, .. }) => Some(*attempt),
            _ => None,
        })
        .collect();
    assert_eq!(attempts, [1, 2]);
}

#[tokio::test]
async fn thousand_watchers_see_same_events() {
    let (runtime, may) = (World::new().process().await, Arc::new(Notify::new()));
    let run = runtime.start(&speaker(3, &may), Context::new()).id("r").await.unwrap();
    let mut watches = Vec::new();
    for _ in 0..1_000 {
        watches.push(run.watch().await.unwrap());
    }
    may.notify_one();
    run.completed().await.unwrap();
    let mut first = None;
    for watch in &mut watches {
        let events: Vec<_> = all(watch).await.iter().map(shown).collect();
        assert_eq!(events, *first.get_or_insert(events.clone()));
    }
    let events = first.unwrap();
    assert_eq!(events.iter().filter(|event| event.contains("custom")).count(), 3);
    assert_eq!(events.last().unwrap(), "2 status");
}

#[tokio::test]
async fn unrecorded_run_is_watched_live_in_process() {
    let world = World::new();
    let (runtime, may) = (world.process().await, Arc::new(Notify::new()));
    let policy = CheckpointPolicy::default().with_frequency(CheckpointFrequency::Disabled);
    let mut watch = runtime.watch(&key()).before_start().await.unwrap();
    let run = runtime.start(&speaker(2, &may), Context::new()).id("r").checkpoints(policy).await.unwrap();
    // While the run is active, other watchers find it, too.
    drop(run.watch().await.unwrap());
    may.notify_one();
    let events = world.pass(all(&mut watch)).await;
    let told: Vec<_> = events.iter().map(shown).collect();
    let count = |what: &str| told.iter().filter(|told| told.contains(what)).count();
    assert_eq!((count("custom"), count("attempt_started"), told.len()), (2, 2, 4), "{told:?}");
    let none = runtime.watch(&key()).await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound);
}

//! Watching a run tree: a child's events carry its path, and arrive between the record of its start and the record of its result. A reconnected
//! watcher continues in all runs.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrata_core::ask::Answer;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{
    RecordedEvent, Runtime, Watch, WatchCursor, WatchEvent, WatchEventKind, WatchKind,
};
use ferrata_core::state::{Context, Draft};

use super::dice::Dice;
use super::family::*;
use super::world::World;

/// A node with two concurrent children, `a` and `b`.
fn two_of(name: &str, child: &Graph<Context>) -> Graph<Context> {
    let child = child.clone();
    Graph::<Context>::builder(name)
        .node(
            "wait",
            using!(child; cx, s => {
                let (a, b) = (cx.child(&child, with(1)).name("a"), cx.child(&child, with(2)).name("b"));
                tokio::try_join!(a.into_future(), b.into_future())?;
                Ok(s)
            }),
        )
        .entry("wait")
        .build()
        .unwrap()
}

async fn all(watch: &mut Watch) -> Vec<WatchEvent> {
    let mut events = Vec::new();
    while let Some(event) = watch.next().await.unwrap() {
        events.push(event);
    }
    events
}

/// The events of each run, by the run's path.
fn by_path(events: &[WatchEvent]) -> BTreeMap<String, Vec<(u64, WatchKind)>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for event in events {
        if let Some(seq) = event.seq {
            found.entry(event.path.to_string()).or_default().push((seq.get(), event.kind()));
        }
    }
    found
}

/// Checks the order of events between the runs of a tree.
fn is_in_order(events: &[WatchEvent]) {
    let place = |path: &str, kind: WatchKind| {
        events.iter().position(|event| *event.path == *path && event.kind() == kind)
    };
    for (at, event) in events.iter().enumerate() {
        let WatchEventKind::Recorded(
            RecordedEvent::ChildStarted { node, visit, name, .. }
            | RecordedEvent::ChildEnded { node, visit, name, .. },
        ) = &event.what
        else {
            continue;
        };
        let above = if event.path.is_empty() { String::new() } else { format!("{}/", event.path) };
        let path = format!("{above}{node}@{visit}:{name}");
        match event.kind() {
            WatchKind::ChildStarted => assert!(place(&path, WatchKind::Started).unwrap() > at, "{path}"),
            _ => {
                let last = events.iter().rposition(|event| *event.path == *path).unwrap();
                assert!(last < at, "the events of {path} must end before");
            }
        }
    }
}

async fn three_levels(world: &World) -> Runtime {
    let runtime = world.process().await;
    let leaf = gate();
    let middle = two_of("middle", &leaf);
    let top = two_of("top", &middle);
    served(&runtime, &[&leaf, &middle, &top]);
    let run = runtime.start(&top, Context::new()).id("p").await.unwrap();
    let answering = async {
        for _ in 0..4 {
            let question = loop {
                match runtime.questions(&key("p")).await.unwrap().pop() {
                    Some(question) => break question,
                    None => tokio::task::yield_now().await,
                }
            };
            runtime.respond(&key("p"), &question.id, Answer::accept(true).unwrap()).await.unwrap();
        }
    };
    world.pass(answering).await;
    world.pass(run.completed()).await.unwrap();
    runtime
}

/// Guarantees: CHILD-17.
#[tokio::test]
async fn root_watcher_gets_child_events_with_path() {
    let world = World::new();
    let runtime = three_levels(&world).await;
    let events = all(&mut runtime.watch(&key("p")).children().await.unwrap()).await;
    is_in_order(&events);
    let found = by_path(&events);
    let paths: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(
        paths,
        [
            "",
            "wait@1:a",
            "wait@1:a/wait@1:a",
            "wait@1:a/wait@1:b",
            "wait@1:b",
            "wait@1:b/wait@1:a",
            "wait@1:b/wait@1:b"
        ]
    );
    // Each run has the same events as in a watch of this run alone.
    let runs: BTreeMap<_, _> =
        events.iter().map(|event| (event.path.to_string(), event.run.clone())).collect();
    for (path, run) in runs {
        let alone = all(&mut runtime.watch(&run).await.unwrap()).await;
        assert_eq!(by_path(&alone)[""], found[&path], "{path}");
    }
    // Watch a part of the run tree.
    let part = all(&mut runtime.watch(&key("p")).children().under("wait@1:b").await.unwrap()).await;
    assert_eq!(
        by_path(&part).into_keys().collect::<Vec<_>>(),
        ["wait@1:b", "wait@1:b/wait@1:a", "wait@1:b/wait@1:b"]
    );
    let deep = all(&mut runtime.watch(&key("p")).children().label("ferrata.depth", "2").await.unwrap()).await;
    assert_eq!(by_path(&deep).len(), 4);
    let own = all(&mut runtime.watch(&key("p")).await.unwrap()).await;
    assert_eq!(by_path(&own).into_keys().collect::<Vec<_>>(), [""]);
}

/// Guarantees: EVENT-1.
#[tokio::test]
async fn reconnecting_run_tree_watcher_gets_each_event_once() {
    let world = World::new();
    let runtime = three_levels(&world).await;
    let whole = all(&mut runtime.watch(&key("p")).children().await.unwrap()).await;
    for seed in 0..40 {
        let dice = Dice::new(seed);
        let other = Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _).operator();
        let (mut told, mut cursor) = (Vec::new(), WatchCursor::default());
        loop {
            let mut watch = other.watch(&key("p")).after(cursor).children().await.unwrap();
            let mut is_over = false;
            for _ in 0..=dice.below(9) {
                match watch.next().await.unwrap() {
                    Some(event) => told.push(event),
                    None => is_over = true,
                }
            }
            cursor = watch.cursor().to_string().parse().unwrap();
            if is_over {
                break;
            }
        }
        is_in_order(&told);
        assert_eq!(by_path(&told), by_path(&whole), "seed {seed}");
    }
}

/// Guarantees: CHILD-17.
#[tokio::test]
async fn run_tree_driven_elsewhere_is_watched_live() {
    let world = World::new();
    let other = Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _).operator();
    let watching = async {
        while other.head(&key("p")).await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        all(&mut other.watch(&key("p")).children().await.unwrap()).await
    };
    let (runtime, told) = tokio::join!(three_levels(&world), watching);
    is_in_order(&told);
    let later = all(&mut runtime.watch(&key("p")).children().await.unwrap()).await;
    assert_eq!(by_path(&told), by_path(&later));
}

//! Watching all runs of a query: each run's events equal those of a single watcher, across reconnects and processes. Idle runs cost nothing.
//!
//! The cases are those in which a listing and a stream of changes disagree: a run that starts and ends between two polls, a run that continues after
//! months, a writer with a slow clock, and a cursor in the middle of catching up.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{
    LiveEvent, RetentionPolicy, RunsCursor, RunsWatch, Runtime, SseFrames, WatchEvent, WatchEventKind,
    WatchKind,
};
use ferrata_core::state::{Context, Draft};
use ferrata_core::{ErrorKind, RunKey, Timestamp};
use ferrata_testing::ManualClock;
use tokio::sync::Notify;

use super::cost::Counting;
use super::dice::Dice;
use super::family::key;
use super::watching::{all, parsed, poll_some, shown, to_its_end, to_its_question};
use super::watching_live::speaker;
use super::world::World;

type ByRun = BTreeMap<RunKey, Vec<String>>;

/// An operator's process on the store: it drives nothing.
fn operator(world: &World) -> Runtime {
    Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _).operator()
}

/// One that the store tells of no changes.
fn deaf_operator(world: &World) -> Runtime {
    Runtime::builder(Counting::of(&world.store)).clock(Arc::clone(&world.clock) as _).operator()
}

/// One of them.
fn some_operator(world: &World, seed: u64) -> Runtime {
    if seed.is_multiple_of(2) { operator(world) } else { deaf_operator(world) }
}

fn note(told: &mut ByRun, event: &WatchEvent) {
    if event.seq.is_some() {
        told.entry(event.run.clone()).or_default().push(shown(event));
    }
}

/// The events of a watcher of each single run.
async fn each_alone(runtime: &Runtime, ids: &[String]) -> ByRun {
    let mut told = ByRun::new();
    for id in ids {
        for event in all(&mut runtime.watch(&key(id)).await.unwrap()).await {
            note(&mut told, &event);
        }
    }
    told
}

/// Takes what a watch tells until it has told nothing for some seconds.
async fn until_quiet(world: &World, watch: &mut RunsWatch) -> Vec<WatchEvent> {
    let mut events = Vec::new();
    loop {
        let quiet = ferrata_core::Clock::sleep(&*world.clock, Duration::from_secs(30));
        let next = async {
            tokio::select! {
                biased;
                event = watch.next() => Some(event.unwrap()),
                () = quiet => None,
            }
        };
        match world.pass(next).await {
            Some(event) => events.push(event),
            None => return events,
        }
    }
}

/// Guarantees: EVENT-8.
#[tokio::test]
async fn reconnecting_runs_watcher_gets_each_event_once() {
    for seed in 0..20 {
        let dice = Dice::new(seed);
        let world = World::new();
        let (runtime, other) = (world.process().await, some_operator(&world, seed));
        let (mut told, mut cursor): (_, Option<String>) = (ByRun::new(), None);
        let (mut ids, mut waiting, mut longest) = (Vec::new(), Vec::new(), 0);
        let watch_from = |cursor: &Option<String>| {
            let request = other.runs().watch();
            match cursor {
                Some(text) => request.after(text.parse::<RunsCursor>().unwrap()),
                None => request,
            }
        };
        for _ in 0..30 {
            match dice.below(6) {
                0 => {
                    let id = format!("r{}", ids.len());
                    waiting.push((id.clone(), to_its_question(&world, &runtime, &dice, &id).await));
                    ids.push(id);
                }
                1 if !waiting.is_empty() => {
                    let (id, busy) =
                        waiting.swap_remove(usize::try_from(dice.below(waiting.len() as u64)).unwrap());
                    to_its_end(&world, &runtime, &id, &busy).await;
                }
                2 => world.clock.advance(Duration::from_secs(dice.below(400))),
                _ => {
                    let mut watch = watch_from(&cursor).await.unwrap();
                    for _ in 0..dice.below(20) {
                        if let Some(event) = poll_some(watch.next(), dice.below(4)).await {
                            note(&mut told, &event.unwrap());
                        }
                        if dice.below(8) == 0 {
                            world.clock.advance(Duration::from_secs(dice.below(20)));
                        }
                    }
                    let text = watch.cursor().to_string();
                    assert_eq!(text.parse::<RunsCursor>().unwrap(), watch.cursor(), "seed {seed}");
                    longest = longest.max(text.len());
                    cursor = Some(text);
                }
            }
        }
        for (id, busy) in &waiting {
            to_its_end(&world, &runtime, id, busy).await;
        }
        let mut watch = watch_from(&cursor).await.unwrap();
        until_quiet(&world, &mut watch).await.iter().for_each(|event| note(&mut told, event));
        assert_eq!(told, each_alone(&other, &ids).await, "seed {seed}");
        // Nothing is told again, and the cursor names only what happened lately.
        world.clock.advance(Duration::from_secs(300));
        assert_eq!(until_quiet(&world, &mut watch).await.len(), 0, "seed {seed}");
        assert!(watch.cursor().to_string().len() < 20, "seed {seed}: {}", watch.cursor());
        assert!(longest < 40 + 90 * ids.len().max(1), "seed {seed}: {longest} bytes");
        let mut again = watch_from(&Some(watch.cursor().to_string())).await.unwrap();
        assert_eq!(until_quiet(&world, &mut again).await.len(), 0, "seed {seed}");
    }
}

#[tokio::test]
async fn runs_watcher_and_single_watchers_see_same_events() {
    for seed in 100..108 {
        let dice = Dice::new(seed);
        let world = World::new();
        let (runtime, other) = (world.process().await, some_operator(&world, seed));
        let mut here = runtime.runs().watch().await.unwrap();
        let mut there = other.runs().workflow("busy").watch().await.unwrap();
        let ids: Vec<_> = (0..4).map(|number| format!("r{number}")).collect();
        let driving = async {
            for id in &ids {
                let busy = to_its_question(&world, &runtime, &dice, id).await;
                to_its_end(&world, &runtime, id, &busy).await;
            }
        };
        let (mut near, mut far) = (Vec::new(), Vec::new());
        {
            let near_to = async {
                loop {
                    near.push(here.next().await.unwrap())
                }
            };
            let far_to = async {
                loop {
                    far.push(there.next().await.unwrap())
                }
            };
            tokio::select! { biased; () = driving => {} never = near_to => never, never = far_to => never }
        }
        near.extend(until_quiet(&world, &mut here).await);
        far.extend(until_quiet(&world, &mut there).await);
        let alone = each_alone(&other, &ids).await;
        for (who, events) in [("here", &near), ("elsewhere", &far)] {
            let mut told = ByRun::new();
            events.iter().for_each(|event| note(&mut told, event));
            assert_eq!(told, alone, "{who}, seed {seed}");
        }
        let live = |events: &[WatchEvent]| events.iter().filter(|event| event.seq.is_none()).count();
        assert!(live(&near) > 0 && live(&far) == 0);
    }
}

/// A graph that ends at once.
fn short(name: &str) -> Graph<Context> {
    Graph::<Context>::builder(name).node("a", async |_cx, s| Ok(s)).entry("a").build().unwrap()
}

#[tokio::test]
async fn only_what_the_query_selects_is_told() {
    let world = World::new();
    let (runtime, other) = (world.process().await, operator(&world));
    let fails = Graph::<Context>::builder("fails")
        .node("a", async |_cx, s: Draft<Context>| match s.get::<bool>("good")? {
            Some(true) => Ok(s),
            _ => Err(std::io::Error::other("no").into()),
        })
        .entry("a")
        .build()
        .unwrap();
    let mut failures = other.runs().status(RunStatus::Failed).watch().await.unwrap();
    let mut of_ann = other.runs().label("customer", "ann").watch().await.unwrap();
    let mut ends = other.runs().watch().kinds([WatchKind::NodeCompleted]).node("a").await.unwrap();
    let mut late = other.runs().watch().from_now().await.unwrap();
    runtime.start(&short("fine"), Context::new()).id("f").label("customer", "ann").await.unwrap();
    let bad = runtime.start(&fails, Context::new()).id("b").label("customer", "bob").await.unwrap();
    world.pass(bad.wait()).await.unwrap();
    let told = |events: Vec<WatchEvent>| -> Vec<_> {
        events.iter().map(|event| format!("{} {}", event.run.run, shown(event))).collect()
    };
    assert_eq!(told(until_quiet(&world, &mut failures).await), ["b 1 node_failed a@1", "b 1 status"]);
    assert_eq!(
        told(until_quiet(&world, &mut of_ann).await),
        ["f 0 started", "f 0 status", "f 1 node_completed a@1", "f 1 status"]
    );
    assert_eq!(told(until_quiet(&world, &mut ends).await), ["f 1 node_completed a@1"]);
    // A retry leaves the status, and a further failure comes back to it.
    runtime.retry(&key("b")).by("ann").await.unwrap();
    world.pass(runtime.resume(&fails, "b").await.unwrap().wait()).await.unwrap();
    let again = told(until_quiet(&world, &mut failures).await);
    assert!(again.len() == 2 && again[0].ends_with("node_failed a@1"), "{again:?}");
    let all = until_quiet(&world, &mut late).await;
    assert!(all.iter().any(|event| event.run == key("b")) && all.iter().any(|event| event.run == key("f")));
    // Who comes now is told only what comes.
    let mut from_now = other.runs().watch().from_now().await.unwrap();
    assert_eq!(until_quiet(&world, &mut from_now).await.len(), 0);
    runtime.start(&short("fine"), Context::new()).id("g").await.unwrap();
    assert_eq!(until_quiet(&world, &mut from_now).await.len(), 4);
    let refused = other.runs().workflow("no name").watch().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn runs_watch_reports_restarted_and_pruned_runs() {
    let world = World::new();
    let (runtime, other) = (world.process().await, operator(&world));
    let dice = Dice::new(3);
    let busy = to_its_question(&world, &runtime, &dice, "r").await;
    let mut watch = other.runs().watch().await.unwrap();
    let before = until_quiet(&world, &mut watch).await.len();
    assert!(before > 4);
    let cursor = watch.cursor();
    to_its_end(&world, &runtime, "r", &busy).await;
    runtime.apply_retention(&key("r"), &RetentionPolicy::keep_all().keep_last(1)).await.unwrap();
    for watch in [&mut watch, &mut other.runs().watch().after(cursor).await.unwrap()] {
        let rest = until_quiet(&world, watch).await;
        assert!(matches!(rest[0].what, WatchEventKind::Pruned { .. }), "{}", shown(&rest[0]));
        assert_eq!(
            rest.iter().filter(|event| matches!(event.what, WatchEventKind::Pruned { .. })).count(),
            1
        );
    }
    runtime.purge(&key("r")).await.unwrap();
    runtime.start(&short("fine"), Context::new()).id("r").await.unwrap().completed().await.unwrap();
    let anew: Vec<_> = until_quiet(&world, &mut watch).await.iter().map(shown).collect();
    assert_eq!(anew, ["0 started", "0 status", "1 node_completed a@1", "1 status"]);
}

/// It was told all of a run that the query does not select, because another one had had its id before.
#[tokio::test]
async fn runs_watch_reports_reused_id_only_if_selected() {
    for (is_far, prunes) in [(true, false), (true, true), (false, false)] {
        let world = World::new();
        let (runtime, other) = (world.process().await, operator(&world));
        let there = if is_far { &other } else { &runtime };
        let take_its_id = || async {
            runtime.purge(&key("r")).await.unwrap();
            let may = Arc::new(Notify::new());
            may.notify_one();
            let other = runtime.start(&speaker(3, &may), Context::new()).id("r").label("to", "bob");
            other.await.unwrap().completed().await.unwrap();
            if prunes {
                let policy = RetentionPolicy::keep_all().keep_last(1);
                runtime.apply_retention(&key("r"), &policy).await.unwrap();
            }
        };
        runtime.start(&short("order"), Context::new()).id("r").label("to", "ann").await.unwrap();
        let mut orders = there.runs().workflow("order").watch().await.unwrap();
        let mut of_ann = there.runs().label("to", "ann").watch().await.unwrap();
        let mut all = there.runs().watch().await.unwrap();
        for watch in [&mut orders, &mut of_ann, &mut all] {
            assert!(until_quiet(&world, watch).await.len() >= 4, "far: {is_far}");
        }
        let cursor = orders.cursor();
        take_its_id().await;
        let mut late = there.runs().workflow("order").watch().after(cursor).await.unwrap();
        for watch in [&mut orders, &mut of_ann, &mut late] {
            let events: Vec<_> = until_quiet(&world, watch).await.iter().map(shown).collect();
            assert!(events.is_empty(), "far: {is_far}, prunes: {prunes}: {events:?}");
        }
        assert!(until_quiet(&world, &mut all).await.len() >= if prunes { 2 } else { 5 });
        // A run that is selected takes the name back.
        runtime.purge(&key("r")).await.unwrap();
        world.clock.advance(Duration::from_secs(120));
        runtime.start(&short("order"), Context::new()).id("r").label("to", "ann").await.unwrap();
        for watch in [&mut orders, &mut of_ann, &mut late, &mut all] {
            let mut events = until_quiet(&world, watch).await;
            events.retain(|event| event.seq.is_some());
            assert_eq!(shown(&events[0]), "0 started", "far: {is_far}");
            assert_eq!(events.len(), 4, "far: {is_far}: {events:?}");
        }
    }
}

/// A process whose clock is an hour behind used to be a run that never was, as its records look old.
///
/// Guarantees: EVENT-8.
#[tokio::test]
async fn open_watch_finds_run_with_slow_clock() {
    let world = World::new();
    let (runtime, other) = (world.process().await, operator(&world));
    let mut watch = other.runs().watch().await.unwrap();
    until_quiet(&world, &mut watch).await;
    let behind = Arc::new(ManualClock::new(Timestamp::from_unix_ms(0)));
    let late = Runtime::builder(world.store.clone()).clock(Arc::clone(&behind) as _).build().await.unwrap();
    let may = Arc::new(Notify::new());
    let run = late.start(&speaker(0, &may), Context::new()).id("late").await.unwrap();
    assert_eq!(until_quiet(&world, &mut watch).await.iter().filter(|event| event.seq.is_some()).count(), 2);
    may.notify_one();
    run.completed().await.unwrap();
    assert_eq!(until_quiet(&world, &mut watch).await.last().map(shown).as_deref(), Some("2 status"));
    drop(runtime);
}

/// A run that is not listed any more used to be taken for one that did nothing, where the store tells of no changes.
#[tokio::test]
async fn watch_sees_long_idle_run_end_without_notices() {
    let world = World::new();
    let (runtime, other) = (world.process().await, deaf_operator(&world));
    let busy = to_its_question(&world, &runtime, &Dice::new(5), "r").await;
    let gone = to_its_question(&world, &runtime, &Dice::new(6), "gone").await;
    let mut watch = other.runs().watch().await.unwrap();
    until_quiet(&world, &mut watch).await;
    world.clock.advance(Duration::from_secs(600));
    assert_eq!(until_quiet(&world, &mut watch).await.len(), 0);
    to_its_end(&world, &runtime, "r", &busy).await;
    runtime.purge(&key("gone")).await.unwrap();
    let rest = until_quiet(&world, &mut watch).await;
    assert!(rest.iter().all(|event| event.run == key("r")), "one that was purged says nothing");
    assert!(
        shown(rest.last().unwrap()).ends_with("status"),
        "{:?}",
        rest.iter().map(shown).collect::<Vec<_>>()
    );
    drop(gone);
}

#[tokio::test]
async fn idle_runs_cost_watcher_no_requests() {
    const RUNS: u64 = 600;
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("asks")
        .gate("ok", |_s: &Context| ferrata_core::ask::Ask::<bool>::new("?"), |s, yes| s.set("ok", yes))
        .entry("ok")
        .build()
        .unwrap();
    for number in 0..RUNS {
        let run = runtime.start(&graph, Context::new()).id(format!("r{number}")).await.unwrap();
        run.wait().await.unwrap();
    }
    world.clock.advance(Duration::from_secs(600));
    let store = Counting::of(&world.store);
    let other = Runtime::builder(store.clone()).clock(Arc::clone(&world.clock) as _).operator();
    let mut watch = other.runs().watch().from_now().await.unwrap();
    assert_eq!(until_quiet(&world, &mut watch).await.len(), 0);
    let before = store.reads();
    for _ in 0..20 {
        let quiet = ferrata_core::Clock::sleep(&*world.clock, Duration::from_secs(1));
        world
            .pass(async {
                tokio::select! { biased; event = watch.next() => panic!("{event:?}"), () = quiet => {} }
            })
            .await;
    }
    // Two pages of runs that may change, and one of those that are new, each second.
    let reads = store.reads() - before;
    assert!((50..=21 * 3).contains(&reads), "{reads} reads in 20 seconds for {RUNS} runs");
}

#[tokio::test]
async fn slow_runs_watcher_learns_loss_per_run() {
    let world = World::new();
    let (runtime, may) = (world.process().await, Arc::new(Notify::new()));
    let mut watch = runtime.runs().label("loud", "yes").watch().await.unwrap();
    until_quiet(&world, &mut watch).await;
    let loud =
        runtime.start(&speaker(3_000, &may), Context::new()).id("a").label("loud", "yes").await.unwrap();
    may.notify_one();
    loud.completed().await.unwrap();
    let first = until_quiet(&world, &mut watch).await;
    // Of a run that is not selected nothing is kept, once that is known.
    let other = runtime.start(&speaker(3_000, &may), Context::new()).id("b").await.unwrap();
    until_quiet(&world, &mut watch).await;
    may.notify_one();
    other.completed().await.unwrap();
    let said = |cx: NodeContext, s: Draft<Context>| async move {
        let mut words = cx.stream("words")?;
        words.send("hello").await?;
        Ok(s)
    };
    let quiet = Graph::<Context>::builder("quiet").node("say", said).entry("say").build().unwrap();
    let quiet = runtime.start(&quiet, Context::new()).id("c").label("loud", "yes").await.unwrap();
    quiet.completed().await.unwrap();
    let second = until_quiet(&world, &mut watch).await;
    let missed = |events: &[WatchEvent]| -> u64 {
        events
            .iter()
            .map(|event| if let WatchEventKind::Lagged { missed } = event.what { missed } else { 0 })
            .sum()
    };
    let live = |events: &[WatchEvent]| {
        events.iter().filter(|event| matches!(event.what, WatchEventKind::Live(_))).count() as u64
    };
    assert!(live(&first) <= 1_024 && missed(&first) > 0);
    let last = first.iter().rposition(|event| event.kind() == WatchKind::Custom).unwrap();
    let end = first.iter().position(|event| event.kind() == WatchKind::NodeCompleted).unwrap();
    assert!(last < end, "what was said before a record is told before it, however much that is");
    // What each node said, and that it began.
    assert_eq!(missed(&first) + live(&first), 3_002);
    assert!(first.iter().chain(&second).all(|event| event.run != key("b")));
    assert_eq!((missed(&second), live(&second)), (0, 2));
    let place = |kind| second.iter().position(|event| event.kind() == kind).unwrap();
    assert!(
        place(WatchKind::Chunk) < place(WatchKind::NodeCompleted),
        "a chunk is told before the end of its node"
    );
    assert!(second.iter().any(|event| matches!(&event.what, WatchEventKind::Live(LiveEvent::Chunk { .. }))));
}

#[tokio::test]
async fn damaged_run_is_reported_once_without_blocking_others() {
    let world = World::new();
    let (runtime, other) = (world.process().await, operator(&world));
    for id in ["a", "b", "c"] {
        runtime.start(&short("fine"), Context::new()).id(id).await.unwrap().completed().await.unwrap();
    }
    let is_there = world.store.tamper(&key("b"), |records| {
        records[1].body = bytes::Bytes::from_static(b"{");
    });
    assert!(is_there);
    let mut watch = other.runs().watch().kinds([WatchKind::NodeCompleted]).await.unwrap();
    let (mut told, mut errors) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        match world.pass(watch.next()).await {
            Ok(event) => told.push(event.run.run.to_string()),
            Err(error) => errors.push((error.kind(), error.run().cloned())),
        }
    }
    assert_eq!(
        (&*told, &*errors),
        (&["a".to_owned(), "c".to_owned()][..], &[(ErrorKind::Corrupt, Some(key("b")))][..])
    );
    assert_eq!(until_quiet(&world, &mut watch).await.len(), 0);
}

/// Takes so many frames with an id or without, each as its id and data.
async fn frames(world: &World, frames: &mut SseFrames, count: usize) -> Vec<(Option<String>, String)> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let text = world.pass(frames.next()).await.unwrap().unwrap();
        let (id, event, data) = parsed(&text);
        if !event.is_empty() {
            taken.push((id, data));
        }
    }
    taken
}

#[tokio::test]
async fn browser_watching_many_runs_gets_each_event_once() {
    let world = World::new();
    let (runtime, other) = (world.process().await, operator(&world));
    let begin = async |from: usize, to: usize| {
        for id in from..to {
            let run = runtime.start(&short("fine"), Context::new()).id(format!("r{id}")).await.unwrap();
            run.completed().await.unwrap();
        }
    };
    begin(0, 6).await;
    let connect = async |last: Option<&str>| {
        let request = other.runs().watch();
        let request = match last {
            Some(last) => request.after(last.parse::<RunsCursor>().unwrap()),
            None => request,
        };
        request.await.unwrap().sse()
    };
    let count = {
        let mut watch = other.runs().watch().await.unwrap();
        until_quiet(&world, &mut watch).await.len()
    };
    let whole = frames(&world, &mut connect(None).await, count).await;
    let sorted = |frames: &[(Option<String>, String)]| {
        let mut all: Vec<_> = frames.iter().map(|(_, data)| data.clone()).collect();
        all.sort();
        all
    };
    assert!(count > 12 && whole.iter().all(|(id, _)| id.is_some()), "{count}");
    for at in 1..count {
        let mut again = connect(whole[at - 1].0.as_deref()).await;
        let rest = frames(&world, &mut again, count - at).await;
        assert_eq!(sorted(&rest), sorted(&whole[at..]), "connected again after {at}");
        let quiet = world.pass(again.next()).await.unwrap().unwrap();
        assert!(quiet.starts_with(": alive\nid: "), "{quiet:?}");
    }
    // A header holds no cursor of a crowd: there is no id then, rather than one that is refused, and it comes back when they are at rest.
    begin(6, 60).await;
    let mut all = connect(None).await;
    let crowd = frames(&world, &mut all, count * 10).await;
    assert!(crowd.iter().all(|(id, _)| id.as_ref().is_none_or(|id| id.len() <= 2_048)));
    assert!(crowd.iter().any(|(id, _)| id.is_none()) && crowd[0].0.is_some());
    world.clock.advance(Duration::from_secs(120));
    world.pass(all.next()).await.unwrap();
    world.clock.advance(Duration::from_secs(120));
    let quiet = world.pass(all.next()).await.unwrap().unwrap();
    assert!(quiet.starts_with(": alive\nid: "), "{quiet:?}");
}

#[tokio::test]
async fn unreadable_run_does_not_end_browser_stream() {
    let world = World::new();
    let runtime = world.process().await;
    for id in ["r0", "r1", "r2"] {
        runtime.start(&short("fine"), Context::new()).id(id).await.unwrap().completed().await.unwrap();
    }
    world.store.tamper(&key("r1"), |records| records[1].body = bytes::Bytes::from_static(b"{"));
    let mut frames = operator(&world).runs().watch().await.unwrap().sse();
    let (mut told, mut passed_over) = (ByRun::new(), 0);
    loop {
        let text = world.pass(frames.next()).await.unwrap().unwrap();
        if text.starts_with(": alive") {
            break;
        }
        passed_over += u32::from(text == ": CORRUPT default/r1\n\n");
        let (_, event, data) = parsed(&text);
        for id in ["r0", "r2"] {
            if data.contains(&format!("default/{id}")) {
                told.entry(key(id)).or_default().push(event.clone());
            }
        }
    }
    assert_eq!((passed_over, told.len()), (1, 2));
    assert_eq!(told[&key("r0")], told[&key("r2")]);
}

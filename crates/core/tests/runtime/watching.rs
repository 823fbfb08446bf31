//! Watching a run: recorded events arrive once and in order, across processes and reconnects. Live events are bounded and never delay the node.
//!
//! The cases are known faults of other systems: a reconnect that misses or repeats events, a consumer that is slower than the producer, a retry that
//! continues the stream of its first attempt, and a run in another process.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph, RetryPolicy};
use ferrata_core::node::NodeContext;
use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::runtime::{
    Outcome, RecordedEvent, RetentionPolicy, Runtime, SseFrames, Watch, WatchCursor, WatchEvent,
    WatchEventKind as What, WatchKind,
};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, HeaderRange, MemoryStore};
use ferrata_core::{ErrorKind, RunKey, Seq};
use tokio::sync::Notify;

use super::dice::Dice;
use super::watching_live::speaker;
use super::world::World;

pub(crate) fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

/// An event without the fields that differ from run to run.
pub(crate) fn shown(event: &WatchEvent) -> String {
    let seq = event.seq.map_or_else(|| "live".to_owned(), |seq| seq.to_string());
    let node = event.what.activation().map(|(node, visit)| format!(" {node}@{visit}")).unwrap_or_default();
    let path = if event.path.is_empty() { String::new() } else { format!("{}> ", event.path) };
    format!("{path}{seq} {}{node}", event.kind())
}

/// Reads all events of a watch.
pub(crate) async fn all(watch: &mut Watch) -> Vec<WatchEvent> {
    let mut events = Vec::new();
    while let Some(event) = watch.next().await.unwrap() {
        events.push(event);
    }
    events
}

fn recorded(events: &[WatchEvent]) -> Vec<String> {
    events.iter().filter(|event| event.seq.is_some()).map(shown).collect()
}

/// A run of random length with loops, failures, steps, messages and questions.
fn busy(dice: &Dice) -> Graph<Context> {
    let rounds = 1 + dice.below(6);
    let (fails, steps) = (dice.below(3), dice.below(4));
    let failed = Arc::new(AtomicU32::new(0));
    Graph::<Context>::builder("busy")
        .node("work", move |cx: NodeContext, mut s: Draft<Context>| {
            let failed = Arc::clone(&failed);
            async move {
                for step in 0..steps {
                    cx.step(format!("step-{step}"), async || Ok::<_, std::io::Error>(step)).await?;
                }
                if u64::from(failed.fetch_add(1, Ordering::Relaxed)) < fails {
                    return Err(std::io::Error::other("not yet").into());
                }
                let round: u64 = s.get("round")?.unwrap_or_default();
                s.set("round", round + 1)?;
                Ok(s)
            }
        })
        .retry(RetryPolicy::none().with_attempts(4).with_delay(Duration::from_millis(1)))
        .node("left", async |_cx, _s| Ok(()))
        .effect(Effect::Pure)
        .node("right", async |_cx, _s| Ok(()))
        .effect(Effect::Pure)
        .node("join", async |_cx, _s| Ok(()))
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("ok", yes))
        .entry("work")
        .edge("work", ["left", "right"])
        .edge(["left", "right"], "join")
        .route("join", ["work", "ok"], move |s: &Context, _cx| {
            let round = s.get::<u64>("round").ok().flatten().unwrap_or_default();
            if round < rounds { "work" } else { "ok" }
        })
        .build()
        .unwrap()
}

/// Drives such a run to its end.
async fn drive(world: &World, runtime: &Runtime, dice: &Dice) {
    let busy = to_its_question(world, runtime, dice, "r").await;
    to_its_end(world, runtime, "r", &busy).await;
}

/// Drives such a run until it asks a question.
pub(crate) async fn to_its_question(
    world: &World,
    runtime: &Runtime,
    dice: &Dice,
    id: &str,
) -> (Graph<Context>, CheckpointPolicy) {
    let frequencies = [
        CheckpointFrequency::EveryNode,
        CheckpointFrequency::StatusChangeOnly,
        CheckpointFrequency::EveryNth(std::num::NonZeroU32::new(3).unwrap()),
    ];
    let policy = CheckpointPolicy::default().with_frequency(*dice.pick(&frequencies));
    let graph = busy(dice);
    let run = runtime.start(&graph, Context::new()).id(id).checkpoints(policy).await.unwrap();
    let outcome = world.pass(run.wait()).await.unwrap();
    assert!(matches!(outcome, Outcome::Interrupted(_)), "{outcome:?}");
    (graph, policy)
}

/// Answers the question, and drives the run to its end.
pub(crate) async fn to_its_end(
    world: &World,
    runtime: &Runtime,
    id: &str,
    (graph, policy): &(Graph<Context>, CheckpointPolicy),
) {
    let key = RunKey::try_from(id).unwrap();
    runtime.respond(&key, "ok", Answer::accept(true).unwrap()).by("ann").await.unwrap();
    let run = runtime.resume(graph, id).checkpoints(*policy).await.unwrap();
    world.pass(run.completed()).await.unwrap();
}

/// Compares the events of a run with the headers of its log.
async fn agrees_with_the_log(store: &MemoryStore, events: &[WatchEvent]) {
    let headers = store.headers(&key(), HeaderRange::oldest(1_000)).await.unwrap().items;
    let mut by_record: BTreeMap<Seq, Vec<WatchKind>> = BTreeMap::new();
    let mut last = None;
    for event in events.iter().filter(|event| event.seq.is_some()) {
        assert!(event.seq >= last, "{} comes late", shown(event));
        last = event.seq;
        by_record.entry(event.seq.unwrap()).or_default().push(event.kind());
    }
    let mut before = None;
    for header in &headers {
        let told = by_record.remove(&header.seq).unwrap_or_default();
        let is_told = |kinds: &[WatchKind]| told.iter().any(|kind| kinds.contains(kind));
        let expected: &[WatchKind] = match header.kind {
            RecordKind::Start => &[WatchKind::Started],
            RecordKind::Node => &[WatchKind::NodeCompleted, WatchKind::NodeFailed],
            RecordKind::Attempt => &[WatchKind::AttemptFailed, WatchKind::InDoubt],
            RecordKind::Step => &[WatchKind::StepDone],
            RecordKind::Signal => &[WatchKind::Answered],
            RecordKind::Claim => &[WatchKind::Claimed],
            RecordKind::Release => &[WatchKind::Released],
            _ => &[],
        };
        assert!(
            expected.is_empty() || is_told(expected),
            "{:?} {} arrives as {told:?}",
            header.kind,
            header.seq
        );
        assert_eq!(is_told(&[WatchKind::Status]), before != Some(header.status), "{}: {told:?}", header.seq);
        before = Some(header.status);
    }
    assert_eq!(by_record, BTreeMap::new(), "an event without a record");
}

/// Polls a future at most `times` times and then drops it, like a client that disconnects.
pub(crate) async fn poll_some<T>(future: impl Future<Output = T>, times: u64) -> Option<T> {
    let mut future = std::pin::pin!(future);
    for _ in 0..=times {
        tokio::select! {
            biased;
            done = &mut future => return Some(done),
            () = tokio::task::yield_now() => {}
        }
    }
    None
}

/// Guarantees: EVENT-1.
#[tokio::test]
async fn reconnecting_watcher_gets_each_event_once() {
    for seed in 0..60 {
        let dice = Dice::new(seed);
        let world = World::new();
        let runtime = world.process().await;
        drive(&world, &runtime, &dice).await;
        let whole = all(&mut runtime.watch(&key()).await.unwrap()).await;
        agrees_with_the_log(&world.store, &whole).await;
        let whole = recorded(&whole);
        // Another process that drives no run. Each time it disconnects, it keeps only the text of its cursor.
        let other = Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _).operator();
        let (mut told, mut cursor) = (Vec::new(), WatchCursor::default().to_string());
        loop {
            let cursor_of = cursor.parse::<WatchCursor>().unwrap();
            let mut watch = other.watch(&key()).after(cursor_of).await.unwrap();
            let mut is_over = false;
            for _ in 0..dice.below(7) {
                match poll_some(watch.next(), dice.below(4)).await {
                    Some(Ok(Some(event))) => told.push(shown(&event)),
                    Some(Ok(None)) => is_over = true,
                    Some(Err(error)) => panic!("seed {seed}: {error}"),
                    None => {}
                }
            }
            cursor = watch.cursor().to_string();
            if is_over {
                break;
            }
        }
        assert_eq!(told, whole, "seed {seed}");
    }
}

/// Guarantees: EVENT-2.
#[tokio::test]
async fn live_watcher_and_later_reader_see_same_events() {
    for seed in 100..120 {
        let dice = Dice::new(seed);
        let world = World::new();
        let (runtime, other) = (world.process().await, world.process().await);
        let watching = |runtime: Runtime| async move {
            while runtime.head(&key()).await.unwrap().is_none() {
                tokio::task::yield_now().await;
            }
            all(&mut runtime.watch(&key()).await.unwrap()).await
        };
        let watches = (watching(runtime.clone()), watching(other.clone()));
        let ((), here, there) = tokio::join!(drive(&world, &runtime, &dice), watches.0, watches.1);
        let later = recorded(&all(&mut other.watch(&key()).await.unwrap()).await);
        assert_eq!(recorded(&here), later, "seed {seed}");
        assert_eq!(
            there.iter().map(shown).collect::<Vec<_>>(),
            later,
            "seed {seed}: another process must get no live events"
        );
    }
}

/// Guarantees: EVENT-1.
#[tokio::test]
async fn watcher_resumes_inside_record_with_several_events() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("chain")
        .node("a", async |_cx, mut s| {
            s.set("a", 1)?;
            Ok(s)
        })
        .effect(Effect::Pure)
        .node("b", async |_cx, _s| Ok(()))
        .effect(Effect::Pure)
        .node("c", async |_cx, mut s| {
            s.set("c", 3)?;
            Ok(s)
        })
        .effect(Effect::Pure)
        .entry("a")
        .edge("a", "b")
        .edge("b", "c")
        .build()
        .unwrap();
    let policy = CheckpointPolicy::default().with_frequency(CheckpointFrequency::StatusChangeOnly);
    let run = runtime.start(&graph, Context::new()).id("r").checkpoints(policy).await.unwrap();
    run.completed().await.unwrap();
    let begin = |from: Option<WatchCursor>| {
        let request = runtime.watch(&key()).updates().values();
        from.into_iter().fold(request, |request, cursor| request.after(cursor))
    };
    let whole = recorded(&all(&mut begin(None).await.unwrap()).await);
    assert_eq!(
        whole,
        [
            "0 started",
            "0 value",
            "0 status",
            "1 node_completed a@1",
            "1 node_completed b@1",
            "1 node_completed c@1",
            "1 update",
            "1 value",
            "1 status"
        ]
    );
    for at in 0..=whole.len() {
        let mut first = begin(None).await.unwrap();
        for _ in 0..at {
            first.next().await.unwrap().unwrap();
        }
        let cursor = first.cursor().to_string().parse().unwrap();
        let rest = recorded(&all(&mut begin(Some(cursor)).await.unwrap()).await);
        assert_eq!(rest, whole[at..], "after {at}");
    }
    // Events that the filter excludes must not cause others to be repeated.
    let only = || runtime.watch(&key()).kinds([WatchKind::NodeCompleted]).node("b");
    let mut first = only().await.unwrap();
    assert_eq!(shown(&first.next().await.unwrap().unwrap()), "1 node_completed b@1");
    assert_eq!(all(&mut only().after(first.cursor()).await.unwrap()).await.len(), 0);
}

/// Frames of an event stream, each as its id, event and data.
pub(crate) fn parsed(text: &str) -> (Option<String>, String, String) {
    assert!(text.ends_with("\n\n"), "{text:?}");
    let field = |name: &str| {
        let lines: Vec<_> =
            text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    };
    (field("id"), field("event").unwrap_or_default(), field("data").unwrap_or_default())
}

/// Guarantees: EVENT-8.
#[tokio::test]
async fn reconnecting_browser_gets_each_event_once() {
    let world = World::new();
    let runtime = world.process().await;
    drive(&world, &runtime, &Dice::new(7)).await;
    let connect = async |last: Option<&str>| -> SseFrames {
        let cursor = last.map(|last| last.parse::<WatchCursor>().unwrap()).unwrap_or_default();
        runtime.watch(&key()).after(cursor).await.unwrap().sse()
    };
    let mut whole = Vec::new();
    let mut frames = connect(None).await;
    while let Some(frame) = frames.next().await.unwrap() {
        whole.push(parsed(&frame));
    }
    assert_eq!(whole.pop().unwrap(), (None, "end".into(), "{}".into()));
    for at in 0..whole.len() {
        let mut again = connect(at.checked_sub(1).and_then(|last| whole[last].0.as_deref())).await;
        for frame in &whole[at..] {
            assert_eq!(parsed(&again.next().await.unwrap().unwrap()), *frame, "reconnected after {at}");
        }
        assert_eq!(parsed(&again.next().await.unwrap().unwrap()).1, "end");
        assert!(again.next().await.unwrap().is_none());
    }
    // The stream sends keep-alives while nothing happens, and its cursor advances past excluded events.
    let graph = Graph::<Context>::builder("asks")
        .gate("ok", |_s: &Context| Ask::<bool>::new("?"), |s, yes| s.set("ok", yes))
        .entry("ok")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("s").await.unwrap();
    run.wait().await.unwrap();
    let mut frames = run.watch().kinds([WatchKind::Answered]).await.unwrap().sse();
    let alive = world.pass(frames.next()).await.unwrap().unwrap();
    assert!(alive.starts_with(": alive\nid: 2/") && alive.ends_with("\n\n"), "{alive:?}");
}

#[tokio::test]
async fn watcher_behind_pruned_records_is_notified_and_continues() {
    let world = World::new();
    let runtime = world.process().await;
    drive(&world, &runtime, &Dice::new(3)).await;
    let mut early = runtime.watch(&key()).await.unwrap();
    early.next().await.unwrap().unwrap();
    let whole = recorded(&all(&mut runtime.watch(&key()).await.unwrap()).await);
    let last_four = RetentionPolicy::keep_all().keep_last(4);
    let dropped = runtime.apply_retention(&key(), &last_four).await.unwrap().records;
    assert!(dropped > 4, "{dropped}");
    // Nothing has read the retained events in this process. So use the text of the cursor, and another process.
    let other = world.process().await;
    for after in [WatchCursor::default(), early.cursor()] {
        let mut watch = other.watch(&key()).after(after).values().await.unwrap();
        let told = watch.next().await.unwrap().unwrap();
        let What::Pruned { first } = told.what else { panic!("{told:?}") };
        assert_eq!(first, other.head(&key()).await.unwrap().unwrap().first);
        let rest = all(&mut watch).await;
        let kept: Vec<_> = recorded(&rest).into_iter().filter(|event| !event.ends_with("value")).collect();
        // The status comes again, because the previous status is unknown.
        let from = whole.len() - kept.len();
        assert_eq!(kept[kept.len() - 4..], whole[whole.len() - 4..], "{from}");
        assert_eq!(rest[0].seq, Some(first));
    }
}

/// Guarantees: EVENT-4.
#[tokio::test]
async fn watch_rejects_other_generation_of_run() {
    let world = World::new();
    let (runtime, may) = (world.process().await, Arc::new(Notify::new()));
    may.notify_one();
    let graph = speaker(0, &may);
    runtime.start(&graph, Context::new()).id("r").await.unwrap().completed().await.unwrap();
    let mut watch = runtime.watch(&key()).await.unwrap();
    all(&mut watch).await;
    let mut open = runtime.watch(&key()).await.unwrap();
    open.next().await.unwrap().unwrap();
    runtime.purge(&key()).await.unwrap();
    let gone = runtime.watch(&key()).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    may.notify_one();
    runtime.start(&graph, Context::new()).id("r").await.unwrap().completed().await.unwrap();
    let mut again = runtime.watch(&key()).after(watch.cursor()).await.unwrap();
    let error = again.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("its id started again"), "{error}");
    let beyond = runtime.watch(&key()).after(Seq::new(99)).await.unwrap().next().await.unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::NotFound);
    // The watch that was open has read a part of the old run, and must not read any of the new one.
    let rest = loop {
        match open.next().await {
            Ok(Some(event)) => assert_ne!(event.kind(), WatchKind::Started),
            other => break other,
        }
    };
    assert!(matches!(&rest, Ok(None)) || rest.is_err_and(|error| error.kind() == ErrorKind::NotFound));
}

/// Events that an open watch read from a purged run must not be delivered for the next run with the same id.
#[tokio::test]
async fn watch_after_purge_shows_current_run() {
    let world = World::new();
    let (runtime, other) = (world.process().await, world.process().await);
    let may = Arc::new(Notify::new());
    may.notify_one();
    runtime.start(&speaker(3, &may), Context::new()).id("r").await.unwrap().completed().await.unwrap();
    let mut open = runtime.watch(&key()).await.unwrap();
    all(&mut open).await;
    other.purge(&key()).await.unwrap();
    let graph = Graph::<Context>::builder("next").node("only", async |_cx, s| Ok(s)).entry("only");
    let run = other.start(&graph.build().unwrap(), Context::new()).id("r").await.unwrap();
    run.completed().await.unwrap();
    let events = world.pass(all(&mut runtime.watch(&key()).await.unwrap())).await;
    assert_eq!(recorded(&events), ["0 started", "0 status", "1 node_completed only@1", "1 status"]);
}

#[tokio::test]
async fn updates_connect_consecutive_past_states() {
    for seed in [11, 12] {
        let world = World::new();
        let runtime = world.process().await;
        drive(&world, &runtime, &Dice::new(seed)).await;
        let head = runtime.head(&key()).await.unwrap().unwrap().seq;
        let (mut values, mut state) = (0, None);
        for after in [None, Some(Seq::new(head.get() / 2))] {
            let mut request = runtime.watch(&key()).values().updates().kinds([]);
            if let Some(after) = after {
                request = request.after(after);
                state = None;
            }
            let mut watch = request.await.unwrap();
            while let Some(event) = watch.next().await.unwrap() {
                match event.what {
                    What::Recorded(RecordedEvent::Value { state: text }) => {
                        let then = runtime.channels_at(&key(), event.seq.unwrap()).await.unwrap();
                        assert_eq!(text.get(), then.to_json().unwrap());
                        assert!(state.as_ref().is_none_or(|state| *state == then));
                        state = Some(then);
                        values += 1;
                    }
                    What::Recorded(RecordedEvent::Update { patch }) => {
                        if let Some(state) = &mut state {
                            state.apply(&patch).unwrap();
                        }
                    }
                    other => panic!("{other:?} was not requested"),
                }
            }
        }
        assert!(values > 3);
    }
}

#[tokio::test]
async fn watch_of_failed_run_continues_with_retry() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("fails")
        .node("a", async |cx, s| match cx.attempt() {
            1 if s.get::<bool>("good")? != Some(true) => Err(std::io::Error::other("no").into()),
            _ => Ok(s),
        })
        .entry("a")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let mut watch = run.watch().await.unwrap();
    let first = all(&mut watch).await;
    let What::Recorded(RecordedEvent::Status { status }) = first.last().unwrap().what else {
        panic!("{first:?}")
    };
    assert_eq!(status, RunStatus::Failed);
    assert!(first.iter().any(|event| event.kind() == WatchKind::NodeFailed));
    let good = serde_json::from_str(r#"[{"set":["good",true]}]"#).unwrap();
    runtime.edit(&key(), good).by("ann").await.unwrap();
    runtime.retry(&key()).by("ann").await.unwrap();
    runtime.resume(&graph, "r").await.unwrap().completed().await.unwrap();
    let second = all(&mut runtime.watch(&key()).after(watch.cursor()).await.unwrap()).await;
    let told = recorded(&second);
    assert!(told[0].ends_with("edited") && told[1].ends_with("retry_requested"), "{told:?}");
    assert!(told.last().unwrap().ends_with("status"), "{told:?}");
}

#[tokio::test]
async fn watch_from_now_skips_past_events() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("asks")
        .gate("ok", |_s: &Context| Ask::<bool>::new("?"), |s, yes| s.set("ok", yes))
        .entry("ok")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    run.wait().await.unwrap();
    let mut watch = run.watch().from_now().await.unwrap();
    runtime.respond(&key(), "ok", Answer::accept(true).unwrap()).by("ann").await.unwrap();
    let event = world.pass(watch.next()).await.unwrap().unwrap();
    let What::Recorded(RecordedEvent::Answered { question, by }) = event.what else { panic!("{event:?}") };
    assert_eq!((&*question, by.as_deref()), ("ok@1:gate", Some("ann")));
}

#[tokio::test]
async fn event_json_matches_its_type() {
    let world = World::new();
    let runtime = world.process().await;
    drive(&world, &runtime, &Dice::new(5)).await;
    let mut watch = runtime.watch(&key()).updates().values().await.unwrap();
    let mut kinds = BTreeSet::new();
    while let Some(event) = watch.next().await.unwrap() {
        let text = event.to_json().unwrap();
        assert!(!text.contains(['\n', '\r']), "{text}");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["kind"], event.kind().as_str());
        assert_eq!(json["run"], "default/r");
        assert_eq!(json["seq"], event.seq.unwrap().get());
        if let Some((node, visit)) = event.what.activation() {
            assert_eq!(json["event"]["node"], node.as_str());
            assert_eq!(json["event"]["visit"], visit.get());
        }
        if kinds.insert(event.kind()) && event.kind() == WatchKind::NodeCompleted {
            let fields: Vec<_> = json["event"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(fields, ["attempts", "next", "node", "took_ms", "visit"]);
        }
    }
    assert!(kinds.len() > 7, "{kinds:?}");
    assert_eq!(
        BTreeSet::from_iter(WatchKind::ALL.iter().map(|kind| kind.as_str())).len(),
        WatchKind::ALL.len()
    );
}

//! Streams of nodes: ordered chunks, restarted attempts, durable streams that every watcher receives once, and watchers that never delay the node.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph, RetryPolicy};
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{
    LiveEvent, Outcome, RecordedEvent, Runtime, Watch, WatchCursor, WatchEvent, WatchEventKind, WatchKind,
};
use ferrata_core::state::{Context, Draft};
use ferrata_core::{Clock, ErrorKind};

use super::dice::Dice;
use super::watching::{all, key};
use super::world::World;

/// The chunks of a watch: attempt, number and text of each.
fn chunks(events: &[WatchEvent]) -> Vec<(u32, u64, String)> {
    let all = events.iter().flat_map(WatchEvent::chunks);
    all.map(|chunk| (chunk.attempt, chunk.number, chunk.read().unwrap())).collect()
}

fn expected(attempt: u32, count: u64) -> Vec<(u32, u64, String)> {
    (0..count).map(|number| (attempt, number, format!("t{number}"))).collect()
}

/// A node that sends a number of chunks, and yields at random.
fn speaker(
    count: u64,
    durable: bool,
    effect: Effect,
    pauses: Option<(u64, Arc<dyn Clock>)>,
) -> Graph<Context> {
    Graph::<Context>::builder("speaker")
        .node("speak", move |cx: NodeContext, s: Draft<Context>| {
            let pauses = pauses.clone();
            async move {
                let mut tokens = cx.stream("tokens")?;
                if durable {
                    tokens = tokens.durable();
                }
                let dice = Dice::new(pauses.as_ref().map_or(0, |(seed, _)| *seed));
                for number in 0..count {
                    if let Some((_, clock)) = pauses.as_ref().filter(|_| dice.below(4) == 0) {
                        clock.sleep(Duration::from_millis(dice.below(200))).await;
                    }
                    tokens.send(format!("t{number}")).await?;
                }
                tokens.finish().await?;
                Ok(s)
            }
        })
        .effect(effect)
        .entry("speak")
        .build()
        .unwrap()
}

#[tokio::test]
async fn chunks_arrive_in_order_before_node_end() {
    let runtime = World::new().process().await;
    let mut watch = runtime.watch(&key()).before_start().await.unwrap();
    let graph = speaker(300, false, Effect::Write, None);
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    run.completed().await.unwrap();
    let events = all(&mut watch).await;
    assert_eq!(chunks(&events), expected(1, 300));
    let last = events.iter().rposition(|event| event.kind() == WatchKind::Chunk).unwrap();
    let end = events.iter().position(|event| event.kind() == WatchKind::NodeCompleted).unwrap();
    assert!(last < end);
    let chunk = events[last].chunks().next().unwrap();
    assert_eq!((chunk.stream, chunk.node.as_str(), chunk.visit.get()), ("tokens", "speak", 1));
    assert_eq!(chunk.read::<u32>().unwrap_err().kind(), ErrorKind::Invalid);
    // A live chunk is not stored, so a later watcher gets none.
    assert_eq!(chunks(&all(&mut run.watch().await.unwrap()).await), []);
}

/// Guarantees: EVENT-5.
#[tokio::test]
async fn watchers_do_not_slow_node() {
    let runtime = World::new().process().await;
    let mut slow = runtime.watch(&key()).before_start().await.unwrap();
    let graph = speaker(20_000, false, Effect::Write, None);
    runtime.start(&graph, Context::new()).id("r").await.unwrap().completed().await.unwrap();
    let events = all(&mut slow).await;
    let missed: u64 = events
        .iter()
        .map(|event| if let WatchEventKind::Lagged { missed } = event.what { missed } else { 0 })
        .sum();
    let heard = chunks(&events);
    assert!(missed > 0 && heard.len() <= 1_024);
    // A gap also shows in the chunk numbers.
    assert_eq!(missed + heard.len() as u64, 20_001);
    assert_eq!(heard.last().unwrap().1, 19_999);
}

/// Reads the events of a run, and reconnects at random with the text of the cursor.
async fn dropping_out(runtime: &Runtime, dice: &Dice) -> Vec<WatchEvent> {
    let (mut told, mut cursor) = (Vec::new(), WatchCursor::default());
    loop {
        let mut watch: Watch = runtime.watch(&key()).after(cursor).before_start().await.unwrap();
        for _ in 0..=dice.below(5) {
            match watch.next().await.unwrap() {
                Some(event) => told.push(event),
                None => return told,
            }
        }
        cursor = watch.cursor().to_string().parse().unwrap();
    }
}

/// Guarantees: EVENT-6.
#[tokio::test]
async fn durable_stream_reaches_any_watcher_once() {
    for seed in 0..24 {
        let dice = Dice::new(seed);
        let world = World::new();
        let (runtime, other) = (world.process().await, world.process().await);
        let effect = *dice.pick(&[Effect::Pure, Effect::Write, Effect::External]);
        let count = dice.below(60);
        let graph = speaker(count, true, effect, Some((seed, Arc::clone(&world.clock) as _)));
        let mut here = runtime.watch(&key()).before_start().await.unwrap();
        let driving =
            async { runtime.start(&graph, Context::new()).id("r").await.unwrap().completed().await.unwrap() };
        let watching = async { tokio::join!(all(&mut here), dropping_out(&other, &dice), driving) };
        let (here, there, _) = Box::pin(world.pass(watching)).await;
        let late = all(&mut other.watch(&key()).await.unwrap()).await;
        for (who, events) in [("here", &here), ("elsewhere", &there), ("later", &late)] {
            assert_eq!(chunks(events), expected(1, count), "{who}, seed {seed}, {effect:?}");
            assert!(
                events.iter().all(|event| event.kind() != WatchKind::Chunk),
                "recorded chunks must not arrive live as well"
            );
        }
        let batches = late.iter().filter(|event| event.kind() == WatchKind::Chunks).count() as u64;
        assert!(batches <= count, "{batches}");
    }
}

#[tokio::test]
async fn chunk_burst_takes_few_records() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = speaker(2_000, true, Effect::Write, None);
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    world.pass(run.completed()).await.unwrap();
    let events = all(&mut run.watch().await.unwrap()).await;
    assert_eq!(chunks(&events).len(), 2_000);
    assert!(runtime.head(&key()).await.unwrap().unwrap().seq.get() < 60);
    runtime.check_log(&key()).await.unwrap();
}

#[tokio::test]
async fn an_attempt_that_follows_begins_the_stream_anew() {
    for durable in [false, true] {
        let world = World::new();
        let runtime = world.process().await;
        let graph = Graph::<Context>::builder("retries")
            .node("talk", move |cx: NodeContext, s: Draft<Context>| async move {
                let mut tokens = cx.stream("tokens")?;
                if durable {
                    tokens = tokens.durable();
                }
                for number in 0..3 {
                    tokens.send(format!("t{number}")).await?;
                }
                tokens.finish().await?;
                match cx.attempt() {
                    1 => Err(std::io::Error::other("cut off").into()),
                    _ => Ok(s),
                }
            })
            .retry(RetryPolicy::none().with_attempts(2).with_delay(Duration::from_millis(1)))
            .entry("talk")
            .build()
            .unwrap();
        let mut watch = runtime.watch(&key()).before_start().await.unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        world.pass(run.completed()).await.unwrap();
        let events = all(&mut watch).await;
        let both: Vec<_> = expected(1, 3).into_iter().chain(expected(2, 3)).collect();
        assert_eq!(chunks(&events), both, "durable: {durable}");
        let of = |attempt| {
            events.iter().position(|event| event.chunks().any(|chunk| chunk.attempt == attempt)).unwrap()
        };
        // Live events keep their own order, and so do recorded events.
        let turn = events.iter().position(|event| match &event.what {
            WatchEventKind::Live(LiveEvent::AttemptStarted { attempt, .. }) => !durable && *attempt == 2,
            WatchEventKind::Recorded(RecordedEvent::AttemptFailed { failed, .. }) => durable && *failed == 1,
            _ => false,
        });
        assert!(of(1) < turn.unwrap() && turn.unwrap() < of(2), "durable: {durable}");
    }
}

/// The ways in which an attempt ends and leaves chunks of a durable stream unrecorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unfinished {
    Fails,
    FailsLater,
    Panics,
    DropsTheStream,
    TakesTooLong,
}

/// Gathered chunks of a failed attempt are recorded before the chunks of the next attempt, not among them.
///
/// Guarantees: EVENT-7.
#[tokio::test]
async fn failed_attempt_chunks_precede_next_attempt_chunks() {
    use Unfinished::{DropsTheStream, Fails, FailsLater, Panics, TakesTooLong};
    for (how, attempts) in [Fails, FailsLater, Panics, DropsTheStream, TakesTooLong]
        .into_iter()
        .flat_map(|how| [(how, 2), (how, 4)])
    {
        let world = World::new();
        let runtime = world.process().await;
        let clock = Arc::clone(&world.clock);
        let (pause, limit) = if how == TakesTooLong { (20, 30) } else { (50, 10_000) };
        let graph = Graph::<Context>::builder("retries")
            .node("talk", move |cx: NodeContext, s: Draft<Context>| {
                let clock = Arc::clone(&clock);
                async move {
                    let mut tokens = cx.stream("tokens")?.durable();
                    tokens.send("t0").await?;
                    if cx.attempt() == attempts {
                        clock.sleep(Duration::from_millis(pause)).await;
                    }
                    tokens.send("t1").await?;
                    tokens.send("t2").await?;
                    if cx.attempt() == attempts {
                        tokens.finish().await?;
                        return Ok(s);
                    }
                    match how {
                        Fails => {}
                        FailsLater => clock.sleep(Duration::from_millis(60)).await,
                        Panics => panic!("cut off"),
                        DropsTheStream => drop(tokens),
                        TakesTooLong => std::future::pending().await,
                    }
                    Err(std::io::Error::other("cut off").into())
                }
            })
            .timeout(Duration::from_millis(limit))
            .retry(RetryPolicy::none().with_attempts(attempts))
            .entry("talk")
            .build()
            .unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        let in_short_steps = async {
            loop {
                tokio::task::yield_now().await;
                world.clock.advance(Duration::from_millis(10));
            }
        };
        tokio::select! {
            biased;
            end = run.completed() => drop(end.unwrap()),
            () = in_short_steps => {}
        }
        let told = chunks(&all(&mut run.watch().await.unwrap()).await);
        assert!(told.is_sorted_by_key(|(attempt, number, _)| (*attempt, *number)), "{how:?}: {told:?}");
        let of = |attempt| told.iter().filter(|(of, ..)| *of == attempt).cloned().collect::<Vec<_>>();
        assert_eq!(of(attempts), expected(attempts, 3), "{how:?}");
        for attempt in 1..attempts {
            let said = if how == FailsLater { 3 } else { 1 };
            assert!(
                of(attempt).len() >= said,
                "chunks that were recorded before the end of the attempt stay: {how:?}: {told:?}"
            );
        }
        runtime.check_log(&key()).await.unwrap();
    }
}

#[tokio::test]
async fn repeated_activation_after_crash_restarts_stream() {
    let world = World::new();
    let (store, dying) = world.mortal().await;
    let graph = Graph::<Context>::builder("crashes")
        .node("talk", async |cx, s| {
            let mut tokens = cx.stream("tokens")?.durable();
            tokens.send("t0").await?;
            let is_first = cx.try_resource::<()>().is_none();
            if is_first {
                std::future::pending::<()>().await;
            }
            tokens.send("t1").await?;
            tokens.finish().await?;
            Ok(s)
        })
        .entry("talk")
        .build()
        .unwrap();
    let mut watch = dying.watch(&key()).before_start().await.unwrap();
    let _run = dying.start(&graph, Context::new()).id("r").await.unwrap();
    let first = world.pass(async {
        loop {
            let event = watch.next().await.unwrap().unwrap();
            if event.chunks().next().is_some() {
                break event;
            }
        }
    });
    let first = first.await;
    let WatchEventKind::Recorded(RecordedEvent::Chunks { round: 1, first: 0, .. }) = &first.what else {
        panic!("{first:?}")
    };
    store.crash();
    let builder = Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _).resource(());
    let other = builder.build().await.unwrap();
    world.clock.advance(Duration::from_secs(3_600));
    let again = other.resume(&graph, "r").await.unwrap();
    world.pass(again.completed()).await.unwrap();
    let rest = all(&mut other.watch(&key()).after(watch.cursor()).await.unwrap()).await;
    let rounds: Vec<_> = rest
        .iter()
        .filter_map(|event| match &event.what {
            WatchEventKind::Recorded(RecordedEvent::Chunks { round, .. }) => Some(*round),
            _ => None,
        })
        .collect();
    assert!(!rounds.is_empty() && rounds.iter().all(|round| *round == 2), "{rounds:?}");
    assert_eq!(chunks(&rest), expected(1, 2), "the stream must continue from the first chunk, by its number");
}

#[tokio::test]
async fn a_stream_has_a_name_of_its_own() {
    let runtime = World::new().process().await;
    let graph = Graph::<Context>::builder("names")
        .node("a", async |cx, mut s| {
            let _tokens = cx.stream("tokens")?;
            let refused =
                ["tokens", "", "no space", "#x", "before"].map(|name| cx.stream(name).unwrap_err().kind());
            assert_eq!(refused, [ErrorKind::Invalid; 5]);
            s.set("seen", true)?;
            Ok(s)
        })
        .entry("a")
        .build()
        .unwrap();
    let state = runtime.start(&graph, Context::new()).await.unwrap().completed().await.unwrap();
    assert_eq!(state.get::<bool>("seen").unwrap(), Some(true));
}

#[tokio::test]
async fn a_durable_stream_has_an_end() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("long")
        .node("a", async |cx, mut s| {
            let mut tokens = cx.stream("tokens")?.durable();
            let chunk = "x".repeat(100_000);
            let mut sent = 0;
            let error = loop {
                match tokens.send(&chunk).await {
                    Ok(()) => sent += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!((sent, error.kind()), (41, ErrorKind::TooLarge), "{error}");
            s.set("sent", sent)?;
            Ok(s)
        })
        .entry("a")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<u32>("sent").unwrap(), Some(41));
}

#[tokio::test]
async fn durable_stream_without_writes_is_valid() {
    let world = World::new();
    let runtime = world.process().await;
    let policy = CheckpointPolicy::default().with_frequency(CheckpointFrequency::Disabled);
    let graph = speaker(10, true, Effect::Write, None);
    let run = runtime.start(&graph, Context::new()).id("r").checkpoints(policy).await.unwrap();
    let outcome = world.pass(run.wait()).await.unwrap();
    assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
}

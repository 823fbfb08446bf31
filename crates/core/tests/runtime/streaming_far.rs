//! Streams in other processes, over stores that relay texts: complete and in order, or with the number of missing chunks, and free without a watcher.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::Clock as _;
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{RecordedEvent, Runtime, Watch, WatchEvent, WatchEventKind, WatchKind};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore as _, MAX_TEXT_BYTES, RelayTexts};
use tokio::sync::{Notify, Semaphore};

use super::watching::{all, key};
use super::world::World;

/// A node that sends `count` chunks, each with the text that `text` returns.
fn speaker(count: u64, text: fn(u64) -> String) -> Graph<Context> {
    let speak = move |cx: NodeContext, s: Draft<Context>| async move {
        let mut tokens = cx.stream("tokens")?;
        for number in 0..count {
            tokens.send(text(number)).await?;
        }
        tokens.finish().await?;
        Ok(s)
    };
    Graph::<Context>::builder("speaker").node("speak", speak).entry("speak").build().unwrap()
}

fn short(number: u64) -> String {
    format!("t{number}")
}

/// Every tenth text is larger than any notice, and contains every kind of character.
fn mixed(number: u64) -> String {
    match number % 10 {
        3 => format!("{number} \u{1f6a2} \"quoted\" \\ $1 \0 {}", "'\n".repeat(5_000)),
        7 => String::new(),
        _ => short(number),
    }
}

/// Returns the numbers of the chunks. Checks that each chunk has its original text.
fn numbers(events: &[WatchEvent], text: fn(u64) -> String) -> Vec<u64> {
    let chunks = events.iter().flat_map(WatchEvent::chunks);
    chunks
        .map(|chunk| {
            assert_eq!(chunk.read::<String>().unwrap(), text(chunk.number));
            chunk.number
        })
        .collect()
}

fn missed(events: &[WatchEvent]) -> u64 {
    events
        .iter()
        .map(|event| if let WatchEventKind::Lagged { missed } = event.what { missed } else { 0 })
        .sum()
}

/// Runs a first stream, so that this process asks which runs other processes watch.
async fn warmed(world: &World, runtime: &Runtime) {
    let run = runtime.start(&speaker(1, short), Context::new()).id("warm").await.unwrap();
    world.pass(run.completed()).await.unwrap();
    world.pass(world.clock.sleep(Duration::from_secs(1))).await;
}

/// Runs a graph in one process, with one watcher in the same process and two watchers in others.
async fn heard(world: &World, graph: &Graph<Context>) -> [Vec<WatchEvent>; 3] {
    let (runtime, one, two) = (world.process().await, world.process().await, world.process().await);
    warmed(world, &runtime).await;
    let watch = |runtime: &Runtime| runtime.watch(&key()).before_start();
    let (mut a, mut b, mut here) =
        (watch(&one).await.unwrap(), watch(&two).await.unwrap(), watch(&runtime).await.unwrap());
    let running = async {
        let run = runtime.start(graph, Context::new()).id("r").await.unwrap();
        tokio::join!(run.completed(), all(&mut a), all(&mut b), all(&mut here))
    };
    let (end, a, b, here) = Box::pin(world.pass(running)).await;
    end.unwrap();
    [a, b, here]
}

#[tokio::test]
async fn remote_watcher_gets_whole_chunks_in_order() {
    let world = World::new();
    // Invalid texts on the channel must do no harm.
    let strange = ["", "f1", "f1 x 0 0 1 {}", "\u{1f6a2} ' $1"].map(String::from).to_vec();
    world.store.relay().unwrap().publish(strange).await.unwrap();
    for events in heard(&world, &speaker(100, mixed)).await {
        assert_eq!(numbers(&events, mixed), (0..100).collect::<Vec<_>>());
        assert_eq!(missed(&events), 0);
        // The end of the stream comes before the record of the node.
        let last = events.iter().rposition(|event| event.kind() == WatchKind::Chunk).unwrap();
        let end = events.iter().position(|event| event.kind() == WatchKind::NodeCompleted).unwrap();
        assert!(last < end, "chunk {last}, end {end}");
    }
}

#[tokio::test]
async fn what_does_not_reach_other_processes_is_counted() {
    // Only a chunk that exceeds the buffer is lost.
    let text = |number| if number == 4 { "x".repeat(300_000) } else { short(number) };
    let [a, b, here] = heard(&World::new(), &speaker(9, text)).await;
    for events in [a, b] {
        assert_eq!((numbers(&events, text), missed(&events)), (vec![0, 1, 2, 3, 5, 6, 7, 8], 1));
    }
    assert_eq!((numbers(&here, text).len(), missed(&here)), (9, 0));
}

#[tokio::test]
async fn node_outpacing_store_drops_and_counts_chunks() {
    // The node yields after each 128 chunks, which is more than the buffer holds.
    let text = |number: u64| format!("{number:04000}");
    let [a, b, ..] = heard(&World::new(), &speaker(600, text)).await;
    for events in [a, b] {
        let (heard, missed) = (numbers(&events, text), missed(&events));
        assert!(heard.is_sorted() && heard.last() == Some(&599), "{heard:?}");
        assert!(missed > 0 && heard[0] + heard.len() as u64 + missed == 600, "{heard:?} and {missed}");
    }
}

/// A node that sends one chunk per permit.
fn paced(pace: &Arc<Semaphore>, count: u64) -> Graph<Context> {
    let pace = Arc::clone(pace);
    let speak = move |cx: NodeContext, s: Draft<Context>| {
        let pace = Arc::clone(&pace);
        async move {
            let mut tokens = cx.stream("tokens")?;
            for number in 0..count {
                pace.acquire().await.unwrap().forget();
                tokens.send(short(number)).await?;
            }
            tokens.finish().await?;
            Ok(s)
        }
    };
    Graph::<Context>::builder("paced").node("speak", speak).entry("speak").build().unwrap()
}

/// Reads events until `count` chunks have arrived.
async fn until(watch: &mut Watch, count: usize) -> Vec<WatchEvent> {
    let mut events = Vec::new();
    while numbers(&events, short).len() < count {
        events.push(watch.next().await.unwrap().unwrap());
    }
    events
}

#[tokio::test]
async fn late_watcher_gets_new_chunks_without_loss() {
    let world = World::new();
    let (runtime, other) = (world.process().await, world.process().await);
    let pace = Arc::new(Semaphore::new(0));
    let run = runtime.start(&paced(&pace, 9), Context::new()).id("r").await.unwrap();
    let mut first = other.watch(&key()).await.unwrap();
    pace.add_permits(3);
    let early = world.pass(until(&mut first, 3)).await;
    drop(first);
    // No process watches for longer than a registration of a watch lasts.
    world.pass(world.clock.sleep(Duration::from_secs(60))).await;
    pace.add_permits(3);
    world.pass(world.clock.sleep(Duration::from_secs(1))).await;
    let mut second = other.watch(&key()).await.unwrap();
    pace.add_permits(3);
    let (late, end) = world.pass(async { tokio::join!(all(&mut second), run.completed()) }).await;
    end.unwrap();
    assert_eq!((numbers(&early, short), numbers(&late, short)), (vec![0, 1, 2], vec![6, 7, 8]));
    assert_eq!((missed(&early), missed(&late)), (0, 0));
}

#[tokio::test]
async fn takeover_restarts_stream() {
    let world = World::new();
    let (store, dying) = world.mortal().await;
    let watcher = world.process().await;
    let pace = Arc::new(Semaphore::new(3));
    let mut watch = watcher.watch(&key()).before_start().await.unwrap();
    let graph = paced(&pace, 5);
    let _run = dying.start(&graph, Context::new()).id("r").await.unwrap();
    let before = world.pass(until(&mut watch, 3)).await;
    store.crash();
    world.clock.advance(Duration::from_secs(3_600));
    pace.add_permits(10);
    let other = world.process().await;
    warmed(&world, &other).await;
    let again = other.resume(&graph, "r").await.unwrap();
    let (after, end) = world.pass(async { tokio::join!(all(&mut watch), again.completed()) }).await;
    end.unwrap();
    assert_eq!((numbers(&before, short), numbers(&after, short)), (vec![0, 1, 2], vec![0, 1, 2, 3, 4]));
    assert_eq!((missed(&before), missed(&after)), (0, 0));
}

/// A retry during a running attempt keeps the claim and restarts the attempt numbers. The new chunks must not count as already received.
#[tokio::test]
async fn restarted_stream_with_same_attempt_is_read_entirely() {
    let world = World::new();
    let (runtime, other) = (world.process().await, world.process().await);
    warmed(&world, &runtime).await;
    let (began, paid) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let (beginnings, may) = (Arc::clone(&began), Arc::clone(&paid));
    let graph = Graph::<Context>::builder("order")
        .node("split", async |_cx, s| Ok(s))
        .node("model", move |cx: NodeContext, s: Draft<Context>| {
            let count = [10, 12][beginnings.fetch_add(1, Ordering::Relaxed) as usize];
            async move {
                let mut tokens = cx.stream("tokens")?;
                for number in 0..count {
                    tokens.send(short(number)).await?;
                }
                tokens.finish().await?;
                if count == 10 { Err(std::io::Error::other("cut off").into()) } else { Ok(s) }
            }
        })
        .node("pay", move |_cx: NodeContext, _s: Draft<Context>| {
            let may = Arc::clone(&may);
            async move {
                may.notified().await;
                Ok(())
            }
        })
        .effect(Effect::External)
        .entry("split")
        .edge("split", ["model", "pay"])
        .build()
        .unwrap();
    let mut watches = Vec::new();
    for process in [&runtime, &other] {
        watches.push(process.watch(&key()).before_start().await.unwrap());
    }
    let until = async |watch: &mut Watch, status: RunStatus| {
        let mut events = vec![watch.next().await.unwrap().unwrap()];
        let is_there = |event: &WatchEvent| matches!(&event.what, WatchEventKind::Recorded(RecordedEvent::Status { status: of }) if *of == status);
        while !events.last().is_some_and(is_there) {
            events.push(watch.next().await.unwrap().unwrap());
        }
        events
    };
    let [here, there] = &mut watches[..] else { unreachable!() };
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let failed = async { tokio::join!(until(here, RunStatus::Failed), until(there, RunStatus::Failed)) };
    let before = Box::pin(world.pass(failed)).await;
    runtime.retry(&key()).by("ann").await.unwrap();
    world.pass(world.clock.sleep(Duration::from_secs(1))).await;
    paid.notify_one();
    let done = async { tokio::join!(until(here, RunStatus::Completed), until(there, RunStatus::Completed)) };
    let after = Box::pin(world.pass(done)).await;
    world.pass(run.completed()).await.unwrap();
    let begun = |events: &[WatchEvent]| {
        let begins = |event: &&WatchEvent| {
            matches!(&event.what, WatchEventKind::Recorded(RecordedEvent::Claimed { .. }))
        };
        events.iter().filter(begins).count()
    };
    assert_eq!((began.load(Ordering::Relaxed), begun(&after.0)), (2, 0), "the claim must be the same");
    for (who, before, after) in [("here", before.0, after.0), ("elsewhere", before.1, after.1)] {
        let attempts = || before.iter().chain(&after).flat_map(WatchEvent::chunks).map(|chunk| chunk.attempt);
        assert!(attempts().all(|attempt| attempt == 1), "{who}");
        assert_eq!((numbers(&before, short), missed(&before)), ((0..10).collect(), 0), "{who}");
        assert_eq!((numbers(&after, short), missed(&after)), ((0..12).collect(), 0), "{who}");
    }
}

/// Counts the texts published since the last call, and the texts among them that contain chunks.
async fn counted(texts: &mut RelayTexts) -> (usize, usize) {
    let (mut all, mut chunks) = (0, 0);
    loop {
        tokio::select! {
            biased;
            text = texts.next() => {
                let text = text.unwrap().unwrap();
                assert!(text.len() <= MAX_TEXT_BYTES);
                all += 1;
                chunks += usize::from(text.contains("Chunks"));
            }
            () = tokio::task::yield_now() => return (all, chunks),
        }
    }
}

#[tokio::test]
async fn what_nobody_watches_elsewhere_is_not_said() {
    let world = World::new();
    let mut texts = world.store.relay().unwrap().listen().await.unwrap();
    let (runtime, other) = (world.process().await, world.process().await);
    let graph = speaker(200, short);
    let run = async |id: &str| {
        world.pass(runtime.start(&graph, Context::new()).id(id).await.unwrap().completed()).await.unwrap();
        world.pass(world.clock.sleep(Duration::from_secs(1))).await;
    };
    run("a").await;
    assert_eq!(
        counted(&mut texts).await,
        (1, 0),
        "the first stream of a process publishes one text, which asks for watches"
    );
    let here = runtime.watch(&"b".try_into().unwrap()).before_start().await.unwrap();
    let elsewhere = other.watch(&"x".try_into().unwrap()).before_start().await.unwrap();
    let others = [WatchKind::NodeCompleted, WatchKind::Status];
    let kinds = other.watch(&"b".try_into().unwrap()).before_start().kinds(others).await.unwrap();
    assert_eq!(
        counted(&mut texts).await,
        (2, 0),
        "only a watch that wants chunks is announced, and only once"
    );
    run("b").await;
    assert_eq!(
        counted(&mut texts).await,
        (0, 0),
        "the watches are of another run, in the same process, or want no chunks"
    );
    let watched = other.watch(&"c".try_into().unwrap()).before_start().await.unwrap();
    run("c").await;
    let (all, chunks) = counted(&mut texts).await;
    assert!(chunks > 0 && all < 8, "{all} texts: chunks must be batched");
    drop((here, elsewhere, kinds, watched));
    world.pass(world.clock.sleep(Duration::from_secs(60))).await;
    counted(&mut texts).await;
    run("d").await;
    world.pass(world.clock.sleep(Duration::from_secs(60))).await;
    assert_eq!(counted(&mut texts).await, (0, 0), "without watchers, a run must publish nothing");
}

#[tokio::test]
async fn relay_tasks_end_with_runtime() {
    let world = World::new();
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let runtime = world.process().await;
    let watch = runtime.watch(&key()).before_start().await.unwrap();
    let run = runtime.start(&speaker(3, short), Context::new()).id("r").await.unwrap();
    world.pass(run.completed()).await.unwrap();
    // After one second the tasks are idle.
    world.pass(world.clock.sleep(Duration::from_secs(1))).await;
    drop((watch, run));
    world.pass(runtime.shutdown(Duration::ZERO)).await.unwrap();
    drop(runtime);
    for _ in 0..1_000 {
        if tokio::runtime::Handle::current().metrics().num_alive_tasks() <= before {
            return;
        }
        // The tasks wait for a notice, and a poll of the store replaces it.
        world.clock.advance(Duration::from_secs(60));
        tokio::task::yield_now().await;
    }
    let left = tokio::runtime::Handle::current().metrics().num_alive_tasks() - before;
    assert!(left <= 1, "{left} tasks are left");
}

//! A run advances even if its wake-up coincides with any other event.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use ferrata_core::Clock;
use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RecordKind;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft, Patch};
use ferrata_core::store::{CheckpointStore, HeaderRange, MemoryStore};
use ferrata_testing::FaultStore;
use serde_json::json;
use tokio::task::JoinSet;

use super::family::*;
use super::world::World;

/// Maximum number of scheduler turns between the event that advances the run and the interruption. The run needs fewer turns to end.
const MOST_TURNS: usize = 60;

/// The event that the node `wait` waits for. Each wait ends after at most a day.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wait {
    Child,
    ChildOrTime,
    Answer,
    AnswerBesideChild,
    Message,
    MessageBesideChild,
    Children,
    Time,
    Retry,
}

const WAITS: [Wait; 9] = [
    Wait::Children,
    Wait::Time,
    Wait::Retry,
    Wait::Child,
    Wait::ChildOrTime,
    Wait::Answer,
    Wait::AnswerBesideChild,
    Wait::Message,
    Wait::MessageBesideChild,
];

fn graph(wait: Wait) -> Graph<Context> {
    let child = gate();
    let waits = using!(child; cx, s => {
        match wait {
            Wait::Child => drop(cx.child(&child, with(1)).await?),
            Wait::ChildOrTime => {
                let child = cx.child(&child, with(1)).start().await?;
                tokio::select! {
                    ended = child.result() => drop(ended?),
                    slept = cx.sleep(24 * HOUR) => slept?,
                }
            }
            Wait::Answer | Wait::AnswerBesideChild => {
                cx.ask_with("ok", Ask::<bool>::new("?").deadline(24 * HOUR).or_default(false)).await?;
            }
            Wait::Children => drop(cx.children(&child, (0..2).map(with)).await?),
            Wait::Time => cx.sleep(Duration::from_secs(2)).await?,
            Wait::Retry if cx.attempt() == 1 => return Err(NodeError::new("not yet")),
            Wait::Retry => {}
            Wait::Message | Wait::MessageBesideChild => {
                cx.receive_within::<String>(24 * HOUR).await?;
            }
        }
        Ok(s)
    });
    let beside = using!(child; cx, s => {
        if matches!(wait, Wait::AnswerBesideChild | Wait::MessageBesideChild) {
            cx.child(&child, with(1)).await?;
        }
        Ok(s)
    });
    Graph::<Context>::builder("waits")
        .node("split", async |_cx, s| Ok(s))
        .node("wait", waits)
        .retry(RetryPolicy::none().with_attempts(2).with_delay(Duration::from_secs(2)).with_jitter(0.0))
        .node("beside", beside)
        .entry("split")
        .edge("split", ["wait", "beside"])
        .build()
        .unwrap()
}

/// The order of the two concurrent events.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Moved,
    Interrupted,
}

/// The interruption that reaches the run while it advances.
#[derive(Clone, Copy, Debug)]
enum Interruption {
    Shutdown(Duration),
    Drain,
    Pause,
    PauseElsewhere,
    TakeOver,
    Edit,
    EditElsewhere,
    Crash,
}

const INTERRUPTIONS: [Interruption; 9] = [
    Interruption::Edit,
    Interruption::EditElsewhere,
    Interruption::Shutdown(Duration::ZERO),
    Interruption::Shutdown(Duration::from_secs(1)),
    Interruption::Drain,
    Interruption::Pause,
    Interruption::PauseElsewhere,
    Interruption::TakeOver,
    Interruption::Crash,
];

fn patch() -> Patch {
    Patch::from_json(r#"[{"set":["edited",true]}]"#).unwrap()
}

impl Interruption {
    /// Maximum time until the node gets its result, from the moment when another process serves the workflow.
    fn patience(self) -> Duration {
        match self {
            // Shorter than the interval at which an idle parent polls its children.
            Self::Shutdown(_)
            | Self::Drain
            | Self::Pause
            | Self::PauseElsewhere
            | Self::TakeOver
            | Self::Edit
            | Self::EditElsewhere => Duration::from_secs(5),
            // A silent process counts as dead after 15 s. The parent polls the child within 5 s after that.
            Self::Crash => Duration::from_secs(27),
        }
    }

    async fn comes(
        self,
        [first, second]: [Runtime; 2],
        dying: &FaultStore<MemoryStore>,
        graph: &Graph<Context>,
    ) {
        match self {
            Self::Shutdown(grace) => first.shutdown(grace).await.unwrap(),
            Self::Drain => first.drain().await.unwrap(),
            // The call may fail because the run has ended.
            Self::Pause => drop(first.pause(&key("p"), "a look").await),
            Self::PauseElsewhere => drop(second.pause(&key("p"), "a look").await),
            Self::TakeOver => drop(second.resume(graph, key("p")).take_over().await),
            Self::Edit => drop(first.edit(&key("p"), patch()).await),
            Self::EditElsewhere => drop(second.edit(&key("p"), patch()).await),
            Self::Crash => dying.crash(),
        }
    }
}

/// Advances the run, through the first process while that process accepts calls.
async fn move_on(world: &World, wait: Wait, first: &Runtime, second: &Runtime) {
    let yes = || Answer::accept(true).unwrap();
    for moved in 0..if wait == Wait::Children { 2 } else { 1 } {
        loop {
            let answer = async |by: &Runtime| match wait {
                Wait::Child | Wait::ChildOrTime | Wait::Children => {
                    let child = children_of(world, "p").await.swap_remove(moved).run;
                    by.respond(&child, "ok", yes()).await
                }
                Wait::Answer | Wait::AnswerBesideChild => by.respond(&key("p"), "wait@1:ok", yes()).await,
                Wait::Message | Wait::MessageBesideChild => by.send(&key("p"), json!("go")).await.map(drop),
                // Time alone advances these waits.
                Wait::Time | Wait::Retry => Ok(()),
            };
            if answer(first).await.is_ok() || answer(second).await.is_ok() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Yields once, behind all tasks that are ready now. [`tokio::task::yield_now`] also yields to tasks that those tasks wake.
async fn turn() {
    let mut is_over = false;
    let once = poll_fn(|task| match std::mem::replace(&mut is_over, true) {
        true => Poll::Ready(()),
        false => {
            task.waker().wake_by_ref();
            Poll::Pending
        }
    });
    once.await;
}

async fn turns_of(turns: u32) {
    for _ in 0..turns {
        turn().await;
    }
}

/// Returns the time until the node gets its result. It counts from the end of the interruption, when the second process serves the workflow. The
/// interruption comes `turns` scheduler turns after the event.
async fn time_to_hear(wait: Wait, interruption: Interruption, order: Order, turns: u32) -> Duration {
    let (world, graph) = (World::new(), graph(wait));
    let ((store, first), second) = (world.mortal().await, world.process().await);
    served(&first, &[&graph, &gate()]);
    first.start(&graph, Context::new()).id("p").await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    // Spawn a task, because the runtime polls the test's own future after many tasks.
    let (processes, its_graph) = ([first.clone(), second.clone()], graph.clone());
    let mut interrupting = JoinSet::new();
    interrupting.spawn(async move {
        if order == Order::Moved {
            turns_of(turns).await;
        }
        interruption.comes(processes, &store, &its_graph).await;
    });
    let moving = async {
        if order == Order::Interrupted {
            let mut beside = JoinSet::new();
            beside.spawn(turns_of(turns));
            beside.join_all().await;
        }
        move_on(&world, wait, &first, &second).await;
    };
    world.pass(async { tokio::join!(moving, interrupting.join_all()) }).await;
    served(&second, &[&graph, &gate()]);
    // The unpause is refused if the run was never paused.
    drop(second.unpause(&key("p")).await);
    let began = world.clock.monotonic();
    let heard = async {
        loop {
            let log = world.store.headers(&key("p"), HeaderRange::newest(100)).await.unwrap().items;
            let is_end = |node: &str, kind| node == "wait" && kind == RecordKind::Node;
            if log.iter().any(|one| one.node.as_ref().is_some_and(|node| is_end(node.as_str(), one.kind))) {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = world.pass(heard) => world.clock.monotonic() - began,
        () = world.clock.sleep(HOUR) => HOUR,
    }
}

/// A shutdown between the receipt of an event and its delivery to the node does not delay the run: the next driver delivers a child's end, an answer
/// or a message at once, also after a crash.
///
/// With `FERRATA_EACH_TURN=1`, each interruption comes after each number of turns, which takes minutes.
///
/// Guarantees: CONTROL-15.
#[tokio::test]
async fn interruption_never_delays_delivered_input() {
    let is_long = std::env::var_os("FERRATA_EACH_TURN").is_some();
    let mut late = Vec::new();
    for (nth, wait) in WAITS.into_iter().enumerate() {
        for interruption in INTERRUPTIONS {
            for order in [Order::Moved, Order::Interrupted] {
                let step = match (interruption, order) {
                    (Interruption::Shutdown(Duration::ZERO), Order::Moved) => 1,
                    _ if is_long => 1,
                    _ => 11,
                };
                for turns in (nth % step..MOST_TURNS).step_by(step) {
                    let took = time_to_hear(wait, interruption, order, u32::try_from(turns).unwrap()).await;
                    if took >= interruption.patience() {
                        late.push(format!("{:?}", (wait, interruption, order, turns, took)));
                    }
                }
            }
        }
    }
    assert!(late.is_empty(), "{late:#?}");
}

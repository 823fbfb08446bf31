//! What moves a run moves it whatever else comes to the run at the same time.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use ferrata_core::Clock;
use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RecordKind;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, FaultStore, HeaderRange, MemoryStore};
use serde_json::json;

use super::family::*;
use super::world::World;

/// How often a process is let work between what moves its run and what interrupts it: more than the run takes to end.
const MOST_TURNS: u32 = 80;

/// What the node `wait` waits for. Each is over after a day at the latest.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wait {
    Child,
    ChildOrTime,
    Answer,
    AnswerBesideChild,
    Message,
    MessageBesideChild,
}

const WAITS: [Wait; 6] = [
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
        .node("beside", beside)
        .entry("split")
        .edge("split", ["wait", "beside"])
        .build()
        .unwrap()
}

/// What comes to the run while it is moved.
#[derive(Clone, Copy, Debug)]
enum Interruption {
    Shutdown(Duration),
    Drain,
    Pause,
    PauseElsewhere,
    TakeOver,
    Crash,
}

const INTERRUPTIONS: [Interruption; 7] = [
    Interruption::Shutdown(Duration::ZERO),
    Interruption::Shutdown(Duration::from_secs(1)),
    Interruption::Drain,
    Interruption::Pause,
    Interruption::PauseElsewhere,
    Interruption::TakeOver,
    Interruption::Crash,
];

impl Interruption {
    /// How long the node may take to hear what it waited for, from when another process serves the workflow.
    fn patience(self) -> Duration {
        match self {
            // Less than the time after which the children of a parent that rests are looked at.
            Self::Shutdown(_) | Self::Drain | Self::Pause | Self::PauseElsewhere | Self::TakeOver => {
                Duration::from_secs(4)
            }
            // A process that is silent counts as dead after fifteen seconds, and its child is looked at by its parent after five more.
            Self::Crash => Duration::from_secs(25),
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
            // It may have ended.
            Self::Pause => drop(first.pause(&key("p"), "a look").await),
            Self::PauseElsewhere => drop(second.pause(&key("p"), "a look").await),
            Self::TakeOver => drop(second.resume(graph, key("p")).take_over().await),
            Self::Crash => dying.crash(),
        }
    }
}

/// Moves the run: through the first process, as long as that takes anything.
async fn move_on(world: &World, wait: Wait, first: &Runtime, second: &Runtime) {
    let child = || async { only_child_of(world, "p").await.run };
    loop {
        for by in [first, second] {
            let moved = match wait {
                Wait::Child | Wait::ChildOrTime => {
                    by.respond(&child().await, "ok", Answer::accept(true).unwrap()).await
                }
                Wait::Answer | Wait::AnswerBesideChild => {
                    by.respond(&key("p"), "wait@1:ok", Answer::accept(true).unwrap()).await
                }
                Wait::Message | Wait::MessageBesideChild => by.send(&key("p"), json!("go")).await.map(drop),
            };
            if moved.is_ok() {
                return;
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Lets those go first who are to be polled by now. [`tokio::task::yield_now`] lets those go first, too, whom they wake.
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

/// How long the node takes to hear what it waited for, from when the interruption is over and the second process serves the workflow. The
/// interruption comes so many turns after the run is moved.
async fn time_to_hear(wait: Wait, interruption: Interruption, turns: u32) -> Duration {
    let (world, graph) = (World::new(), graph(wait));
    let ((store, first), second) = (world.mortal().await, world.process().await);
    served(&first, &[&graph, &gate()]);
    first.start(&graph, Context::new()).id("p").await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    // In a task: what a test awaits itself is polled after many tasks.
    let (processes, its_graph) = ([first.clone(), second.clone()], graph.clone());
    let interrupting = tokio::spawn(async move {
        for _ in 0..turns {
            turn().await;
        }
        interruption.comes(processes, &store, &its_graph).await;
    });
    let moving = move_on(&world, wait, &first, &second);
    world.pass(async { tokio::join!(moving, interrupting) }).await.1.unwrap();
    served(&second, &[&graph, &gate()]);
    // A run that was never paused refuses it.
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

/// What a driver had taken in, and had not handed to its node when its runtime was shut down, moved the run no more: a parent looked for
/// the end of a child that was in its log, ever less often, and an answer or a message waited for the time at which its node gives up.
#[tokio::test]
async fn what_moves_a_run_moves_it_whatever_interrupts_it() {
    let mut late = Vec::new();
    for wait in WAITS {
        for interruption in INTERRUPTIONS {
            for turns in 0..MOST_TURNS {
                let took = time_to_hear(wait, interruption, turns).await;
                if took >= interruption.patience() {
                    late.push((wait, interruption, turns, took));
                }
            }
        }
    }
    assert!(late.is_empty(), "{late:#?}");
}

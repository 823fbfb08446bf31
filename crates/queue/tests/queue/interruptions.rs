//! A run that gets its slot during another event continues after that event.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::state::{Context, Draft};
use ferrata_core::{Clock, RunKey};
use ferrata_queue::{NodeQueueExt, RuntimeQueueExt, StartQueueExt};
use ferrata_testing::{Process, World};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::{MOMENT, WHILE, Witness, empty, in_a_place, patient, slow};

/// Maximum number of scheduler turns between the end of the holder and the interruption.
const MOST_TURNS: u32 = 120;

#[derive(Clone, Copy, Debug)]
enum Wait {
    /// A node in memory.
    Awake,
    /// An idle node.
    AtRest,
    /// A run that is on hold.
    Run,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Interruption {
    Shutdown,
    Drain,
    Pause,
    TakeOver,
    Crash,
}

fn key() -> RunKey {
    "waits".try_into().unwrap()
}

/// A workflow with a node that holds the slot until it is released.
fn holds(witness: &Witness, told: &watch::Receiver<bool>) -> Graph<Context> {
    let (witness, told) = (witness.clone(), told.clone());
    let hold = move |cx: NodeContext, s: Draft<Context>| {
        let (witness, mut told) = (witness.clone(), told.clone());
        async move {
            let place = cx.acquire("gpu", 1).await?;
            let inside = witness.enter("holds");
            told.wait_for(|told| *told).await.map_err(NodeError::new)?;
            drop(inside);
            drop(place);
            Ok::<_, NodeError>(s)
        }
    };
    Graph::<Context>::builder("holds").node("hold", hold).entry("hold").build().unwrap()
}

/// Yields `count` times, behind all tasks that are ready.
async fn turns(count: u32) {
    for _ in 0..count {
        let mut is_over = false;
        let turn = poll_fn(|task| {
            if !std::mem::replace(&mut is_over, true) {
                task.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        });
        turn.await;
    }
}

/// Returns the time until the run ends. It counts from the end of the interruption, when another process serves the workflow.
async fn time_to_end(wait: Wait, interruption: Interruption, count: u32) -> Duration {
    let (world, witness) = (World::new(), Witness::default());
    let (tell, told) = watch::channel(false);
    let holds = holds(&witness, &told);
    let graph = match wait {
        Wait::Run => slow(&witness, Duration::ZERO),
        Wait::Awake | Wait::AtRest => in_a_place(&witness, Duration::ZERO),
    };
    let rest_after = if matches!(wait, Wait::AtRest) { MOMENT } else { WHILE };
    let [holder, first, second] = [(); 3].map(|()| patient(&world, rest_after));
    let (holder, first, second) = (holder.await, first.await, second.await);
    holder.queue("gpu").at_once(1).declare().await.unwrap();
    world.pass(holder.start(&holds, Context::new()).id("holds")).await.unwrap();
    while witness.inside() == 0 {
        world.pass_for(MOMENT).await;
    }
    first.serve(&graph).unwrap();
    let start = first.start(&graph, Context::new()).id("waits");
    match wait {
        Wait::Run => drop(world.pass(start.queue("gpu")).await.unwrap()),
        Wait::Awake | Wait::AtRest => drop(world.pass(start).await.unwrap()),
    }
    world.pass_for(5 * MOMENT).await;

    tell.send_replace(true);
    let mut first = Some(first);
    let interrupt = async {
        // Spawn a task, because the runtime polls the test's own future after many tasks.
        let mut beside = JoinSet::new();
        beside.spawn(turns(count));
        beside.join_all().await;
        let process: &Process = first.as_ref().unwrap();
        match interruption {
            Interruption::Shutdown => process.shutdown(Duration::ZERO).await.unwrap(),
            Interruption::Drain => process.drain().await.unwrap(),
            // These calls fail if the run has ended.
            Interruption::Pause => drop(process.pause(&key(), "a look").await),
            Interruption::TakeOver => drop(second.resume(&graph, key()).take_over().await),
            Interruption::Crash => first.take().unwrap().crash().await,
        }
    };
    world.pass(interrupt).await;
    // The second process may serve it already, and the unpause is refused if the run was never paused.
    drop(second.serve(&graph));
    drop(second.unpause(&key()).await);
    let began = world.clock().monotonic();
    for _ in 0..400 {
        if second.head(&key()).await.unwrap().is_some_and(|head| head.status == RunStatus::Completed) {
            let took = world.clock().monotonic() - began;
            assert_eq!(witness.most(), 1, "{wait:?}, {interruption:?} after {count}");
            empty(&world, &second.queue("gpu").find().await.unwrap().unwrap()).await;
            return took;
        }
        world.pass_for(MOMENT).await;
    }
    Duration::MAX
}

#[tokio::test]
async fn grant_during_shutdown_or_pause_is_not_lost() {
    let mut late = Vec::new();
    let interruptions = [
        Interruption::Shutdown,
        Interruption::Drain,
        Interruption::Pause,
        Interruption::TakeOver,
        Interruption::Crash,
    ];
    for wait in [Wait::Awake, Wait::AtRest, Wait::Run] {
        for interruption in interruptions {
            // A process counts as dead after `WHILE`, and polls every ten moments.
            let most = if interruption == Interruption::Crash { WHILE } else { Duration::ZERO } + 40 * MOMENT;
            for count in (0..MOST_TURNS).step_by(13) {
                let took = time_to_end(wait, interruption, count).await;
                if took > most {
                    late.push(format!("{:?}", (wait, interruption, count, took)));
                }
            }
        }
    }
    assert!(late.is_empty(), "{late:#?}");
}

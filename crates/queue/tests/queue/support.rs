//! Helpers of the queue tests: processes with short poll intervals, and a separate ledger.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::RuntimeBuilder;
use ferrata_core::state::{Context, Draft};
use ferrata_queue::{NodeQueueExt, Queue, QueueStatus};
use ferrata_testing::{Process, World};

/// Stands for one second, and `WHILE` for a minute. Ten times as long, so that a process polls rarely until it counts as dead.
pub(crate) const MOMENT: Duration = Duration::from_secs(10);
pub(crate) const WHILE: Duration = Duration::from_secs(600);

/// Starts a process with a short heartbeat that polls every ten moments and releases waits after a while.
pub(crate) async fn process(world: &World) -> Process {
    patient(world, WHILE).await
}

/// Starts a process that keeps waiting runs in memory for `rest_after`.
pub(crate) async fn patient(world: &World, rest_after: Duration) -> Process {
    world.process_with(|b| set_up(b, rest_after)).await.unwrap()
}

/// Sets a poll interval of ten moments, and a heartbeat of `WHILE`.
pub(crate) fn set_up(builder: RuntimeBuilder, rest_after: Duration) -> RuntimeBuilder {
    builder
        .heartbeat_ttl(WHILE)
        .sweep_interval(10 * MOMENT)
        .poll_interval(10 * MOMENT)
        .release_after(rest_after)
}

/// The slot holders, recorded by the nodes themselves and independent of the tested code.
#[derive(Clone, Default)]
pub(crate) struct Witness(Arc<Mutex<Seen>>);

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) inside: usize,
    pub(crate) most: usize,
    /// In order of arrival.
    pub(crate) came: Vec<String>,
}

/// A current slot holder; dropped with the node.
pub(crate) struct Inside(Witness);

impl Witness {
    pub(crate) fn enter(&self, who: &str) -> Inside {
        let mut seen = self.0.lock().unwrap();
        seen.inside += 1;
        seen.most = seen.most.max(seen.inside);
        seen.came.push(who.to_owned());
        Inside(self.clone())
    }

    pub(crate) fn most(&self) -> usize {
        self.0.lock().unwrap().most
    }

    pub(crate) fn inside(&self) -> usize {
        self.0.lock().unwrap().inside
    }

    pub(crate) fn came(&self) -> Vec<String> {
        self.0.lock().unwrap().came.clone()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().inside -= 1;
    }
}

/// A workflow whose node holds a slot of the queue `gpu` for `time`.
pub(crate) fn in_a_place(witness: &Witness, time: Duration) -> Graph<Context> {
    in_a_place_as("in_a_place", witness, time)
}

pub(crate) fn in_a_place_as(workflow: &str, witness: &Witness, time: Duration) -> Graph<Context> {
    let witness = witness.clone();
    let work = move |cx: NodeContext, s: Draft<Context>| {
        let witness = witness.clone();
        async move {
            let priority = s.get::<i32>("priority")?.unwrap_or_default();
            let key = s.get::<String>("key")?.unwrap_or_default();
            let place = cx.acquire("gpu", 1).key(key).priority(priority).await?;
            let inside = witness.enter(cx.run().run.as_str());
            cx.sleep(time).await?;
            drop(inside);
            drop(place);
            Ok::<_, NodeError>(s)
        }
    };
    Graph::<Context>::builder(workflow).node("work", work).entry("work").build().unwrap()
}

/// A workflow that takes `time`.
pub(crate) fn slow(witness: &Witness, time: Duration) -> Graph<Context> {
    let witness = witness.clone();
    let work = move |cx: NodeContext, s: Draft<Context>| {
        let witness = witness.clone();
        async move {
            let _inside = witness.enter(cx.run().run.as_str());
            cx.sleep(time).await?;
            Ok::<_, NodeError>(s)
        }
    };
    Graph::<Context>::builder("slow").node("work", work).entry("work").build().unwrap()
}

/// Returns the state of a queue once no slot is held and no run waits.
pub(crate) async fn empty(world: &World, queue: &Queue) -> QueueStatus {
    for _ in 0..200 {
        let status = queue.status().await.unwrap();
        if status.held.is_empty() && status.waiting == 0 {
            return status;
        }
        world.pass_for(MOMENT).await;
    }
    panic!("the queue is not empty: {:?}", queue.status().await.unwrap());
}

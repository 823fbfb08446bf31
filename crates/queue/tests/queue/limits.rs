//! Limits and rates with requests for many slots, lowered limits, and crashes of processes with waiting nodes.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::RuntimeBuilder;
use ferrata_core::state::{Context, Draft};
use ferrata_queue::{NodeQueueExt, RateLimit, RuntimeQueueExt};
use ferrata_testing::{Fault, Process, World};

use crate::support::{MOMENT, WHILE, Witness, empty, in_a_place, process};

/// Crashes a process at once: no further call of it reaches the store, not even a heartbeat.
async fn kill(world: &World, process: &Process, graph: &Graph<Context>) {
    process.fail_write(0, Fault::CrashBefore);
    let _ = world.pass(process.start(graph, Context::new()).id("never")).await;
    assert!(process.is_crashed());
}

/// A workflow whose node holds for a while as many slots of `gpu` as its input says.
fn with_slots(witness: &Witness) -> Graph<Context> {
    let witness = witness.clone();
    let work = move |cx: NodeContext, s: Draft<Context>| {
        let witness = witness.clone();
        async move {
            let slots = s.get::<u32>("slots")?.unwrap_or(1);
            let key = s.get::<String>("key")?.unwrap_or_default();
            let slot = cx.acquire("gpu", slots).key(key).await?;
            let _inside = witness.enter(cx.run().run.as_str());
            cx.sleep(WHILE).await?;
            slot.release().await?;
            Ok::<_, NodeError>(s)
        }
    };
    Graph::<Context>::builder("with_slots").node("work", work).entry("work").build().unwrap()
}

async fn start(world: &World, process: &Process, graph: &Graph<Context>, id: &str, slots: u32, key: &str) {
    let mut input = Context::new();
    input.set("slots", slots).unwrap();
    input.set("key", key).unwrap();
    world.pass(process.start(graph, input).id(id)).await.unwrap();
    world.pass_for(MOMENT / 10).await;
}

/// Three of five slots are held, and a node waits for five. An operator lowers the limit to two: the node gets no slot and delays no other waiter,
/// and gets its slots when five are allowed again.
#[tokio::test]
async fn lowered_limit_grants_no_excess() {
    let (world, witness) = (World::new(), Witness::default());
    let (process, graph) = (process(&world).await, with_slots(&witness));
    process.serve(&graph).unwrap();
    let gpu = process.queue("gpu").at_once(5).declare().await.unwrap();
    start(&world, &process, &graph, "three", 3, "").await;
    start(&world, &process, &graph, "five", 5, "").await;
    gpu.set(|overrides| overrides.at_once = Some(2)).await.unwrap();
    start(&world, &process, &graph, "one", 1, "").await;
    for _ in 0..200 {
        world.pass_for(MOMENT).await;
        let held: u32 = gpu.status().await.unwrap().held.iter().map(|held| held.places).sum();
        assert!(held <= 3, "{held} slots of two are held");
    }
    assert_eq!(witness.came(), ["three", "one"]);
    gpu.set(|overrides| overrides.at_once = None).await.unwrap();
    world.pass_for(2 * WHILE).await;
    assert_eq!(witness.came(), ["three", "one", "five"]);
    empty(&world, &gpu).await;
}

/// One key may have two slots. A request for five is refused, and one for two waits until the key has none. Requests of other keys pass it.
#[tokio::test]
async fn request_beyond_key_limit_is_refused() {
    let (world, witness) = (World::new(), Witness::default());
    let (process, graph) = (process(&world).await, with_slots(&witness));
    let gpu = process.queue("gpu").at_once(10).at_once_per_key(2).declare().await.unwrap();
    start(&world, &process, &graph, "five", 5, "ann").await;
    world.pass_for(MOMENT).await;
    let refused =
        process.checkpoint(&"five".try_into().unwrap(), ferrata_core::store::At::Latest).await.unwrap();
    assert_eq!(refused.status, RunStatus::Failed);
    let failure = refused.failure.unwrap().to_string();
    assert!(failure.contains("a limit of 2 for the slots of one key"), "{failure}");
    for (id, slots, key) in [("ann-1", 1, "ann"), ("ann-2", 2, "ann"), ("bob", 2, "bob")] {
        start(&world, &process, &graph, id, slots, key).await;
    }
    assert_eq!(witness.came(), ["ann-1", "bob"]);
    world.pass_for(3 * WHILE).await;
    assert_eq!(witness.came(), ["ann-1", "bob", "ann-2"]);
    empty(&world, &gpu).await;
}

/// Nodes wait for a rate, and their process dies. The queue then grants slots that no node uses. These grants must not be used at once when another
/// process runs the nodes again.
#[tokio::test]
async fn rate_holds_after_crash_of_waiting_nodes() {
    for (rests, what) in [(99 * WHILE, "in memory"), (MOMENT, "idle")] {
        let began: Arc<Mutex<Vec<i64>>> = Arc::default();
        let (world, rate) = (World::new(), RateLimit::new(6, 6 * MOMENT).burst(3));
        let calls = Arc::clone(&began);
        let work = move |cx: NodeContext, s: Draft<Context>| {
            let calls = Arc::clone(&calls);
            async move {
                let slot = cx.acquire("api", 1).await?;
                calls.lock().unwrap().push(cx.now().unix_ms());
                slot.release().await?;
                Ok::<_, NodeError>(s)
            }
        };
        let graph = Graph::<Context>::builder("calls").node("work", work).entry("work").build().unwrap();
        let set = |b: RuntimeBuilder| {
            let b = b.heartbeat_ttl(20 * MOMENT).sweep_interval(3 * MOMENT).poll_interval(3 * MOMENT);
            b.release_after(rests)
        };
        let (doomed, other) =
            (world.process_with(set).await.unwrap(), world.process_with(set).await.unwrap());
        let api = other.queue("api").rate_limit(rate).declare().await.unwrap();
        for n in 0..40 {
            world.pass(doomed.start(&graph, Context::new()).id(format!("r{n}"))).await.unwrap();
        }
        world.pass_for(2 * MOMENT).await;
        kill(&world, &doomed, &graph).await;
        // The other process serves the workflow later. By then, idle nodes were woken.
        world.pass_for(30 * MOMENT).await;
        other.serve(&graph).unwrap();
        world.pass_for(4 * WHILE).await;
        let mut began = began.lock().unwrap().clone();
        began.sort_unstable();
        assert!(began.len() >= 40, "{} calls of nodes that wait {what}", began.len());
        let period = i64::try_from((6 * MOMENT).as_millis()).unwrap();
        for (n, from) in began.iter().enumerate() {
            let within = began[n..].iter().take_while(|at| **at < from + period).count();
            assert!(within <= 8, "{within} calls in a period, of nodes that wait {what}: {began:?}");
        }
        empty(&world, &api).await;
    }
}

/// A node that runs again in another process counts as another start in the rate.
#[tokio::test]
async fn restarted_node_asks_rate_again() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = with_slots(&witness);
    let set = |b: RuntimeBuilder| b.heartbeat_ttl(10 * MOMENT).sweep_interval(MOMENT).poll_interval(MOMENT);
    let (doomed, other) = (world.process_with(set).await.unwrap(), world.process_with(set).await.unwrap());
    other.serve(&graph).unwrap();
    let rate = RateLimit::new(1, 60 * MOMENT);
    let gpu = other.queue("gpu").rate_limit(rate).declare().await.unwrap();
    world.pass(doomed.start(&graph, Context::new()).id("one")).await.unwrap();
    world.pass_for(Duration::from_secs(1)).await;
    assert_eq!(witness.came().len(), 1);
    kill(&world, &doomed, &graph).await;
    world.pass(other.start(&graph, Context::new()).id("two")).await.unwrap();
    world.pass_for(30 * MOMENT).await;
    assert_eq!(witness.came(), ["one"], "the period must not be over");
    world.pass_for(3 * WHILE).await;
    let mut came = witness.came();
    came.sort();
    assert_eq!(came, ["one", "one", "two"]);
    empty(&world, &gpu).await;
}

/// A request for more slots than the queue has is refused at once.
#[tokio::test]
async fn request_beyond_limit_is_refused() {
    let (world, witness) = (World::new(), Witness::default());
    let (process, graph) = (process(&world).await, with_slots(&witness));
    process.queue("gpu").at_once(2).declare().await.unwrap();
    let mut input = Context::new();
    input.set("slots", 3).unwrap();
    let run = world.pass(process.start(&graph, input)).await.unwrap();
    let failed = world.pass(run.completed()).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::WrongStatus);
    assert!(failed.to_string().contains("request at most 2"), "{failed}");
}

/// A process dies with many waiting nodes. None of them is granted a slot that a living process waits for.
#[tokio::test]
async fn dead_waiters_get_no_slot() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = with_slots(&witness);
    let set = |b: RuntimeBuilder| {
        b.heartbeat_ttl(6 * MOMENT).sweep_interval(MOMENT).poll_interval(MOMENT).release_after(99 * WHILE)
    };
    let (doomed, other) = (world.process_with(set).await.unwrap(), world.process_with(set).await.unwrap());
    let gpu = other.queue("gpu").at_once(1).declare().await.unwrap();
    start(&world, &other, &graph, "holder", 1, "").await;
    for n in 0..60 {
        world.pass(doomed.start(&graph, Context::new()).id(format!("dead-{n}"))).await.unwrap();
    }
    world.pass_for(MOMENT).await;
    kill(&world, &doomed, &graph).await;
    start(&world, &other, &graph, "living", 1, "").await;
    assert_eq!(gpu.status().await.unwrap().waiting, 61);
    world.pass_for(30 * MOMENT).await;
    assert_eq!(gpu.status().await.unwrap().waiting, 1, "dead waiters must leave the queue");
    world.pass_for(32 * MOMENT).await;
    assert_eq!(witness.came(), ["holder", "living"]);
    // Their runs continue when a process serves the workflow.
    other.serve(&graph).unwrap();
    world.pass_for(4 * WHILE).await;
    assert!(witness.came().len() >= 4, "{:?}", witness.came());
}

/// A run is exported while its node holds a slot, and imported under another id. The copy has the idempotency keys of the run, and waits for its own
/// slot.
///
/// Guarantees: QUEUE-1.
#[tokio::test]
async fn imported_copy_waits_for_own_slot() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = in_a_place(&witness, 55 * MOMENT);
    let process = process(&world).await;
    process.serve(&graph).unwrap();
    let gpu = process.queue("gpu").at_once(1).declare().await.unwrap();
    let run = process.start(&graph, Context::new()).id("first").await.unwrap();
    world.pass_for(MOMENT).await;
    assert_eq!(witness.inside(), 1);
    let text = process.export(run.run()).await.unwrap();
    let copy = process.import(&text, Some("copy".try_into().unwrap())).await.unwrap();
    world.pass_for(40 * MOMENT).await;
    assert_eq!(
        gpu.status().await.unwrap().waiting,
        1,
        "{:?}, {:?}",
        gpu.status().await,
        process.head(&copy).await
    );
    world.pass(run.completed()).await.unwrap();
    world.pass_for(90 * MOMENT).await;
    let head = process.head(&copy).await.unwrap().unwrap();
    assert_eq!(head.status, RunStatus::Completed);
    assert_eq!((witness.most(), witness.came()), (1, vec!["first".to_owned(), "copy".to_owned()]));
    empty(&world, &gpu).await;
}

//! Processes that serve the workflow continue runs without an owner.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{Effect, Graph, RetryPolicy};
use ferrata_core::node::{Node, NodeContext, NodeError, NodeResult};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, RetentionPolicy, Runtime, SweepLimits};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_core::{Clock, ErrorKind, RunKey};
use ferrata_testing::{Fault, FaultStore};
use tokio::sync::Notify;

use super::world::World;

const DAY: Duration = Duration::from_secs(86_400);

fn key(id: &str) -> RunKey {
    RunKey::try_from(id).unwrap()
}

fn gate(name: &str) -> Graph<Context> {
    Graph::<Context>::builder(name)
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
        .entry("ok")
        .build()
        .unwrap()
}

/// Guarantees: CONTROL-15.
#[tokio::test]
async fn answered_run_continues_by_itself() {
    let world = World::new();
    let (runtime, graph) = (world.process().await, gate("g"));
    runtime.serve(&graph).unwrap();
    assert_eq!(runtime.serve(&graph).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    run.wait().await.unwrap();
    let other = world.process().await;
    other.respond(&key("r"), "ok", Answer::accept(true).unwrap()).await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<bool>("yes").unwrap(), Some(true));
}

/// Guarantees: CONTROL-15, TIMER-2.
#[tokio::test]
async fn sleeping_run_wakes_at_its_time() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("g")
        .node("nap", async |cx, mut s| {
            cx.sleep(Duration::from_secs(600)).await?;
            s.set("woke", true)?;
            Ok(s)
        })
        .entry("nap")
        .build()
        .unwrap();
    runtime.serve(&graph).unwrap();
    let begun = world.clock.now();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Sleeping { .. }));
    world.pass(run.completed()).await.unwrap();
    let took = world.clock.now().since(begun);
    assert!(took >= Duration::from_secs(600) && took < Duration::from_secs(605), "{took:?}");
}

/// A node that never ends in its first attempt. It signals its start, and counts its starts.
struct Stuck(Arc<Notify>, Arc<std::sync::atomic::AtomicU32>);

#[async_trait::async_trait]
impl Node<Context> for Stuck {
    async fn run(&self, _cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
        if self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
            self.0.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(().into())
    }
}

/// Guarantees: CONTROL-15.
#[tokio::test]
async fn run_of_dead_process_continues_after_heartbeat_expires() {
    let world = World::new();
    let ((store, dead), other) = (world.mortal().await, world.process().await);
    let (began, count) = (Arc::new(Notify::new()), Arc::default());
    let graph = Graph::<Context>::builder("g")
        .add("stuck", Stuck(Arc::clone(&began), Arc::clone(&count)))
        .entry("stuck")
        .build()
        .unwrap();
    let run = dead.start(&graph, Context::new()).id("r").await.unwrap();
    began.notified().await;
    store.crash();
    drop(run);
    drop(dead);
    other.serve(&graph).unwrap();
    let watching = other.start(&graph, Context::new()).id("r").await.unwrap();
    world.pass(watching.completed()).await.unwrap();
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 2);
}

/// A run of a dead process is claimed at once, whatever its node waits for, even if another part of the node was working.
///
/// Guarantees: TIMER-3.
#[tokio::test]
async fn run_of_dead_process_ignores_timer_beside_work() {
    for wait in ["sleep", "patience", "answer"] {
        let world = World::new();
        let ((store, dead), other) = (world.mortal().await, world.process().await);
        let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let attempts = Arc::clone(&count);
        let graph = Graph::<Context>::builder("g")
            .node("work", move |cx: NodeContext, s: Draft<Context>| {
                let attempts = Arc::clone(&attempts);
                async move {
                    let work = cx.step("call", async || {
                        if attempts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, ferrata_core::Error>(())
                    });
                    // The note is recorded before the work begins, or while it is in progress.
                    let waits = async {
                        match wait {
                            "sleep" => cx.sleep(DAY).await.map(drop),
                            "patience" => cx.receive_within::<String>(DAY).await.map(drop),
                            _ => {
                                let ask = Ask::<bool>::new("?").deadline(DAY).or_default(false);
                                cx.ask_with("ok", ask).await.map(drop).map_err(|_| unreachable!())
                            }
                        }
                    };
                    tokio::select! {
                        biased;
                        ended = waits => ended?,
                        done = work => done?,
                    }
                    Ok(s)
                }
            })
            .entry("work")
            .build()
            .unwrap();
        dead.start(&graph, Context::new()).id("r").await.unwrap();
        world
            .pass(async {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 1, "{wait}");
        store.crash();
        other.serve(&graph).unwrap();
        let began = world.clock.monotonic();
        let run = other.start(&graph, Context::new()).id("r").await.unwrap();
        world.pass(run.completed()).await.unwrap();
        let took = world.clock.monotonic() - began;
        assert!(took < Duration::from_secs(30), "{wait}: {took:?}");
    }
}

/// Guarantees: CONTROL-17.
#[tokio::test]
async fn run_with_misfit_graph_stalls_without_blocking_others() {
    let world = World::new();
    let old = gate("g");
    let runtime = world.process().await;
    for id in ["a", "b"] {
        runtime.start(&old, Context::new()).id(id).await.unwrap().wait().await.unwrap();
    }
    let new = Graph::<Context>::builder("g")
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
        .effect(Effect::Write)
        .entry("ok")
        .build()
        .unwrap();
    let fresh = world.process().await;
    fresh.serve(&new).unwrap();
    fresh.respond(&key("a"), "ok", Answer::accept(true).unwrap()).await.unwrap();
    let run = fresh.start(&new, Context::new()).id("c").await.unwrap();
    run.wait().await.unwrap();
    fresh.respond(&key("c"), "ok", Answer::accept(true).unwrap()).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    let stalled = fresh.stalled();
    assert_eq!(stalled.len(), 1);
    assert_eq!((stalled[0].run.clone(), stalled[0].error.kind()), (key("a"), ErrorKind::GraphChanged));
    assert_eq!(
        fresh.head(&key("a")).await.unwrap().unwrap().epoch.get(),
        1,
        "no claim must count as fruitless"
    );
}

/// Ten processes release the run in order during one long node. These claims do not count as fruitless, so the run is not parked.
///
/// Guarantees: CONTROL-16.
#[tokio::test]
async fn orderly_shutdowns_park_nothing() {
    let world = World::new();
    let graph = Graph::<Context>::builder("long")
        .node("work", async |cx: ferrata_core::node::NodeContext, s| {
            // Longer than the lifetime of every process but the last.
            cx.clock().sleep(Duration::from_secs(60)).await;
            Ok(s)
        })
        .entry("work")
        .build()
        .unwrap();
    for deployment in 0..12 {
        let process = world.process().await;
        process.serve(&graph).unwrap();
        if deployment == 0 {
            process.start(&graph, Context::new()).id("r").await.unwrap();
        }
        let claimed = async {
            while process.head(&key("r")).await.unwrap().unwrap().owner != Some(process.executor()) {
                tokio::task::yield_now().await;
            }
        };
        world.pass(claimed).await;
        world.pass(process.shutdown(Duration::ZERO)).await.unwrap();
        let head = world.store.head(&key("r")).await.unwrap().unwrap();
        assert_eq!((head.status, head.owner), (RunStatus::InProgress, None), "deployment {deployment}");
    }
    let last = world.process().await;
    last.serve(&graph).unwrap();
    let done = async {
        while last.head(&key("r")).await.unwrap().unwrap().status == RunStatus::InProgress {
            tokio::task::yield_now().await;
        }
    };
    world.pass(done).await;
    assert_eq!(last.head(&key("r")).await.unwrap().unwrap().status, RunStatus::Completed);
}

/// Guarantees: CONTROL-16.
#[tokio::test]
async fn a_run_that_makes_no_progress_is_parked() {
    let world = World::new();
    let graph = gate("g");
    let first = world.process().await;
    first.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
    first.respond(&key("r"), "ok", Answer::accept(true).unwrap()).await.unwrap();
    // Several processes claim the run, and each of them dies.
    let stuck = Graph::<Context>::builder("g")
        .node("ok", async |_cx, _s| {
            std::future::pending::<()>().await;
            Ok(())
        })
        .effect(Effect::Human)
        .entry("ok")
        .build()
        .unwrap();
    for _ in 0..3 {
        let (store, process) = world.mortal().await;
        process.resume(&stuck, "r").take_over().await.unwrap();
        store.crash();
    }
    world.clock.advance(DAY);
    let last = Runtime::builder(world.store.clone())
        .clock(Arc::clone(&world.clock) as _)
        .max_claims(3)
        .build()
        .await
        .unwrap();
    last.serve(&graph).unwrap();
    let parked = async {
        while last.head(&key("r")).await.unwrap().unwrap().status == RunStatus::InProgress {
            tokio::task::yield_now().await;
        }
    };
    world.pass(parked).await;
    let watch = last.resume(&graph, "r").await.unwrap();
    let Outcome::Paused { reason, .. } = watch.wait().await.unwrap() else { panic!() };
    assert!(reason.contains("claims without progress: 3"), "{reason}");
    last.unpause(&key("r")).by("ann").await.unwrap();
    world.pass(watch.completed()).await.unwrap();
}

/// Claims for retries do not count as fruitless claims, so the retry policy alone limits the attempts.
///
/// Guarantees: CONTROL-16.
#[tokio::test]
async fn distant_retries_follow_policy_without_parking() {
    const FAIL: u32 = 14;
    let (world, count) = (World::new(), Arc::new(std::sync::atomic::AtomicU32::new(0)));
    let attempts = Arc::clone(&count);
    let delay = Duration::from_secs(120);
    let graph = Graph::<Context>::builder("g")
        .node("call", move |_cx: NodeContext, s: Draft<Context>| {
            let attempt = attempts.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            async move { if attempt < FAIL { Err(NodeError::new("not yet")) } else { Ok(s) } }
        })
        .retry(RetryPolicy::none().with_attempts(20).with_delay(delay).with_cap(delay).with_jitter(0.0))
        .entry("call")
        .build()
        .unwrap();
    let runtime = world.process().await;
    runtime.serve(&graph).unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    world.pass(run.completed()).await.unwrap();
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), FAIL + 1);
    let head = runtime.head(&key("r")).await.unwrap().unwrap();
    assert_eq!(head.epoch.get(), FAIL + 1, "the run must be idle between the attempts");
}

/// Lets the next write succeed without a reply, and every retry of it fail.
fn lose(store: &FaultStore<MemoryStore>) {
    let next = store.operations();
    store.plan(next, Fault::After);
    (1..8).for_each(|at| store.plan(next + at, Fault::Before));
}

#[tokio::test]
async fn claim_without_reply_leaves_no_run_stuck() {
    let world = World::new();
    let ((store, first), other) = (world.mortal().await, world.process().await);
    let graph =
        Graph::<Context>::builder("g").node("one", async |_cx, _s| Ok(())).entry("one").build().unwrap();
    lose(&store);
    let started = world.pass(first.start(&graph, Context::new()).id("started").into_future()).await;
    assert_eq!(started.unwrap_err().kind(), ErrorKind::Indeterminate);

    let (dying, dead) = world.mortal().await;
    dying.plan(dying.operations(), Fault::CrashAfter);
    let begun = world.pass(dead.start(&graph, Context::new()).id("claimed").into_future()).await;
    assert!(begun.is_err());
    world.clock.advance(DAY);
    lose(&store);
    let claimed = world.pass(first.resume(&graph, "claimed").into_future()).await;
    assert_eq!(claimed.unwrap_err().kind(), ErrorKind::Indeterminate);

    other.serve(&graph).unwrap();
    for run in ["started", "claimed"] {
        let watching = other.start(&graph, Context::new()).id(run).await.unwrap();
        world.pass(watching.completed()).await.unwrap();
    }
    assert_eq!(first.head(&key("claimed")).await.unwrap().unwrap().status, RunStatus::Completed);
}

/// A process with an unknown start outcome must not write the start again after the run was purged, even if another caller purged it.
///
/// Guarantees: CONTROL-22.
#[tokio::test]
async fn unknown_start_is_not_repeated_after_removal() {
    for (arrives_late, is_swept) in [(false, false), (true, false), (true, true)] {
        let world = World::new();
        let ((store, first), other) = (world.mortal().await, world.process().await);
        let graph =
            Graph::<Context>::builder("g").node("one", async |_cx, _s| Ok(())).entry("one").build().unwrap();
        let next = store.operations();
        lose(&store);
        // The first read that checks the outcome fails, too.
        store.plan(next + 8, Fault::Before);
        let way: Arc<Mutex<Option<String>>> = Arc::default();
        if arrives_late {
            let (network, way) = (other.clone(), Arc::clone(&way));
            store.before(next + 1, async move {
                *way.lock().unwrap() = Some(network.export(&key("r")).await.unwrap());
                network.purge(&key("r")).await.unwrap();
            });
        }
        let started = world.pass(first.start(&graph, Context::new()).id("r").into_future()).await;
        assert_eq!(started.unwrap_err().kind(), ErrorKind::Indeterminate);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let arrived = way.lock().unwrap().take();
        let purger = if let Some(records) = arrived {
            other.import(&records, None).await.unwrap();
            &first
        } else {
            &other
        };
        if is_swept {
            other.resume(&graph, "r").take_over().await.unwrap().completed().await.unwrap();
            let policy = RetentionPolicy::keep_all().purge_after(RunStatus::Completed, Duration::ZERO);
            let swept = purger.sweep(&policy, SweepLimits::default(), false).await.unwrap();
            assert_eq!(swept.purged, 1, "{swept:?}");
        } else {
            assert!(purger.purge(&key("r")).await.unwrap().records > 0, "late: {arrives_late}");
        }
        let clock = Arc::clone(&world.clock);
        world.pass(async move { clock.sleep(Duration::from_secs(120)).await }).await;
        let head = world.store.head(&key("r")).await.unwrap();
        assert!(head.is_none(), "late: {arrives_late}, swept: {is_swept}: the run exists again: {head:?}");
    }
}

/// Resuming a run that this process's recovery has already claimed returns a handle.
#[tokio::test]
async fn run_claimed_by_same_process_resumes() {
    let (world, go) = (World::new(), Arc::new(Notify::new()));
    let work = Arc::clone(&go);
    let graph = Graph::<Context>::builder("g")
        .node("work", move |_cx: NodeContext, s: Draft<Context>| {
            let work = Arc::clone(&work);
            async move {
                work.notified().await;
                Ok(s)
            }
        })
        .entry("work")
        .build()
        .unwrap();
    let (store, first) = world.mortal().await;
    drop(first.start(&graph, Context::new()).id("r").await.unwrap());
    store.crash();
    drop(first);
    let before = world.store.head(&key("r")).await.unwrap().unwrap().epoch;
    let second = world.process().await;
    second.serve(&graph).unwrap();
    let taken = async {
        while world.store.head(&key("r")).await.unwrap().unwrap().epoch == before {
            tokio::task::yield_now().await;
        }
    };
    world.pass(taken).await;
    let run = second.resume(&graph, key("r")).await.unwrap();
    go.notify_one();
    world.pass(run.completed()).await.unwrap();
}

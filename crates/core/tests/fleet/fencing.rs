//! A process without heartbeats stops its runs before other processes claim them, and continues after its heartbeats succeed again.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::graph::{Effect, Graph};
use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::runtime::Outcome;
use ferrata_core::state::Context;
use ferrata_core::store::CheckpointStore;
use ferrata_core::{Clock, ErrorKind, Seq, Timestamp};
use ferrata_testing::ManualClock;
use tokio::task::JoinSet;

use super::world::{Gate, Heart, World, key};

/// Default validity of a heartbeat.
const TTL: Duration = Duration::from_secs(15);

/// Guarantees: FLEET-3.
#[tokio::test]
async fn runs_stop_before_lease_expires_and_continue_later() {
    for heart in [Heart::Fails, Heart::IsNotHeard, Heart::Hangs] {
        let world = World::new();
        let (line, runtime) = world.process(|b| b).await;
        let gate = Gate::default();
        let graph = gate.graph("g", Effect::Write);
        runtime.serve(&graph).unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        gate.until_began(1).await;
        let begun = world.clock.monotonic();
        line.set_heart(heart);
        let error = world.pass(run.wait()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{heart:?}: {error}");
        assert!(error.to_string().contains("heartbeats failed for"), "{heart:?}: {error}");
        let took = world.clock.monotonic() - begun;
        // The last successful heartbeat was sent at `begun` or earlier.
        assert!(took <= TTL * 3 / 4 && took > TTL / 3, "{heart:?}: stopped after {took:?}");
        world
            .pass(async {
                while gate.dropped.load(Ordering::SeqCst) == 0 {
                    tokio::task::yield_now().await
                }
            })
            .await;

        // Without heartbeats, the process claims no run and writes to none.
        let head = world.store.head(&key("r")).await.unwrap().unwrap();
        let refused = runtime.start(&graph, Context::new()).id("new").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{heart:?}: {refused}");
        world.pass_for(TTL * 3).await;
        assert_eq!(world.store.head(&key("r")).await.unwrap().unwrap().id, head.id, "{heart:?}");
        assert!(world.store.head(&key("new")).await.unwrap().is_none(), "{heart:?}");

        line.set_heart(Heart::Beats);
        world.pass(gate.until_began(2)).await;
        gate.word.notify_one();
        world.pass(run.completed()).await.unwrap();
        let head = world.store.head(&key("r")).await.unwrap().unwrap();
        assert_eq!((head.status, head.epoch.get()), (RunStatus::Completed, 2), "{heart:?}");
    }
}

/// A heartbeat counts from the time when it was sent, because the store may have received it long before the reply.
///
/// Guarantees: FLEET-4.
#[tokio::test]
async fn a_heartbeat_counts_from_when_it_was_sent() {
    let world = World::new();
    let (line, runtime) = world.process(|b| b).await;
    let begun = world.clock.monotonic();
    let gate = Gate::default();
    let run = runtime.start(&gate.graph("g", Effect::Write), Context::new()).id("r").await.unwrap();
    line.set_heart(Heart::IsSlow);
    let heard = async {
        while line.heard.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    };
    world.pass(heard).await;
    line.set_heart(Heart::Hangs);
    assert_eq!(world.pass(run.wait()).await.unwrap_err().kind(), ErrorKind::Fenced);
    let took = world.clock.monotonic() - begun;
    // The heartbeat was sent after a third of the first one's validity.
    assert!(took <= TTL / 3 + TTL * 3 / 4 + Duration::from_millis(200), "stopped after {took:?}");
}

/// Guarantees: FLEET-7.
#[tokio::test]
async fn process_releases_fenced_run() {
    let world = World::new();
    let (line, starter) = world.process(|b| b).await;
    let (_, server) = world.process(|b| b).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    server.serve(&graph).unwrap();
    let run = starter.start(&graph, Context::new()).id("r").await.unwrap();
    gate.until_began(1).await;
    // The store receives the heartbeats, so the run never becomes an orphan. Only their sender does not know this.
    line.set_heart(Heart::IsNotHeard);
    assert_eq!(world.pass(run.wait()).await.unwrap_err().kind(), ErrorKind::Fenced);
    world.pass_for(TTL).await;
    assert_eq!(gate.began.load(Ordering::SeqCst), 1, "the owner must count as alive");
    line.set_heart(Heart::Beats);
    world.pass(gate.until_began(2)).await;
    let head = server.head(&key("r")).await.unwrap().unwrap();
    assert_eq!((head.owner, head.epoch.get()), (Some(server.executor()), 2));
    gate.word.notify_one();
    world.pass(run.completed()).await.unwrap();
    // The log names the lost heartbeat, and not `FENCED`, which would suggest another owner.
    let told = server.timeline(&key("r"), Seq::new(0)).await.unwrap();
    let told: Vec<&str> = told.iter().map(|line| &*line.text).collect();
    assert!(told.contains(&"released: its heartbeat was lost"), "{told:?}");
    assert!(!told.iter().any(|text| text.contains("FENCED")), "{told:?}");
}

/// A process is suspended for a minute between the record of its intent and the effect, as by `SIGSTOP`. The new owner asks for the outcome, so the
/// effect must not follow. While a machine sleeps, its monotonic clock stands still.
///
/// Guarantees: FLEET-6.
#[tokio::test]
async fn suspended_process_skips_stale_intent() {
    for (taken, sleeps) in [(true, false), (true, true), (false, false), (false, true)] {
        let label = format!("taken: {taken}, the machine sleeps: {sleeps}");
        let world = World::new();
        let (line, zombie) = world.process(|b| b).await;
        let (_, other) = world.process(|b| b).await;
        let gate = Gate::default();
        gate.word.notify_one();
        let graph = gate.graph("g", Effect::External);
        let (clock, graph_then, other_then) = (Arc::clone(&world.clock), graph.clone(), other.clone());
        line.after(RecordKind::Intent, async move {
            let minute = Duration::from_secs(60);
            if sleeps {
                clock.set_now(clock.now().plus(minute));
            } else {
                clock.advance(minute);
            }
            if taken {
                // Take over explicitly, because the heartbeat succeeds while other tasks run.
                let run = other_then.resume(&graph_then, "r").take_over().await.unwrap();
                let Outcome::Interrupted(questions) = run.wait().await.unwrap() else { panic!() };
                assert_eq!(questions.len(), 1);
            }
        });
        let run = zombie.start(&graph, Context::new()).id("r").await.unwrap();
        let outcome = world.pass(run.wait()).await;
        let began = gate.began.load(Ordering::SeqCst);
        let head = world.store.head(&key("r")).await.unwrap().unwrap();
        if taken {
            assert_eq!(
                (began, head.status),
                (0, RunStatus::Interrupted),
                "{label}: the effect happened although an operator was asked"
            );
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Fenced, "{label}");
        } else {
            assert!(matches!(outcome.unwrap(), Outcome::Completed(_)), "{label}");
            assert_eq!(
                (began, head.epoch.get()),
                (1, 1),
                "{label}: no other process claimed the run, so its owner keeps it"
            );
        }
    }
}

/// A wall clock that jumps forward by an hour causes a missed heartbeat, and no loss of a run.
///
/// Guarantees: FLEET-5.
#[tokio::test]
async fn wall_clock_jump_preserves_run_ownership() {
    let world = World::new();
    let (line, runtime) = world.process(|b| b).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::External);
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    gate.until_began(1).await;
    for heart in [Heart::Beats, Heart::StumblesOnce, Heart::Beats] {
        line.set_heart(heart);
        world.clock.set_now(world.clock.now().plus(Duration::from_secs(3_600)));
        world.pass_for(TTL).await;
    }
    gate.word.notify_one();
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    let head = world.store.head(&key("r")).await.unwrap().unwrap();
    assert_eq!((gate.began.load(Ordering::SeqCst), head.epoch.get()), (1, 1));
}

/// Another task blocks the thread for a minute before the first poll of an attempt: the ownership check is outdated, and a successor owns the run.
///
/// Guarantees: FLEET-6.
#[tokio::test]
async fn external_node_rechecks_owner_after_first_poll_delay() {
    for heart in [Heart::Beats, Heart::Fails, Heart::Hangs] {
        let world = World::new();
        let (line, runtime) = world.process(|b| b).await;
        let (begin, gate, sibling) = (Gate::default(), Gate::default(), Gate::default());
        for gate in [&begin, &gate] {
            gate.word.notify_one();
        }
        let graph = Graph::<Context>::builder("g")
            .add("begin", begin)
            .add("sibling", sibling.clone())
            .add("gate", gate.clone())
            .effect(Effect::External)
            .edge("begin", ["sibling", "gate"])
            .entry("begin")
            .build()
            .unwrap();
        // This task runs before the attempt that is about to be spawned.
        let busy = Arc::new(Mutex::new(JoinSet::new()));
        let (clock, tasks, beats) = (Arc::clone(&world.clock), Arc::clone(&busy), Arc::clone(&line));
        line.after(RecordKind::Intent, async move {
            tasks.lock().unwrap().spawn(async move {
                clock.advance(TTL * 4);
                beats.set_heart(heart);
            });
        });
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        if heart == Heart::Beats {
            world.pass(gate.until_began(1)).await;
            sibling.word.notify_one();
            world.pass(run.completed()).await.unwrap();
        } else {
            assert_eq!(world.pass(run.wait()).await.unwrap_err().kind(), ErrorKind::Fenced, "{heart:?}");
        }
        let acted = u32::from(heart == Heart::Beats);
        assert_eq!(gate.began.load(Ordering::SeqCst), acted, "{heart:?}");
    }
}

/// Middleware of an `External` node, such as a rate limit, waits longer than a heartbeat is valid before the work starts.
///
/// Guarantees: FLEET-6.
#[tokio::test]
async fn external_node_rechecks_owner_after_waiting() {
    for heart in [Heart::Beats, Heart::Fails, Heart::Hangs] {
        let world = World::new();
        let (line, runtime) = world.process(|b| b).await;
        let gate = Gate::default();
        gate.word.notify_one();
        let (clock, beats, waits) =
            (Arc::clone(&world.clock), Arc::clone(&line), Arc::new(AtomicBool::new(true)));
        let graph = Graph::<Context>::builder("g")
            .add("gate", gate.clone())
            .effect(Effect::External)
            .around(move |cx, state, work| {
                // The process is suspended here, and the heartbeat expires before any other task runs.
                if waits.swap(false, Ordering::SeqCst) {
                    clock.advance(TTL * 4);
                    beats.set_heart(heart);
                }
                work.run(cx, state)
            })
            .entry("gate")
            .build()
            .unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        if heart == Heart::Beats {
            world.pass(run.completed()).await.unwrap();
        } else {
            assert_eq!(world.pass(run.wait()).await.unwrap_err().kind(), ErrorKind::Fenced, "{heart:?}");
        }
        let acted = u32::from(heart == Heart::Beats);
        assert_eq!(gate.began.load(Ordering::SeqCst), acted, "{heart:?}");
    }
}

/// A node blocks the thread for longer than a heartbeat is valid, and then the store does not answer. The node's result must not be written under the
/// expired heartbeat.
///
/// Guarantees: FLEET-6.
#[tokio::test]
async fn starved_process_writes_nothing_before_heartbeat() {
    for heart in [Heart::Beats, Heart::Fails, Heart::Hangs] {
        let world = World::new();
        let (line, runtime) = world.process(|b| b).await;
        let gate = Gate::default();
        let graph = gate.graph("g", Effect::Pure);
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        gate.until_began(1).await;
        line.set_heart(heart);
        let before = line.appends.load(Ordering::SeqCst);
        // The node ends and the time passes at the same moment.
        world.clock.advance(TTL * 2);
        gate.word.notify_one();
        let outcome = world.pass(run.wait()).await;
        let sent = line.appends.load(Ordering::SeqCst) - before;
        if heart == Heart::Beats {
            assert!(matches!(outcome.unwrap(), Outcome::Completed(_)));
            let head = world.store.head(&key("r")).await.unwrap().unwrap();
            assert_eq!((sent > 0, head.epoch.get()), (true, 1));
        } else {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Fenced, "{heart:?}");
            assert_eq!(sent, 0, "{heart:?}: a record was written without a valid heartbeat");
        }
    }
}

/// Guarantees: FLEET-2.
#[tokio::test]
async fn a_process_started_again_is_another_executor() {
    let world = World::new();
    let (line, first) = world.process(|b| b).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    let run = first.start(&graph, Context::new()).id("r").await.unwrap();
    gate.until_began(1).await;
    // The same program with the same name and the same settings.
    let (_, second) = world.process(|b| b).await;
    assert_ne!(first.executor(), second.executor());
    second.serve(&graph).unwrap();
    world.pass_for(TTL * 2).await;
    assert_eq!(gate.began.load(Ordering::SeqCst), 1, "the first process is alive, so it keeps its run");
    line.set_heart(Heart::Fails);
    line.set_down(true);
    assert_eq!(world.pass(run.wait()).await.unwrap_err().kind(), ErrorKind::Fenced);
    world.pass(gate.until_began(2)).await;
    assert_eq!(second.head(&key("r")).await.unwrap().unwrap().owner, Some(second.executor()));
    gate.word.notify_one();
    let watching = second.start(&graph, Context::new()).id("r").await.unwrap();
    world.pass(watching.completed()).await.unwrap();
}

/// If the clock jumps and no other process exists, no run is stopped.
///
/// Guarantees: FLEET-5.
#[tokio::test]
async fn a_day_in_one_step_stops_nothing() {
    let world = World::new();
    let (_, runtime) = world.process(|b| b).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    gate.until_began(1).await;
    for _ in 0..3 {
        world.clock.advance(Duration::from_secs(86_400));
        tokio::task::yield_now().await;
    }
    gate.word.notify_one();
    world.pass(run.completed()).await.unwrap();
    assert_eq!(runtime.head(&key("r")).await.unwrap().unwrap().epoch.get(), 1);
}

/// The step of the wall clock at the n-th read, in ms.
type Put = fn(i64) -> i64;

/// A wall clock that steps before each read, until it is steady.
#[derive(Debug)]
struct Restless {
    truth: Arc<ManualClock>,
    put: Put,
    looks: AtomicI64,
    off: AtomicI64,
    is_steady: AtomicBool,
}

impl Clock for Restless {
    fn now(&self) -> Timestamp {
        if !self.is_steady.load(Ordering::SeqCst) {
            let put = (self.put)(self.looks.fetch_add(1, Ordering::SeqCst));
            self.off.fetch_add(put, Ordering::SeqCst);
        }
        Timestamp::from_unix_ms(self.truth.now().unix_ms() + self.off.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        self.truth.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.truth.sleep(duration)
    }
}

/// With a wall clock that steps at every read, a process doubts its heartbeat at each read. It still sends few heartbeats, repeats no work, and
/// continues when the clock is steady.
///
/// Guarantees: FLEET-5.
#[tokio::test]
async fn repeated_clock_jumps_send_few_heartbeats() {
    const HOUR: i64 = 3_600_000;
    let jumps: [(&str, Put); 4] = [
        ("forth", |_| HOUR),
        ("back", |_| -HOUR),
        ("to and fro", |look| if look % 2 == 0 { HOUR } else { -HOUR }),
        ("forth and, at each third look, back", |look| if look % 3 == 0 { -2 * HOUR } else { HOUR }),
    ];
    for (jumps, put) in jumps {
        let world = World::new();
        let clock = Arc::new(Restless {
            truth: Arc::clone(&world.clock),
            put,
            looks: AtomicI64::new(0),
            off: AtomicI64::new(0),
            is_steady: AtomicBool::new(true),
        });
        let (line, runtime) = world.process(|b| b.clock(Arc::clone(&clock) as _)).await;
        let (begin, gate) = (Gate::default(), Gate::default());
        let graph = Graph::<Context>::builder("g")
            .add("begin", begin.clone())
            .effect(Effect::Write)
            .add("gate", gate.clone())
            .effect(Effect::External)
            .edge("begin", "gate")
            .entry("begin")
            .build()
            .unwrap();
        runtime.serve(&graph).unwrap();
        drop(runtime.start(&graph, Context::new()).id("r").await.unwrap());
        begin.until_began(1).await;
        line.take_calls();

        clock.is_steady.store(false, Ordering::SeqCst);
        begin.word.notify_one();
        world.pass_for(TTL * 8).await;
        let calls = line.take_calls();
        let beats = calls.get("heartbeat").copied().unwrap_or(0);
        // Three per validity period, and one for each doubt.
        assert!(beats <= 8 * 16, "a clock that jumps {jumps}: {calls:?}");
        assert!(calls.values().sum::<u64>() <= 400, "a clock that jumps {jumps}: {calls:?}");
        let looks = clock.looks.load(Ordering::SeqCst);
        assert!(looks <= 8 * 16 * 8, "a clock that jumps {jumps} is read {looks} times");

        clock.is_steady.store(true, Ordering::SeqCst);
        [&begin, &gate].into_iter().for_each(|gate| gate.word.notify_one());
        let ended = world.pass(async {
            loop {
                let head = world.store.head(&key("r")).await.unwrap().unwrap();
                if head.status.is_finished() {
                    return head;
                }
                begin.word.notify_one();
                gate.word.notify_one();
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(ended.await.status, RunStatus::Completed, "a clock that jumps {jumps}");
        assert_eq!(gate.began.load(Ordering::SeqCst), 1, "a clock that jumps {jumps}");
    }
}

//! Runs of a queue that are forked, retried, moved, imported or started again: every verb for a run in every state. At no time are more runs active
//! than the queue has slots.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Position, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::{ErrorKind, Result, RunKey};
use ferrata_queue::{Queue, RuntimeQueueExt, StartQueueExt};
use ferrata_testing::{Fault, Process, World};

use crate::no_notices::Deaf;
use crate::support::{MOMENT, WHILE, empty, set_up};

/// The state of the run before the verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Holding,
    Failed,
    Completed,
    Cancelled,
}

/// The expected result of a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// The run waits for the holder, and completes after it.
    Waits,
    /// The verb fails with `WRONG_STATUS`, and changes nothing.
    Refused,
    /// The run completes in its slot.
    Completes,
    /// The run has ended, and requests no slot.
    Ended,
}

/// A queue with one slot, a run in the state, and a process that serves it.
struct Stage {
    world: World,
    process: Process,
    /// Runs outside the queue may be active at the same time.
    graph: Graph<Context>,
    mail: Queue,
    run: RunKey,
    /// Whether the provider is down, so that every run fails.
    is_down: Arc<AtomicBool>,
}

/// A workflow that fails while the provider is down, and otherwise takes `time`.
fn call(is_down: &Arc<AtomicBool>, time: Duration) -> Graph<Context> {
    let is_down = Arc::clone(is_down);
    let work = move |cx: NodeContext, s: Draft<Context>| {
        let is_down = Arc::clone(&is_down);
        async move {
            if is_down.load(Ordering::Relaxed) {
                return Err(NodeError::from("the provider is down"));
            }
            cx.sleep(time).await?;
            Ok(s)
        }
    };
    Graph::<Context>::builder("call").node("work", work).entry("work").build().unwrap()
}

fn key(id: &str) -> RunKey {
    id.try_into().unwrap()
}

/// Starts a process that releases a run as soon as it sleeps.
async fn brief(world: &World) -> Process {
    world.process_with(|b| set_up(b, MOMENT)).await.unwrap()
}

impl Stage {
    async fn new(state: State) -> Self {
        let (world, is_down) = (World::new(), Arc::new(AtomicBool::new(false)));
        let process = brief(&world).await;
        let graph = call(&is_down, 3 * WHILE);
        process.serve(&graph).unwrap();
        let mail = process.queue("mail").at_once(1).declare().await.unwrap();
        let stage = Self { world, process, graph, mail, run: key("run"), is_down };
        match state {
            State::Waiting => {
                stage.start("holder").await;
                stage.start("run").await;
            }
            State::Holding => stage.start("run").await,
            State::Failed => {
                stage.is_down.store(true, Ordering::Relaxed);
                stage.start("run").await;
                stage.pass(MOMENT).await;
                stage.is_down.store(false, Ordering::Relaxed);
            }
            State::Completed => {
                stage.start("run").await;
                stage.pass(5 * WHILE).await;
            }
            State::Cancelled => {
                stage.start("run").await;
                stage.process.cancel(&stage.run, "not needed").await.unwrap();
            }
        }
        stage.pass(30 * MOMENT).await;
        let status = stage.status(&stage.run).await.unwrap();
        let expected = match state {
            State::Waiting => RunStatus::Interrupted,
            State::Holding => RunStatus::InProgress,
            State::Failed => RunStatus::Failed,
            State::Completed => RunStatus::Completed,
            State::Cancelled => RunStatus::Cancelled,
        };
        assert_eq!(status, expected);
        if status.is_finished() {
            empty(&stage.world, &stage.mail).await;
            stage.start("holder").await;
            stage.pass(MOMENT).await;
        }
        stage
    }

    async fn start(&self, id: &str) {
        let start =
            self.process.start(&self.graph, Context::new()).id(id).queue("mail").key("ann").priority(2);
        self.world.pass(start).await.unwrap();
    }

    async fn status(&self, run: &RunKey) -> Option<RunStatus> {
        self.process.head(run).await.unwrap().map(|head| head.status)
    }

    /// The active runs of the queue, in all processes.
    async fn active(&self) -> Vec<String> {
        let page = self.process.runs().label("queue", "mail").status(RunStatus::InProgress).await.unwrap();
        page.items.iter().map(|head| head.run.to_string()).collect()
    }

    /// Advances the clock, and checks that at most one run of the queue is active at any time.
    async fn pass(&self, time: Duration) {
        let until = self.process.clock().monotonic() + time;
        loop {
            let active = self.active().await;
            assert!(active.len() <= 1, "{active:?} are active in one slot");
            if self.process.clock().monotonic() >= until {
                return;
            }
            self.world.pass_for(MOMENT / 2).await;
        }
    }

    /// Checks the effect of a verb on `run`, and that everything completes.
    async fn check(&self, run: &RunKey, effect: Effect, done: Result<()>) {
        match effect {
            Effect::Refused => {
                assert_eq!(done.unwrap_err().kind(), ErrorKind::WrongStatus);
                self.pass(12 * WHILE).await;
                empty(&self.world, &self.mail).await;
                return;
            }
            _ => done.unwrap(),
        }
        if effect == Effect::Waits {
            // A process that did not revive the run finds it by a scan.
            self.pass(60 * MOMENT).await;
            let status = self.mail.status().await.unwrap();
            let entry = status.line.iter().find(|one| one.run == *run);
            let entry = entry.unwrap_or_else(|| panic!("{run} does not wait in the queue: {status:?}"));
            assert_eq!(
                (entry.key.as_str(), entry.priority),
                ("ann", 2),
                "{run} must keep its key and priority"
            );
            assert_eq!(status.held.len(), 1, "{status:?}");
            assert_eq!(self.status(run).await, Some(RunStatus::Interrupted));
        }
        let before = self.status(run).await;
        self.pass(15 * WHILE).await;
        let after = self.status(run).await;
        match effect {
            Effect::Ended => assert_eq!(after, before),
            _ => assert_eq!(after, Some(RunStatus::Completed)),
        }
        let status = empty(&self.world, &self.mail).await;
        assert_eq!(status.waiting, 0);
    }

    async fn fork(&self, effect: Effect) {
        let fork = self.process.fork(&self.run, Position::Latest).id("fork").start_at("work").await;
        self.check(&key("fork"), effect, fork.map(drop)).await;
    }

    async fn fork_and_drive(&self, effect: Effect) {
        let fork = self
            .process
            .fork(&self.run, Position::Latest)
            .id("fork")
            .start_at("work")
            .drive(&self.graph)
            .await;
        self.check(&key("fork"), effect, fork.map(drop)).await;
    }

    async fn retry(&self, effect: Effect) {
        let retried = self.process.retry(&self.run).by("ann").await;
        self.check(&self.run, effect, retried).await;
    }

    async fn go_to(&self, effect: Effect) {
        let moved = self.process.go_to(&self.run, "work", "once more").by("ann").await;
        self.check(&self.run, effect, moved).await;
    }

    /// Retries from an operator's process, which has no queues and no heartbeat.
    async fn retry_all(&self, effect: Effect) {
        let operator = Runtime::builder(self.world.store().clone()).operator();
        let report = operator.runs().label("queue", "mail").retry_all().await.unwrap();
        assert_eq!(report.refused.len(), 0, "{report:?}");
        self.check(&self.run, effect, Ok(())).await;
    }

    async fn import(&self, effect: Effect) {
        let text = self.process.export(&self.run).await.unwrap();
        let copy = self.process.import(&text, Some(key("copy"))).await;
        self.check(&key("copy"), effect, copy.map(drop)).await;
    }

    async fn purge_and_start(&self, effect: Effect) {
        self.process.purge(&self.run).await.unwrap();
        self.start("run").await;
        self.check(&self.run, effect, Ok(())).await;
    }
}

macro_rules! cells {
    ($($name:ident: $verb:ident a $state:ident run $effect:ident;)*) => {$(
        #[tokio::test]
        async fn $name() {
            Stage::new(State::$state).await.$verb(Effect::$effect).await;
        }
    )*};
}

cells! {
    fork_of_waiting_run_waits: fork a Waiting run Waits;
    fork_of_holding_run_waits: fork a Holding run Waits;
    fork_of_failed_run_waits: fork a Failed run Waits;
    fork_of_completed_run_waits: fork a Completed run Waits;
    fork_of_cancelled_run_waits: fork a Cancelled run Waits;

    driven_fork_of_waiting_run_waits: fork_and_drive a Waiting run Waits;
    driven_fork_of_holding_run_waits: fork_and_drive a Holding run Waits;
    driven_fork_of_failed_run_waits: fork_and_drive a Failed run Waits;

    retry_of_waiting_run_is_refused: retry a Waiting run Refused;
    retry_of_holding_run_is_refused: retry a Holding run Refused;
    retry_of_failed_run_waits: retry a Failed run Waits;
    retry_of_completed_run_is_refused: retry a Completed run Refused;
    retry_of_cancelled_run_is_refused: retry a Cancelled run Refused;

    go_to_of_waiting_run_waits: go_to a Waiting run Waits;
    go_to_of_holding_run_continues: go_to a Holding run Completes;
    go_to_of_failed_run_waits: go_to a Failed run Waits;
    go_to_of_completed_run_is_refused: go_to a Completed run Refused;
    go_to_of_cancelled_run_is_refused: go_to a Cancelled run Refused;

    retry_all_leaves_waiting_run: retry_all a Waiting run Waits;
    retry_all_leaves_holding_run: retry_all a Holding run Completes;
    retry_all_of_failed_run_waits: retry_all a Failed run Waits;
    retry_all_leaves_completed_run: retry_all a Completed run Ended;
    retry_all_leaves_cancelled_run: retry_all a Cancelled run Ended;

    import_of_waiting_run_waits: import a Waiting run Waits;
    import_of_holding_run_waits: import a Holding run Waits;
    import_of_failed_run_asks_nothing: import a Failed run Ended;
    import_of_completed_run_asks_nothing: import a Completed run Ended;
    import_of_cancelled_run_asks_nothing: import a Cancelled run Ended;

    restart_of_purged_waiting_run_waits: purge_and_start a Waiting run Waits;
    restart_of_purged_holding_run_completes: purge_and_start a Holding run Completes;
    restart_of_purged_failed_run_waits: purge_and_start a Failed run Waits;
    restart_of_purged_completed_run_waits: purge_and_start a Completed run Waits;
    restart_of_purged_cancelled_run_waits: purge_and_start a Cancelled run Waits;
}

/// A provider is down, and all fifty runs of a queue fail. When it is up again, an operator retries them in bulk: two are active at a time.
///
/// Guarantees: QUEUE-1, QUEUE-10.
#[tokio::test]
async fn retry_all_after_outage_keeps_limit() {
    let (world, is_down) = (World::new(), Arc::new(AtomicBool::new(true)));
    let process = brief(&world).await;
    let graph = call(&is_down, 5 * MOMENT);
    process.serve(&graph).unwrap();
    let mail = process.queue("mail").at_once(2).declare().await.unwrap();
    for n in 0..50 {
        let start = process.start(&graph, Context::new()).id(format!("r{n}")).queue("mail");
        world.pass(start).await.unwrap();
    }
    world.pass_for(60 * WHILE).await;
    let failed = process.runs().status(RunStatus::Failed).await.unwrap();
    assert_eq!(failed.items.len(), 50);
    is_down.store(false, Ordering::Relaxed);
    let report = process.runs().label("queue", "mail").retry_all().await.unwrap();
    assert_eq!(report.done.len(), 50, "{report}");
    let count =
        async |status| process.runs().label("queue", "mail").status(status).await.unwrap().items.len();
    for _ in 0..2_000 {
        let active = count(RunStatus::InProgress).await;
        assert!(active <= 2, "{active} are active in two slots");
        if count(RunStatus::Completed).await == 50 {
            break;
        }
        world.pass_for(MOMENT).await;
    }
    assert_eq!(count(RunStatus::Completed).await, 50);
    empty(&world, &mail).await;
}

/// The process that retries or forks a run crashes at each of its writes: the run waits in the queue, or is unchanged.
///
/// Guarantees: QUEUE-10.
#[tokio::test]
async fn crash_while_reviving_loses_no_run() {
    for is_fork in [false, true] {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            for n in 0.. {
                let stage = Stage::new(State::Failed).await;
                let doomed = brief(&stage.world).await;
                doomed.queue("mail").at_once(1).declare().await.unwrap();
                stage.pass(MOMENT).await;
                doomed.fail_write(n, fault);
                let _ = match is_fork {
                    true => {
                        stage.world.pass(doomed.fork(&stage.run, Position::Latest).id("fork")).await.map(drop)
                    }
                    false => stage.world.pass(doomed.retry(&stage.run)).await,
                };
                stage.pass(MOMENT).await;
                let is_crashed = doomed.is_crashed();
                doomed.crash().await;
                let run = if is_fork { key("fork") } else { stage.run.clone() };
                let is_revived = stage.status(&run).await.is_some_and(|status| status != RunStatus::Failed);
                let said = format!("{fault:?} at write {n}, fork: {is_fork}");
                if is_revived {
                    // The holder may have completed.
                    stage.check(&run, Effect::Completes, Ok(())).await;
                } else {
                    assert!(is_crashed, "{said}");
                }
                if !is_crashed {
                    break;
                }
            }
        }
    }
}

/// A run fails in a process that cannot write to the queue. Another process or an operator retries the run. It requests a slot again, and the late
/// record of its end must not release that slot.
#[tokio::test]
async fn late_end_keeps_slot_of_revived_run() {
    for by_operator in [false, true] {
        let (world, is_down) = (World::new(), Arc::new(AtomicBool::new(true)));
        let flag = Arc::clone(&is_down);
        let work = move |cx: NodeContext, s: Draft<Context>| {
            let is_down = Arc::clone(&flag);
            async move {
                cx.sleep(3 * MOMENT).await?;
                if is_down.load(Ordering::Relaxed) {
                    return Err(NodeError::from("the provider is down"));
                }
                cx.sleep(40 * WHILE).await?;
                Ok(s)
            }
        };
        let graph = Graph::<Context>::builder("call").node("work", work).entry("work").build().unwrap();
        let other = brief(&world).await;
        let (worker, store) = Deaf::process(&world, &other).await;
        let mail = other.queue("mail").at_once(1).declare().await.unwrap();
        let run = world.pass(worker.start(&graph, Context::new()).id("run").queue("mail")).await.unwrap();
        store.is_away.store(true, Ordering::Relaxed);
        world.pass(run.wait()).await.unwrap();
        assert_eq!(mail.status().await.unwrap().held.len(), 1, "the queue must not know the end yet");
        is_down.store(false, Ordering::Relaxed);
        other.serve(&graph).unwrap();
        let operator = Runtime::builder(world.store().clone()).operator();
        let reviver = if by_operator { &operator } else { &*other };
        reviver.retry(run.run()).await.unwrap();
        for id in ["second", "third"] {
            world.pass(other.start(&graph, Context::new()).id(id).queue("mail")).await.unwrap();
        }
        let active = async || {
            let page = other.runs().label("queue", "mail").status(RunStatus::InProgress).await.unwrap();
            page.items.iter().map(|head| head.run.run.to_string()).collect::<Vec<_>>()
        };
        // The queue finds late that an operator revived a run that still has a slot.
        let mut waited = 0;
        while active().await != ["run"] {
            world.pass_for(MOMENT).await;
            assert!(active().await.len() <= 1, "{:?}", active().await);
            waited += 1;
            assert!(waited < 200 * 60, "by an operator: {by_operator}: {:?}", mail.status().await.unwrap());
        }
        store.is_away.store(false, Ordering::Relaxed);
        for _ in 0..60 {
            world.pass_for(MOMENT).await;
            assert_eq!(active().await, ["run"], "by an operator: {by_operator}");
        }
        assert_eq!(mail.status().await.unwrap().held[0].run, *run.run());
        world.pass_for(150 * WHILE).await;
        empty(&world, &mail).await;
    }
}

//! Write conflicts of the driver: under every policy it decides again, and treats nothing as recorded that is not.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph, RetryPolicy, Route};
use ferrata_core::node::{NodeContext, NodeError, NodeResult};
use ferrata_core::record::{FailureKind, RunStatus};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft, Op, Patch, Reducer};
use ferrata_core::store::{AnyTransaction, Capabilities, CheckpointStore, RunAppend, Transactions, delegate};
use ferrata_core::{Clock, Error, ErrorKind, HeadRef, RunKey};
use ferrata_testing::{FaultPlan, FaultStore, LedgerDatabase, LedgerStore, ManualClock};
use tokio::sync::Notify;

use super::data_loss::Replicated;
use super::world::World;

/// The policies that record no result of a node.
const COARSE: [CheckpointFrequency; 2] =
    [CheckpointFrequency::StatusChangeOnly, CheckpointFrequency::Disabled];

fn policy(frequency: CheckpointFrequency) -> CheckpointPolicy {
    CheckpointPolicy::default().with_frequency(frequency)
}

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

/// Resources of the nodes: another process on the same store, which signals the run, and a counter.
struct Beside {
    other: Runtime,
    clock: Arc<ManualClock>,
    count: AtomicU32,
}

impl Beside {
    fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// Sends a message to the run of a node from another process, and counts it.
    async fn send(&self, cx: &NodeContext, message: u32) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.other.send(cx.run(), message).await.unwrap();
    }
}

fn beside(cx: &NodeContext) -> Arc<Beside> {
    Arc::clone(cx.resource::<Arc<Beside>>())
}

async fn step(cx: &NodeContext, name: &str) -> Result<u32, NodeError> {
    cx.step(name, async || Ok::<_, NodeError>(7)).await
}

/// Signals between the nodes and the test.
#[derive(Default)]
struct Gates {
    begun: Notify,
    open: Notify,
    count: AtomicU32,
}

impl Gates {
    fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }
}

fn gates(cx: &NodeContext) -> Arc<Gates> {
    Arc::clone(cx.resource::<Arc<Gates>>())
}

/// Waits until the run has failed.
async fn fails(runtime: &Runtime) {
    for _ in 0..10_000 {
        if runtime.head(&key()).await.unwrap().is_some_and(|head| head.status == RunStatus::Failed) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the run did not fail");
}

/// Creates a process with these gates and this maximum body size.
async fn process_of(store: impl CheckpointStore, gates: &Arc<Gates>, max_body: usize) -> Runtime {
    let builder = Runtime::builder(store).max_body(max_body);
    builder.resource(Arc::clone(gates)).build().await.unwrap()
}

/// Creates a process that gets no notices: it sees other writes only at its next write or poll.
async fn process(world: &World) -> (Arc<FaultStore<Replicated>>, Arc<Beside>, Runtime) {
    let (other, clock) = (world.process().await, Arc::clone(&world.clock));
    let beside = Arc::new(Beside { other, clock, count: AtomicU32::new(0) });
    let store = Arc::new(FaultStore::new(Replicated::new(world), FaultPlan::new()));
    let runtime = Runtime::builder_with(Arc::clone(&store) as _).clock(Arc::clone(&world.clock) as _);
    let runtime = runtime.resource(Arc::clone(&beside)).build().await.unwrap();
    (store, beside, runtime)
}

/// A message conflicts with the record of a payment's result. The result must be written again, not forgotten: otherwise the payment runs twice on
/// one intent.
#[tokio::test]
async fn message_conflict_does_not_repeat_external_node() {
    for frequency in COARSE {
        let world = World::new();
        let (_, seen, runtime) = process(&world).await;
        let graph = Graph::<Context>::builder("g")
            .node("pay", async |cx, s| {
                beside(&cx).send(&cx, 1).await;
                Ok(s)
            })
            .effect(Effect::External)
            .node("end", async |_cx, s| Ok(s))
            .entry("pay")
            .edge("pay", "end")
            .build()
            .unwrap();
        let start = runtime.start(&graph, Context::new()).id("r").checkpoints(policy(frequency));
        let stopped = start.await.unwrap().wait().await.unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::Conflict, "{frequency:?}: {stopped}");
        let resumed = runtime.resume(&graph, "r").take_over().checkpoints(policy(frequency)).await.unwrap();
        let outcome = resumed.wait().await.unwrap();
        let Outcome::Interrupted(questions) = outcome else { panic!("{frequency:?}: {outcome:?}") };
        assert_eq!((&*questions[0].id, seen.count()), ("pay@1", 1), "{frequency:?}");
    }
}

async fn hears_twice(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    cx.checkpoint().await?;
    beside(&cx).send(&cx, 1).await;
    // The driver has not read the first message, so its next record conflicts with it.
    step(&cx, "between").await?;
    beside(&cx).send(&cx, 2).await;
    let one: u32 = cx.receive().await?;
    let two: u32 = cx.receive().await?;
    Ok(Context::update().append("said", [one, two]).into())
}

/// A second message that conflicts with the receipt of the first is received next. The first is not received twice.
#[tokio::test]
async fn message_conflicting_with_receipt_is_received_next() {
    for frequency in COARSE {
        let world = World::new();
        let (_, _, runtime) = process(&world).await;
        let graph = Graph::<Context>::builder("g")
            .channel("said", Reducer::Append)
            .node("hear", hears_twice)
            .entry("hear")
            .build()
            .unwrap();
        let start = runtime.start(&graph, Context::new()).id("r").checkpoints(policy(frequency));
        let run = start.await.unwrap();
        let outcome = world.pass(run.wait()).await.unwrap();
        let Outcome::Completed(state) = outcome else { panic!("{frequency:?}: {outcome:?}") };
        assert_eq!(state.get::<Vec<u32>>("said").unwrap(), Some(vec![1, 2]), "{frequency:?}");
    }
}

/// A step returns only after its result is recorded, also if the first write of the record conflicts.
#[tokio::test]
async fn step_returns_after_its_result_is_recorded() {
    for frequency in COARSE {
        let world = World::new();
        let (_, seen, runtime) = process(&world).await;
        let graph = Graph::<Context>::builder("g")
            .node("a", async |cx, s| {
                cx.checkpoint().await?;
                let once = async || {
                    beside(&cx).send(&cx, 1).await;
                    Ok::<_, NodeError>(7)
                };
                assert_eq!(cx.step("once", once).await?, 7);
                // The second attempt finds the recorded step.
                if cx.attempt() == 1 { Err("once more".into()) } else { Ok(s) }
            })
            .retry(RetryPolicy::none().with_attempts(2))
            .entry("a")
            .build()
            .unwrap();
        let start = runtime.start(&graph, Context::new()).id("r").checkpoints(policy(frequency));
        let run = start.await.unwrap();
        let outcome = world.pass(run.wait()).await.unwrap();
        assert!(matches!(outcome, Outcome::Completed(_)), "{frequency:?}: {outcome:?}");
        assert_eq!(seen.count(), 1, "{frequency:?}");
        let checked = runtime.check_log(&key()).await;
        assert!(checked.is_ok(), "{frequency:?}: {checked:?}");
    }
}

/// A message conflicts with the record of the expired deadline. The driver decides the status again, so the run still fails by its deadline.
#[tokio::test]
async fn write_conflict_does_not_lose_deadline() {
    for frequency in [CheckpointFrequency::EveryNode, CheckpointFrequency::StatusChangeOnly] {
        let world = World::new();
        let (store, seen, runtime) = process(&world).await;
        let graph = Graph::<Context>::builder("g")
            .deadline(Duration::from_secs(2))
            .node("work", async |cx, s| {
                step(&cx, "begun").await?;
                beside(&cx).clock.sleep(Duration::from_secs(8)).await;
                Ok(s)
            })
            .entry("work")
            .build()
            .unwrap();
        let start = runtime.start(&graph, Context::new()).id("r").checkpoints(policy(frequency));
        let run = start.await.unwrap();
        // Write just before the run's next append, which is the record of its end.
        for _ in 0..10_000 {
            if runtime.head(&key()).await.unwrap().is_some_and(|head| head.seq.get() >= 1) {
                break;
            }
            tokio::task::yield_now().await;
        }
        let says = Arc::clone(&seen);
        store.before(store.operations(), async move {
            says.other.send(&key(), 1).await.unwrap();
            says.count.fetch_add(1, Ordering::SeqCst);
        });
        let outcome = world.pass(run.wait()).await.unwrap();
        let Outcome::Failed { failure, .. } = outcome else { panic!("{frequency:?}: {outcome:?}") };
        assert_eq!(failure.kind, FailureKind::Deadline, "{frequency:?}");
        assert_eq!(seen.count(), 1, "no message was sent at that moment");
    }
}

/// A record that needs a base must not be written without it, as at the end of a run: no process could read the log.
#[tokio::test]
async fn oversized_final_state_fails_run_with_valid_log() {
    let world = World::new();
    let gates_here = Arc::new(Gates::default());
    let builder = Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _);
    let builder = builder.max_body(2_000).resource(Arc::clone(&gates_here));
    let runtime = builder.build().await.unwrap();
    for id in ["end", "checkpoint", "step", "sleep", "external", "retry"] {
        let graph = Graph::<Context>::builder("grows")
            .node("one", async |cx, s| {
                cx.checkpoint().await?;
                Ok(s)
            })
            .node("two", async |_cx, mut s| {
                s.set("text", "x".repeat(5_000))?;
                Ok(s)
            })
            .node("three", async |cx: NodeContext, s| {
                match cx.run().run.as_str() {
                    "checkpoint" => cx.checkpoint().await?,
                    "step" => _ = step(&cx, "once").await?,
                    "sleep" => cx.sleep(Duration::from_secs(1)).await?,
                    "retry" if cx.attempt() == 1 => return Err("once more".into()),
                    _ => return Ok(s),
                }
                if let Some(gates) = cx.try_resource::<Arc<Gates>>() {
                    gates.count.fetch_add(1, Ordering::SeqCst);
                }
                Ok(s)
            })
            .effect(if id == "external" { Effect::External } else { Effect::Write })
            .retry(RetryPolicy::none().with_attempts(2))
            .entry("one")
            .edge("one", "two")
            .edge("two", "three")
            .build()
            .unwrap();
        let start = runtime.start(&graph, Context::new()).id(id);
        let run = start.checkpoints(policy(CheckpointFrequency::Disabled)).await.unwrap();
        let outcome = world.pass(run.wait()).await;
        let checked = runtime.check_log(run.run()).await;
        assert!(checked.is_ok(), "{id}: {checked:?}");
        let Ok(Outcome::Failed { failure, .. }) = outcome else { panic!("{id}: {outcome:?}") };
        assert_eq!(failure.kind, FailureKind::Update, "{id}");
        assert!(failure.message.contains("`text`"), "{id}: {failure}");
        assert_eq!(runtime.head(run.run()).await.unwrap().unwrap().status, RunStatus::Failed, "{id}");
        assert_eq!(gates_here.count(), 0, "{id}: the node must not learn that its record is durable");
        // With a larger limit, the run continues from its last checkpoint.
        let larger = world.process().await;
        larger.retry(run.run()).await.unwrap();
        let resumed = larger.resume(&graph, id).await.unwrap();
        let state = world.pass(resumed.completed()).await.unwrap();
        assert_eq!(state.get::<String>("text").unwrap().map(|text| text.len()), Some(5_000), "{id}");
    }
}

/// A run that failed because of an oversized state has no record of its last nodes. A retry in the same process continues from the log, not from
/// memory.
#[tokio::test]
async fn run_with_oversized_state_retries_from_its_log() {
    let world = World::new();
    let gates_here = Arc::new(Gates::default());
    let runtime = process_of(world.store.clone(), &gates_here, 2_000).await;
    let graph = Graph::<Context>::builder("grows")
        .node("fork", async |_cx, s| Ok(s))
        .node("pay", async |cx, s| {
            let gates = gates(&cx);
            gates.count.fetch_add(1, Ordering::SeqCst);
            gates.open.notified().await;
            Ok(s)
        })
        .effect(Effect::External)
        .node("grow", async |cx, mut s| {
            // Continue only after the intent of the payment is recorded.
            cx.checkpoint().await?;
            s.set("text", "x".repeat(5_000))?;
            Ok(s)
        })
        .node("after", async |cx, s| {
            step(&cx, "once").await?;
            Ok(s)
        })
        .entry("fork")
        .edge("fork", ["pay", "grow"])
        .edge("grow", "after")
        .build()
        .unwrap();
    let start = runtime.start(&graph, Context::new()).id("r");
    let run = start.checkpoints(policy(CheckpointFrequency::Disabled)).await.unwrap();
    fails(&runtime).await;
    // The payment may finish now.
    runtime.retry(&key()).await.unwrap();
    fails(&runtime).await;
    gates_here.open.notify_one();
    let outcome = run.wait().await;
    let checked = runtime.check_log(&key()).await;
    assert!(checked.is_ok(), "{checked:?}");
    assert!(matches!(outcome, Ok(Outcome::Failed { .. })), "{outcome:?}");
    let larger = process_of(world.store.clone(), &gates_here, 20_000).await;
    larger.retry(&key()).await.unwrap();
    larger.resume(&graph, "r").await.unwrap().completed().await.unwrap();
    assert_eq!(gates_here.count(), 1);
}

/// The log has only the intent of an `External` node whose state was too large. A retry in the same process asks about it, and does not start it
/// again.
#[tokio::test]
async fn external_node_with_oversized_state_has_unknown_outcome() {
    let gates_here = Arc::new(Gates::default());
    let runtime = process_of(World::new().store.clone(), &gates_here, 2_000).await;
    let graph = Graph::<Context>::builder("grows")
        .node("fork", async |_cx, s| Ok(s))
        .node("pay", async |cx, s| {
            gates(&cx).open.notified().await;
            Ok(s)
        })
        .effect(Effect::External)
        .node("ship", async |cx, mut s| {
            gates(&cx).count.fetch_add(1, Ordering::SeqCst);
            s.set("text", "x".repeat(5_000))?;
            Ok(s)
        })
        .effect(Effect::External)
        .entry("fork")
        .edge("fork", ["pay", "ship"])
        .build()
        .unwrap();
    let start = runtime.start(&graph, Context::new()).id("r");
    let run = start.checkpoints(policy(CheckpointFrequency::Disabled)).await.unwrap();
    fails(&runtime).await;
    // Another such node is still running in this process.
    runtime.retry(&key()).await.unwrap();
    gates_here.open.notify_one();
    let outcome = run.wait().await;
    let Ok(Outcome::Interrupted(questions)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((questions.len(), &*questions[0].id, gates_here.count()), (1, "ship@1", 1));
    runtime.check_log(&key()).await.unwrap();
}

/// With checkpoints disabled, the record of a transactional node is a base. If the state is too large for it, the transaction leaves no rows. A
/// concurrent node may be the one that enlarged the state.
#[tokio::test]
async fn transactional_node_with_oversized_state_leaves_no_rows() {
    // The node itself enlarges the state, or another node does so concurrently.
    for id in ["beside", "own"] {
        let (store, gates_here) = (LedgerStore::new(), Arc::new(Gates::default()));
        let runtime = process_of(store.clone(), &gates_here, 2_000).await;
        let graph = Graph::<Context>::builder("rows")
            .node("fork", async |_cx, s| Ok(s))
            .node("move", async |cx: NodeContext, mut s: Draft<Context>| {
                let mut tx = cx.transaction::<LedgerDatabase>().await?;
                tx.add("moved", 1);
                gates(&cx).begun.notify_one();
                match cx.run().run.as_str() {
                    "beside" => gates(&cx).open.notified().await,
                    _ => s.set("text", "x".repeat(5_000))?,
                }
                s.commit_with(tx)
            })
            .effect(Effect::Transactional)
            .node("grow", async |cx: NodeContext, mut s: Draft<Context>| {
                gates(&cx).begun.notified().await;
                if cx.run().run.as_str() == "beside" {
                    s.set("text", "x".repeat(5_000))?;
                }
                Ok::<_, NodeError>(s)
            })
            // This node ends after `grow`. It waits for no record, because records wait for the transaction.
            .node("grown", async |cx, s| {
                gates(&cx).open.notify_one();
                Ok(s)
            })
            .effect(Effect::Pure)
            .entry("fork")
            .edge("fork", ["move", "grow"])
            .edge("grow", "grown")
            .build()
            .unwrap();
        let start = runtime.start(&graph, Context::new()).id(id);
        let run = start.checkpoints(policy(CheckpointFrequency::Disabled)).await.unwrap();
        let outcome = run.wait().await;
        assert_eq!(store.row("moved").await, 0, "{id}: {outcome:?}");
        assert!(matches!(outcome, Ok(Outcome::Failed { .. })), "{id}: {outcome:?}");
        runtime.check_log(run.run()).await.unwrap();
        // With a larger limit, the run continues.
        let larger = process_of(store.clone(), &gates_here, 20_000).await;
        larger.retry(run.run()).await.unwrap();
        larger.resume(&graph, id).await.unwrap().completed().await.unwrap();
        assert_eq!(store.row("moved").await, 1, "{id}");
    }
}

/// A ledger whose next commit violates a constraint.
struct Refuses {
    ledger: LedgerStore,
    refuses: AtomicBool,
}

impl fmt::Debug for Refuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refuses").finish_non_exhaustive()
    }
}

#[async_trait]
impl Transactions for Refuses {
    async fn begin(&self, run: &RunKey) -> ferrata_core::Result<AnyTransaction> {
        self.ledger.begin(run).await
    }

    async fn commit(&self, transaction: AnyTransaction, append: RunAppend) -> ferrata_core::Result<HeadRef> {
        if self.refuses.swap(false, Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Invalid, "the rows break a constraint"));
        }
        self.ledger.commit(transaction, append).await
    }

    async fn append_in(
        &self,
        connection: &mut (dyn std::any::Any + Send),
        append: RunAppend,
    ) -> ferrata_core::Result<HeadRef> {
        self.ledger.append_in(connection, append).await
    }

    fn is_transient(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.ledger.is_transient(error)
    }
}

#[async_trait]
impl CheckpointStore for Refuses {
    fn capabilities(&self) -> Capabilities {
        self.ledger.capabilities().with_notices(false)
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }

    delegate! { |this| this.ledger; setup, append, load, headers, head, runs, prune, purge, heartbeat }
}

/// An edit changes the item while a transaction for the old item is open. The rejected commit must not be recorded as an attempt for the new item.
///
/// Guarantees: DURABLE-5.
#[tokio::test]
async fn refused_commit_does_not_fail_another_item() {
    let ledger = LedgerStore::new();
    let store = Arc::new(Refuses { ledger: ledger.clone(), refuses: AtomicBool::new(true) });
    let other = Runtime::builder(ledger.clone()).build().await.unwrap();
    let runtime = Runtime::builder_with(store).resource(other).build().await.unwrap();
    let graph = Graph::<Context>::builder("g")
        .node("plan", async |_cx, _s| Ok(()))
        .effect(Effect::Pure)
        .node("work", async |cx: NodeContext, s: Draft<Context>| {
            let item: String = cx.item()?;
            let mut tx = cx.transaction::<LedgerDatabase>().await?;
            tx.add(&item, 1);
            if item == "old" {
                let edited = Op::Set("items".into(), serde_json::json!(["new"]));
                cx.resource::<Runtime>().edit(cx.run(), Patch::from_ops(&[edited])?).await?;
            }
            s.commit_with(tx)
        })
        .effect(Effect::Transactional)
        .entry("plan")
        .route("plan", ["work"], |s: &Context, _cx| {
            Route::each("work", s.get::<Vec<String>>("items").unwrap().unwrap())
        })
        .build()
        .unwrap();
    let mut input = Context::new();
    input.set("items", ["old"]).unwrap();
    // The record of the fan-out commits together with the transaction.
    let rarely = policy(CheckpointFrequency::EveryNth(NonZeroU32::new(10).unwrap()));
    let run = runtime.start(&graph, input).id("r").checkpoints(rarely).await.unwrap();
    let outcome = run.wait().await.unwrap();
    assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
    assert_eq!((ledger.row("old").await, ledger.row("new").await), (0, 1));
}

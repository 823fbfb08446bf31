//! Transactional nodes: their rows and their record commit together or not at all.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError, NodeResult};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft, Patch, Update};
use ferrata_core::store::{At, CheckpointStore, Database, MemoryStore};
use ferrata_core::{Clock as _, ErrorKind, RunKey, Seq, SystemClock};
use ferrata_testing::{
    Fault, FaultPlan, FaultStore, LedgerDatabase, LedgerRows, LedgerStore, LedgerTransaction, World,
};
use serde_json::Value;
use tokio::sync::Notify;

pub(super) const RUN: &str = "r";

pub(super) fn key() -> RunKey {
    RunKey::try_from(RUN).unwrap()
}

/// How often each node completed, by the log.
async fn ends(store: &LedgerStore) -> BTreeMap<String, u32> {
    let (mut seq, mut ends) = (None, BTreeMap::new());
    loop {
        let at = seq.map_or(At::Latest, At::Seq);
        let Some(records) = store.runs().load(&key(), at).await.unwrap() else { return ends };
        for record in &records {
            let body: Value = serde_json::from_slice(&record.body).unwrap();
            let event = body.get("event").unwrap_or(&body);
            count(event, &mut ends);
        }
        match records[0].header.seq.get() {
            0 => return ends,
            first => seq = Some(Seq::new(first - 1)),
        }
    }
}

fn count(value: &Value, ends: &mut BTreeMap<String, u32>) {
    match value.get("done").and_then(Value::as_array) {
        Some(done) => {
            for end in done {
                *ends.entry(end["node"].as_str().unwrap().to_owned()).or_default() += 1;
            }
        }
        None => {
            for inner in value.as_object().into_iter().flat_map(|object| object.values()) {
                if inner.is_object() {
                    count(inner, ends);
                }
            }
        }
    }
}

/// Moves one unit from `ann` to `bob`, and counts the transfer.
async fn transfer(cx: NodeContext, mut s: Draft<Context>) -> NodeResult<Context> {
    let mut tx = cx.transaction::<LedgerDatabase>().await?;
    tx.add("ann", -1);
    tx.add("bob", 1);
    tx.add(cx.node().as_str(), 1);
    s.set(cx.node().as_str(), true)?;
    s.commit_with(tx)
}

/// The same without a transaction, so that the checks must find errors.
async fn careless(cx: NodeContext, mut s: Draft<Context>) -> NodeResult<Context> {
    let store = cx.resource::<LedgerStore>();
    let mut tx = store.transaction().await?;
    tx.add("ann", -1);
    tx.add("bob", 1);
    tx.add(cx.node().as_str(), 1);
    store.finish(tx).await?;
    s.set(cx.node().as_str(), true)?;
    Ok(s.into())
}

pub(super) async fn nothing(_cx: NodeContext, s: Draft<Context>) -> NodeResult<Context> {
    Ok(s.into())
}

/// Two transfers in sequence, two concurrent ones next to nodes with other effects, and one after all of them.
fn graph(transactional: bool) -> Graph<Context> {
    let mut builder = Graph::<Context>::builder("bank").node("begin", nothing).effect(Effect::Pure);
    for name in ["first", "second", "left", "right", "last"] {
        builder = match transactional {
            true => builder.node(name, transfer).effect(Effect::Transactional),
            false => builder.node(name, careless),
        };
    }
    builder
        .node("pure", nothing)
        .effect(Effect::Pure)
        .node("write", nothing)
        .entry("begin")
        .edge("begin", "first")
        .edge("first", "second")
        .edge("second", ["left", "pure", "right", "write"])
        .edge(["left", "right", "write"], "last")
        .edge("pure", "last")
        .build()
        .unwrap()
}

/// Compares the rows with the log, and checks the sum. Returns the first mismatch.
async fn mismatch(store: &LedgerStore) -> Option<String> {
    let ends = ends(store).await;
    let mut moved = 0;
    for name in ["first", "second", "left", "right", "last"] {
        let recorded = i64::from(ends.get(name).copied().unwrap_or_default());
        let rows = store.row(name).await;
        if recorded != rows {
            return Some(format!("{name}: recorded {recorded} times, done {rows} times"));
        }
        moved += rows;
    }
    let (ann, bob) = (store.row("ann").await, store.row("bob").await);
    ((ann, bob) != (-moved, moved)).then(|| format!("{moved} moved, and ann has {ann}, bob {bob}"))
}

pub(super) async fn process(store: Arc<dyn CheckpointStore>, ledger: &LedgerStore) -> Runtime {
    Runtime::builder_with(store)
        .resource(ledger.clone())
        .store_retries(2, Duration::from_millis(1))
        .build()
        .await
        .unwrap()
}

/// Runs the graph with the planned faults until it ends or its process crashes, and then once more without faults. Returns the number of writes of
/// the first process.
async fn lives(
    graph: &Graph<Context>,
    policy: CheckpointPolicy,
    faults: FaultPlan,
    connections: usize,
) -> Result<u64, String> {
    let ledger = LedgerStore::with_connections(connections);
    let faulty = Arc::new(FaultStore::new(ledger.clone(), faults));
    let first = process(Arc::clone(&faulty) as _, &ledger).await;
    let started = first.start(graph, Context::new()).id(RUN).checkpoints(policy).await;
    if let Ok(run) = started {
        let _ = run.wait().await;
    }
    faulty.crash();
    drop(first);
    if let Some(mismatch) = mismatch(&ledger).await {
        return Err(mismatch);
    }
    let second = process(Arc::new(ledger.clone()), &ledger).await;
    let run = match second.resume(graph, RUN).take_over().await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            second.start(graph, Context::new()).id(RUN).checkpoints(policy).await.unwrap()
        }
        Err(error) if error.kind() == ErrorKind::WrongStatus => {
            return match mismatch(&ledger).await {
                None if ledger.row("last").await == 1 => Ok(faulty.operations()),
                found => Err(found.unwrap_or("it ended without its last transfer".to_owned())),
            };
        }
        resumed => resumed.unwrap(),
    };
    let outcome = run.wait().await.unwrap();
    assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
    match mismatch(&ledger).await {
        None if ledger.row("last").await == 1 && ledger.row("ann").await == -5 => Ok(faulty.operations()),
        found => Err(found.unwrap_or(format!("ann has {}", ledger.row("ann").await))),
    }
}

fn policies() -> [CheckpointPolicy; 3] {
    let frequencies = [
        CheckpointFrequency::EveryNode,
        CheckpointFrequency::EveryNth(3.try_into().unwrap()),
        CheckpointFrequency::StatusChangeOnly,
    ];
    frequencies.map(|frequency| CheckpointPolicy::default().with_frequency(frequency))
}

/// Guarantees: ONCE-1.
#[tokio::test]
async fn node_rows_and_record_commit_together() {
    for policy in policies() {
        let writes = lives(&graph(true), policy, FaultPlan::new(), 8).await.unwrap();
        assert!(writes >= 5, "each transfer needs its own commit: {writes}");
    }
}

/// A process that crashes at any write, before, during or after a commit, executes each transfer exactly once.
///
/// Guarantees: ONCE-1.
#[tokio::test]
async fn crash_at_every_write_keeps_rows_with_records() {
    let graph = graph(true);
    for policy in policies() {
        let writes = lives(&graph, policy, FaultPlan::new(), 8).await.unwrap();
        for at in 0..writes {
            for fault in Fault::ALL {
                let plan = FaultPlan::new().with_fault(at, fault);
                if let Err(found) = lives(&graph, policy, plan, 8).await {
                    panic!("{:?} {fault:?} at {at}: {found}", policy.frequency);
                }
            }
        }
    }
}

/// The check finds nodes that write without a transaction.
#[tokio::test]
async fn nodes_without_a_transaction_fail_the_same_check() {
    let (graph, policy) = (graph(false), CheckpointPolicy::default());
    let writes = lives(&graph, policy, FaultPlan::new(), 8).await.unwrap();
    let mut found = 0;
    for at in 0..writes {
        let plan = FaultPlan::new().with_fault(at, Fault::CrashBefore);
        found += u32::from(lives(&graph, policy, plan, 8).await.is_err());
    }
    assert!(found > 0, "the check must notice a transfer that happens twice");
}

/// With a single connection, transactions, appends and heartbeats wait for each other without a deadlock.
///
/// Guarantees: ONCE-4.
#[tokio::test]
async fn one_connection_is_enough() {
    for policy in policies() {
        let graph = graph(true);
        // The timeout of store calls would end a deadlock only much later.
        tokio::select! {
            done = lives(&graph, policy, FaultPlan::new(), 1) => drop(done.unwrap()),
            () = SystemClock::new().sleep(Duration::from_secs(40)) => panic!("the calls wait for each other"),
        }
    }
}

/// A node that keeps its transaction open until the test releases it. Each attempt is counted.
struct Gate {
    attempts: AtomicU32,
    reached: Notify,
    open: Notify,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self { attempts: AtomicU32::new(0), reached: Notify::new(), open: Notify::new() })
    }

    fn graph(self: &Arc<Self>) -> Graph<Context> {
        let gate = Arc::clone(self);
        Graph::<Context>::builder("gated")
            .node("move", move |cx: NodeContext, s: Draft<Context>| {
                let gate = Arc::clone(&gate);
                async move {
                    let mut tx = cx.transaction::<LedgerDatabase>().await?;
                    tx.add("moved", 1);
                    if gate.attempts.fetch_add(1, Ordering::SeqCst) == 0 {
                        gate.reached.notify_one();
                        gate.open.notified().await;
                    }
                    s.commit_with(tx)
                }
            })
            .effect(Effect::Transactional)
            .entry("move")
            .build()
            .unwrap()
    }
}

/// An outside writer and a transaction conflict: the one that commits later fails, and the node then runs again.
///
/// Guarantees: ONCE-5.
#[tokio::test]
async fn another_writer_makes_the_node_run_again() {
    let (store, gate) = (LedgerStore::new(), Gate::new());
    let owner = Runtime::builder(store.clone()).build().await.unwrap();
    let run = owner.start(&gate.graph(), Context::new()).id(RUN).await.unwrap();
    gate.reached.notified().await;
    let tool = Runtime::builder(store.clone()).operator();
    tool.edit(&key(), Patch::from_json(r#"[{"set":["by","hand"]}]"#).unwrap()).await.unwrap();
    gate.open.notify_one();
    let state = run.wait().await.unwrap().completed().unwrap();
    assert_eq!(state.get::<String>("by").unwrap().as_deref(), Some("hand"));
    assert_eq!((gate.attempts.load(Ordering::SeqCst), store.row("moved").await), (2, 1));
}

/// A signal in the same process does not wait for the node, and aborts its transaction.
///
/// Guarantees: ONCE-5.
#[tokio::test]
async fn signal_aborts_open_transaction() {
    let (store, gate) = (LedgerStore::with_connections(1), Gate::new());
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let run = runtime.start(&gate.graph(), Context::new()).id(RUN).await.unwrap();
    gate.reached.notified().await;
    let patch = Patch::from_json(r#"[{"set":["by","hand"]}]"#).unwrap();
    runtime.edit(&key(), patch).await.unwrap();
    let state = run.wait().await.unwrap().completed().unwrap();
    assert_eq!(state.get::<String>("by").unwrap().as_deref(), Some("hand"));
    assert_eq!((gate.attempts.load(Ordering::SeqCst), store.row("moved").await), (2, 1));
}

/// Guarantees: ONCE-5.
#[tokio::test]
async fn a_cancelled_run_rolls_its_transaction_back() {
    let (store, gate) = (LedgerStore::new(), Gate::new());
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let run = runtime.start(&gate.graph(), Context::new()).id(RUN).await.unwrap();
    gate.reached.notified().await;
    runtime.cancel(&key(), "no longer wanted").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Cancelled { .. }));
    assert_eq!(store.row("moved").await, 0);
    assert_eq!(ends(&store).await.get("move"), None);
}

/// Another process claims the run while a transaction is open: the commit of the old owner is refused.
///
/// Guarantees: ONCE-11.
#[tokio::test]
async fn takeover_refuses_commit_of_previous_owner() {
    let (store, gate) = (LedgerStore::new(), Gate::new());
    let graph = gate.graph();
    let before = Runtime::builder(store.clone()).build().await.unwrap();
    let run = before.start(&graph, Context::new()).id(RUN).await.unwrap();
    gate.reached.notified().await;
    let after = Runtime::builder(store.clone()).build().await.unwrap();
    let taken = after.resume(&graph, RUN).take_over().await.unwrap();
    assert!(matches!(taken.wait().await.unwrap(), Outcome::Completed(_)));
    gate.open.notify_one();
    // The old owner learns of the claim from the log, or from its refused commit.
    let _ = run.wait().await;
    assert_eq!((gate.attempts.load(Ordering::SeqCst), store.row("moved").await), (2, 1));
    assert_eq!(ends(&store).await.get("move"), Some(&1));
}

/// Every other end of an attempt rolls its rows back, and the retry policy applies as usual.
///
/// Guarantees: ONCE-1.
#[tokio::test]
async fn a_dropped_transaction_is_rolled_back() {
    let tries = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&tries);
    let graph = Graph::<Context>::builder("tries")
        .node("move", move |cx: NodeContext, s: Draft<Context>| {
            let count = Arc::clone(&count);
            async move {
                let mut tx = cx.transaction::<LedgerDatabase>().await?;
                tx.add("moved", 1);
                match count.fetch_add(1, Ordering::SeqCst) {
                    0 => Err(NodeError::new(std::io::Error::other("refused"))),
                    1 => panic!("a bug"),
                    2 => std::future::pending().await,
                    // The node returns an error after `commit_with`.
                    3 => {
                        drop(s.commit_with(tx));
                        Err(NodeError::new(std::io::Error::other("refused")))
                    }
                    _ => s.commit_with(tx),
                }
            }
        })
        .effect(Effect::Transactional)
        .retry(RetryPolicy::standard().with_delay(Duration::ZERO))
        .timeout(Duration::from_millis(50))
        .entry("move")
        .build()
        .unwrap();
    // The clock advances only when no task can run. So the timeout ends only the attempt that never ends, also on a busy machine.
    let world = World::new();
    let store = LedgerStore::with_connections(1).with_runs(world.store().clone());
    let builder = Runtime::builder(store.clone()).clock(Arc::new(world.clock().clone()));
    let runtime = builder.build().await.unwrap();
    let run = runtime.start(&graph, Context::new()).id(RUN).await.unwrap();
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    assert_eq!((tries.load(Ordering::SeqCst), store.row("moved").await), (5, 1));
}

/// Conflicting transactions restart without a retry policy, and every addition takes effect.
///
/// Guarantees: ONCE-6.
#[tokio::test]
async fn transactions_in_each_others_way_all_come_through() {
    let graph = Graph::<Context>::builder("counter")
        .node("count", async |cx, s: Draft<Context>| {
            let mut tx = cx.transaction::<LedgerDatabase>().await?;
            let count = tx.get("count");
            tokio::task::yield_now().await;
            tx.set("count", count + 1);
            s.commit_with(tx)
        })
        .effect(Effect::Transactional)
        .entry("count")
        .build()
        .unwrap();
    let store = LedgerStore::new();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(runtime.start(&graph, Context::new()).await.unwrap());
    }
    for run in runs {
        let outcome = run.wait().await.unwrap();
        assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
    }
    assert_eq!(store.row("count").await, 6);
}

/// A statement that fails because of a conflicting transaction is no failure of the node. Any other failed statement is.
///
/// Guarantees: ONCE-6.
#[tokio::test]
async fn transient_statement_failure_restarts_without_counting() {
    let store = LedgerStore::new();
    let tries = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&tries);
    let graph = Graph::<Context>::builder("deadlock")
        .node("move", move |cx: NodeContext, s: Draft<Context>| {
            let count = Arc::clone(&count);
            async move {
                assert_eq!(cx.attempt(), 1, "an attempt that lost a conflict must not count");
                let mut tx = cx.transaction::<LedgerDatabase>().await?;
                tx.add("moved", 1);
                if count.fetch_add(1, Ordering::SeqCst) < 3 {
                    let deadlock = ferrata_core::Error::new(ErrorKind::Unavailable, "injected: a deadlock");
                    return Err(NodeError::new(deadlock));
                }
                s.commit_with(tx)
            }
        })
        .effect(Effect::Transactional)
        .entry("move")
        .build()
        .unwrap();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let run = runtime.start(&graph, Context::new()).await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Completed(_)));
    assert_eq!((tries.load(Ordering::SeqCst), store.row("moved").await), (4, 1));
}

/// A database type that no store provides.
enum Elsewhere {}

struct ElsewhereTransaction(LedgerTransaction);

impl std::ops::Deref for ElsewhereTransaction {
    type Target = LedgerRows;

    fn deref(&self) -> &LedgerRows {
        &self.0
    }
}

impl std::ops::DerefMut for ElsewhereTransaction {
    fn deref_mut(&mut self) -> &mut LedgerRows {
        &mut self.0
    }
}

impl Database for Elsewhere {
    const NAME: &'static str = "elsewhere";
    type Connection = LedgerRows;
    type Transaction = ElsewhereTransaction;
}

pub(super) async fn failure(effect: Effect, node: fn(NodeContext, Draft<Context>) -> Work) -> String {
    let graph =
        Graph::<Context>::builder("misuse").node("move", node).effect(effect).entry("move").build().unwrap();
    let store = LedgerStore::with_connections(1);
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let outcome = runtime.start(&graph, Context::new()).await.unwrap().wait().await.unwrap();
    let Outcome::Failed { failure, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(store.row("moved").await, 0, "nothing must be committed");
    failure.message
}

pub(super) type Work = std::pin::Pin<Box<dyn Future<Output = NodeResult<Context>> + Send>>;

/// Guarantees: ONCE-9.
#[tokio::test]
async fn transaction_misuse_returns_typed_error_with_remedy() {
    let without = failure(Effect::Transactional, |cx, s| {
        Box::pin(async move {
            let mut tx = cx.transaction::<LedgerDatabase>().await?;
            tx.add("moved", 1);
            Ok(s.into())
        })
    });
    assert!(without.await.contains("return `s.commit_with(tx)`"));
    let undeclared = failure(Effect::Write, |cx, s| {
        Box::pin(async move { s.commit_with(cx.transaction::<LedgerDatabase>().await?) })
    });
    assert!(undeclared.await.contains("declare it `.effect(Effect::Transactional)`"));
    let twice = failure(Effect::Transactional, |cx, s| {
        Box::pin(async move {
            let first = cx.transaction::<LedgerDatabase>().await?;
            drop(s.commit_with(first));
            let second = cx.transaction::<LedgerDatabase>().await?;
            Ok(Update::none().commit_with(second))
        })
    });
    assert!(twice.await.contains("do all work in that one"));
    let foreign = failure(Effect::Transactional, |cx, s| {
        Box::pin(async move { s.commit_with(cx.transaction::<Elsewhere>().await?) })
    });
    assert!(foreign.await.contains("the store is `ledger`, not `elsewhere`"));
    let waits = failure(Effect::Transactional, |cx, s| {
        Box::pin(async move {
            let tx = cx.transaction::<LedgerDatabase>().await?;
            cx.step("aside", async || Ok::<_, std::io::Error>(())).await?;
            s.commit_with(tx)
        })
    });
    assert!(waits.await.contains("do this before `cx.transaction()`"));
}

/// A step during an open transaction fails before its work begins.
#[tokio::test]
async fn step_during_open_transaction_fails_before_work() {
    static DONE: AtomicU32 = AtomicU32::new(0);
    let failed = failure(Effect::Transactional, |cx, s| {
        Box::pin(async move {
            let tx = cx.transaction::<LedgerDatabase>().await?;
            cx.step("aside", async || Ok::<_, std::io::Error>(DONE.fetch_add(1, Ordering::SeqCst))).await?;
            s.commit_with(tx)
        })
    });
    assert!(failed.await.contains("do this before `cx.transaction()`"));
    assert_eq!(DONE.load(Ordering::SeqCst), 0);
}

/// Guarantees: ONCE-9.
#[tokio::test]
async fn store_without_transactions_is_refused_at_start() {
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let graph = graph(true);
    for error in [
        runtime.start(&graph, Context::new()).await.unwrap_err(),
        runtime.resume(&graph, RUN).await.unwrap_err(),
        runtime.serve(&graph).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        for part in ["first", "`memory`", "PostgreSQL or SQLite"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

/// Steps and questions before the transaction are not repeated.
#[tokio::test]
async fn a_step_before_the_transaction_is_done_once() {
    let store = LedgerStore::with_connections(1);
    let graph = Graph::<Context>::builder("quote")
        .node("buy", async |cx, s: Draft<Context>| {
            let price: i64 = cx.step("price", async || Ok::<_, std::io::Error>(7)).await?;
            let mut tx = cx.transaction::<LedgerDatabase>().await?;
            tx.add("cash", -price);
            s.commit_with(tx)
        })
        .effect(Effect::Transactional)
        .entry("buy")
        .build()
        .unwrap();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    runtime.start(&graph, Context::new()).await.unwrap().wait().await.unwrap().completed().unwrap();
    assert_eq!(store.row("cash").await, -7);
}

//! The crash test of the testing kit: it crashes at every write, finds faults, and does not pass without running.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::Outcome;
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::CheckpointStore as _;
use ferrata_core::{Clock as _, ErrorKind};
use ferrata_testing::{CrashTest, Fault, LedgerDatabase, LedgerRows, ScriptedAnswers, World};

use super::worlds::panic_of;

/// A graph that asks, sleeps a day, receives a message, and pays. It counts payments.
fn pays(paid: &Arc<AtomicU32>, effect: Effect) -> Graph<Context> {
    let paid = Arc::clone(paid);
    Graph::<Context>::builder("pays")
        .gate("approve", |_s: &Context| Ask::<bool>::new("Pay?"), |s, yes| s.set("approved", yes))
        .node("wait", async |cx: NodeContext, s: Draft<Context>| {
            cx.sleep(Duration::from_secs(86_400)).await?;
            let _: String = cx.receive().await?;
            Ok(s)
        })
        .node("pay", move |_cx, s| {
            paid.fetch_add(1, Ordering::SeqCst);
            async { Ok(s) }
        })
        .effect(effect)
        .entry("approve")
        .edge("approve", "wait")
        .edge("wait", "pay")
        .build()
        .unwrap()
}

fn test(graph: &Graph<Context>) -> CrashTest<Context> {
    CrashTest::new(graph, Context::new())
        .with_process(|b| b.answerer(ScriptedAnswers::new().answer("approve", Answer::accept(true).unwrap())))
        .with_start(|start| start.message("go on"))
}

/// The crash test runs the workflow once without a crash. Then it crashes before and after each write.
#[tokio::test]
async fn crash_test_crashes_at_every_write() {
    let (paid, seen) = (Arc::default(), std::cell::RefCell::new(Vec::new()));
    let crashes = test(&pays(&paid, Effect::External))
        .run(async |case| {
            let paid = paid.swap(0, Ordering::SeqCst);
            match (&case.outcome, case.crash) {
                (Outcome::Completed(_), _) => assert_eq!(paid, 1, "{case:?}"),
                // The outcome of the payment is unknown, so it must not be repeated.
                (Outcome::Interrupted(_), Some(_)) => assert!(paid <= 1, "{case:?}"),
                _ => panic!("{case:?}"),
            }
            assert!(case.world.clock().monotonic() >= Duration::from_secs(86_400));
            seen.borrow_mut().push(case.crash);
        })
        .await;
    let seen = seen.into_inner();
    let writes = crashes / 2;
    assert!(writes > 6, "{writes}");
    let all = [Fault::CrashBefore, Fault::CrashAfter].map(|fault| (0..writes).map(move |n| Some((n, fault))));
    let expected: Vec<_> = std::iter::once(None).chain(all.into_iter().flatten()).collect();
    assert_eq!(seen, expected);
}

/// A node that may be repeated pays twice if its record is lost. The check of the test finds this.
#[tokio::test]
async fn crash_test_finds_repeated_work() {
    let paid = Arc::default();
    let twice = test(&pays(&paid, Effect::Write)).run(async |case| {
        assert!(paid.swap(0, Ordering::SeqCst) <= 1, "paid twice: {case:?}");
    });
    let told = panic_of(twice).await;
    assert!(told.contains("paid twice") && told.contains("CrashBefore"), "{told}");
}

/// A crash test of a workflow that cannot start fails.
#[tokio::test]
async fn crash_test_refuses_to_run_nothing() {
    let graph = pays(&Arc::default(), Effect::Transactional);
    let told = panic_of(test(&graph).run(async |_case| {})).await;
    assert!(told.contains("cannot serve `pays`") && told.contains("World::with_transactions"), "{told}");
    let checks = std::cell::Cell::new(0);
    let crashes = test(&graph).with_transactions().run(async |_case| checks.set(checks.get() + 1)).await;
    assert_eq!(checks.get(), 1 + crashes);
}

fn moves_money() -> Graph<Context> {
    Graph::<Context>::builder("moves")
        .node("move", async |_cx: NodeContext, _s: Draft<Context>| {
            Err::<Draft<Context>, _>("no bank here".into())
        })
        .effect(Effect::Transactional)
        .node("count", async |_cx: NodeContext, s: Draft<Context>| Ok(s))
        .entry("move")
        .edge("move", "count")
        .build()
        .unwrap()
}

/// A crash test can run a workflow with a transactional node.
#[tokio::test]
async fn transactions_commit_once_at_every_crash() {
    let real = moves_money();
    let tested = real.with_node("move", async |cx: NodeContext, mut s: Draft<Context>| {
        let mut tx = cx.transaction::<LedgerDatabase>().await?;
        tx.add("ann", -5);
        tx.add("bob", 5);
        s.set("moved", 5)?;
        s.commit_with(tx)
    });
    let tested = tested.unwrap();
    let tested = tested.with_node("count", async |cx: NodeContext, s: Draft<Context>| {
        let count = async |rows: &mut LedgerRows| {
            rows.add("moves", 1);
            Ok::<_, NodeError>(())
        };
        cx.step_in::<LedgerDatabase, _, _, _>("count", count).await?;
        Ok(s)
    });
    let tested = tested.unwrap();
    assert_eq!(tested.fingerprint(), real.fingerprint());
    let crashes = CrashTest::new(&tested, Context::new())
        .with_transactions()
        .run(async |case| {
            assert!(matches!(case.outcome, Outcome::Completed(_)), "{case:?}");
            let ledger = case.world.ledger();
            let rows = (ledger.row("ann").await, ledger.row("bob").await, ledger.row("moves").await);
            assert_eq!(rows, (-5, 5, 1), "{case:?}");
        })
        .await;
    assert!(crashes >= 6, "{crashes}");
}

/// A start may be part of a transaction of the test, and the transaction of a node may write nothing.
#[tokio::test]
async fn start_may_be_part_of_test_transaction() {
    let graph = moves_money().with_node("move", async |cx: NodeContext, mut s: Draft<Context>| {
        s.set("moved", 5)?;
        s.commit_with(cx.transaction::<LedgerDatabase>().await?)
    });
    let (world, graph) = (World::with_transactions(), graph.unwrap());
    let process = world.process().await.unwrap();
    let mut tx = world.ledger().transaction().await.unwrap();
    tx.set("orders", 1);
    process.start(&graph, Context::new()).id("r").in_transaction(&mut *tx).await.unwrap();
    assert!(world.store().head(&"r".try_into().unwrap()).await.unwrap().is_none());
    world.ledger().finish(tx).await.unwrap();
    process.serve(&graph).unwrap();
    let run = world.pass(process.resume(&graph, "r")).await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!((state.get::<i64>("moved").unwrap(), world.ledger().row("orders").await), (Some(5), 1));
    // A store without transactions refuses the graph, and the error names the remedy.
    let process = World::new().process().await.unwrap();
    let error = process.start(&graph, Context::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("`World::with_transactions`"), "{error}");
}

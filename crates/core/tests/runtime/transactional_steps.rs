//! Transactional steps, and runs that start within a transaction of the application.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_core::{ErrorKind, RunKey, Timestamp};
use ferrata_testing::{Fault, FaultPlan, FaultStore, LedgerDatabase, LedgerRows, LedgerStore, ManualClock};

use tokio::sync::Notify;

use super::transactions::{RUN, failure, key, nothing, process};

/// A node with two transactional steps in sequence, next to a branch that writes its own records.
fn steps() -> Graph<Context> {
    async fn add(cx: &NodeContext, name: &'static str) -> Result<i64, NodeError> {
        cx.step_in::<LedgerDatabase, _, _, _>(name, async move |tx: &mut LedgerRows| {
            tx.add(name, 1);
            tokio::task::yield_now().await;
            Ok::<_, std::io::Error>(tx.get(name))
        })
        .await
    }
    Graph::<Context>::builder("steps")
        .node("begin", nothing)
        .node("beside", nothing)
        .node("both", async |cx: NodeContext, mut s: Draft<Context>| {
            let one = add(&cx, "one").await?;
            let two = add(&cx, "two").await?;
            s.set("both", one + two)?;
            Ok(s)
        })
        .entry("begin")
        .edge("begin", ["both", "beside"])
        .build()
        .unwrap()
}

/// Guarantees: ONCE-2.
#[tokio::test]
async fn step_and_rows_commit_together_despite_crashes() {
    let graph = steps();
    let lives = async |faults: FaultPlan, connections: usize| {
        let ledger = LedgerStore::with_connections(connections);
        let faulty = Arc::new(FaultStore::new(ledger.clone(), faults));
        let first = process(Arc::clone(&faulty) as _, &ledger).await;
        if let Ok(run) = first.start(&graph, Context::new()).id(RUN).await {
            let _ = run.wait().await;
        }
        faulty.crash();
        drop(first);
        let (one, two) = (ledger.row("one").await, ledger.row("two").await);
        assert!(one <= 1 && two <= one, "{one} {two}");
        let second = process(Arc::new(ledger.clone()), &ledger).await;
        let resumed = match second.resume(&graph, RUN).take_over().await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                second.start(&graph, Context::new()).id(RUN).await
            }
            Err(error) if error.kind() == ErrorKind::WrongStatus => {
                assert_eq!((one, two), (1, 1));
                return faulty.operations();
            }
            resumed => resumed,
        };
        let state = resumed.unwrap().wait().await.unwrap().completed().unwrap();
        assert_eq!(state.get::<i64>("both").unwrap(), Some(2));
        assert_eq!((ledger.row("one").await, ledger.row("two").await), (1, 1));
        faulty.operations()
    };
    lives(FaultPlan::new(), 1).await;
    let writes = lives(FaultPlan::new(), 8).await;
    for at in 0..writes {
        for fault in Fault::ALL {
            lives(FaultPlan::new().with_fault(at, fault), 8).await;
        }
    }
}

/// The driver handles a request of a node in the same turn. The clock of this test stands still, so a poll would never come.
#[tokio::test]
async fn no_transaction_waits_for_the_next_look() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
    let store = LedgerStore::with_connections(1);
    let runtime = Runtime::builder(store.clone()).clock(Arc::clone(&clock) as _).build().await.unwrap();
    let graph = Graph::<Context>::builder("many")
        .node("add", async |cx, s: Draft<Context>| {
            let mut tx = cx.transaction::<LedgerDatabase>().await?;
            tx.add("added", 1);
            s.commit_with(tx)
        })
        .effect(Effect::Transactional)
        .node("step", async |cx, s: Draft<Context>| {
            cx.step_in::<LedgerDatabase, _, _, _>("one", async |tx: &mut LedgerRows| {
                tx.add("added", 1);
                Ok::<_, std::io::Error>(())
            })
            .await?;
            Ok(s)
        })
        .node("end", nothing)
        // Yield now and then, so that the driver's turns meet every stage of a transaction.
        .node("shift", nothing)
        .effect(Effect::Pure)
        .entry("add")
        .edge("add", "step")
        .edge("shift", "add")
        .route("step", ["add", "shift", "end"], |_s, cx| match cx.visit().get() {
            100 => "end",
            visit if visit.is_multiple_of(3) => "shift",
            _ => "add",
        })
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id(RUN).await.unwrap();
    let mut ended = std::pin::pin!(run.wait());
    for _ in 0..50_000 {
        tokio::select! {
            biased;
            outcome = &mut ended => {
                assert!(matches!(outcome.unwrap(), Outcome::Completed(_)));
                assert_eq!(store.row("added").await, 200);
                return;
            }
            () = tokio::task::yield_now() => {}
        }
    }
    panic!("a transaction waits for the clock, after {} transactions", store.row("added").await);
}

/// A node that ends while a transaction is open: its record waits, and commits with the transaction, also over one connection.
#[tokio::test]
async fn end_during_open_transaction_is_recorded_with_it() {
    let (opened, attempts) = (Arc::new(Notify::new()), Arc::new(AtomicU32::new(0)));
    let (tell, count) = (Arc::clone(&opened), Arc::clone(&attempts));
    let graph = Graph::<Context>::builder("beside")
        .node("begin", nothing)
        .node("move", move |cx: NodeContext, s: Draft<Context>| {
            let (tell, count) = (Arc::clone(&tell), Arc::clone(&count));
            async move {
                let mut tx = cx.transaction::<LedgerDatabase>().await?;
                count.fetch_add(1, Ordering::SeqCst);
                tx.add("moved", 1);
                tell.notify_one();
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                s.commit_with(tx)
            }
        })
        .effect(Effect::Transactional)
        .node("beside", move |_cx: NodeContext, s: Draft<Context>| {
            let opened = Arc::clone(&opened);
            async move {
                opened.notified().await;
                Ok(s)
            }
        })
        .entry("begin")
        .edge("begin", ["move", "beside"])
        .build()
        .unwrap();
    let store = LedgerStore::with_connections(1);
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let run = runtime.start(&graph, Context::new()).id(RUN).await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Completed(_)));
    assert_eq!((attempts.load(Ordering::SeqCst), store.row("moved").await), (1, 1));
}

/// Guarantees: ONCE-9.
#[tokio::test]
async fn misuse_of_a_step_is_a_typed_error() {
    for (effect, part) in [(Effect::Read, "declared `read`"), (Effect::Pure, "declared `pure`")] {
        let told = failure(effect, |cx, s| {
            Box::pin(async move {
                cx.step_in::<LedgerDatabase, _, _, _>("one", async |_: &mut LedgerRows| {
                    Ok::<_, std::io::Error>(())
                })
                .await?;
                Ok(s.into())
            })
        });
        assert!(told.await.contains(part));
    }
    let nested = failure(Effect::Write, |cx, s| {
        Box::pin(async move {
            let inner = cx.clone();
            cx.step_in::<LedgerDatabase, _, _, _>("moved", async move |tx: &mut LedgerRows| {
                tx.add("moved", 1);
                inner.step("inner", async || Ok::<_, std::io::Error>(())).await
            })
            .await?;
            Ok(s.into())
        })
    });
    assert!(nested.await.contains("has an open transaction"));
}

/// Guarantees: ONCE-3.
#[tokio::test]
async fn run_started_in_transaction_commits_with_rows() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
    let store = LedgerStore::new().with_runs(MemoryStore::with_clock(Arc::clone(&clock) as _));
    let process =
        async || Runtime::builder(store.clone()).clock(Arc::clone(&clock) as _).build().await.unwrap();
    let (graph, runtime) = (steps(), process().await);
    let mut tx = store.transaction().await.unwrap();
    tx.add("orders", 1);
    let ticket = runtime.start(&graph, Context::new()).id("lost").in_transaction(&mut *tx).await.unwrap();
    drop(tx);
    assert_eq!(ticket.drive().await.unwrap_err().kind(), ErrorKind::NotFound);

    let mut tx = store.transaction().await.unwrap();
    tx.add("orders", 1);
    let ticket = runtime.start(&graph, Context::new()).id(RUN).in_transaction(&mut *tx).await.unwrap();
    assert!(store.runs().head(&key()).await.unwrap().is_none(), "the run must not start before the commit");
    store.finish(tx).await.unwrap();
    assert_eq!((store.row("orders").await, ticket.run()), (1, &key()));
    assert!(matches!(ticket.drive().await.unwrap().wait().await.unwrap(), Outcome::Completed(_)));

    // The same id is refused the second time, because the rows of this caller do not belong to the existing run.
    let mut tx = store.transaction().await.unwrap();
    let refused = runtime.start(&graph, Context::new()).id(RUN).in_transaction(&mut *tx).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);

    // Drop the handle, so that a process that serves the workflow must find the run.
    let mut tx = store.transaction().await.unwrap();
    drop(runtime.start(&graph, Context::new()).id("found").in_transaction(&mut *tx).await.unwrap());
    store.finish(tx).await.unwrap();
    let server = process().await;
    server.serve(&graph).unwrap();
    let found = RunKey::try_from("found").unwrap();
    for _ in 0..10_000 {
        let head = store.runs().head(&found).await.unwrap().unwrap();
        if head.status == ferrata_core::record::RunStatus::Completed {
            return;
        }
        tokio::task::yield_now().await;
        clock.advance(Duration::from_millis(50));
    }
    panic!("no process found the run");
}

/// A caller that passes `&mut tx` instead of `&mut *tx` gets an error that names the mistake.
#[tokio::test]
async fn wrong_connection_is_named() {
    let store = LedgerStore::new();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let mut tx = store.transaction().await.unwrap();
    let refused = runtime.start(&steps(), Context::new()).id(RUN).in_transaction(&mut tx).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let text = refused.to_string();
    assert!(text.contains("pass `&mut *tx`") && text.contains("LedgerTransaction"), "{text}");
}

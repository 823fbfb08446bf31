//! Statements of the documentation, each as a test.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{Graph, GraphBuilder, Route, RouteContext};
use ferrata_core::record::{FailureKind, RunStatus};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{At, CheckpointStore};
use ferrata_core::{ErrorKind, RunKey};

use super::world::World;

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

fn builder() -> GraphBuilder<Context> {
    Graph::<Context>::builder("g")
}

async fn status(runtime: &Runtime) -> RunStatus {
    runtime.head(&key()).await.unwrap().unwrap().status
}

/// control.md: "`unpause` of `Failed`: if it was paused before"; "A run that was paused before it failed needs `unpause`, too."
///
/// Guarantees: CONTROL-5.
#[tokio::test]
async fn failed_paused_run_needs_retry_and_unpause() {
    let world = World::new();
    let runtime = world.process().await;
    let mended = Arc::new(AtomicBool::new(false));
    let begun = Arc::new(tokio::sync::Semaphore::new(0));
    let may_fail = Arc::new(tokio::sync::Semaphore::new(0));
    let graph = {
        let (mended, begun, may_fail) = (Arc::clone(&mended), Arc::clone(&begun), Arc::clone(&may_fail));
        builder().node("work", move |_cx, s| {
            let (mended, begun, may_fail) = (Arc::clone(&mended), Arc::clone(&begun), Arc::clone(&may_fail));
            async move {
                begun.add_permits(1);
                may_fail.acquire().await.unwrap().forget();
                if mended.load(Ordering::SeqCst) { Ok(s) } else { Err("not mended".into()) }
            }
        })
    };
    let graph = graph.entry("work").build().unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    begun.acquire().await.unwrap().forget();
    runtime.pause(&key(), "hold").await.unwrap();
    may_fail.add_permits(1);
    let outcome = world.pass(run.wait()).await.unwrap();
    assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");

    mended.store(true, Ordering::SeqCst);
    may_fail.add_permits(1);
    runtime.retry(&key()).await.unwrap();
    let run = runtime.resume(&graph, key()).await.unwrap();
    let outcome = world.pass(run.wait()).await.unwrap();
    assert!(matches!(outcome, Outcome::Paused { .. }), "a retry must leave the run paused: {outcome:?}");
    runtime.unpause(&key()).await.unwrap();
    let run = runtime.resume(&graph, key()).await.unwrap();
    let outcome = world.pass(run.wait()).await.unwrap();
    assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
}

/// control.md: a retry asks rejected questions again, "except those behind a node (`interrupt_after`)".
///
/// Guarantees: CONTROL-4.
#[tokio::test]
async fn retry_confirms_interrupt_after_node_not_before() {
    for behind in [true, false] {
        let world = World::new();
        let runtime = world.process().await;
        let graph = builder().node("work", async |_cx, s| Ok(s));
        let graph = if behind { graph.interrupt_after() } else { graph.interrupt_before() };
        let graph =
            graph.node("then", async |_cx, s: Draft<Context>| Ok(s)).entry("work").edge("work", "then");
        let graph = graph.build().unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        world.pass(run.wait()).await.unwrap();
        let open = runtime.questions(&key()).await.unwrap();
        runtime.respond(&key(), &open[0].id, Answer::reject("no")).await.unwrap();
        if !behind {
            // Before a node, the continued node passes the rejection on. After a node, there is no node to do so.
            world.pass(runtime.resume(&graph, key()).await.unwrap().wait()).await.unwrap();
        }
        assert_eq!(status(&runtime).await, RunStatus::Failed, "behind: {behind}");

        runtime.retry(&key()).await.unwrap();
        let run = runtime.resume(&graph, key()).await.unwrap();
        match world.pass(run.wait()).await.unwrap() {
            Outcome::Completed(_) => assert!(behind, "the question before the node must be asked again"),
            Outcome::Interrupted(_) => assert!(!behind, "after the node, the retry must not ask"),
            other => panic!("after the node: {behind}: {other:?}"),
        }
    }
}

/// control.md: "Behind the graph's deadline, a retried run fails again at once."
///
/// Guarantees: CONTROL-6.
#[tokio::test]
async fn retry_after_deadline_fails_before_any_start() {
    let world = World::new();
    let runtime = world.process().await;
    let begun = Arc::new(AtomicBool::new(false));
    let graph = {
        let begun = Arc::clone(&begun);
        builder()
            .node("wait", async |cx, s| {
                cx.sleep(Duration::from_secs(60)).await?;
                Ok(s)
            })
            .node("then", move |_cx, s| {
                begun.store(true, Ordering::SeqCst);
                async move { Ok(s) }
            })
            .entry("wait")
            .edge("wait", "then")
            .deadline(Duration::from_secs(10))
            .build()
            .unwrap()
    };
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    runtime.serve(&graph).unwrap();
    assert_eq!(world.pass(run.completed()).await.unwrap_err().kind(), ErrorKind::WrongStatus);
    for _ in 0..2 {
        runtime.retry(&key()).await.unwrap();
        let failed = async {
            while status(&runtime).await != RunStatus::Failed {
                tokio::task::yield_now().await;
            }
        };
        world.pass(failed).await;
        let loaded = world.store.load(&key(), At::Latest).await.unwrap().unwrap();
        assert_eq!(loaded.last().unwrap().header.status, RunStatus::Failed);
    }
    assert!(!begun.load(Ordering::SeqCst), "no node must start after the deadline");
}

/// conversations.md: "A message to a run at rest in which a node receives makes it `InProgress` without an owner; where nodes only ask or
/// sleep," its status stays.
///
/// Guarantees: MESSAGE-3.
#[tokio::test]
async fn message_readies_only_receiving_run() {
    type Wait = fn(GraphBuilder<Context>) -> GraphBuilder<Context>;
    let waits: [(Wait, RunStatus, RunStatus); 3] = [
        (
            |graph| {
                graph.node("n", async |cx, s| {
                    let _: u32 = cx.receive().await?;
                    Ok(s)
                })
            },
            RunStatus::AwaitingInput,
            RunStatus::InProgress,
        ),
        (
            |graph| {
                graph.node("n", async |cx, s| {
                    let _: bool = cx.ask("ok", "Go on?").await?;
                    Ok(s)
                })
            },
            RunStatus::Interrupted,
            RunStatus::Interrupted,
        ),
        (
            |graph| {
                graph.node("n", async |cx, s| {
                    cx.sleep(Duration::from_secs(600)).await?;
                    Ok(s)
                })
            },
            RunStatus::InProgress,
            RunStatus::InProgress,
        ),
    ];
    for (wait, before, after) in waits {
        let world = World::new();
        let runtime = world.process().await;
        let graph = wait(builder()).entry("n").build().unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        let rest = run.wait().await.unwrap();
        assert_eq!(status(&runtime).await, before, "{rest:?}");
        runtime.send(&key(), 7_u32).await.unwrap();
        let head = runtime.head(&key()).await.unwrap().unwrap();
        assert_eq!(head.status, after, "after {rest:?}");
        assert_eq!(head.owner, None, "the run must have no owner");
        let sleeps = matches!(rest, Outcome::Sleeping { .. });
        assert_eq!(head.wake_at.is_some(), sleeps, "a sleeping run must keep its wake-up time");
    }
}

/// questions.md: an idle run that sleeps continues before its time if a question of it is answered.
///
/// Guarantees: QUESTION-13.
#[tokio::test]
async fn an_answer_moves_a_run_that_sleeps() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = builder()
        .node("n", async |cx, s| {
            tokio::select! {
                answer = cx.ask::<bool>("ok", "Go on?") => drop(answer?),
                slept = cx.sleep(Duration::from_secs(3_600)) => { slept?; return Err("nobody answered".into()) }
            }
            Ok(s)
        })
        .entry("n")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let rest = run.wait().await.unwrap();
    assert!(matches!(rest, Outcome::Sleeping { .. }), "{rest:?}");
    let open = runtime.questions(&key()).await.unwrap();
    runtime.respond(&key(), &open[0].id, Answer::accept(true).unwrap()).await.unwrap();
    let run = runtime.resume(&graph, key()).await.unwrap();
    let outcome = run.wait().await.unwrap();
    assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
}

/// replanning.md: "Of a reason, 500 bytes are kept, with `…` behind them if it is longer".
///
/// Guarantees: REPLAN-6.
#[tokio::test]
async fn replan_reason_is_cut_at_500_bytes() {
    for (length, kept) in [(499, 499), (500, 500), (501, 500), (5_000, 500)] {
        let world = World::new();
        let runtime = world.process().await;
        let graph = builder()
            .node("plan", async |_cx, s| Ok(s))
            .node("review", async |_cx, s| Ok(s))
            .entry("plan")
            .edge("plan", "review")
            .route("review", ["plan"], move |_s: &Context, cx: &RouteContext<'_>| match cx.visit().get() {
                1 => Route::revisit("plan", "x".repeat(length)),
                _ => Route::none(),
            })
            .build()
            .unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        run.completed().await.unwrap();
        let head = runtime.head(&key()).await.unwrap().unwrap();
        let replans = runtime.checkpoint(&key(), head.seq).await.unwrap().replans;
        let mut expected = "x".repeat(kept);
        if length > 500 {
            expected.push('…');
        }
        assert_eq!(replans[0].reason, expected, "of {length} bytes");
    }
}

/// INDETERMINATE.md: "If the first one went through, `respond` says `ALREADY_EXISTS`".
#[tokio::test]
async fn repeated_answer_is_refused_as_already_existing() {
    let asks = |graph: GraphBuilder<Context>| {
        graph.node("n", async |cx, s| {
            let _: bool = cx.ask("ok", "Go on?").await?;
            Ok(s)
        })
    };
    // The node never ends, so the earlier question is answered and the run stays active.
    let stays = |graph: GraphBuilder<Context>| {
        graph.node("then", async |_cx, s: Draft<Context>| {
            std::future::pending::<()>().await;
            Ok(s)
        })
    };
    let gate = |graph: GraphBuilder<Context>| {
        let graph = graph.gate("n", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes));
        stays(graph).edge("n", "then")
    };
    let interrupt = |graph: GraphBuilder<Context>| stays(graph).interrupt_before();
    for (graph, entry) in [
        (stays(asks(builder())).edge("n", "then"), "n"),
        (gate(builder()), "n"),
        (interrupt(builder()), "then"),
    ] {
        let world = World::new();
        let runtime = world.process().await;
        let graph = graph.entry(entry).build().unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        run.wait().await.unwrap();
        let question = runtime.questions(&key()).await.unwrap().remove(0);
        let respond = async || runtime.respond(&key(), &question.id, Answer::accept(true).unwrap()).await;
        respond().await.unwrap();
        let again = respond().await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{}: {again}", question.id);

        let _goes_on = runtime.resume(&graph, key()).await.unwrap();
        let mut again = respond().await.unwrap_err();
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
            again = respond().await.unwrap_err();
        }
        assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{}: {again}", question.id);
    }
}

/// WRONG_STATUS.md: "`InProgress` is refused by `retry` and `unpause`."
#[tokio::test]
async fn run_in_progress_refuses_only_retry_and_unpause() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = builder()
        .node("n", async |cx, s| {
            cx.cancelled().await;
            Ok(s)
        })
        .entry("n")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    while status(&runtime).await != RunStatus::InProgress {
        tokio::task::yield_now().await;
    }
    assert_eq!(runtime.retry(&key()).await.unwrap_err().kind(), ErrorKind::WrongStatus);
    assert_eq!(runtime.unpause(&key()).await.unwrap_err().kind(), ErrorKind::WrongStatus);
    runtime.send(&key(), 1_u32).await.unwrap();
    runtime.pause(&key(), "hold").await.unwrap();
    runtime.unpause(&key()).await.unwrap();
    runtime.cancel(&key(), "enough").await.unwrap();
    let outcome = world.pass(run.wait()).await.unwrap();
    assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
}

/// control.md: "unless it was a goal that was not met". A retry is also refused if an edit has met the goal since.
///
/// Guarantees: CONTROL-6.
#[tokio::test]
async fn missed_goal_cannot_retry_after_edit() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = builder()
        .node("n", async |_cx, s| Ok(s))
        .goal_gate(|s| s.contains_key("met"))
        .entry("n")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let outcome = world.pass(run.wait()).await.unwrap();
    let Outcome::Failed { failure, .. } = &outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.kind, FailureKind::GoalGate, "{failure:?}");
    let met =
        ferrata_core::state::Patch::from_ops(&[ferrata_core::state::Op::Set("met".into(), true.into())]);
    runtime.edit(&key(), met.unwrap()).check_with(&graph).await.unwrap();
    assert_eq!(runtime.retry(&key()).await.unwrap_err().kind(), ErrorKind::WrongStatus);
}

/// control.md: a signaller can address the run that it read by its generation. A newer run with the same id gets nothing.
///
/// Guarantees: CONTROL-7.
#[tokio::test]
async fn conditional_signal_skips_restarted_run() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = builder().node("work", async |_cx, s: Draft<Context>| Ok(s)).entry("work").build().unwrap();
    let mut heads = Vec::new();
    for _ in 0..2 {
        runtime.start(&graph, Context::new()).id("r").on_hold("hold").await.unwrap();
        heads.push(runtime.head(&key()).await.unwrap().unwrap().head());
        if heads.len() == 1 {
            runtime.purge(&key()).await.unwrap();
        }
    }
    let refused = runtime.unpause(&key()).at(heads[0]).await.unwrap_err();
    assert_eq!((refused.kind(), refused.actual_head()), (ErrorKind::Conflict, Some(Some(heads[1]))));
    assert_eq!(
        runtime.head(&key()).await.unwrap().unwrap().head(),
        heads[1],
        "the newer run must get no signal"
    );
    runtime.unpause(&key()).at(heads[1]).await.unwrap();
    assert_ne!(runtime.head(&key()).await.unwrap().unwrap().head(), heads[1]);
}

//! The reasons for a run's status, from its log and the logs of its children.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::RunKey;
use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::{RunStatus, RunStatus::InProgress};
use ferrata_core::runtime::{ActivationPhase, Position, ReasonCache, ReasonKind, RunReason, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::{ErrorKind, Seq};

use super::family::*;
use super::world::World;

/// Explains a run and its activations, as the web page and the command show them.
async fn explained(runtime: &Runtime, run: &RunKey) -> (Vec<RunReason>, Vec<ActivationPhase>) {
    let head = runtime.head(run).await.unwrap().unwrap();
    let explanation = runtime.explain(&head, &ReasonCache::new()).await.unwrap();
    let now = runtime.checkpoint(run, Position::Latest).await.unwrap();
    let at = runtime.clock().now();
    let phases = now.next.iter().map(|one| now.phase(one, head.owner_alive, at)).collect();
    (explanation.reasons, phases)
}

fn texts(reasons: &[RunReason]) -> Vec<&str> {
    reasons.iter().map(|reason| reason.text.as_str()).collect()
}

/// A parent whose child asks a question waits for this child, and not for a timer that fired long ago.
#[tokio::test]
async fn parent_waits_for_child_that_asks() {
    let world = World::new();
    let (child, runtime) = (gate(), world.process().await);
    let graph = parent(&child, "yes");
    served(&runtime, &[&graph, &child]);
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let child_run = only_child_of(&world, "p").await.run;
    let head = runtime.head(&key("p")).await.unwrap().unwrap();
    assert_eq!(head.status, InProgress);
    let cache = ReasonCache::new();
    let found = runtime.explain(&head, &cache).await.unwrap();
    // The shortest prefix of the child's id that is unique.
    let short = format!("{}…", &child_run.run.as_str()["gate-".len()..][..6]);
    let expected = format!("waits at `wait@1` for `gate-{short}`, which asks `ok@1:gate`: Go on?");
    assert_eq!(texts(&found.reasons), [expected.as_str()]);
    let reason = &found.reasons[0];
    assert_eq!((reason.kind, reason.run.as_ref()), (ReasonKind::Child, Some(&child_run)));
    assert_eq!(reason.question.as_deref(), Some("ok@1:gate"));
    assert_eq!(found.questions, runtime.questions(&key("p")).await.unwrap());
    assert_eq!(explained(&runtime, &key("p")).await.1, [ActivationPhase::WaitingForRuns]);
    // The child changes without a record of its parent.
    runtime.pause(&child_run, "lunch").await.unwrap();
    let found = runtime.explain(&head, &cache).await.unwrap();
    let expected = format!("waits at `wait@1` for `gate-{short}`, which is paused: lunch");
    assert_eq!(texts(&found.reasons), [expected.as_str()]);
}

/// The reasons list children that need attention first, and count the others.
#[tokio::test]
async fn child_that_asks_comes_before_many() {
    let world = World::new();
    let runtime = world.process().await;
    let child = Graph::<Context>::builder("child")
        .node("nap", async |cx: NodeContext, s: Draft<Context>| {
            if s.get::<u32>("number")? == Some(29) {
                cx.ask::<bool>("more", "More?").await?;
            }
            cx.sleep(Duration::from_secs(1_000_000)).await?;
            Ok::<_, NodeError>(s)
        })
        .entry("nap")
        .build()
        .unwrap();
    let many = child.clone();
    let graph = Graph::<Context>::builder("parent")
        .node(
            "fan",
            using!(many; cx, s => {
                cx.children(&many, (0..30).map(with)).max_running(30).await?;
                Ok(s)
            }),
        )
        .entry("fan")
        .build()
        .unwrap();
    served(&runtime, &[&graph, &child]);
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let (reasons, phases) = explained(&runtime, &key("p")).await;
    assert_eq!(phases, [ActivationPhase::WaitingForRuns]);
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    assert!(reasons[0].text.contains("which asks `nap@1:more`: More?"), "{reasons:?}");
    assert!(reasons[1].text.contains("which sleeps at `nap@1`"), "{reasons:?}");
    assert_eq!(reasons[3].text, "waits for 27 runs more that it started");
}

/// A retried run without a process is reported as waiting for a process, not as running.
#[tokio::test]
async fn retried_run_waits_for_process() {
    let world = World::new();
    let graph = Graph::<Context>::builder("g")
        .node("charge", async |_cx, _s: Draft<Context>| Err::<(), _>(NodeError::from("closed").fatal()))
        .entry("charge")
        .build()
        .unwrap();
    let (_, runtime) = world.mortal().await;
    runtime.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
    let (reasons, phases) = explained(&runtime, &key("r")).await;
    assert_eq!(texts(&reasons), ["failed at `charge@1`: closed"]);
    assert_eq!(phases, [ActivationPhase::Stopped]);
    drop(runtime);
    let operator = Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _).operator();
    operator.retry(&key("r")).await.unwrap();
    let (reasons, phases) = explained(&operator, &key("r")).await;
    assert_eq!(texts(&reasons), ["has no process; one that serves `g` claims it"]);
    assert_eq!((reasons[0].kind, phases), (ReasonKind::Orphaned, vec![ActivationPhase::WaitingForProcess]));
}

/// A retry that waits for its delay is one reason, with the error of the last attempt.
#[tokio::test]
async fn retry_is_told_once_with_its_error() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("g")
        .node("fetch", async |_cx, _s: Draft<Context>| Err::<(), _>(NodeError::from("connection refused")))
        .retry(RetryPolicy::none().with_attempts(3).with_delay(HOUR).with_cap(HOUR))
        .entry("fetch")
        .build()
        .unwrap();
    runtime.serve(&graph).unwrap();
    runtime.start(&graph, Context::new()).id("r").await.unwrap();
    until_asleep(&world, &key("r")).await;
    let (reasons, phases) = explained(&runtime, &key("r")).await;
    assert_eq!(texts(&reasons), ["tries `fetch@1` again after 1 failed attempt (connection refused)"]);
    assert_eq!((reasons[0].until.is_some(), phases), (true, vec![ActivationPhase::Retrying]));
}

#[tokio::test]
async fn idle_run_names_what_it_waits_for() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("g")
        .node("nap", async |cx: NodeContext, s: Draft<Context>| {
            cx.sleep(HOUR).await?;
            Ok::<_, NodeError>(s)
        })
        .node("chat", async |cx: NodeContext, s: Draft<Context>| {
            cx.receive::<String>().await?;
            Ok::<_, NodeError>(s)
        })
        .entry("nap")
        .edge("nap", "chat")
        .build()
        .unwrap();
    runtime.serve(&graph).unwrap();
    runtime.start(&graph, Context::new()).id("r").await.unwrap();
    until_asleep(&world, &key("r")).await;
    let (reasons, phases) = explained(&runtime, &key("r")).await;
    assert_eq!(texts(&reasons), ["sleeps at `nap@1` and continues"]);
    assert_eq!((reasons[0].until.is_some(), phases), (true, vec![ActivationPhase::Sleeping]));
    world.clock.advance(HOUR);
    until(&world, &key("r"), RunStatus::AwaitingInput).await;
    let (reasons, phases) = explained(&runtime, &key("r")).await;
    assert_eq!(texts(&reasons), ["waits for a message at `chat@1`"]);
    assert_eq!(phases, [ActivationPhase::WaitingForMessage]);
    runtime.cancel(&key("r"), "enough").await.unwrap();
    until(&world, &key("r"), RunStatus::Cancelled).await;
    assert_eq!(texts(&explained(&runtime, &key("r")).await.0), ["was cancelled: enough"]);
}

/// The timeline and the report show the answer of a person, also a "no".
#[tokio::test]
async fn timeline_and_report_show_answers() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("g")
        .gate("approve", |_s: &Context| Ask::<bool>::new("Pay?"), |s, yes| s.set("approved", yes))
        .gate("amount", |_s: &Context| Ask::<u32>::new("How much?"), |s, eur| s.set("eur", eur))
        .entry("approve")
        .edge("approve", "amount")
        .build()
        .unwrap();
    runtime.serve(&graph).unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    run.wait().await.unwrap();
    runtime.respond(&key("r"), "approve", Answer::accept(false).unwrap()).by("ann").await.unwrap();
    let asked = async {
        while !runtime.questions(&key("r")).await.unwrap().iter().any(|one| one.node.as_str() == "amount") {
            tokio::task::yield_now().await;
        }
    };
    world.pass(asked).await;
    runtime.respond(&key("r"), "amount", Answer::accept(7).unwrap()).by("ann").await.unwrap();
    until(&world, &key("r"), RunStatus::Completed).await;
    let lines = runtime.timeline(&key("r"), Seq::new(0)).await.unwrap();
    let told: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    let report = runtime.post_mortem(&key("r")).await.unwrap();
    for line in [
        "`approve@1` asks `gate`: Pay?",
        "ann answered `approve@1:gate`: no",
        "ann answered `amount@1:gate`: 7",
    ] {
        assert!(told.contains(&line), "{line}: {told:#?}");
        assert!(report.contains(line), "{line}: {report}");
    }
    assert!(!report.contains("1 times") && !report.contains("ns |"), "{report}");
    assert_eq!(explained(&runtime, &key("r")).await, (Vec::new(), Vec::new()));
}

/// A child that cannot be read is a reason with the cause of the error, and the other reasons are still listed.
#[tokio::test]
async fn unreadable_child_is_a_reason() {
    let world = World::new();
    let (child, runtime) = (gate(), world.process().await);
    let graph = parent(&child, "yes");
    served(&runtime, &[&graph, &child]);
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let child_run = only_child_of(&world, "p").await.run;
    world.store.tamper(&child_run, |records| {
        for record in records.iter_mut() {
            *record = ferrata_core::record::Record::seal(record.header.clone(), "{".into()).unwrap();
        }
    });
    let error = runtime.checkpoint(&child_run, Position::Latest).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let (reasons, _) = explained(&runtime, &key("p")).await;
    assert!(reasons[0].text.contains("which cannot be read: "), "{reasons:?}");
    let found = runtime.open_questions(&key("p")).await.unwrap();
    assert_eq!((found.questions.len(), found.unreadable[0].run()), (0, Some(&child_run)));
}

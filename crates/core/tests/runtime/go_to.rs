//! An operator moves a run to other nodes, with a reason.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::IntoFuture;
use std::time::Duration;

use ferrata_core::graph::{Effect, Graph, Route};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::{FailureKind, RunStatus};
use ferrata_core::runtime::{Outcome, Position, Runtime};
use ferrata_core::state::{Context, Draft, Reducer};
use ferrata_core::{ErrorKind, RunKey};

use super::world::World;

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

/// Four nodes in sequence. Each records that it ran. The second does what its input says.
fn way() -> Graph<Context> {
    let note = async |cx: NodeContext, _s: Draft<Context>| {
        Ok::<_, NodeError>(Context::update().append("ran", [format!("{}@{}", cx.node(), cx.visit())]))
    };
    Graph::<Context>::builder("way")
        .channel("ran", Reducer::Append)
        .node("a", note)
        .node("b", async move |cx: NodeContext, s: Draft<Context>| {
            match s.get::<String>("do")?.unwrap_or_default().as_str() {
                "fail" => return Err(NodeError::new("broken")),
                "ask" => drop(cx.ask::<bool>("go", "on?").await?),
                "hear" => drop(cx.receive::<String>().await?),
                "sleep" => cx.sleep(Duration::from_secs(86_400)).await?,
                _ => {}
            }
            Ok(Context::update().append("ran", [format!("{}@{}", cx.node(), cx.visit())]))
        })
        .node("c", note)
        .node("d", note)
        .entry("a")
        .edge("a", ["b", "c"])
        .edge(["b", "c"], "d")
        .build()
        .unwrap()
}

async fn start(runtime: &Runtime, what: &str) -> Outcome<Context> {
    let mut input = Context::new();
    input.set("do", what).unwrap();
    let run = runtime.start(&way(), input).id("r").await.unwrap();
    run.wait().await.unwrap()
}

fn ran(state: &Context) -> Vec<String> {
    let mut ran: Vec<String> = state.get("ran").unwrap().unwrap_or_default();
    ran.sort();
    ran
}

/// An operator moves a run from a node that cannot succeed, and the run keeps its id.
///
/// Guarantees: CONTROL-8.
#[tokio::test]
async fn goto_moves_idle_run() {
    for what in ["fail", "ask", "hear", "sleep"] {
        let world = World::new();
        let (one, other) = (world.process().await, world.process().await);
        let before = start(&one, what).await;
        assert!(!matches!(before, Outcome::Completed(_)), "{what}");
        // The call comes from a process that never drove the run.
        other.go_to(&key(), "d", "the bank is closed").by("ann").await.unwrap();
        let now = other.checkpoint(&key(), Position::Latest).await.unwrap();
        assert_eq!(now.status, RunStatus::InProgress, "{what}");
        let next: Vec<String> = now.next.iter().map(|next| format!("{}@{}", next.node, next.visit)).collect();
        assert_eq!(next, ["d@1"], "{what}");
        assert_eq!((now.questions.len(), now.failure, now.wake_at), (0, None, None), "{what}");
        let replan = &now.replans[0];
        assert_eq!((replan.from.as_str(), replan.to.as_str()), ("b", "d"), "{what}");
        assert_eq!(replan.reason, "the bank is closed");
        let state = other.resume(&way(), "r").await.unwrap().completed().await.unwrap();
        // The failure also stops nodes that have not started.
        let wanted: &[&str] = if what == "fail" { &["a@1", "d@1"] } else { &["a@1", "c@1", "d@1"] };
        assert_eq!(ran(&state), wanted, "{what}");
        let verified = other.verify(&way(), &key()).await.unwrap();
        assert!(verified.divergence.is_none(), "{what}: {:?}", verified.divergence);
    }
}

/// Guarantees: CONTROL-8.
#[tokio::test]
async fn goto_moves_back_to_several_nodes() {
    let world = World::new();
    let one = world.process().await;
    start(&one, "fail").await;
    let mended = ferrata_core::state::Patch::from_json(r#"[{"set":["do","on"]}]"#).unwrap();
    one.edit(&key(), mended).await.unwrap();
    one.go_to(&key(), ["b", "c"], "both anew").await.unwrap();
    let state = one.resume(&way(), "r").await.unwrap().completed().await.unwrap();
    assert_eq!(ran(&state), ["a@1", "b@2", "c@2", "d@1"]);
}

/// The failure of an exceeded replan limit lists moves by an operator next to the replans, and the limit does not count them.
///
/// Guarantees: REPLAN-7.
#[tokio::test]
async fn replan_limit_failure_mentions_goto() {
    let world = World::new();
    let one = world.process().await;
    let graph = Graph::<Context>::builder("back")
        .node("a", async |cx, s| {
            if cx.visit().get() == 1 {
                drop(cx.receive::<String>().await?);
            }
            Ok(s)
        })
        .max_replans(1)
        .node("b", async |_cx, s| Ok(s))
        .entry("a")
        .edge("a", "b")
        .route("b", ["a"], |_s: &Context, _cx| Route::revisit("a", "not yet"))
        .build()
        .unwrap();
    let run = one.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::AwaitingInput));
    one.go_to(&key(), "b", "nobody writes").await.unwrap();
    let outcome = one.resume(&graph, "r").await.unwrap().wait().await.unwrap();
    let Outcome::Failed { failure, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.kind, FailureKind::Replan, "{failure}");
    assert_eq!(failure.causes, ["a@1 -> b: nobody writes", "b@1 -> a: not yet", "b@2 -> a: not yet"]);
}

/// Guarantees: CONTROL-8.
#[tokio::test]
async fn paused_run_moves_and_continues_after_unpause() {
    let world = World::new();
    let one = world.process().await;
    start(&one, "hear").await;
    one.pause(&key(), "lunch").await.unwrap();
    one.go_to(&key(), "c", "again").await.unwrap();
    assert_eq!(one.head(&key()).await.unwrap().unwrap().status, RunStatus::Interrupted);
    one.send(&key(), "nobody hears it").await.unwrap();
    one.unpause(&key()).await.unwrap();
    let state = one.resume(&way(), "r").await.unwrap().completed().await;
    assert_eq!(ran(&state.unwrap()), ["a@1", "c@1", "c@2", "d@1"]);
}

#[tokio::test]
async fn refused_goto_leaves_run_unchanged() {
    let world = World::new();
    let one = world.process().await;
    start(&one, "ask").await;
    let refused = async |kind: ErrorKind, says: &str, request: ferrata_core::runtime::SignalRequest| {
        let before = one.head(&key()).await.unwrap().map(|head| head.seq);
        let error = request.await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(one.head(&key()).await.unwrap().map(|head| head.seq), before);
    };
    refused(ErrorKind::NotFound, "no node `z`", one.go_to(&key(), "z", "why")).await;
    refused(ErrorKind::Invalid, "a reason", one.go_to(&key(), "d", "")).await;
    refused(ErrorKind::Invalid, "name a node", one.go_to(&key(), Vec::<String>::new(), "why")).await;
    one.cancel(&key(), "enough").await.unwrap();
    refused(ErrorKind::WrongStatus, "cancelled", one.go_to(&key(), "d", "why")).await;
    let stranger = RunKey::try_from("nobody").unwrap();
    assert_eq!(one.go_to(&stranger, "d", "why").await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// `go_to` refuses to leave work with unknown outcome, and active children.
///
/// Guarantees: CONTROL-9.
#[tokio::test]
async fn goto_refuses_unknown_outcomes_and_active_children() {
    let world = World::new();
    let one = world.process().await;
    let pay = Graph::<Context>::builder("pay")
        .node("pay", async |_cx, _s| Err::<(), _>(NodeError::new("the line broke")))
        .effect(Effect::External)
        .node("end", async |_cx, s| Ok(s))
        .entry("pay")
        .edge("pay", "end")
        .build()
        .unwrap();
    let run = one.start(&pay, Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
    let error = one.go_to(&key(), "end", "never mind").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongStatus);
    assert!(error.to_string().contains("`pay@1` may have done"), "{error}");

    let listens = Graph::<Context>::builder("listens")
        .node("hear", async |cx: NodeContext, s: Draft<Context>| {
            cx.receive::<String>().await?;
            Ok(s)
        })
        .entry("hear")
        .build()
        .unwrap();
    let inner = listens.clone();
    let parent = Graph::<Context>::builder("parent")
        .node("ask", move |cx: NodeContext, s: Draft<Context>| {
            let child = inner.clone();
            async move {
                cx.child(&child, Context::new()).await?;
                Ok(s)
            }
        })
        .node("end", async |_cx, s| Ok(s))
        .entry("ask")
        .edge("ask", "end")
        .build()
        .unwrap();
    let run = one.start(&parent, Context::new()).id("p").await.unwrap();
    world.pass(run.wait()).await.unwrap();
    let error = world.pass(one.go_to(run.run(), "end", "why").into_future()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongStatus);
    assert!(error.to_string().contains("its child"), "{error}");
}

/// `go_to` is refused while a node is running.
///
/// Guarantees: CONTROL-9.
#[tokio::test]
async fn a_run_at_work_is_not_moved() {
    let world = World::new();
    let (one, other) = (world.process().await, world.process().await);
    let asked = other.clone();
    let graph = Graph::<Context>::builder("busy")
        .node("work", move |cx: NodeContext, mut s: Draft<Context>| {
            let other = asked.clone();
            async move {
                let error = other.go_to(cx.run(), "end", "now").await.unwrap_err();
                s.set("said", format!("{:?}: {}", error.kind(), error.message()))?;
                Ok(s)
            }
        })
        .node("end", async |_cx, s| Ok(s))
        .entry("work")
        .edge("work", "end")
        .build()
        .unwrap();
    for runtime in [&one, &other] {
        let state = runtime.start(&graph, Context::new()).await.unwrap().completed().await.unwrap();
        let said = state.get::<String>("said").unwrap().unwrap();
        assert!(said.starts_with("WrongStatus: the run is active; pause it"), "{said}");
    }
}

/// Two operators move the run at the same time: both moves are recorded, or the second is refused.
#[tokio::test]
async fn concurrent_gotos_record_or_refuse_second() {
    let world = World::new();
    let (one, other) = (world.process().await, world.process().await);
    start(&one, "fail").await;
    let (first, second) = tokio::join!(
        one.go_to(&key(), "c", "one").into_future(),
        other.go_to(&key(), "d", "two").into_future(),
    );
    let done = usize::from(first.is_ok()) + usize::from(second.is_ok());
    let now = one.checkpoint(&key(), Position::Latest).await.unwrap();
    assert_eq!((now.replans.len(), now.next.len()), (done, 1), "{first:?} {second:?}");
    one.resume(&way(), "r").await.unwrap().completed().await.unwrap();
}

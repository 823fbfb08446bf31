//! Questions of descendants are visible and answerable at every ancestor.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use ferrata_core::ErrorKind;
use ferrata_core::ask::Answer;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::state::{Context, Draft};

use super::family::*;
use super::world::World;

/// A parent that waits for two children with this graph, `a` and `b`.
fn two_of(name: &str, child: &Graph<Context>) -> Graph<Context> {
    let child = child.clone();
    Graph::<Context>::builder(name)
        .node(
            "wait",
            using!(child; cx, s => {
                let (a, b) = (cx.child(&child, with(1)).name("a"), cx.child(&child, with(2)).name("b"));
                tokio::try_join!(a.into_future(), b.into_future())?;
                Ok(s)
            }),
        )
        .entry("wait")
        .build()
        .unwrap()
}

/// Guarantees: CHILD-16.
#[tokio::test]
async fn descendant_question_is_answerable_by_either_id() {
    let world = World::new();
    let (leaf, runtime) = (gate(), world.process().await);
    let middle = two_of("middle", &leaf);
    let top = two_of("top", &middle);
    served(&runtime, &[&leaf, &middle, &top]);
    let run = runtime.start(&top, Context::new()).id("p").await.unwrap();
    let asked = async {
        while runtime.questions(&key("p")).await.unwrap().len() < 4 {
            tokio::task::yield_now().await;
        }
    };
    world.pass(asked).await;
    let questions = runtime.questions(&key("p")).await.unwrap();
    let ids: Vec<_> = questions.iter().map(|question| question.id.as_str()).collect();
    let way = |first, second| format!("wait@1:{first}/wait@1:{second}/ok@1:gate");
    assert_eq!(ids, [way("a", "a"), way("a", "b"), way("b", "a"), way("b", "b")]);
    for question in &questions {
        let asking = question.asked_by.as_ref().unwrap();
        let own = runtime.questions(asking).await.unwrap();
        assert_eq!(own.iter().map(|own| own.id.as_str()).collect::<Vec<_>>(), ["ok@1:gate"]);
        assert_eq!(own[0].asked_by, None);
    }
    let yes = || Answer::accept(true).unwrap();
    // Answer through the root, through the parent in the middle, through the child, and with the bare node name.
    runtime.respond(&key("p"), ids[0], yes()).by("ann").await.unwrap();
    let middle_b = children_of(&world, "p").await;
    let middle_b =
        middle_b.iter().find(|head| head.facts.labels.get("ferrata.child").unwrap().ends_with(":b")).unwrap();
    runtime.respond(&middle_b.run, "wait@1:a/ok@1:gate", yes()).await.unwrap();
    runtime.respond(questions[1].asked_by.as_ref().unwrap(), "ok@1:gate", yes()).await.unwrap();
    let stranger = runtime.respond(&key("p"), "wait@1:c/ok@1:gate", yes()).await.unwrap_err();
    assert_eq!(stranger.kind(), ErrorKind::NotFound);
    let wrong = runtime.respond(&key("p"), ids[3], Answer::accept("perhaps").unwrap()).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Invalid, "the child's shape must check the answer: {wrong}");
    runtime.respond(&key("p"), "wait@1:b/wait@1:b/ok", yes()).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    assert_eq!(runtime.questions(&key("p")).await.unwrap(), []);
}

/// Guarantees: CHILD-16.
#[tokio::test]
async fn paused_parent_shows_and_answers_child_question() {
    let world = World::new();
    let (child, runtime) = (gate(), world.process().await);
    let graph = parent(&child, "yes");
    served(&runtime, &[&graph, &child]);
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    runtime.pause(&key("p"), "lunch").await.unwrap();
    let question = runtime.questions(&key("p")).await.unwrap().remove(0);
    assert_eq!(question.id, "wait@1:gate/ok@1:gate");
    runtime.respond(&key("p"), &question.id, Answer::accept(true).unwrap()).await.unwrap();
    let child_run = only_child_of(&world, "p").await.run;
    world.clock.advance(HOUR);
    for run in [&key("p"), &child_run] {
        until(&world, run, RunStatus::Interrupted).await;
    }
    runtime.unpause(&key("p")).await.unwrap();
    world.pass(run.completed()).await.unwrap();
}

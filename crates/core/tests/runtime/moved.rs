//! Verification of run trees, and their copies in another store.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use ferrata_core::ask::Answer;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::state::{Context, Draft};

use super::family::*;
use super::world::World;

/// Exports an idle parent and its child, which asks a question.
async fn written_down(graph: &Graph<Context>) -> (String, String, String) {
    let world = World::new();
    let runtime = world.process().await;
    runtime.start(graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let child = only_child_of(&world, "p").await.run;
    let texts = (runtime.export(&key("p")).await.unwrap(), runtime.export(&child).await.unwrap());
    (texts.0, texts.1, child.run.to_string())
}

#[tokio::test]
async fn imported_run_tree_continues_children_first() {
    let child = gate();
    let graph = parent(&child, "yes");
    let (parent_text, child_text, child_id) = written_down(&graph).await;
    let (world, child_run) = (World::new(), key(&child_id));
    let runtime = world.process().await;
    runtime.import(&child_text, None).await.unwrap();
    runtime.import(&parent_text, None).await.unwrap();
    served(&runtime, &[&graph, &child]);
    runtime.respond(&child_run, "ok", Answer::accept(true).unwrap()).await.unwrap();
    until(&world, &key("p"), RunStatus::Completed).await;
    for (graph, run) in [(&graph, key("p")), (&child, child_run)] {
        runtime.check_log(&run).await.unwrap();
        let verified = runtime.verify(graph, &run).await.unwrap();
        assert!(verified.divergence.is_none(), "{run}: {verified:?}");
    }
    assert_eq!(children_of(&world, "p").await.len(), 1);
}

#[tokio::test]
async fn separated_parts_of_run_tree_end() {
    let child = gate();
    let graph = parent(&child, "yes");
    let (parent_text, child_text, child_id) = written_down(&graph).await;
    // An import of the parent alone brings no result of the child.
    let world = World::new();
    let runtime = world.process().await;
    runtime.import(&parent_text, None).await.unwrap();
    served(&runtime, &[&graph]);
    until(&world, &key("p"), RunStatus::Failed).await;
    // An import of the child alone has no parent. A fork of the child is an ordinary run.
    let (world, child_run) = (World::new(), key(&child_id));
    let runtime = world.process().await;
    runtime.import(&child_text, None).await.unwrap();
    let head = runtime.head(&child_run).await.unwrap().unwrap();
    runtime.fork(&child_run, head.seq).id("f").await.unwrap();
    served(&runtime, &[&child]);
    until(&world, &key("f"), RunStatus::Interrupted).await;
    for run in [&child_run, &key("f")] {
        runtime.respond(run, "ok", Answer::accept(true).unwrap()).await.unwrap();
    }
    until(&world, &child_run, RunStatus::Cancelled).await;
    until(&world, &key("f"), RunStatus::Completed).await;
}

/// Two parents give their children the same id at the same time: one of them gets the child.
///
/// Guarantees: CHILD-19.
#[tokio::test]
async fn concurrent_parents_with_same_child_id_admit_one() {
    let world = World::new();
    let (runtime, child) = (world.process().await, double());
    let graph = Graph::<Context>::builder("parent")
        .node(
            "wait",
            using!(child; cx, s => {
                cx.child(&child, with(1)).id("shared").await?;
                Ok(s)
            }),
        )
        .entry("wait")
        .build()
        .unwrap();
    let start =
        async |id: &str| runtime.start(&graph, Context::new()).id(id).await.unwrap().completed().await;
    let (one, two) = world.pass(async { tokio::join!(start("one"), start("two")) }).await;
    let (good, bad): (Vec<_>, Vec<_>) = [one, two].into_iter().partition(Result::is_ok);
    assert_eq!((good.len(), bad.len()), (1, 1));
    let refused = bad.into_iter().next().unwrap().unwrap_err();
    assert!(
        refused.to_string().contains("another run, which this activation did not start, has this id"),
        "{refused}"
    );
    assert_eq!(children_of(&world, "one").await.len() + children_of(&world, "two").await.len(), 1);
}

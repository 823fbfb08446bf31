//! Values that are easily lost on the way to the log and back.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use ferrata_core::RunKey;
use ferrata_core::ask::Answer;
use ferrata_core::graph::{Graph, Route};
use ferrata_core::runtime::Outcome;
use ferrata_core::state::{Context, Update};

use super::world::World;

/// A node returned `None` as its output, another got `None` as its item, and the process ended: for the next one the node had
/// attached no output, and the activation had no item. An absent field and one that holds `null` were read alike.
#[tokio::test]
async fn an_output_and_an_item_that_are_null_are_still_there_after_a_restart() {
    let graph = Graph::<Context>::builder("nulls")
        .node("split", async |_cx, _s| Ok(Update::none().with_output(None::<u8>)))
        .node("work", async |cx, _s| {
            let item: Option<u8> = cx.item()?;
            let given: Option<u8> = cx.inputs()[0].output()?;
            assert_eq!(given, None);
            Ok(Update::none().with_output(item))
        })
        .interrupt_before()
        .node("join", async |cx, mut s| {
            let all: Vec<Option<u8>> =
                cx.inputs().iter().map(|input| input.output()).collect::<Result<_, _>>()?;
            s.set("all", all)?;
            Ok(s)
        })
        .interrupt_before()
        .entry("split")
        .route("split", ["work"], |_s, _cx| Route::each("work", [None, Some(1u8)]))
        .edge("work", "join")
        .build()
        .unwrap();
    let world = World::new();
    let run = world.process().await.start(&graph, Context::new()).id("r").await.unwrap();
    let mut outcome = world.pass(run.wait()).await.unwrap();
    for _ in 0..4 {
        let Outcome::Interrupted(questions) = outcome else { break };
        let next = world.process().await;
        for question in questions {
            next.respond(&RunKey::try_from("r").unwrap(), &question.id, Answer::accept(true).unwrap())
                .await
                .unwrap();
        }
        let run = next.resume(&graph, "r").await.unwrap();
        outcome = world.pass(run.wait()).await.unwrap();
    }
    let state = outcome.completed().unwrap();
    assert_eq!(state.get::<Vec<Option<u8>>>("all").unwrap().unwrap(), [None, Some(1)]);
}

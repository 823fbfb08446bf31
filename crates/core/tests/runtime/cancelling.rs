//! Repeated cancellations of a run, by call and by answer.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use ferrata_core::ask::Answer;
use ferrata_core::graph::Graph;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::{ErrorKind, RunKey};

use super::world::World;

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

/// While a cancellation is in progress, an answer that also cancels is refused and does not replace its reason.
///
/// Guarantees: CONTROL-20.
#[tokio::test]
async fn concurrent_cancellations_record_one() {
    let cancel = async |runtime: &Runtime, by_answer: bool, reason: &str| match by_answer {
        true => runtime.respond(&key(), "first", Answer::cancel(reason)).await,
        false => runtime.cancel(&key(), reason).await,
    };
    for (first, second) in [(false, true), (true, false), (false, false)] {
        let world = World::new();
        let runtime = world.process().await;
        // The running node has a grace period, and the question stays open during it.
        let graph = Graph::<Context>::builder("ask")
            .node("split", async |_cx, _s| Ok(()))
            .node("first", async |cx, mut s| {
                s.set("amount", cx.ask::<u32>("amount", "How much?").await?)?;
                Ok(s)
            })
            .node("works", async |_cx, _s| {
                std::future::pending::<()>().await;
                Ok(())
            })
            .entry("split")
            .edge("split", "first")
            .edge("split", "works")
            .build()
            .unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        while runtime.questions(&key()).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        cancel(&runtime, first, "the first").await.unwrap();
        let error = cancel(&runtime, second, "the second").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongStatus, "{error}");
        let Outcome::Cancelled { reason, .. } = world.pass(run.wait()).await.unwrap() else { panic!() };
        assert!(reason.ends_with("the first"), "{reason}");
    }
}

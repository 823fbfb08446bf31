//! Counting joins in loops: a late token belongs to its own round, not to the next.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use ferrata_core::graph::{Graph, GraphBuilder, Join, Route};
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Reducer};
use ferrata_core::store::MemoryStore;

/// The third node of the loop, next to the voters `a` and `b`.
#[derive(Clone, Copy, Debug)]
enum Third {
    /// No third node: the last vote is the one that completes the join.
    Nobody,
    /// A voter whose vote may come late.
    Votes,
    /// A voter whose vote comes late, after another node, and ends the round.
    VotesLate,
    /// A node that does not vote, and ends the round.
    EndsTheRound,
}

/// A loop of three rounds with a join that needs two votes.
fn votes(third: Third) -> Graph<Context> {
    let mut builder = Graph::<Context>::builder("votes").channel("notes", Reducer::Append);
    for node in ["open", "a", "b"] {
        builder = builder.node(node, async |_cx, _s| Ok(()));
    }
    builder = builder
        .node(
            "close",
            async |cx, _s| Ok(Context::update().append("notes", [format!("close@{}", cx.visit())])),
        )
        .join(Join::AtLeast(2))
        .entry("open")
        .edge("open", ["a", "b"])
        .edge(["a", "b"], "close");
    let again =
        |builder: GraphBuilder<Context>, from: &str| {
            builder.route(from, ["open"], |_s, cx| {
                if cx.visit().get() < 3 { Route::to("open") } else { Route::none() }
            })
        };
    builder = match third {
        Third::Nobody => again(builder, "close"),
        Third::Votes => {
            again(builder.node("c", async |_cx, _s| Ok(())).edge("open", "c").edge("c", "close"), "close")
        }
        Third::VotesLate => {
            let builder = builder.node("c", async |_cx, _s| Ok(())).node("slow", async |_cx, _s| Ok(()));
            again(builder.edge("open", "c").edge("c", "slow").edge("slow", "close"), "close")
        }
        Third::EndsTheRound => {
            let builder = builder.node("c", async |_cx, _s| Ok(())).node("slow", async |_cx, _s| Ok(()));
            let builder = builder.route("close", ["open"], |_s, _cx| Route::none());
            again(builder.edge("open", "c").edge("c", "slow"), "slow")
        }
    };
    builder.build().unwrap()
}

/// A counting join starts its next round even if one record contains both the end of its round and the start of the loop. Otherwise later votes are
/// dropped as late.
///
/// Guarantees: JOIN-8.
#[tokio::test]
async fn counting_join_starts_again_each_round() {
    for third in [Third::Nobody, Third::Votes, Third::VotesLate, Third::EndsTheRound] {
        let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
        let run = runtime.start(&votes(third), Context::new()).await.unwrap();
        let state = run.wait().await.unwrap().completed().unwrap();
        let closed: Vec<String> = state.get("notes").unwrap().unwrap();
        assert_eq!(closed, ["close@1", "close@2", "close@3"], "{third:?}");
    }
}

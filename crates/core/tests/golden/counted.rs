//! A golden log of a counting join: late tokens that are dropped, and a second round.

use ferrata_core::graph::{Graph, Join};
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Reducer};

use super::waits::prefix;
use super::{notes, read};

/// A join that needs two of three votes. The third comes late.
fn votes() -> Graph<Context> {
    let mut builder = Graph::<Context>::builder("votes")
        .channel("notes", Reducer::Append)
        .node("open", async |_cx, _s| Ok(()));
    for voter in ["a", "b", "c"] {
        builder = builder
            .node(voter, async |cx, _s| Ok(Context::update().append("notes", [cx.node().to_string()])));
    }
    builder
        .node("slow", async |_cx, _s| Ok(()))
        .node(
            "close",
            async |cx, _s| Ok(Context::update().append("notes", [format!("close@{}", cx.visit())])),
        )
        .join(Join::AtLeast(2))
        .entry("open")
        .edge("open", ["a", "b", "c"])
        .edge(["a", "b", "slow"], "close")
        .edge("c", "slow")
        .build()
        .unwrap()
}

/// From each record, the count continues: the join closes once, and no vote is lost.
///
/// Guarantees: JOIN-8.
#[tokio::test]
async fn counting_join_restores_count() {
    for name in ["counted", "counted-bases"] {
        // Skip the last record, which ends the run.
        for records in 1..read(name).1.len() {
            let store = prefix(name, records).await;
            let runtime = Runtime::builder(store).build().await.unwrap();
            let run = runtime.resume(&votes(), "r").await.unwrap();
            let mut said = notes(&run.wait().await.unwrap().completed().unwrap());
            said.sort();
            assert_eq!(said, ["a", "b", "c", "close@1"], "{name} after {records} records");
        }
    }
}

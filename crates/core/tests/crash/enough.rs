//! A parent that needs its first `n` children: after a crash at any write, it gets `n` results and cancels the other children.

use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::state::{Context, Draft};

use super::families::{Case, crash_everywhere, number, tell, using, with};

const DAY: Duration = Duration::from_secs(86_400);

/// A child that doubles small numbers. Others take longer than any test.
fn slow() -> Graph<Context> {
    Graph::<Context>::builder("slow")
        .node("double", async |cx, mut s| {
            tell(&cx);
            let number = number(&s)?;
            if number > 2 {
                cx.sleep(DAY).await?;
            }
            s.set("number", number * 2)?;
            Ok(s)
        })
        .entry("double")
        .build()
        .unwrap()
}

/// Guarantees: CHILD-8.
#[tokio::test]
async fn run_tree_recovers_from_crash_at_every_write() {
    let child = slow();
    let top = Graph::<Context>::builder("top").node(
        "wait",
        using!(child; cx, mut s => {
            tell(&cx);
            let got = cx.children(&child, [9, 1, 8, 2].map(with)).at_least(2).await?;
            let got: Result<Vec<_>, _> = got.iter().map(|one| one.as_ref().map(number).transpose()).collect();
            s.set("got", got?)?;
            Ok(s)
        }),
    );
    let graphs = vec![child, top.entry("wait").build().unwrap()];
    for rests in [false, true] {
        let case = Case { name: "enough", graphs: graphs.clone(), left: 0, rests };
        crash_everywhere(&case, 5).await;
    }
}

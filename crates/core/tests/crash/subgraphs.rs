//! Crashes in subgraphs: a loop, a question, a quorum, and a failure that the outer graph handles.

use std::time::Duration;

use ferrata_core::ask::Ask;
use ferrata_core::graph::{Effect, Join, Lens, RetryPolicy};
use ferrata_core::state::{Context, Draft, Update};

use super::graphs::{Case, Script, builder, slow, tell, traced, work};

/// A loop and then a question, which together are one vote of three.
pub(crate) fn nested() -> Case {
    let rounds = builder("rounds")
        .node("write", work)
        .effect(Effect::Pure)
        .node("check", slow)
        .effect(Effect::Write)
        .gate("agree", |_s: &Context| Ask::<bool>::new("Is it good?"), |s, yes| s.set("agreed", yes))
        .entry("write")
        .edge("write", "check")
        .route("check", ["write", "agree"], |_s, cx| if cx.visit().get() < 2 { "write" } else { "agree" })
        .build()
        .unwrap();
    let votes = builder("votes")
        .node("split", work)
        .effect(Effect::Pure)
        .subgraph("one", &rounds, Lens::keys("one."))
        .node("two", slow)
        .node("three", async |cx, _s: Draft<Context>| {
            tell(&cx).await;
            if cx.attempt() < 2 { Err("not yet".into()) } else { Ok(traced(&cx)) }
        })
        .retry(RetryPolicy::none().with_attempts(2).with_delay(Duration::from_millis(1)))
        .node("close", work)
        .join(Join::AtLeast(2))
        .effect(Effect::External)
        .node("never", async |cx, _s: Draft<Context>| {
            tell(&cx).await;
            Err::<Update<Context>, _>("by no means".into())
        })
        .entry("split")
        .edge("split", ["one", "two", "three"])
        .edge(["one", "two", "three"], "close")
        .route("close", ["never"], |_s, _cx| "never")
        .build()
        .unwrap();
    let graph = builder("nested")
        .node("open", work)
        .subgraph("votes", &votes, Lens::whole())
        .node("mend", work)
        .effect(Effect::Pure)
        .node("out", work)
        .entry("open")
        .edge("open", "votes")
        .edge("votes", "out")
        .edge("votes", "mend")
        .on_failure()
        .edge("mend", "out")
        .build()
        .unwrap();
    let effects = vec![
        ("votes/one/write", Effect::Pure),
        ("votes/one/check", Effect::Write),
        ("votes/split", Effect::Pure),
        ("votes/close", Effect::External),
        ("mend", Effect::Pure),
    ];
    // The runtime creates the last two where branches join.
    let silent = vec!["votes/one/agree", "votes/one", "votes"];
    Case { name: "nested", graph, effects, script: Script { silent, ..Script::default() } }
}

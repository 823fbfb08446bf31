//! Subgraphs: known faults of other systems, each as a test.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{Effect, Graph, GraphBuilder, Join, Lens, RetryPolicy, Route};
use ferrata_core::node::{NodeContext, NodeError, NodeResult};
use ferrata_core::record::FailureKind;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft, Reducer, Update};
use ferrata_core::store::MemoryStore;
use ferrata_core::{ErrorKind, RunKey};

/// A node that appends its name and the origin of its tokens to the channel `notes`.
async fn note(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    let from: Vec<&str> = cx.inputs().iter().map(|input| input.from.as_str()).collect();
    let text = format!("{}@{}<{}", cx.node(), cx.visit(), from.join(","));
    Ok(Update::from(Context::update().append("notes", [text])).with_output(cx.node().as_str()))
}

async fn fail(_cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    Err(NodeError::new("broken"))
}

fn graph(name: &str) -> GraphBuilder<Context> {
    Graph::<Context>::builder(name).channel("notes", Reducer::Append)
}

/// A graph with two branches of unequal length.
fn review() -> Graph<Context> {
    let graph =
        graph("review").node("split", note).node("lint", note).node("facts", note).node("sources", note);
    graph.entry("split").edge("split", ["lint", "facts"]).edge("facts", "sources").build().unwrap()
}

async fn runtime() -> Runtime {
    Runtime::builder(MemoryStore::new()).build().await.unwrap()
}

async fn end(graph: &Graph<Context>) -> Outcome<Context> {
    runtime().await.start(graph, Context::new()).await.unwrap().wait().await.unwrap()
}

fn notes(state: &Context, channel: &str) -> Vec<String> {
    state.get(channel).unwrap().unwrap_or_default()
}

async fn noted(graph: &Graph<Context>) -> Vec<String> {
    match end(graph).await {
        Outcome::Completed(state) => notes(&state, "notes"),
        other => panic!("{other:?}"),
    }
}

/// Guarantees: COMPOSE-3.
#[tokio::test]
async fn successor_of_subgraph_runs_once() {
    let whole = graph("article")
        .node("write", note)
        .subgraph("review", &review(), Lens::whole())
        .node("publish", note);
    let whole = whole.entry("write").edge("write", "review").edge("review", "publish").build().unwrap();
    assert_eq!(
        noted(&whole).await,
        [
            "write@1<",
            "review/split@1<write",
            "review/lint@1<review/split",
            "review/facts@1<review/split",
            "review/sources@1<review/facts",
            "publish@1<review/lint,review/sources",
        ]
    );
}

/// A route after a subgraph is evaluated once, after all branches inside have ended. So only one of its targets runs.
///
/// Guarantees: COMPOSE-4.
#[tokio::test]
async fn route_after_subgraph_runs_once() {
    let whole =
        graph("article").subgraph("review", &review(), Lens::whole()).node("early", note).node("late", note);
    let whole = whole.entry("review").route("review", ["early", "late"], |s, _cx| {
        if notes(s, "notes").iter().any(|note| note.contains("sources")) { "late" } else { "early" }
    });
    let noted = noted(&whole.build().unwrap()).await;
    assert_eq!(noted.last().unwrap(), "late@1<review");
    assert!(!noted.iter().any(|note| note.contains("early")), "{noted:?}");
}

/// A subgraph with two ends counts as one vote.
///
/// Guarantees: COMPOSE-4.
#[tokio::test]
async fn counting_join_counts_subgraph_as_one() {
    let whole = graph("votes")
        .node("open", note)
        .subgraph("one", &review(), Lens::whole())
        .node("two", note)
        .node("close", note)
        .join(Join::AtLeast(2))
        .entry("open")
        .edge("open", ["one", "two"])
        .edge(["one", "two"], "close");
    let noted = noted(&whole.build().unwrap()).await;
    assert_eq!(noted.iter().filter(|note| note.starts_with("close")).count(), 1);
    assert_eq!(noted.last().unwrap(), "close@1<one,two");
}

/// If a route inside a subgraph ends a branch, the node after the subgraph still runs (langgraph 1676).
///
/// Guarantees: COMPOSE-3.
#[tokio::test]
async fn branch_ended_by_route_leaves_subgraph() {
    let agent = graph("agent").node("think", note).node("tool", note).entry("think").edge("tool", "think");
    let agent = agent.route("think", ["tool"], |_s, cx| {
        if cx.visit().get() < 3 { Route::each("tool", 0..cx.visit().get()) } else { Route::none() }
    });
    let agent = agent.build().unwrap();
    let whole = graph("whole").subgraph("agent", &agent, Lens::whole()).node("out", note);
    let noted = noted(&whole.entry("agent").edge("agent", "out").build().unwrap()).await;
    assert_eq!(
        noted,
        [
            "agent/think@1<",
            "agent/tool@1<agent/think",
            "agent/think@2<agent/tool",
            "agent/tool@2<agent/think",
            "agent/tool@3<agent/think",
            "agent/think@3<agent/tool,agent/tool",
            "out@1<agent/think",
        ]
    );
}

/// A graph that is used twice side by side has separate names and a separate state for each use.
///
/// Guarantees: COMPOSE-7.
#[tokio::test]
async fn one_graph_twice_side_by_side_shares_nothing() {
    let whole = graph("twice")
        .node("open", note)
        .subgraph("a", &review(), Lens::keys("a."))
        .subgraph("b", &review(), Lens::keys("b."))
        .node("close", note)
        .entry("open")
        .edge("open", ["a", "b"])
        .edge(["a", "b"], "close");
    let Outcome::Completed(state) = end(&whole.build().unwrap()).await else { panic!("not completed") };
    assert_eq!(notes(&state, "notes"), ["open@1<", "close@1<a/lint,a/sources,b/lint,b/sources"]);
    for part in ["a", "b"] {
        let noted = notes(&state, &format!("{part}.notes"));
        assert_eq!(noted.len(), 4, "{noted:?}");
        assert!(noted.iter().all(|note| note.starts_with(part)), "{noted:?}");
    }
}

/// A subgraph writes back only the channels that it changed, so a channel that it only read does not conflict with a sibling (langgraph 6446).
///
/// Guarantees: COMPOSE-5.
#[tokio::test]
async fn read_only_subgraph_channel_never_conflicts_with_sibling() {
    let part = Graph::<Context>::builder("part").node("read", async |_cx, mut s| {
        let seen = s.get_value("title").cloned();
        s.set("seen", seen)?;
        Ok(s)
    });
    let part = part.entry("read").build().unwrap();
    let lens = Lens::new(
        |s: &Context| {
            ["title", "seen"].into_iter().filter_map(|key| Some((key, s.get_value(key)?.clone()))).collect()
        },
        |s: &mut Context, part: Context| {
            for (key, value) in part.iter() {
                s.set(key, value).unwrap();
            }
        },
    );
    let whole = Graph::<Context>::builder("whole")
        .node("open", async |_cx, mut s| {
            s.set("title", "old")?;
            Ok(s)
        })
        .subgraph("part", &part, lens)
        .node("rename", async |_cx, mut s| {
            s.set("title", "new")?;
            Ok(s)
        })
        .entry("open")
        .edge("open", ["part", "rename"]);
    let Outcome::Completed(state) = end(&whole.build().unwrap()).await else { panic!("not completed") };
    assert_eq!(state.get::<String>("title").unwrap().unwrap(), "new");
    assert_eq!(state.get::<String>("seen").unwrap().unwrap(), "old");
}

/// Two uses that write one channel without a reducer at the same time cause an error, which names both by path.
///
/// Guarantees: COMPOSE-6.
#[tokio::test]
async fn concurrent_subgraph_overwrites_fail_with_both_paths() {
    let part = Graph::<Context>::builder("part").node("set", async |cx, mut s| {
        tokio::task::yield_now().await;
        s.set("who", cx.node().as_str())?;
        Ok(s)
    });
    let part = part.entry("set").build().unwrap();
    let whole = Graph::<Context>::builder("whole")
        .node("open", async |_cx, s| Ok(s))
        .subgraph("a", &part, Lens::whole())
        .subgraph("b", &part, Lens::whole())
        .entry("open")
        .edge("open", ["a", "b"]);
    let Outcome::Failed { failure, .. } = end(&whole.build().unwrap()).await else { panic!("not failed") };
    assert_eq!(failure.kind, FailureKind::ConcurrentWrite);
    assert!(
        failure.message.contains("`a/set@1`") && failure.message.contains("`b/set@1`"),
        "{}",
        failure.message
    );
}

/// After an answer inside a subgraph, nodes that ran before the question do not run again (langgraph 4796, 6792).
///
/// Guarantees: COMPOSE-12.
#[tokio::test]
async fn nested_question_resumes_at_its_node() {
    static RAN: AtomicU32 = AtomicU32::new(0);
    let deep = graph("deep")
        .node("before", async |cx, s| {
            RAN.fetch_add(1, Ordering::SeqCst);
            note(cx, s).await
        })
        .gate("ask", |s: &Context| Ask::<bool>::new(notes(s, "notes").len()), |s, yes| s.set("yes", yes))
        .node("after", note)
        .entry("before")
        .edge("before", "ask")
        .edge("ask", "after")
        .build()
        .unwrap();
    let mid = graph("mid").subgraph("deep", &deep, Lens::keys("deep.")).entry("deep").build().unwrap();
    let whole = graph("whole").subgraph("mid", &mid, Lens::keys("mid.")).node("out", note);
    let whole = whole.entry("mid").edge("mid", "out").build().unwrap();
    let (store, key) = (MemoryStore::new(), RunKey::try_from("r").unwrap());
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let run = runtime.start(&whole, Context::new()).id("r").await.unwrap();
    let Outcome::Interrupted(questions) = run.wait().await.unwrap() else { panic!("not asked") };
    assert_eq!(questions[0].id, "mid/deep/ask@1:gate");
    drop((run, runtime));

    let runtime = Runtime::builder(store).build().await.unwrap();
    runtime.respond(&key, "mid/deep/ask", Answer::accept(true).unwrap()).await.unwrap();
    let run = runtime.resume(&whole, "r").take_over().await.unwrap();
    let state = run.wait().await.unwrap().completed().unwrap();
    assert_eq!(state.get::<bool>("mid.deep.yes").unwrap(), Some(true));
    assert_eq!(notes(&state, "mid.deep.notes"), ["mid/deep/before@1<", "mid/deep/after@1<mid/deep/ask"]);
    assert_eq!(notes(&state, "notes"), ["out@1<mid/deep/after"]);
    assert_eq!(RAN.load(Ordering::SeqCst), 1);
}

/// A failure inside follows the failure edge of its own graph first, and then that of the surrounding graph.
///
/// Guarantees: COMPOSE-8.
#[tokio::test]
async fn inner_failure_edge_precedes_outer_one() {
    let part =
        graph("part").node("first", note).max_visits(3).node("try", fail).entry("first").edge("first", "try");
    let part = part.fallback("first").build().unwrap();
    let whole = graph("whole").subgraph("part", &part, Lens::whole()).node("out", note).node("repair", note);
    let whole = whole.entry("part").edge("part", "out").edge("part", "repair").on_failure().build().unwrap();
    assert_eq!(
        noted(&whole).await,
        ["part/first@1<", "part/first@2<part/try", "part/first@3<part/try", "repair@1<part/try"]
    );
}

/// Without a failure edge, a failed inner node fails the run, and the failure has the path of the node.
#[tokio::test]
async fn unhandled_inner_failure_fails_run_with_path() {
    let part = graph("part").node("try", fail).retry(RetryPolicy::none()).entry("try").build().unwrap();
    let mid = graph("mid").subgraph("in", &part, Lens::whole()).entry("in").build().unwrap();
    let whole = graph("whole").subgraph("mid", &mid, Lens::whole()).entry("mid").build().unwrap();
    let Outcome::Failed { failure, .. } = end(&whole).await else { panic!("not failed") };
    assert_eq!(failure.node.unwrap().as_str(), "mid/in/try");
    assert_eq!(failure.message, "broken");
}

/// Visits count per run, as in one graph: a subgraph in a loop does not start again at 1.
///
/// Guarantees: COMPOSE-9.
#[tokio::test]
async fn visits_count_over_run_across_subgraph_passes() {
    let part = graph("part").node("only", note).max_visits(2).entry("only").build().unwrap();
    let whole = graph("whole").subgraph("part", &part, Lens::whole()).entry("part");
    let whole = whole.route("part", ["part"], |_s, _cx| "part").build().unwrap();
    let Outcome::Failed { failure, .. } = end(&whole).await else { panic!("not failed") };
    assert_eq!((failure.kind, failure.node.unwrap().as_str()), (FailureKind::MaxVisits, "part/only"));
}

/// A route of a subgraph names the nodes of its own graph by their local names, at any depth.
#[tokio::test]
async fn inner_route_uses_local_node_names() {
    let part = graph("part")
        .node("plan", note)
        .max_replans(5)
        .node("check", note)
        .entry("plan")
        .edge("plan", "check");
    let part = part.route("check", ["plan"], |_s, cx| match cx.replans("plan") {
        2 => Route::none(),
        _ => Route::revisit("plan", "not yet"),
    });
    let mid = graph("mid").subgraph("in", &part.build().unwrap(), Lens::whole()).entry("in").build().unwrap();
    let whole = graph("whole")
        .subgraph("mid", &mid, Lens::keys("mid."))
        .node("out", note)
        .entry("mid")
        .edge("mid", "out");
    let Outcome::Completed(state) = end(&whole.build().unwrap()).await else { panic!("not completed") };
    assert_eq!(notes(&state, "mid.notes").len(), 6);
    assert_eq!(notes(&state, "notes"), ["out@1<mid/in/check"]);
}

/// Items for a subgraph are refused with an error that names it, because they would share one state (langgraph 2581).
///
/// Guarantees: COMPOSE-17.
#[tokio::test]
async fn items_are_not_sent_to_a_subgraph() {
    let whole = graph("whole").node("open", note).subgraph("review", &review(), Lens::whole()).entry("open");
    let whole = whole.route("open", ["review"], |_s, _cx| Route::each("review", 0..3)).build().unwrap();
    let Outcome::Failed { failure, .. } = end(&whole).await else { panic!("not failed") };
    assert!(failure.message.contains("items for `review`: a subgraph has one state"), "{}", failure.message);
}

/// If only one branch reaches the end, its output is passed on, also through the join of the branches.
#[tokio::test]
async fn leaving_branch_passes_its_output_on() {
    let part = graph("part").node("choose", note).node("a", note).node("b", note).entry("choose");
    let part = part.route("choose", ["a", "b"], |_s, _cx| "b").build().unwrap();
    let whole = graph("whole").subgraph("part", &part, Lens::whole()).node("out", note).entry("part").route(
        "part",
        ["out"],
        |_s, cx| (cx.output::<String>().unwrap().as_deref() == Some("part/b")).then_some("out"),
    );
    assert_eq!(noted(&whole.build().unwrap()).await.last().unwrap(), "out@1<part");
}

#[derive(Default)]
struct Charged(AtomicU32);

/// The idempotency keys of two uses differ, so an external service accepts the calls of both.
///
/// Guarantees: COMPOSE-7.
#[tokio::test]
async fn two_uses_have_idempotency_keys_of_their_own() {
    let part = graph("part")
        .node("charge", async |cx, _s: Draft<Context>| {
            cx.resource::<Arc<Charged>>().0.fetch_add(1, Ordering::SeqCst);
            let key = cx.idempotency_key();
            Ok(Context::update().append("notes", [key.split_once(':').unwrap().1]))
        })
        .effect(Effect::External)
        .entry("charge")
        .build()
        .unwrap();
    let whole = graph("whole").subgraph("a", &part, Lens::whole()).subgraph("b", &part, Lens::whole());
    let whole = whole.entry("a").edge("a", "b").build().unwrap();
    let charged = Arc::new(Charged::default());
    let runtime = Runtime::builder(MemoryStore::new()).resource(Arc::clone(&charged)).build().await.unwrap();
    let run = runtime.start(&whole, Context::new()).await.unwrap();
    let state = run.wait().await.unwrap().completed().unwrap();
    assert_eq!(notes(&state, "notes"), ["a/charge:1", "b/charge:1"]);
    assert_eq!(charged.0.load(Ordering::SeqCst), 2);
}

/// Goals are checked at the end of the run, and the goal's own graph decides where the run goes back to.
#[tokio::test]
async fn a_goal_inside_sends_the_run_back_inside() {
    let part = graph("part")
        .node("work", note)
        .goal_gate(|s: &Context| notes(s, "notes").len() > 2)
        .entry("work")
        .fallback("work")
        .build()
        .unwrap();
    let whole = graph("whole").subgraph("part", &part, Lens::keys("p.")).node("out", note).entry("part");
    let Outcome::Completed(state) = end(&whole.edge("part", "out").build().unwrap()).await else {
        panic!("failed")
    };
    assert_eq!(notes(&state, "p.notes").len(), 3);
    assert_eq!(notes(&state, "notes").len(), 3, "the node after the subgraph must run in each round");
}

/// A revisit of a subgraph starts at its entry, and counts under the name of the subgraph.
///
/// Guarantees: COMPOSE-9.
#[tokio::test]
async fn revisit_of_subgraph_counts_by_its_name() {
    let inner = graph("inner").subgraph("deep", &review(), Lens::whole()).node("check", note).entry("deep");
    let inner = inner.edge("deep", "check").route("check", ["deep"], |_s, cx| match cx.replans("deep") {
        0 => Route::revisit("deep", "once"),
        _ => Route::none(),
    });
    let whole = graph("whole")
        .subgraph("part", &inner.build().unwrap(), Lens::whole())
        .node("judge", note)
        .entry("part");
    let whole = whole.edge("part", "judge").route("judge", ["part"], |_s, cx| match cx.replans("part") {
        // The subgraph itself goes back once.
        1 => Route::revisit("part", "again"),
        _ => Route::none(),
    });
    let noted = noted(&whole.build().unwrap()).await;
    let times = |node: &str| noted.iter().filter(|note| note.starts_with(node)).count();
    assert_eq!((times("part/deep/split"), times("judge")), (3, 2), "{noted:?}");
}

/// A run that stopped inside a subgraph does not continue with a changed inner graph unless the caller allows it.
///
/// Guarantees: COMPOSE-11.
#[tokio::test]
async fn run_inside_changed_subgraph_is_refused() {
    let asking = |revision: &str| {
        let part =
            graph("part").gate("ask", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes));
        let part = part.revision(revision).entry("ask").build().unwrap();
        graph("whole").subgraph("part", &part, Lens::whole()).entry("part").build().unwrap()
    };
    let (store, key) = (MemoryStore::new(), RunKey::try_from("r").unwrap());
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let run = runtime.start(&asking("1"), Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
    runtime.respond(&key, "part/ask", Answer::accept(true).unwrap()).await.unwrap();
    let error = runtime.resume(&asking("2"), "r").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GraphChanged);
    assert!(error.to_string().contains("part/ask"), "{error}");
    let run = runtime.resume(&asking("1"), "r").await.unwrap();
    assert!(run.wait().await.unwrap().completed().is_some());
}

//! Nodes in every form, and their plans.

use crate::claim::{ClaimId, StartId};
use std::num::NonZeroU64;
use std::sync::Arc;

use async_trait::async_trait;

use super::*;
use crate::graph::Lens;
use crate::graph::node_set::NodeIx;
use crate::id::{NodeName, RunId, Visit};
use crate::kernel::resources::Resources;
use crate::node::{
    AttemptKey, AttemptTransactions, AttemptWaits, Conversation, NodeResult, NodeScope, RunScope,
};
use crate::record::RunFacts;
use crate::state::PatchWriter;

async fn function(_cx: NodeContext, mut s: Draft<Context>) -> Result<Draft<Context>, NodeError> {
    s.set("seen", true)?;
    Ok(s)
}

async fn whole_result(_cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    Ok(Context::update().set("seen", true).into())
}

struct Typed {
    url: String,
}

#[async_trait]
impl Node<Context> for Typed {
    async fn run(&self, _cx: NodeContext, mut s: Draft<Context>) -> NodeResult<Context> {
        s.set("url", &self.url)?;
        Ok(s.into())
    }
}

#[test]
fn functions_closures_and_types_are_nodes_without_annotation() {
    let captured = Arc::new(7_u32);
    let graph = Graph::<Context>::builder("forms")
        .node("function", function)
        .node("whole_result", whole_result)
        .node("draft", async |_cx, mut s| {
            s.set("n", "7".parse::<u32>()?)?;
            Ok(s)
        })
        .node("update", async |_cx, s| Ok(Context::update().set("copy", s.get_value("n"))))
        .node("nothing", async |_, _| Ok(()))
        .node("capturing", move |_cx, mut s| {
            let captured = Arc::clone(&captured);
            async move {
                s.set("n", *captured)?;
                Ok(s)
            }
        })
        .add("typed", Typed { url: "https://example.org".into() })
        .entry("function")
        .edge("function", ["whole_result", "draft"])
        .edge(vec!["whole_result".to_owned(), "draft".to_owned()], "update".to_owned())
        .edge("update", "nothing")
        .when(|s| s.contains_key("n"))
        .edge("update", "capturing")
        .otherwise()
        .route("capturing", ["typed"], |s, cx| (cx.visit().get() == 1 && !s.is_empty()).then_some("typed"))
        .build()
        .unwrap();
    let names: Vec<&str> = graph.node_names().map(|name| name.as_str()).collect();
    assert_eq!(names, ["function", "whole_result", "draft", "update", "nothing", "capturing", "typed"]);
    assert_eq!(graph.clone().fingerprint(), graph.fingerprint());
    assert!(format!("{graph:?}").starts_with("Graph { name: \"forms\", version: \"1\""));
}

#[test]
fn a_plan_holds_what_was_declared() {
    let second = Duration::from_secs(1);
    let graph = nodes("a b c")
        .effect(Effect::External)
        .retry(RetryPolicy::patient())
        .timeout(second)
        .join(Join::AtLeast(1))
        .max_visits(3)
        .goal_gate(|s| s.contains_key("done"))
        .retry_target("a")
        .checkpoint(NodeCheckpoint::Both)
        .entry("a")
        .edge("a", ["b", "c"])
        .edge("b", "c")
        .on_failure()
        .version("2.1")
        .max_steps(10)
        .deadline(second)
        .concurrency(4)
        .fallback("b")
        .channel("notes", Reducer::Append)
        .build()
        .unwrap();
    let (plan, c) = (graph.plan(), NodeIx::new(2));
    let node = plan.node(c);
    assert_eq!(
        (node.name.as_str(), node.effect, node.retry),
        ("c", Effect::External, RetryPolicy::patient())
    );
    assert_eq!(
        (node.timeout, node.join, node.checkpoint),
        (Some(second), Join::AtLeast(1), NodeCheckpoint::Both)
    );
    assert_eq!((node.max_visits, node.goal_gate, node.routed), (NonZeroU32::new(3), true, false));
    assert_eq!(node.returns[..], [plan.find("a").unwrap()]);
    assert_eq!((plan.max_steps.map(|n| n.get()), plan.deadline), (Some(10), Some(second)));
    assert_eq!((plan.concurrency, plan.retry_target), (NonZeroU32::new(4), plan.find("b")));
    assert_eq!((graph.version(), plan.entry), ("2.1", NodeIx::new(0)));
    assert_eq!(graph.schema().reducer("notes"), &Reducer::Append);
    let edges: Vec<_> = plan.edges.iter().map(|e| (e.from.get(), e.to.get(), e.kind)).collect();
    assert_eq!(edges, [(0, 1, EdgeKind::Plain), (0, 2, EdgeKind::Plain), (1, 2, EdgeKind::OnFailure)]);
    assert_eq!(plan.topology.position(c), 2);
    assert!(graph.goal_met(plan.entry, &Context::new()));
    assert!(!graph.goal_met(c, &Context::new()));
}

/// Runs a node on `{"n": 1}` and returns the state after its update.
async fn run(graph: &Graph<Context>, node: &str) -> Result<Context, NodeError> {
    let (print, now) = (graph.fingerprint(), crate::clock::Timestamp::from_unix_ms(0));
    let scope = RunScope {
        key: RunId::new("run")?.into(),
        facts: Arc::new(RunFacts::new(graph.name().clone(), "1", print, print, now)?),
        config: None,
        claim: ClaimId { start_id: StartId::NONE, epoch: crate::id::Epoch::new(1) },
        resources: Arc::new(Resources::default()),
        clock: Arc::new(crate::clock::SystemClock::new()),
        commands: crate::compact::queue::queue().0,
        cancelled: crate::compact::once_channel::once().1,
        host: crate::node::RuntimeAccess {
            runtime: std::sync::Weak::new(),
            depth: 0,
            root: RunId::new("run")?.into(),
            children: Arc::default(),
        },
    };
    let cx = NodeContext::new(Arc::new(NodeScope {
        run: Arc::new(scope),
        node: NodeName::new(node)?,
        visit: Visit::new(1),
        attempt: 1,
        message_count: 0,
        item: None,
        inputs: Default::default(),
        attempt_key: AttemptKey { activation: (0, Visit::new(1)), way: 0 },
        memos: Default::default(),
        places: Default::default(),
        waits: AttemptWaits::default(),
        time_limit: None,
        started_children: Default::default(),
        effect: Effect::default(),
        transactions: AttemptTransactions::default(),
        outputs: Default::default(),
        lacks_resource: std::sync::atomic::AtomicBool::new(false),
        ownership: None,
        is_not_begun: Default::default(),
        cleanup: Default::default(),
    }));
    let mut state = Context::new();
    state.set("n", 1)?;
    let work = graph.begin(graph.plan().find(node).unwrap(), cx, Draft::new(Arc::new(state.clone())));
    let update = work.await?;
    update.apply(&mut state, &mut PatchWriter::touching())?;
    Ok(state)
}

#[test]
fn nodes_do_the_work_that_was_added() {
    let graph = Graph::<Context>::builder("g")
        .node("draft", async |_cx, mut s| {
            s.set("n", 2)?;
            Ok(s)
        })
        .node("nothing", async |_cx, _s| Ok(()))
        .node("fails", async |_cx, s| {
            "seven".parse::<u32>()?;
            Ok(s)
        })
        .add("typed", Typed { url: "u".into() })
        .entry("draft")
        .edge("draft", ["nothing", "fails", "typed"])
        .build()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let after = |node: &str| serde_json::to_value(runtime.block_on(run(&graph, node)).unwrap()).unwrap();
    assert_eq!(after("draft"), serde_json::json!({"n": 2}));
    assert_eq!(after("nothing"), serde_json::json!({"n": 1}));
    assert_eq!(after("typed"), serde_json::json!({"n": 1, "url": "u"}));
    let error = runtime.block_on(run(&graph, "fails")).unwrap_err();
    assert_eq!(error.to_string(), "invalid digit found in string");
}

#[test]
fn a_hundred_thousand_nodes_build() {
    let names: Vec<String> = (0..100_000).map(|at| format!("n{at}")).collect();
    let mut builder = Graph::<Context>::builder("large").entry("n0");
    for pair in names.windows(2) {
        builder = builder.edge(&pair[0], &pair[1]);
    }
    for name in &names {
        builder = builder.node(name, async |_cx, s| Ok(s));
    }
    assert_eq!(builder.build().unwrap().node_names().count(), 100_000);
}

/// Regression: a graph with a loop and without a limit wrote records until it was stopped.
#[test]
fn only_looping_graph_has_default_step_limit() {
    let chain = || two().edge("a", "b");
    let round = || two().edge("a", "b").route("b", ["a"], |_s, _cx| "a");
    let itself = || two().edge("a", "b").route("b", ["b"], |_s, _cx| "b");
    let limit =
        |builder: GraphBuilder<Context>| builder.build().unwrap().plan().max_steps.map(|most| most.get());
    assert_eq!((limit(chain()), limit(chain().max_steps(7))), (None, Some(7)));
    assert_eq!((limit(round()), limit(itself())), (Some(10_000), Some(10_000)));
    assert_eq!((limit(round().max_steps(7)), limit(round().max_steps(u64::MAX))), (Some(7), Some(u64::MAX)));
    assert_eq!(limit(round().unlimited_steps()), None);
    assert_eq!(limit(round().unlimited_steps().max_steps(7)), Some(7));
}

/// Regression: the conversation failed at its 10,000th message instead of running until cancelled.
#[test]
fn conversation_alone_sets_no_step_limit() {
    let talk = |next: &'static str| {
        let policy = Conversation::new();
        two().edge("a", "talk").conversation("talk", [next], policy, async |_cx, _s, _text: String| Ok(()))
    };
    let limit =
        |builder: GraphBuilder<Context>| builder.build().unwrap().plan().max_steps.map(NonZeroU64::get);
    assert_eq!(limit(talk("b")), None);
    let whole = || Graph::<Context>::builder("whole").entry("in");
    assert_eq!(limit(whole().subgraph("in", &talk("b").build().unwrap(), Lens::whole())), None);
    assert_eq!(limit(talk("b").max_steps(7)), Some(7));
    assert_eq!(limit(talk("a").edge("a", "b")), Some(10_000), "a loop around a conversation is one");
}

fn two() -> GraphBuilder<Context> {
    Graph::<Context>::builder("two")
        .node("a", async |_cx, _s| Ok(()))
        .node("b", async |_cx, _s| Ok(()))
        .entry("a")
}

//! The graphs of the crash tests. Every node first writes to the ledger, and its return value does not depend on its number of executions.

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::graph::{Effect, Graph, RetryPolicy, Route};
use ferrata_core::node::{NodeContext, NodeError, NodeResult};
use ferrata_core::state::{Context, Draft, Op, Reducer, Update};

use super::ledger::Ledger;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) graph: Graph<Context>,
    /// Effects of the nodes. Other nodes have the default.
    pub(crate) effects: Vec<(&'static str, Effect)>,
    pub(crate) script: Script,
}

/// Operations of other callers on a run, besides answers.
#[derive(Clone, Default)]
pub(crate) struct Script {
    /// Messages for the run, in order.
    pub(crate) messages: Vec<serde_json::Value>,
    /// Whether the run is edited and paused when it first becomes idle, and unpaused later.
    pub(crate) is_held: bool,
    /// Nodes that do not write to the ledger, because they contain no code of the test.
    pub(crate) silent: Vec<&'static str>,
}

pub(crate) fn all() -> Vec<Case> {
    vec![chain(), diamond(), rounds(), replans(), fan_out(), flaky(), external(), hazards()]
}

/// The changes of a node, which an operator can also supply.
pub(crate) fn trace(node: &str, visit: u32) -> Op {
    Op::Append("trace".into(), vec![format!("{node}@{visit}").into()])
}

pub(crate) async fn work(cx: NodeContext, _state: Draft<Context>) -> NodeResult<Context> {
    tell(&cx).await;
    Ok(traced(&cx))
}

/// A node that yields to other tasks.
pub(crate) async fn slow(cx: NodeContext, _state: Draft<Context>) -> NodeResult<Context> {
    tell(&cx).await;
    for _ in 0..cx.node().as_str().len() + cx.visit().get() as usize % 3 {
        tokio::task::yield_now().await;
    }
    Ok(traced(&cx))
}

/// A node whose result is not used.
async fn quiet(cx: NodeContext, _state: Draft<Context>) -> NodeResult<Context> {
    tell(&cx).await;
    Ok(Update::none())
}

pub(crate) async fn tell(cx: &NodeContext) {
    Arc::clone(cx.resource::<Arc<Ledger>>()).enter(cx).await;
}

pub(crate) fn traced(cx: &NodeContext) -> Update<Context> {
    let text = format!("{}@{}", cx.node(), cx.visit());
    Update::from(Context::update().append("trace", [text])).with_output(cx.visit().get())
}

pub(crate) fn builder(name: &str) -> ferrata_core::graph::GraphBuilder<Context> {
    Graph::<Context>::builder(name).channel("trace", Reducer::Append).channel("edits", Reducer::Append)
}

pub(crate) fn chain() -> Case {
    let effects = [
        Effect::Pure,
        Effect::Pure,
        Effect::Write,
        Effect::Read,
        Effect::Pure,
        Effect::Write,
        Effect::Write,
        Effect::Pure,
        Effect::Human,
        Effect::Read,
    ];
    let mut builder = builder("chain");
    let names = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"];
    for (at, effect) in effects.into_iter().enumerate() {
        builder = builder.node(names[at], if at % 3 == 1 { work_slowly() } else { work_at_once() });
        builder = builder.effect(effect);
    }
    for at in 1..effects.len() {
        builder = builder.edge(names[at - 1], names[at]);
    }
    let effects = names.into_iter().zip(effects).collect();
    Case { name: "chain", graph: builder.entry("n0").build().unwrap(), effects, script: Script::default() }
}

type Boxed = std::pin::Pin<Box<dyn Future<Output = NodeResult<Context>> + Send>>;

fn work_slowly() -> fn(NodeContext, Draft<Context>) -> Boxed {
    |cx, s| Box::pin(slow(cx, s))
}

fn work_at_once() -> fn(NodeContext, Draft<Context>) -> Boxed {
    |cx, s| Box::pin(work(cx, s))
}

pub(crate) fn diamond() -> Case {
    let graph = builder("diamond")
        .node("split", work)
        .effect(Effect::Pure)
        .node("short", work)
        .effect(Effect::Write)
        .node("long-1", slow)
        .effect(Effect::Pure)
        .node("long-2", work)
        .effect(Effect::Write)
        .node("long-3", slow)
        .effect(Effect::Read)
        .node("join", work)
        .effect(Effect::Write)
        .entry("split")
        .edge("split", ["short", "long-1"])
        .edge("long-1", "long-2")
        .edge("long-2", "long-3")
        .edge(["short", "long-3"], "join")
        .build();
    let effects = vec![
        ("split", Effect::Pure),
        ("short", Effect::Write),
        ("long-1", Effect::Pure),
        ("long-2", Effect::Write),
        ("long-3", Effect::Read),
        ("join", Effect::Write),
    ];
    Case { name: "diamond", graph: graph.unwrap(), effects, script: Script::default() }
}

pub(crate) fn rounds() -> Case {
    let graph = builder("rounds")
        .node("write", work)
        .effect(Effect::Pure)
        .node("check", slow)
        .effect(Effect::Write)
        .node("out", work)
        .entry("write")
        .edge("write", "check")
        .route("check", ["write", "out"], |_s, cx| if cx.visit().get() <= 3 { "write" } else { "out" })
        .build();
    let effects = vec![("write", Effect::Pure), ("check", Effect::Write)];
    Case { name: "rounds", graph: graph.unwrap(), effects, script: Script::default() }
}

/// A loop that ends after three returns, which the runtime counts.
pub(crate) fn replans() -> Case {
    let graph = builder("replans")
        .node("write", work)
        .effect(Effect::Pure)
        .max_replans(3)
        .node("check", slow)
        .effect(Effect::Write)
        .node("out", work)
        .entry("write")
        .edge("write", "check")
        .route("check", ["write", "out"], |_s, cx| match cx.replans("write") {
            3 => "out".into(),
            times => Route::revisit("write", format!("{times} times are not enough")),
        })
        .build();
    let effects = vec![("write", Effect::Pure), ("check", Effect::Write)];
    Case { name: "replans", graph: graph.unwrap(), effects, script: Script::default() }
}

pub(crate) fn fan_out() -> Case {
    let graph = builder("fan-out")
        .node("split", work)
        .node("each", slow)
        .effect(Effect::Write)
        .node("join", async |cx, mut s| {
            tell(&cx).await;
            let outputs: Result<Vec<u32>, _> = cx.inputs().iter().map(|input| input.output()).collect();
            s.set("joined", outputs?)?;
            Ok(s)
        })
        .effect(Effect::Pure)
        .node("end", work)
        .entry("split")
        .route("split", ["each"], |_s, _cx| Route::each("each", 0..8u32))
        .edge("each", "join")
        .edge("join", "end")
        .build();
    let effects = vec![("each", Effect::Write), ("join", Effect::Pure)];
    Case { name: "fan-out", graph: graph.unwrap(), effects, script: Script::default() }
}

pub(crate) fn flaky() -> Case {
    let graph = builder("flaky")
        .node("first", work)
        .effect(Effect::Pure)
        .node("flaky", async |cx, _s| {
            tell(&cx).await;
            if cx.attempt() < 3 { Err("not yet".into()) } else { Ok(traced(&cx)) }
        })
        .retry(RetryPolicy::none().with_attempts(3).with_delay(Duration::from_millis(1)))
        .node("never", async |cx, _s: Draft<Context>| {
            tell(&cx).await;
            Err::<Update<Context>, _>("by no means".into())
        })
        .node("rescue", work)
        .effect(Effect::Pure)
        .node("unreached", work)
        .node("last", work)
        .entry("first")
        .edge("first", "flaky")
        .edge("flaky", "never")
        .edge("never", "unreached")
        .edge("never", "rescue")
        .on_failure()
        .edge(["unreached", "rescue"], "last")
        .build();
    let effects = vec![("first", Effect::Pure), ("rescue", Effect::Pure)];
    Case { name: "flaky", graph: graph.unwrap(), effects, script: Script::default() }
}

pub(crate) fn external() -> Case {
    let graph = builder("external")
        .node("order", work)
        .effect(Effect::Pure)
        .node("pay", slow)
        .effect(Effect::External)
        .node("mail", quiet)
        .effect(Effect::External)
        .node("count-1", work)
        .effect(Effect::Pure)
        .node("count-2", slow)
        .effect(Effect::Pure)
        .node("ship", work)
        .effect(Effect::External)
        .node("done", work)
        .entry("order")
        .edge("order", ["pay", "mail", "count-1"])
        .edge("count-1", "count-2")
        .edge(["pay", "mail", "count-2"], "ship")
        .route("ship", ["order", "done"], |_s, cx| if cx.visit().get() < 2 { "order" } else { "done" })
        .build();
    let effects = vec![
        ("order", Effect::Pure),
        ("pay", Effect::External),
        ("mail", Effect::External),
        ("count-1", Effect::Pure),
        ("count-2", Effect::Pure),
        ("ship", Effect::External),
    ];
    Case { name: "external", graph: graph.unwrap(), effects, script: Script::default() }
}

/// `External` attempts that end without a result, in every way. Only the first one reports that nothing was done.
pub(crate) fn hazards() -> Case {
    let thrice = RetryPolicy::none().with_attempts(3).with_delay(Duration::from_millis(1));
    let graph = builder("hazards")
        .node("order", work)
        .effect(Effect::Pure)
        .node("refused", async |cx, _s| {
            tell(&cx).await;
            if cx.attempt() < 3 {
                cx.resource::<Arc<Ledger>>().undo(&cx);
                return Err(NodeError::new("refused").not_done());
            }
            Ok(traced(&cx))
        })
        .effect(Effect::External)
        .retry(thrice)
        .node("lost", async |cx, _s: Draft<Context>| {
            tell(&cx).await;
            Err::<Update<Context>, _>("the line broke".into())
        })
        .effect(Effect::External)
        .retry(thrice)
        .node("late", async |cx, _s: Draft<Context>| {
            tell(&cx).await;
            std::future::pending::<NodeResult<Context>>().await
        })
        .effect(Effect::External)
        .retry(thrice)
        .timeout(Duration::from_secs(1))
        .node("done", work)
        .entry("order")
        .edge("order", ["refused", "lost"])
        .edge("lost", "late")
        .edge(["refused", "late"], "done")
        .build();
    let effects = vec![
        ("order", Effect::Pure),
        ("refused", Effect::External),
        ("lost", Effect::External),
        ("late", Effect::External),
    ];
    Case { name: "hazards", graph: graph.unwrap(), effects, script: Script::default() }
}

//! Graphs with questions, messages, steps and timers. Each value that a node received is recorded, and is never received twice.

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::ask::{AnswerShape, Ask, Shape, Shapes};
use ferrata_core::graph::{Effect, RetryPolicy};
use ferrata_core::node::{Conversation, NodeContext, NodeError, NodeResult};
use ferrata_core::state::{Context, Draft, Update};
use serde_json::json;

use super::graphs::{Case, Script, builder, slow, tell, traced, work};
use super::ledger::Ledger;

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// Shorter than the time after which a waiting run leaves memory.
const SHORT: Duration = Duration::from_secs(5);

pub(crate) fn all() -> Vec<Case> {
    vec![gates(), talk(), steps(), sleeps(), mixed()]
}

fn ledger(cx: &NodeContext) -> Arc<Ledger> {
    Arc::clone(cx.resource::<Arc<Ledger>>())
}

/// A step that records its work in the ledger.
async fn step(cx: &NodeContext, name: &str) -> Result<String, NodeError> {
    let told = ledger(cx);
    let done = cx
        .step(name, async || {
            told.works(cx, name).await;
            tokio::task::yield_now().await;
            Ok::<_, NodeError>(format!("{}@{}:{name}", cx.node(), cx.visit()))
        })
        .await?;
    told.given(cx, name).await;
    Ok(done)
}

async fn ask(cx: &NodeContext, name: &str) -> Result<u32, NodeError> {
    let answer = cx.ask(name, name).await?;
    ledger(cx).given(cx, name).await;
    Ok(answer)
}

/// Receives the next message. `number` counts the calls of the activation.
async fn hear(cx: &NodeContext, number: u32) -> Result<String, NodeError> {
    let message = cx.receive().await?;
    ledger(cx).given(cx, &format!("#receive{number}")).await;
    Ok(message)
}

async fn nap(cx: &NodeContext, number: u32, time: Duration) -> Result<(), NodeError> {
    cx.sleep(time).await?;
    ledger(cx).rang(cx, &format!("#sleep{number}")).await;
    Ok(())
}

fn with(cx: &NodeContext, channel: &str, items: Vec<String>) -> Update<Context> {
    let text = format!("{}@{}", cx.node(), cx.visit());
    Context::update().append("trace", [text]).append(channel, items).into()
}

/// Two concurrent questions of one activation.
async fn both(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    tell(&cx).await;
    let (one, two) = tokio::join!(ask(&cx, "one"), ask(&cx, "two"));
    Ok(with(&cx, "got", vec![format!("{} {}", one?, two?)]))
}

/// An answer type that rejects some values which its shape allows.
#[derive(serde::Deserialize)]
#[serde(try_from = "u32")]
struct Odd(u32);

impl TryFrom<u32> for Odd {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        if number % 2 == 1 { Ok(Self(number)) } else { Err("it is even") }
    }
}

impl AnswerShape for Odd {
    fn shape(shapes: &mut Shapes) -> Shape {
        shapes.of::<u32>()
    }
}

pub(crate) fn gates() -> Case {
    let graph = builder("gates")
        .channel("got", ferrata_core::state::Reducer::Append)
        .node("split", work)
        .effect(Effect::Pure)
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("ok", yes))
        .node("both", both)
        .node("guarded", slow)
        .interrupt_before()
        .interrupt_after()
        .node("odd", async |cx, _s| {
            tell(&cx).await;
            let Odd(number) = cx.ask("odd", "An odd number?").await?;
            Ok(with(&cx, "got", vec![format!("odd {number}")]))
        })
        .effect(Effect::Pure)
        .node("beside-1", slow)
        .effect(Effect::Pure)
        .node("beside-2", work)
        .node("end", work)
        .entry("split")
        .edge("split", ["ok", "beside-1"])
        .edge("ok", "both")
        .edge("both", "guarded")
        .edge("guarded", "odd")
        .edge("beside-1", "beside-2")
        .edge(["odd", "beside-2"], "end")
        .build();
    let effects = vec![("split", Effect::Pure), ("odd", Effect::Pure), ("beside-1", Effect::Pure)];
    let script = Script { is_held: true, silent: vec!["ok"], ..Script::default() };
    Case { name: "gates", graph: graph.unwrap(), effects, script }
}

pub(crate) fn talk() -> Case {
    let graph = builder("talk")
        .channel("said", ferrata_core::state::Reducer::Append)
        .node("hear", async |cx, _s| {
            tell(&cx).await;
            let one = hear(&cx, 1).await?;
            // The message between them is a number, which this receive does not accept.
            let two = hear(&cx, 2).await?;
            Ok(with(&cx, "said", vec![one, two]))
        })
        .conversation("talk", ["idle"], Conversation::new().max_messages(2), async |cx, _s, text: String| {
            tell(&cx).await;
            Ok(with(&cx, "said", vec![text]))
        })
        .node("idle", async |cx, _s| {
            tell(&cx).await;
            let last: Option<String> = cx.receive_within(DAY).await?;
            ledger(&cx).given(&cx, "#receive1").await;
            Ok(with(&cx, "said", vec![last.unwrap_or("nobody".into())]))
        })
        .effect(Effect::Pure)
        .node("end", work)
        .entry("hear")
        .edge("hear", "talk")
        .edge("idle", "end")
        .build();
    let messages = vec![json!("a"), json!(17), json!("b"), json!("c"), json!("d")];
    let script = Script { messages, ..Script::default() };
    Case { name: "talk", graph: graph.unwrap(), effects: vec![("idle", Effect::Pure)], script }
}

/// A node with steps that fails between them, and runs two of them concurrently.
async fn stepping(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    tell(&cx).await;
    let first = step(&cx, "first").await?;
    if cx.attempt() < 2 {
        return Err("not yet".into());
    }
    let (one, two) = tokio::join!(step(&cx, "one"), step(&cx, "two"));
    let last = step(&cx, "last").await?;
    Ok(with(&cx, "did", vec![first, one?, two?, last]))
}

pub(crate) fn steps() -> Case {
    let twice = RetryPolicy::none().with_attempts(2).with_delay(Duration::from_millis(1));
    let graph = builder("steps")
        .channel("did", ferrata_core::state::Reducer::Append)
        .node("split", work)
        .effect(Effect::Pure)
        .node("pure", stepping)
        .effect(Effect::Pure)
        .retry(twice)
        .node("write", stepping)
        .retry(twice)
        .node("end", work)
        .entry("split")
        .edge("split", ["pure", "write"])
        .edge(["pure", "write"], "end")
        .build();
    let effects = vec![("split", Effect::Pure), ("pure", Effect::Pure)];
    Case { name: "steps", graph: graph.unwrap(), effects, script: Script::default() }
}

pub(crate) fn sleeps() -> Case {
    let graph = builder("sleeps")
        .channel("got", ferrata_core::state::Reducer::Append)
        .node("split", work)
        .effect(Effect::Pure)
        .node("nap", async |cx, _s| {
            tell(&cx).await;
            nap(&cx, 1, SHORT).await?;
            let did = step(&cx, "between").await?;
            nap(&cx, 2, DAY / 24).await?;
            nap(&cx, 3, SHORT).await?;
            Ok(with(&cx, "got", vec![did]))
        })
        .node("dawn", async |cx, _s| {
            tell(&cx).await;
            nap(&cx, 1, DAY / 12).await?;
            Ok(traced(&cx))
        })
        .effect(Effect::Pure)
        .node("late", async |cx, _s| {
            tell(&cx).await;
            let amount: u32 = cx.ask_with("late", Ask::new("How much?").deadline(DAY).or_default(3)).await?;
            ledger(&cx).given(&cx, "late").await;
            Ok(with(&cx, "got", vec![amount.to_string()]))
        })
        .node("end", work)
        .entry("split")
        .edge("split", ["nap", "dawn"])
        .edge("dawn", "late")
        .edge(["nap", "late"], "end")
        .build();
    let effects = vec![("split", Effect::Pure), ("dawn", Effect::Pure)];
    Case { name: "sleeps", graph: graph.unwrap(), effects, script: Script::default() }
}

/// All kinds of waits concurrently, with a pause and an edit in between.
pub(crate) fn mixed() -> Case {
    let graph = builder("mixed")
        .channel("got", ferrata_core::state::Reducer::Append)
        .node("split", work)
        .effect(Effect::Pure)
        .node("asks", async |cx, _s| {
            tell(&cx).await;
            let before = step(&cx, "before-asking").await?;
            let answer = ask(&cx, "amount").await?;
            let behind = step(&cx, "behind-asking").await?;
            Ok(with(&cx, "got", vec![before, answer.to_string(), behind]))
        })
        .node("hears", async |cx, _s| {
            tell(&cx).await;
            let (text, rest) = (hear(&cx, 1).await?, step(&cx, "rest").await?);
            Ok(with(&cx, "got", vec![text, rest]))
        })
        .effect(Effect::Pure)
        .node("naps", async |cx, _s| {
            tell(&cx).await;
            nap(&cx, 1, SHORT).await?;
            nap(&cx, 2, DAY).await?;
            Ok(traced(&cx))
        })
        .node("end", work)
        .entry("split")
        .edge("split", ["asks", "hears", "naps"])
        .edge(["asks", "hears", "naps"], "end")
        .build();
    let effects = vec![("split", Effect::Pure), ("hears", Effect::Pure)];
    let script = Script { messages: vec![json!("hello")], is_held: true, silent: Vec::new() };
    Case { name: "mixed", graph: graph.unwrap(), effects, script }
}

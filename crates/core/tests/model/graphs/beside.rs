//! Graphs with concurrent waits and failures that affect each other.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrata_core::ask::{AnswerShape, Ask, Shape, Shapes};
use ferrata_core::graph::{Effect, Graph, GraphBuilder, Join, NodeCheckpoint};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::state::Context;
use serde::{Deserialize, Serialize};

use super::{HOUR, MINUTE, Outside, begin, hear, once_more, paid, pay, step, work};

/// Starts a graph with a node that has several branches.
fn forked(name: &str, revision: &str) -> GraphBuilder<Context> {
    begin(name, revision).node("fork", async |_cx, _s| Ok(())).revision(revision).entry("fork")
}

/// Adds a node that joins the branches.
fn joined(graph: GraphBuilder<Context>, branches: &[&str], revision: &str) -> GraphBuilder<Context> {
    let branches: Vec<String> = branches.iter().map(|&branch| branch.to_owned()).collect();
    graph
        .node("end", async |_cx, _s| Ok(Context::update().set("end", true)))
        .revision(revision)
        .edge("fork", branches.clone())
        .edge(branches, "end")
}

/// Adds a node that asks, and one that receives a message.
fn waiting(graph: GraphBuilder<Context>, revision: &str) -> GraphBuilder<Context> {
    graph
        .node("ask", async |cx, _s| Ok(Context::update().set("amount", cx.ask::<u32>("amount", 1).await?)))
        .revision(revision)
        .node("hear", async |cx, _s| {
            let text = hear(&cx, 1).await?;
            Ok(Context::update().set("heard", text))
        })
        .revision(revision)
}

/// Adds a node that works.
fn working(graph: GraphBuilder<Context>, revision: &str) -> GraphBuilder<Context> {
    graph
        .node("work", async |cx, _s| {
            work(&cx).await?;
            Ok(Context::update().set("worked", true))
        })
        .revision(revision)
}

pub(super) fn held(revision: &str) -> Graph<Context> {
    let graph = waiting(working(forked("held", revision), revision), revision)
        .node("nap", async |cx, _s| {
            cx.sleep(Duration::from_secs(30)).await?;
            Ok(Context::update().set("rested", true))
        })
        .revision(revision);
    joined(graph, &["work", "ask", "hear", "nap"], revision).build().unwrap()
}

pub(super) fn timed(revision: &str) -> Graph<Context> {
    let graph = waiting(working(forked("timed", revision), revision), revision).deadline(2 * HOUR);
    joined(graph, &["work", "ask", "hear"], revision).build().unwrap()
}

pub(super) fn gates(revision: &str) -> Graph<Context> {
    let ask = |text: &'static str| move |_s: &Context| Ask::<bool>::new(text);
    let graph = forked("gates", revision)
        .gate("left", ask("Left?"), |s: &mut Context, yes: bool| s.set("left", yes))
        .revision(revision)
        .gate("right", ask("Right?"), |s: &mut Context, yes: bool| s.set("right", yes))
        .revision(revision);
    joined(graph, &["left", "right"], revision).build().unwrap()
}

pub(super) fn choice(revision: &str) -> Graph<Context> {
    begin("choice", revision)
        .node("wait", async |cx, _s| {
            let first: String = tokio::select! {
                answer = cx.ask::<String>("first", 1) => answer?,
                slept = cx.sleep(10 * MINUTE) => { slept?; "nobody".to_owned() }
            };
            let second: String = tokio::select! {
                slept = cx.sleep(HOUR) => { slept?; "nothing".to_owned() }
                message = cx.receive::<String>() => message?,
            };
            let sure: bool = cx.ask("sure", 3).await?;
            Ok(Context::update().set("first", first).set("second", second).set("sure", sure))
        })
        .revision(revision)
        .node("end", async |_cx, _s| Ok(Context::update().set("end", true)))
        .revision(revision)
        .entry("wait")
        .edge("wait", "end")
        .build()
        .unwrap()
}

pub(super) fn slow(revision: &str) -> Graph<Context> {
    begin("slow", revision)
        .node("nap", async |cx, _s| {
            cx.sleep(Duration::from_secs(30)).await?;
            work(&cx).await?;
            Ok(Context::update().set("rested", true))
        })
        .timeout(Duration::from_secs(45))
        .revision(revision)
        .node("end", async |_cx, _s| Ok(Context::update().set("end", true)))
        .revision(revision)
        .entry("nap")
        .edge("nap", "end")
        .build()
        .unwrap()
}

pub(super) fn payment(revision: &str) -> Graph<Context> {
    let paid = paid(revision);
    let graph = forked("beside", revision)
        .node("shaky", async |cx: NodeContext, _s| {
            let sure: bool = cx.ask("sure", "Sure?").await?;
            if cx.resource::<Outside>().rain.load(Ordering::SeqCst) {
                return Err(NodeError::new("it rains"));
            }
            Ok(Context::update().set("sure", sure))
        })
        .revision(revision)
        .node("pay", move |cx, _s| async move {
            pay(&cx).await?;
            Ok(Context::update().set(paid, 1))
        })
        .effect(Effect::External)
        .retry(once_more())
        .revision(revision);
    joined(graph, &["shaky", "pay"], revision).build().unwrap()
}

thread_local! {
    static MOST: Cell<u32> = const { Cell::new(9) };
}

/// Sets the largest valid `Small` for this thread.
pub(crate) fn set_most(most: u32) {
    MOST.set(most);
}

/// A number with a maximum that only its own code knows.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "u32")]
struct Small(u32);

impl TryFrom<u32> for Small {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        if number <= MOST.get() { Ok(Self(number)) } else { Err("too large") }
    }
}

impl AnswerShape for Small {
    fn shape(shapes: &mut Shapes) -> Shape {
        shapes.of::<u32>()
    }
}

pub(super) fn picky(revision: &str) -> Graph<Context> {
    begin("picky", revision)
        .node("ask", async |cx, _s| {
            let Small(one) = cx.ask("one", "A small number?").await?;
            Ok(Context::update().set("one", one))
        })
        .revision(revision)
        .node("late", async |cx, _s| {
            // Older code had a default that was valid at that time.
            let most = MOST.replace(9);
            let ask = Ask::<Small>::new("Another?").deadline(HOUR).or_default(Small(9));
            MOST.set(most);
            let Small(two) = cx.ask_with("two", ask).await?;
            Ok(Context::update().set("two", two))
        })
        .revision(revision)
        .node("end", async |_cx, _s| Ok(Context::update().set("end", true)))
        .revision(revision)
        .entry("ask")
        .edge("ask", "late")
        .edge("late", "end")
        .build()
        .unwrap()
}

pub(super) fn quorum(revision: &str) -> Graph<Context> {
    forked("quorum", revision)
        .node("quick", async |_cx, _s| Ok(Context::update().set("quick", true)))
        .revision(revision)
        .node("asks", async |cx, _s| Ok(Context::update().set("late", cx.ask::<bool>("late", 1).await?)))
        .revision(revision)
        .node("first", async |cx, _s| Ok(Context::update().set("firsts", cx.visit().get())))
        .join(Join::AtLeast(1))
        .revision(revision)
        .node("close", async |cx, _s| Ok(Context::update().set("closed", cx.ask::<bool>("close", 1).await?)))
        .revision(revision)
        .edge("fork", ["quick", "asks"])
        .edge(["quick", "asks"], "first")
        .edge("first", "close")
        .build()
        .unwrap()
}

pub(super) fn errand(revision: &str) -> Graph<Context> {
    begin("errand", revision)
        .node("go", async |cx, _s| {
            let one = hear(&cx, 1).await?;
            let ticket = step(&cx, "ticket").await?;
            let two = hear(&cx, 2).await?;
            Ok(Context::update().set("one", one).set("ticket", ticket).set("two", two))
        })
        .revision(revision)
        .node("home", async |_cx, _s| Ok(Context::update().set("home", true)))
        .checkpoint(NodeCheckpoint::After)
        .revision(revision)
        .node("pay", async |cx, _s| Ok(pay(&cx).await?))
        .effect(Effect::External)
        .revision(revision)
        .entry("go")
        .edge("go", "home")
        .edge("home", "pay")
        .build()
        .unwrap()
}

//! JSON of callers and nodes: records store it in one canonical form, and reject values that could not be read back.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::IntoFuture as _;
use std::sync::Arc;

use async_trait::async_trait;
use ferrata_core::ask::{Answer, Answerer, AnswererQuestion, Ask, Resolution, Shape};
use ferrata_core::graph::{Effect, Graph, Route};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::{ForkRequest, Position, Runtime, StateCell};
use ferrata_core::state::{Context, Draft, Patch, Update};
use ferrata_core::store::{At, CheckpointStore};
use ferrata_core::{Error, ErrorKind, RunKey, Seq};
use serde_json::value::RawValue;

use super::world::World;

/// JSON in another spelling than that of `serde_json`, with numbers that fit neither a float nor a 64-bit integer.
const ODD: &str = r#" { "\u0066\/\ud83d\ude00" : [ "\u0022" , 123456789012345678901234567890.10 ] } "#;
const NORMAL: &str = r#"{"f/😀":["\"",123456789012345678901234567890.10]}"#;

fn odd() -> Box<RawValue> {
    RawValue::from_string(ODD.trim().to_owned()).unwrap()
}

/// JSON that is nested too deeply to be read back from a record.
fn deep() -> Box<RawValue> {
    RawValue::from_string(format!("{}{}", "[".repeat(126), "]".repeat(126))).unwrap()
}

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

/// Checks that every token of a JSON text is spelled as by `serde_json`.
fn is_normal(body: &str) -> bool {
    let mut rest = body;
    while let Some(at) = rest.find(['"', ' ', '\t', '\n', '\r']) {
        rest = &rest[at..];
        let mut texts = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let Some(Ok(text)) = texts.next() else { return false };
        let (token, after) = rest.split_at(texts.byte_offset());
        if token != serde_json::to_string(&text).unwrap() {
            return false;
        }
        rest = after;
    }
    true
}

/// Returns the bodies of a run's records, and checks that all use the canonical spelling.
async fn bodies(store: &dyn CheckpointStore, run: &RunKey) -> Vec<String> {
    let (mut all, mut at) = (Vec::new(), At::Latest);
    loop {
        let records = store.load(run, at).await.unwrap().unwrap();
        all.extend(records.iter().map(|record| String::from_utf8(record.body.to_vec()).unwrap()));
        match records[0].header.seq.get() {
            0 => break,
            first => at = At::Seq(Seq::new(first - 1)),
        }
    }
    for body in &all {
        assert!(is_normal(body), "{body}");
    }
    all
}

/// An answerer that gives the same text to every question.
#[derive(Debug)]
struct Says(fn() -> Box<RawValue>);

#[async_trait]
impl Answerer for Says {
    async fn answer(&self, _asking: &AnswererQuestion) -> Option<Answer> {
        Some(Answer::Accept(self.0()))
    }

    fn name(&self) -> String {
        "says".to_owned()
    }
}

/// A graph with a node that returns JSON wherever a node can, and asks for more.
fn graph() -> Graph<Context> {
    Graph::<Context>::builder("odd")
        .node("all", async |cx: NodeContext, _s: Draft<Context>| {
            cx.step("step", async || Ok::<_, NodeError>(odd())).await?;
            cx.progress(odd()).await?;
            cx.send_out("topic", odd())?;
            let _: Box<RawValue> = cx.receive().await?;
            let ask = Ask::<Box<RawValue>>::shaped(odd(), Shape::any());
            cx.ask_with("asked", ask).await?;
            Ok(Update::from(Context::update()).with_output(odd()))
        })
        .node("item", async |_cx: NodeContext, _s: Draft<Context>| Ok(()))
        .entry("all")
        .route("all", ["item"], |_s: &Context, _| Route::each("item", [odd()]))
        .build()
        .unwrap()
}

/// Wherever raw JSON enters, records store it in the canonical spelling and with its original digits.
#[tokio::test]
async fn raw_json_is_recorded_in_one_spelling() {
    let world = World::new();
    let runtime = world.process().await;
    let run = runtime.start(&graph(), Context::new()).id("r").config(odd()).message(odd()).await.unwrap();
    world.pass(run.wait()).await.unwrap();
    runtime.send(&key(), &*odd()).key("k").await.unwrap();
    // The same message in another spelling.
    let same = RawValue::from_string(NORMAL.to_owned()).unwrap();
    runtime.send(&key(), &*same).key("k").await.unwrap();
    runtime.respond(&key(), "all", Answer::Accept(odd())).await.unwrap();
    world.pass(runtime.resume(&graph(), "r").await.unwrap().completed()).await.unwrap();
    let all = bodies(&world.store, &key()).await.join("\n");
    // There is one match each for the configuration, first message, step, progress, outbox message, question, second message, answer, output and
    // item.
    assert!(all.matches(NORMAL).count() >= 10, "{all}");
}

#[tokio::test]
async fn answerer_json_is_recorded_in_one_spelling() {
    let world = World::new();
    let builder = Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _);
    let runtime = builder.answerer(Says(odd)).build().await.unwrap();
    let run = runtime.start(&graph(), Context::new()).id("r").message(1).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    let all = bodies(&world.store, &key()).await.join("\n");
    assert!(all.contains(&format!("\"accept\":{NORMAL}")), "{all}");
}

/// A run with an `External` node of unknown outcome, which can be edited.
async fn in_doubt(world: &World) -> Runtime {
    let graph = Graph::<Context>::builder("pay")
        .node("pay", async |_cx: NodeContext, _s: Draft<Context>| {
            std::future::pending::<Result<(), _>>().await
        })
        .effect(Effect::External)
        .entry("pay")
        .build()
        .unwrap();
    let (line, runtime) = world.mortal().await;
    runtime.start(&graph, Context::new()).id("r").await.unwrap();
    while bodies(&world.store, &key()).await.len() < 2 {
        tokio::task::yield_now().await;
    }
    line.crash();
    let runtime = world.process().await;
    let run = runtime.resume(&graph, "r").take_over().await.unwrap();
    world.pass(run.wait()).await.unwrap();
    runtime
}

fn patch(value: &RawValue) -> Patch {
    serde_json::from_str(&format!(r#" [ {{ "set" : [ "\u006bey" , {} ] }} ] "#, value.get())).unwrap()
}

/// A patch that a service takes from a request is stored in the canonical spelling.
#[tokio::test]
async fn patches_are_recorded_in_one_spelling() {
    let world = World::new();
    let runtime = in_doubt(&world).await;
    runtime.edit(&key(), patch(&odd())).await.unwrap();
    let merged = patch(&odd()).merge(patch(&odd())).unwrap();
    runtime.edit(&key(), merged).await.unwrap();
    let mut cell = StateCell::new(key());
    cell.load(&runtime).await.unwrap();
    cell.append(&runtime, patch(&odd()), "cell").await.unwrap();
    runtime.respond(&key(), "pay", Resolution::Supply(patch(&odd()))).await.unwrap();
    let all = bodies(&world.store, &key()).await.join("\n");
    let count = all.matches(&format!(r#"{{"set":["key",{NORMAL}]}}"#)).count();
    assert!(count >= 4, "{count} matches: {all}");
}

/// JSON that is nested deeper than a record allows is refused by every call, because no process could read the log.
#[tokio::test]
async fn json_too_deep_is_refused_everywhere() {
    let world = World::new();
    let runtime = in_doubt(&world).await;
    let is_invalid = |result: Result<(), Error>| assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid);
    is_invalid(runtime.edit(&key(), patch(&deep())).await);
    is_invalid(runtime.respond(&key(), "pay", Resolution::Supply(patch(&deep()))).await);
    let fork: ForkRequest = runtime.fork(&key(), Position::Latest);
    is_invalid(fork.edit(patch(&deep())).into_future().await.map(drop));
    runtime.edit(&key(), patch(&odd())).await.unwrap();

    let gate = graph();
    let run = runtime.start(&gate, Context::new()).id("asks").message(1).await.unwrap();
    world.pass(run.wait()).await.unwrap();
    is_invalid(runtime.send(run.run(), deep()).await);
    is_invalid(runtime.respond(run.run(), "all", Answer::Accept(deep())).await);
    runtime.respond(run.run(), "all", Answer::Accept(odd())).await.unwrap();
    world.pass(runtime.resume(&gate, "asks").await.unwrap().completed()).await.unwrap();
}

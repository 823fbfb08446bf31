//! Values that are easily lost in encoding and decoding.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::pending;

use ferrata_core::ask::Answer;
use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph, GraphBuilder, Route};
use ferrata_core::record::{FailureKind, Resolution};
use ferrata_core::runtime::{Outcome, Position, Runtime};
use ferrata_core::state::{Context, Op, Patch, Reducer, Update};
use ferrata_core::store::CheckpointStore;
use ferrata_core::{ErrorKind, RunKey};
use ferrata_testing::Fault;
use serde_json::json;
use serde_json::value::RawValue;

use super::world::World;

/// The output `None` of a node and the item `None` of an activation survive a restart. A field that holds `null` differs from an absent field.
#[tokio::test]
async fn null_output_and_item_survive_restart() {
    let graph = Graph::<Context>::builder("nulls")
        .node("split", async |_cx, _s| Ok(Update::none().with_output(None::<u8>)))
        .node("work", async |cx, _s| {
            let item: Option<u8> = cx.item()?;
            let given: Option<u8> = cx.inputs()[0].output()?;
            assert_eq!(given, None);
            Ok(Update::none().with_output(item))
        })
        .interrupt_before()
        .node("join", async |cx, mut s| {
            let all: Vec<Option<u8>> =
                cx.inputs().iter().map(|input| input.output()).collect::<Result<_, _>>()?;
            s.set("all", all)?;
            Ok(s)
        })
        .interrupt_before()
        .entry("split")
        .route("split", ["work"], |_s, _cx| Route::each("work", [None, Some(1u8)]))
        .edge("work", "join")
        .build()
        .unwrap();
    let world = World::new();
    let run = world.process().await.start(&graph, Context::new()).id("r").await.unwrap();
    let mut outcome = world.pass(run.wait()).await.unwrap();
    for _ in 0..4 {
        let Outcome::Interrupted(questions) = outcome else { break };
        let next = world.process().await;
        for question in questions {
            next.respond(&key("r"), &question.id, Answer::accept(true).unwrap()).await.unwrap();
        }
        let run = next.resume(&graph, "r").await.unwrap();
        outcome = world.pass(run.wait()).await.unwrap();
    }
    let state = outcome.completed().unwrap();
    assert_eq!(state.get::<Vec<Option<u8>>>("all").unwrap().unwrap(), [None, Some(1)]);
}

fn key(id: &str) -> RunKey {
    RunKey::try_from(id).unwrap()
}

/// A graph with an `External` node that never ends by itself.
fn pays() -> GraphBuilder<Context> {
    Graph::<Context>::builder("pays")
        .node("pay", async |_cx, _s| pending::<Result<(), _>>().await)
        .effect(Effect::External)
        .entry("pay")
}

/// A person supplies a node's changes in the stored form, and the run continues with code that reads another form. The migration of the state also
/// migrates the supplied changes.
#[tokio::test]
async fn a_supplied_change_is_migrated_with_the_state() {
    let old = pays().channel("log", Reducer::Append).build().unwrap();
    let new = pays()
        .channel("notes", Reducer::Append)
        .state_version(2)
        .migrate(1, |channels| {
            for (before, now) in [("sent", "done"), ("log", "notes")] {
                if let Some(value) = channels.remove(before) {
                    channels.insert(now.into(), value);
                }
            }
            Ok(())
        })
        .build()
        .unwrap();
    let world = World::new();
    let (store, first) = world.mortal().await;
    let mut input = Context::new();
    input.set("log", ["begun"]).unwrap();
    let _run = first.start(&old, input).id("r").await.unwrap();
    let begun = async {
        while world.store.head(&key("r")).await.unwrap().unwrap().seq.get() < 1 {
            tokio::task::yield_now().await;
        }
    };
    world.pass(begun).await;
    store.plan(store.operations(), Fault::CrashBefore);
    let other = world.process().await;
    let asks = other.resume(&old, "r").take_over().await.unwrap();
    let Outcome::Interrupted(questions) = world.pass(asks.wait()).await.unwrap() else { panic!("not asked") };
    let change = Patch::from_ops(&[
        Op::Set("sent".into(), json!(true)),
        Op::Append("log".into(), vec![json!("paid")]),
    ]);
    let supplied = Resolution::Supply(change.unwrap());
    other.respond(&key("r"), &questions[0].id, supplied).await.unwrap();
    let goes_on = other.resume(&new, "r").await.unwrap();
    let state = world.pass(goes_on.wait()).await.unwrap().completed().unwrap();
    assert_eq!(state.get::<bool>("done").unwrap(), Some(true));
    assert_eq!(state.get::<Vec<String>>("notes").unwrap().unwrap(), ["begun", "paid"]);
    assert!(!state.contains_key("sent") && !state.contains_key("log"));
    other.check_log(&key("r")).await.unwrap();
}

async fn asks(runtime: &Runtime) -> (Graph<Context>, String) {
    let graph = Graph::<Context>::builder("asks")
        .node("one", async |_cx, _s| Ok(()))
        .interrupt_before()
        .node("two", async |_cx, _s| Ok(()))
        .interrupt_before()
        .entry("one")
        .edge("one", "two")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
    let text = runtime.export(&key("r")).await.unwrap();
    (graph, text)
}

/// An import of a log with the largest possible epoch is refused, because the next claim could not increase it.
#[tokio::test]
async fn a_claim_that_cannot_be_counted_is_refused() {
    let world = World::new();
    let runtime = world.process().await;
    let (graph, text) = asks(&runtime).await;
    assert!(text.contains("\"epoch\":1"), "{text}");
    let most = text.replace("\"epoch\":1", "\"epoch\":4294967295");
    let error = runtime.import(&most, Some(key("most"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("epoch"), "{error}");
    let last = text.replace("\"epoch\":1", "\"epoch\":4294967294");
    runtime.import(&last, Some(key("last"))).await.unwrap();
    runtime.respond(&key("last"), "one", Answer::accept(true).unwrap()).await.unwrap();
    let run = runtime.resume(&graph, "last").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
    runtime.respond(&key("last"), "two", Answer::accept(true).unwrap()).await.unwrap();
    let error = runtime.resume(&graph, "last").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("fork it"), "{error}");
}

#[tokio::test]
async fn endless_loop_fails_at_step_limit() {
    let graph = Graph::<Context>::builder("round")
        .node("a", async |_cx, _s| Ok(()))
        .effect(Effect::Pure)
        .entry("a")
        .route("a", ["a"], |_s, _cx| "a")
        .build()
        .unwrap();
    let policy = CheckpointPolicy::default().with_frequency(CheckpointFrequency::StatusChangeOnly);
    let runtime = World::new().process().await;
    let run = runtime.start(&graph, Context::new()).id("r").checkpoints(policy).await.unwrap();
    let Outcome::Failed { failure, .. } = run.wait().await.unwrap() else { panic!("it ended") };
    assert_eq!(failure.kind, FailureKind::MaxSteps);
    assert!(failure.message.contains("at most 10000 are allowed"), "{}", failure.message);
    assert!(failure.message.contains("raise `max_steps`"), "{}", failure.message);
}

/// Any text of an operator or a sender is either rejected by the call, or can be read back with the run.
#[tokio::test]
async fn text_input_is_refused_or_readable() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let values = [
        "1e400".to_owned(),
        "-0.0".to_owned(),
        "9007199254740993".to_owned(),
        u64::MAX.to_string(),
        i64::MIN.to_string(),
        r#"{"a":1,"a":2}"#.to_owned(),
        r#""\u0000\u001b[2J""#.to_owned(),
        r#""\ud800""#.to_owned(),
        r#"{"":{"":null}}"#.to_owned(),
        format!(r#"{{"{}":1}}"#, "k".repeat(10_000)),
        deep(100),
        deep(101),
        deep(127),
        deep(100_000),
    ];
    let world = World::new();
    let runtime = world.process().await;
    let (graph, _) = asks(&runtime).await;
    let mut taken = 0;
    for value in &values {
        for name in ["", r"\u0000", "a.b"] {
            for op in ["set", "append", "merge"] {
                let Ok(patch) = Patch::from_json(&format!(r#"[{{"{op}":["{name}{op}",{value}]}}]"#)) else {
                    continue;
                };
                let edited = runtime.edit(&key("r"), patch.clone()).check_with(&graph).await;
                let untyped = runtime.edit(&key("r"), patch).await;
                for result in [edited, untyped] {
                    taken += u32::from(result.is_ok());
                    assert!(result.is_taken_or(ErrorKind::Invalid), "{op} {name}");
                }
            }
        }
        if let Ok(raw) = RawValue::from_string(value.clone()) {
            let sent = runtime.send(&key("r"), raw).await;
            assert!(sent.is_taken_or(ErrorKind::Invalid));
        }
        runtime.state_at(&graph, &key("r"), Position::Latest).await.unwrap();
    }
    assert!(taken > 30, "{taken} edits were accepted");
    runtime.check_log(&key("r")).await.unwrap();
    let text = runtime.export(&key("r")).await.unwrap();
    runtime.import(&text, Some(key("copy"))).await.unwrap();
    runtime.respond(&key("r"), "one", Answer::accept(true).unwrap()).await.unwrap();
    let run = runtime.resume(&graph, "r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
}

trait Refused {
    /// Whether the result is no error, or an error of this kind.
    fn is_taken_or(&self, kind: ErrorKind) -> bool;
}

impl<T> Refused for ferrata_core::Result<T> {
    fn is_taken_or(&self, kind: ErrorKind) -> bool {
        self.as_ref().err().is_none_or(|error| error.kind() == kind)
    }
}

//! Waiting for a run that no process serves: the caller gets an error instead of waiting forever.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::state::{Context, Draft};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::world::{World, key};

/// Collects the warnings of one thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn about(&self, part: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|text| text.contains(part)).count()
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn asking() -> Graph<Context> {
    Graph::<Context>::builder("asks")
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
        .entry("ok")
        .build()
        .unwrap()
}

fn sleeping() -> Graph<Context> {
    Graph::<Context>::builder("sleeps")
        .node("sleep", async |cx: NodeContext, s: Draft<Context>| {
            cx.sleep(Duration::from_secs(300)).await?;
            Ok(s)
        })
        .entry("sleep")
        .build()
        .unwrap()
}

/// `completed` returns an error if no process serves the workflow: after an answer, and after a timer that was too long to stay in memory.
///
/// Guarantees: CONTROL-19.
#[tokio::test]
async fn unserved_run_is_reported_once() {
    for (graph, asks) in [(asking(), true), (sleeping(), false)] {
        let world = World::new();
        let (_, runtime) = world.process(|b| b).await;
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        world.pass(run.wait()).await.unwrap();
        if asks {
            runtime.respond(&key("r"), "ok", Answer::accept(true).unwrap()).await.unwrap();
        }
        let warnings = Warnings::default();
        let guard = tracing::subscriber::set_default(warnings.clone());
        let error = world.pass(run.completed()).await.unwrap_err();
        drop(guard);
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert!(error.to_string().contains("serve its workflow"), "{error}");
        assert_eq!(warnings.about("call `Runtime::serve` with its graph"), 1, "{:?}", warnings.0);
        runtime.serve(&graph).unwrap();
        world.pass(run.completed()).await.unwrap();
    }
}

/// An idle run causes no warning: a run that waits for an answer needs no process, and another process may serve it after the answer.
///
/// Guarantees: CONTROL-19.
#[tokio::test]
async fn served_run_is_not_reported() {
    let world = World::new();
    let ((_, caller), (_, server)) = (world.process(|b| b).await, world.process(|b| b).await);
    let graph = asking();
    server.serve(&graph).unwrap();
    let run = caller.start(&graph, Context::new()).id("r").await.unwrap();
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    tokio::select! {
        biased;
        ended = run.completed() => panic!("{ended:?}"),
        () = world.pass_for(Duration::from_secs(120)) => {}
    }
    assert_eq!(caller.head(&key("r")).await.unwrap().unwrap().status, RunStatus::Interrupted);
    caller.respond(&key("r"), "ok", Answer::accept(true).unwrap()).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    assert_eq!(warnings.about("Runtime::serve"), 0, "{:?}", warnings.0);
}

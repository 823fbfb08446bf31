//! The operations that a run of a function has recorded, as its log says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ferrata_core::graph::{Graph, Route};
use ferrata_core::node::{NodeError, RecordedKind, RecordedOperation};
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_core::store::MemoryStore;

/// The kind of a recorded operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordedAs {
    Step,
    Value,
    Undo,
    Patch,
    Timer,
    Question,
    Message,
    Child,
}

/// A recorded operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    pub(crate) kind: RecordedAs,
    pub(crate) has_ended: bool,
    /// Whether it has no effect.
    pub(crate) is_safe: bool,
}

/// Reads the recorded operations of a log by name, in a runtime of its own, with a node that only lists them.
pub(crate) async fn recorded(workflow: &str, log: &str) -> BTreeMap<String, Recorded> {
    let listed = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&listed);
    let graph = Graph::<Context>::builder(workflow)
        .node("main", move |cx, _: ferrata_core::state::Draft<Context>| {
            own.lock().unwrap().extend(cx.recorded_operations());
            async { Err::<(), _>(NodeError::new("listed").fatal()) }
        })
        .entry("main")
        .clean_up_on_cancel()
        .route("main", ["main"], |_: &Context, _| Route::none())
        .unlimited_steps()
        .build()
        .unwrap();
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let run = runtime.import(log, None).await.unwrap();
    // It may wait for the message.
    runtime.send(&run, "go on").await.unwrap();
    runtime.resume(&graph, &run).take_over().await.unwrap().wait().await.unwrap();
    let mut all = BTreeMap::new();
    for operation in listed.lock().unwrap().drain(..) {
        add(&mut all, &operation);
    }
    all
}

fn add(all: &mut BTreeMap<String, Recorded>, operation: &RecordedOperation) {
    let name = operation.name.split('.').next().unwrap().to_owned();
    let is_part = operation.name.contains('.');
    let (kind, has_ended) = match &operation.kind {
        RecordedKind::Step(text) => {
            let entry: serde_json::Value = serde_json::from_str(text.get()).unwrap();
            let tag = entry.as_object().unwrap().keys().next().unwrap().clone();
            match tag.as_str() {
                // The failure of an operation that has a record of its own.
                "failed" => {
                    if let Some(known) = all.get_mut(&name) {
                        known.has_ended = true;
                    }
                    return;
                }
                "value" if is_part => return,
                "value" => (RecordedAs::Value, true),
                "undo" => (RecordedAs::Undo, true),
                "patch" => (RecordedAs::Patch, true),
                "read" => {
                    all.insert(name, Recorded { kind: RecordedAs::Step, has_ended: true, is_safe: true });
                    return;
                }
                _ => (RecordedAs::Step, true),
            }
        }
        RecordedKind::Timer { .. } => (RecordedAs::Timer, operation.place.is_some()),
        RecordedKind::Question { is_closed } => (RecordedAs::Question, *is_closed),
        RecordedKind::Message { has_ended } => (RecordedAs::Message, *has_ended),
        RecordedKind::Child { has_ended, .. } => (RecordedAs::Child, *has_ended),
        other => panic!("{other:?}"),
    };
    let is_safe = matches!(kind, RecordedAs::Value | RecordedAs::Patch | RecordedAs::Timer);
    let has_ended = has_ended || all.get(&name).is_some_and(|known| known.has_ended);
    all.insert(name, Recorded { kind, has_ended, is_safe });
}

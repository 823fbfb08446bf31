//! Helpers for tests that run pipelines: a handler that follows attributes of its node, and a run with its path.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ferrata_core::RunKey;
use ferrata_core::graph::Graph;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, HeaderRange, MemoryStore};
use ferrata_dot::Pipeline;
use ferrata_dot::compile::Compiler;
use ferrata_dot::handler::{Handler, HandlerError, Registry, Stage};
use ferrata_dot::outcome::{StageOutcome, Status, Usage};
use ferrata_dot::transform::Transforms;

/// A handler that follows the node's attribute `does`. Blanks separate visits, and commas separate attempts. The last word applies to all further
/// visits or attempts. So a node that restarts after a crash repeats its behavior. The words are `success`, `partial`, `retry`, `fail`, `skipped`,
/// `transient`, `permanent`, `no_status`, `panic` and `hang`. After a `/`, a word may set `label:x`, `next:a+b` or `key:value`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scripted {
    pub(crate) calls: Arc<Mutex<BTreeMap<String, usize>>>,
}

#[async_trait]
impl Handler for Scripted {
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let script = stage.node.attributes.text("does").into_owned();
        *self.calls.lock().unwrap().entry(stage.node.id().to_owned()).or_default() += 1;
        let at = |parts: &str, by: char, at: u32| {
            let parts: Vec<&str> = parts.split(by).filter(|part| !part.is_empty()).collect();
            let at = usize::try_from(at).unwrap() - 1;
            parts.get(at).or(parts.last()).copied().unwrap_or("success").to_owned()
        };
        let visit = at(&script, ' ', stage.cx.visit().get());
        let word = at(&visit, ',', stage.cx.attempt());
        let mut parts = word.split('/');
        let mut outcome = match parts.next().unwrap_or_default() {
            "success" => StageOutcome::success(),
            "partial" => StageOutcome::new(Status::PartialSuccess),
            "retry" => StageOutcome::new(Status::Retry),
            "fail" => StageOutcome::fail(format!("{} failed", stage.node.id())),
            "skipped" => StageOutcome::new(Status::Skipped),
            "transient" => return Err(HandlerError::transient("the network is away")),
            "refused" => return Err(HandlerError::permanent("the card is not known").not_done()),
            "permanent" => return Err(HandlerError::permanent("the key is wrong")),
            "no_status" => return Err(HandlerError::no_status("nobody said")),
            "panic" => panic!("oh no"),
            "hang" => std::future::pending().await,
            other => panic!("unknown word: {other}"),
        };
        for part in parts {
            let (key, value) = part.split_once(':').expect("key:value");
            outcome = match key {
                "label" => outcome.prefer(value),
                "cost" => outcome.with_usage(Usage::new(value.parse().expect("a number"), 10, 0.5)),
                // A list of the values between the plus signs.
                "list" => {
                    outcome.with("list", value.split('+').filter(|one| !one.is_empty()).collect::<Vec<_>>())
                }
                "next" => value.split('+').fold(outcome, StageOutcome::suggest),
                key => outcome.with(key, value),
            };
        }
        Ok(outcome)
    }
}

/// A pipeline with a start, an exit and these statements, whose nodes are scripted.
pub(crate) fn source(statements: &str) -> String {
    format!(
        "digraph G {{ start [shape=Mdiamond] exit [shape=Msquare] node [type=scripted, prompt=x, retry_policy=none] {statements} }}"
    )
}

pub(crate) fn pipeline(source: &str) -> Pipeline {
    let mut pipeline =
        Pipeline::parse(source.as_bytes()).unwrap_or_else(|error| panic!("{}", error.report("test.dot")));
    Transforms::default().apply(&mut pipeline).unwrap();
    pipeline
}

pub(crate) fn registry() -> Registry {
    Registry::default().with("scripted", Scripted::default())
}

pub(crate) fn compile(source: &str, registry: Registry) -> Graph<Context> {
    Compiler::new(registry).compile(&pipeline(source)).unwrap_or_else(|error| panic!("{error}"))
}

/// The end of a run.
pub(crate) struct Ran {
    /// The nodes in the order of their ends.
    pub(crate) path: Vec<String>,
    pub(crate) outcome: Outcome<Context>,
}

impl Ran {
    pub(crate) fn path(&self) -> String {
        self.path.join(" ")
    }

    pub(crate) fn context(&self) -> &Context {
        match &self.outcome {
            Outcome::Completed(context) => context,
            other => panic!("the run did not complete: {other:?}"),
        }
    }

    pub(crate) fn text(&self, key: &str) -> String {
        self.context()
            .get_value(key)
            .map(|value| value.as_str().map_or(value.to_string(), str::to_owned))
            .unwrap_or_default()
    }

    /// The failure message.
    pub(crate) fn failure(&self) -> String {
        match &self.outcome {
            Outcome::Failed { failure, .. } => failure.message.clone(),
            other => panic!("the run did not fail: {other:?}"),
        }
    }
}

pub(crate) async fn path_of(store: &MemoryStore, run: &RunKey) -> Vec<String> {
    let history = store.headers(run, HeaderRange::newest(1000)).await.unwrap();
    let nodes = history.items.iter().filter(|header| header.kind == ferrata_core::record::RecordKind::Node);
    let mut nodes: Vec<_> =
        nodes.map(|header| (header.seq, header.node.as_ref().unwrap().to_string())).collect();
    nodes.sort();
    nodes.into_iter().map(|(_, node)| node).collect()
}

pub(crate) async fn run_with(source: &str, registry: Registry, input: Context) -> Ran {
    let store = MemoryStore::new();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let graph = compile(source, registry);
    let run = runtime.start(&graph, input).id("r").await.unwrap();
    let outcome = run.wait().await.unwrap();
    let path = path_of(&store, run.run()).await;
    Ran { path, outcome }
}

pub(crate) async fn run(statements: &str) -> Ran {
    run_with(&source(statements), registry(), Context::new()).await
}

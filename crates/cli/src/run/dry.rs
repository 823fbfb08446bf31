//! The option `--dry-run`: follows the path through a pipeline without executing, asking or storing anything.

use std::sync::Arc;

use async_trait::async_trait;
use ferrata::ask::AutomaticAnswerer;
use ferrata::store::{Order, Page};
use ferrata::{Effect, MemoryStore, Outcome, Runtime};
use ferrata_dot::handler::{Handler, HandlerError, Manager, Registry, Stage};
use ferrata_dot::outcome::StageOutcome;
use ferrata_dot::transform::Transforms;
use ferrata_dot::value::Value;
use serde_json::json;

use super::load::LoadedPipeline;
use super::report;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;

/// Default limit for visits of a node. Without it, an endless loop would run forever.
const VISITS: i64 = 10;

/// A backend whose tasks succeed without work.
#[derive(Debug)]
struct DryRunBackend;

#[async_trait]
impl Handler for DryRunBackend {
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let outcome = StageOutcome::success().with_notes("not executed");
        Ok(outcome.with("last_stage", stage.node.id()))
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }
}

/// Follows the path through a pipeline and prints it.
pub(super) async fn run(
    context: &CommandContext,
    mut loaded: LoadedPipeline,
    input: ferrata::Context,
) -> Result<ExitReason, CommandFailure> {
    // The handlers first check their nodes, as for a real run.
    let manager =
        Manager::with(Registry::default(), Transforms::in_directory(loaded.folder()), loaded.folder());
    let judged = loaded.with(Registry::default().with("stack.manager_loop", manager), None)?;
    loaded.warn(&judged, |line| context.out.note(line));
    let pipeline = Arc::make_mut(&mut loaded.pipeline);
    if pipeline.attributes.get("max_node_visits").is_none() {
        pipeline.attributes.set("max_node_visits", Value::Integer(VISITS));
    }
    let mut registry = Registry::default();
    for kind in ["tool", "codergen", "prompt", "wait", "stack.manager_loop"] {
        registry = registry.with(kind, DryRunBackend);
    }
    let graph = loaded.with(registry, None)?.graph;
    let runtime = Runtime::builder(MemoryStore::new()).answerer(AutomaticAnswerer).build().await?;
    let run = runtime.start(&graph, input).id("dry-run").await?;
    let outcome = run.wait().await?;
    let mut path = Vec::new();
    let mut page = Page::first(Page::MAX).with_order(Order::OldestFirst);
    loop {
        let found = runtime.history(run.run(), page).await?;
        let nodes = found.items.into_iter().filter(|header| header.kind == ferrata::record::RecordKind::Node);
        path.extend(nodes.filter_map(|header| header.node).map(|node| node.to_string()));
        match found.next {
            Some(next) => page = Page::first(Page::MAX).with_order(Order::OldestFirst).with_cursor(next),
            None => break,
        }
    }
    let (status, reason, exit) = match &outcome {
        Outcome::Completed(_) => ("completed", None, ExitReason::Done),
        Outcome::Failed { failure, .. } => ("failed", Some(failure.to_string()), ExitReason::RunFailed),
        Outcome::Interrupted(questions) => {
            let asked: Vec<&str> = questions.iter().map(|question| question.id.as_str()).collect();
            (
                "interrupted",
                Some(format!("only a person can answer {}", asked.join(", "))),
                ExitReason::Waiting,
            )
        }
        _ => ("stopped", None, ExitReason::RunFailed),
    };
    let told = json!({"dry_run": true, "pipeline": loaded.pipeline.name(), "status": status, "path": path, "reason": reason});
    report::result(context, &told, "dry-run")?;
    if let Some(reason) = reason {
        context.out.note(&format!("the dry run ended early: {reason}"));
    }
    Ok(exit)
}

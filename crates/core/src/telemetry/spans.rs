//! The tracing spans of the library. There is a span for a driven run, an attempt, a step, a batch of appends and a call of the store.
//!
//! An activation has no span, because it may be idle for months and continue in another process. The spans of its attempts contain the node and the
//! visit.

use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::{Span, debug_span, info_span};

use super::Operation;
use super::trace::{TraceContext, TraceParent};
use crate::id::{NodeName, RunKey, Visit, WorkflowName};
use crate::record::RunStatus;

/// Creates the span of a start, which is the parent of the run's spans in all processes. The span ends when the start is recorded, so it is not lost
/// if the process is killed later. If `parent` is present, it is the parent of the span. The span exists only if traces cross processes.
pub(crate) fn start(
    workflow: &WorkflowName,
    context: Option<&dyn TraceContext>,
    parent: Option<&TraceParent>,
) -> Span {
    let Some(context) = context else { return Span::none() };
    let Some(parent) = parent else { return info_span!("ferrata.start", workflow.name = %workflow) };
    let span = info_span!(parent: None, "ferrata.start", workflow.name = %workflow);
    context.set_parent(&span, parent);
    span
}

/// Creates the span of a run while this process drives it. It belongs to the trace of the run's start, and links to the span of the resume.
pub(crate) fn run(
    run: &RunKey,
    workflow: &WorkflowName,
    context: Option<&dyn TraceContext>,
    start: Option<&str>,
) -> Span {
    let start = start.and_then(|start| TraceParent::new(start).ok());
    let (Some(context), Some(start)) = (context, start) else {
        return info_span!("ferrata.run", run.id = %run, workflow.name = %workflow, run.status = Empty);
    };
    let caller = context.trace_parent(&Span::current());
    let span =
        info_span!(parent: None, "ferrata.run", run.id = %run, workflow.name = %workflow, run.status = Empty);
    context.set_parent(&span, &start);
    if let Some(caller) = caller.filter(|caller| *caller != start) {
        context.add_link(&span, &caller);
    }
    span
}

/// Records the status of the current span's run.
pub(crate) fn record_status(status: RunStatus) {
    Span::current().record("run.status", status.as_str());
}

/// Returns whether spans of this level are enabled. It is checked before a span is created: if the crate `log` is used, even a span without a
/// subscriber costs more than the rest of a small node.
fn is_on() -> bool {
    LevelFilter::current() >= LevelFilter::DEBUG
}

/// Creates the span of an attempt, if enabled.
pub(crate) fn attempt(run: &RunKey, node: &NodeName, visit: Visit, attempt: u32) -> Option<Span> {
    let span = is_on().then(|| {
        debug_span!(
            "ferrata.node", run.id = %run, node.id = %node, node.visit = %visit, attempt, error.type = Empty, otel.status_code = Empty
        )
    });
    span.filter(|span| !span.is_disabled())
}

/// Creates the span of a step, if enabled.
pub(crate) fn step(name: &str) -> Option<Span> {
    let span = is_on()
        .then(|| debug_span!("ferrata.step", step.name = name, error.type = Empty, otel.status_code = Empty));
    span.filter(|span| !span.is_disabled())
}

/// Marks the current span as failed.
pub(crate) fn failed(kind: &'static str) {
    let span = Span::current();
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
}

/// Returns the parent span for an append.
pub(crate) fn origin() -> Span {
    if is_on() { Span::current() } else { Span::none() }
}

/// Creates the span of a batch of appends. Its parent is the span of the first append, and it has links to the spans of the others.
pub(crate) fn batch<'a>(mut origins: impl ExactSizeIterator<Item = &'a Span>) -> Option<Span> {
    if !is_on() {
        return None;
    }
    let runs = origins.len();
    let first = origins.next()?;
    let span = debug_span!(parent: first, "ferrata.append", runs);
    for other in origins {
        span.follows_from(other);
    }
    (!span.is_disabled()).then_some(span)
}

/// Creates the span of a store call, if such spans are enabled and there is a parent span. A poll for runs, for example, belongs to no trace.
pub(crate) fn store(operation: Operation, store: &'static str) -> Option<Span> {
    if !is_on() || Span::current().is_none() {
        return None;
    }
    let span = debug_span!(
        "ferrata.store", otel.name = operation.name(), otel.kind = "client", store.name = store, error.type = Empty,
        otel.status_code = Empty
    );
    (!span.is_disabled()).then_some(span)
}

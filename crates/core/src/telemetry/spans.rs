//! The spans of the library: of a run while it is driven, of an attempt, of a step, of a batch of appends and of a call to the store.
//!
//! An activation has no span of its own: it may rest for months and go on elsewhere. Its attempts name node and visit.

use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::{Span, debug_span, info_span};

use super::Operation;
use super::trace::{TraceContext, TraceParent};
use crate::id::{NodeName, RunKey, Visit, WorkflowName};
use crate::record::RunStatus;

/// Makes the span of a start, which runs hang on in other processes: it ends as soon as the start is recorded, so a kill does not take it
/// along. Below `parent` if that is said, and only if spans reach over processes.
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

/// Makes the span of a run for the time that it is driven here. It goes on in the trace of the run's start, and is linked to whoever has it
/// resumed.
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

/// Notes how the run of the current span stands.
pub(crate) fn settled(status: RunStatus) {
    Span::current().record("run.status", status.as_str());
}

/// Whether spans of this detail are wanted. Asked first: where `log` is enabled, even a span without a subscriber costs more than the rest of a
/// small node.
fn is_on() -> bool {
    LevelFilter::current() >= LevelFilter::DEBUG
}

/// Makes the span of an attempt, if it is wanted.
pub(crate) fn attempt(run: &RunKey, node: &NodeName, visit: Visit, attempt: u32) -> Option<Span> {
    let span = is_on().then(|| {
        debug_span!(
            "ferrata.node", run.id = %run, node.id = %node, node.visit = %visit, attempt, error.type = Empty, otel.status_code = Empty
        )
    });
    span.filter(|span| !span.is_disabled())
}

/// Makes the span of the work of a step, if it is wanted.
pub(crate) fn step(name: &str) -> Option<Span> {
    let span = is_on()
        .then(|| debug_span!("ferrata.step", step.name = name, error.type = Empty, otel.status_code = Empty));
    span.filter(|span| !span.is_disabled())
}

/// Notes that what the current span is of has failed.
pub(crate) fn failed(kind: &'static str) {
    let span = Span::current();
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
}

/// Returns the span that an append is to be seen below.
pub(crate) fn origin() -> Span {
    if is_on() { Span::current() } else { Span::none() }
}

/// Makes the span of a batch of appends: below the first of them, and linked to the others.
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

/// Makes the span of a call to a store, if it is wanted and is a part of something: a look for runs to take up is of no trace.
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

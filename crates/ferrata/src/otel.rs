//! Connects the spans of this process with OpenTelemetry's traces across processes.

use ferrata_core::runtime::{TraceContext, TraceParent};
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Creates one trace of a run across all processes that drive it, if `tracing-opentelemetry` exports the spans.
///
/// A start records the caller's current span, and every process that drives the run continues that trace. The record also says whether the trace is
/// sampled. So a parent-based sampler decides for the whole run as for its start. The `tracestate` is not recorded.
///
/// # Examples
///
/// ```
/// use ferrata::{MemoryStore, OpenTelemetry, Runtime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder(MemoryStore::new()).trace_context(OpenTelemetry::new()).build().await?;
/// # drop(runtime);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct OpenTelemetry {}

impl OpenTelemetry {
    /// Finds the layer of `tracing-opentelemetry` in the installed subscriber.
    pub fn new() -> Self {
        Self {}
    }
}

impl TraceContext for OpenTelemetry {
    fn trace_parent(&self, span: &Span) -> Option<TraceParent> {
        let context = span.context();
        let at = context.span().span_context().clone();
        let flags = at.trace_flags().to_u8();
        let text = || format!("00-{}-{}-{flags:02x}", at.trace_id(), at.span_id());
        at.is_valid().then(text).and_then(|text| TraceParent::new(text).ok())
    }

    fn set_parent(&self, span: &Span, parent: &TraceParent) {
        if let Some(parent) = remote(parent) {
            // Without the layer there is no trace to continue.
            let _ = span.set_parent(Context::new().with_remote_span_context(parent));
        }
    }

    fn add_link(&self, span: &Span, to: &TraceParent) {
        if let Some(to) = remote(to) {
            span.add_link(to);
        }
    }
}

fn remote(parent: &TraceParent) -> Option<SpanContext> {
    let trace = TraceId::from_hex(parent.trace()).ok()?;
    let span = SpanId::from_hex(parent.span()).ok()?;
    Some(SpanContext::new(trace, span, TraceFlags::new(parent.flags()), true, TraceState::default()))
}

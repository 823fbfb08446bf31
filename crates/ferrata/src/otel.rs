//! The way between the spans of this process and OpenTelemetry's traces, which reach over processes.

use ferrata_core::runtime::{TraceContext, TraceParent};
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Makes one trace of a run over all processes that drive it, where `tracing-opentelemetry` exports the spans.
///
/// A start records where the caller's current span stands in its trace; whoever drives the run goes on from there. A trace that is
/// not sampled is recorded as such, so that a sampler that asks the parent leaves out the rest of the run, too. What a `tracestate`
/// holds is not recorded.
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
    /// The way to the layer of `tracing-opentelemetry` in the subscriber that is installed.
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
            // Without the layer there is no trace that it could go on in.
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

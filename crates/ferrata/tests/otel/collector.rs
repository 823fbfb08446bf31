//! A collector that writes one line to a file at the start and at the end of each span, so that the open spans of a killed process are known.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanProcessor};
use serde::{Deserialize, Serialize};
use tracing_subscriber::layer::SubscriberExt as _;

/// A span in the collector's file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) process: String,
    pub(crate) ended: bool,
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) links: Vec<String>,
    pub(crate) attributes: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Collector {
    process: String,
    file: Mutex<File>,
}

impl Collector {
    fn tell(&self, span: &SpanData, ended: bool) {
        let attributes = span.attributes.iter().map(|one| (one.key.to_string(), one.value.to_string()));
        let line = Line {
            process: self.process.clone(),
            ended,
            name: span.name.to_string(),
            trace: span.span_context.trace_id().to_string(),
            id: span.span_context.span_id().to_string(),
            parent: span.parent_span_id.to_string(),
            links: span.links.iter().map(|link| link.span_context.span_id().to_string()).collect(),
            attributes: attributes.collect(),
        };
        let mut text = serde_json::to_vec(&line).unwrap();
        text.push(b'\n');
        self.file.lock().unwrap().write_all(&text).unwrap();
    }
}

impl SpanProcessor for Collector {
    fn on_start(&self, span: &mut Span, _cx: &Context) {
        if let Some(span) = span.exported_data() {
            self.tell(&span, false);
        }
    }

    fn on_end(&self, span: SpanData) {
        self.tell(&span, true);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Creates a subscriber that writes its spans to a file.
pub(crate) fn subscriber(
    process: &str,
    file: &Path,
    sampler: Sampler,
) -> impl tracing::Subscriber + Send + Sync + 'static {
    let file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    let collector = Collector { process: process.to_owned(), file: Mutex::new(file) };
    let provider = SdkTracerProvider::builder().with_span_processor(collector).with_sampler(sampler).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    tracing_subscriber::registry().with(layer)
}

/// Reads the collected spans.
pub(crate) fn collected(file: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

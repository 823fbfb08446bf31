//! Measures what metrics and traces cost, in turn with the same work without them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use ferrata::graph::{CheckpointFrequency, Effect, Graph};
use ferrata::store::MemoryStore;
use ferrata::{OpenTelemetry, Runtime, metrics as measured};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing_subscriber::layer::{Context, Filter, Layer as _, SubscriberExt as _};

use super::Table;
use super::runs::{NODES, all};
use crate::graphs::{self, Small};
use crate::measure::{Rounds, in_turn};
use crate::row::{Goal, Row};
use crate::space::{Kind, Space};

/// Number of concurrent runs on a store.
const WIDTH: usize = 64;

/// Whether metrics are recorded and spans are created.
static RECORDS: AtomicBool = AtomicBool::new(false);
static TRACES: AtomicBool = AtomicBool::new(false);

/// A metrics recorder that can be switched off. A process keeps its recorder forever, but the workload is measured with and without it in turn.
struct Switched(PrometheusRecorder);

fn records() -> bool {
    RECORDS.load(Ordering::Relaxed)
}

impl Recorder for Switched {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.0.describe_counter(key, unit, help);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.0.describe_gauge(key, unit, help);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.0.describe_histogram(key, unit, help);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        if records() { self.0.register_counter(key, metadata) } else { Counter::noop() }
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        if records() { self.0.register_gauge(key, metadata) } else { Gauge::noop() }
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        if records() { self.0.register_histogram(key, metadata) } else { Histogram::noop() }
    }
}

/// A filter that admits spans, or almost none, as if there were no subscriber.
struct Switch;

impl<S> Filter<S> for Switch {
    fn enabled(&self, _metadata: &tracing::Metadata<'_>, _cx: &Context<'_, S>) -> bool {
        TRACES.load(Ordering::Relaxed)
    }

    fn callsite_enabled(&self, _metadata: &'static tracing::Metadata<'static>) -> Interest {
        if TRACES.load(Ordering::Relaxed) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(if TRACES.load(Ordering::Relaxed) { LevelFilter::DEBUG } else { LevelFilter::OFF })
    }
}

fn set_traces(on: bool) {
    TRACES.store(on, Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

/// Installs the recorder and the subscriber once.
fn installed() -> Result<&'static PrometheusHandle> {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    if let Some(handle) = HANDLE.get() {
        return Ok(handle);
    }
    let mut builder = PrometheusBuilder::new();
    for metric in measured::ALL.iter().filter(|metric| metric.kind == measured::MetricKind::Histogram) {
        let buckets = if metric.unit == "s" { measured::SECONDS } else { measured::BATCHES };
        builder = builder.set_buckets_for_metric(Matcher::Full(metric.name.into()), buckets)?;
    }
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(Switched(recorder)).ok().context("there is a recorder already")?;
    let provider = SdkTracerProvider::builder().with_sampler(Sampler::AlwaysOff).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("bench")).with_filter(Switch);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
    Ok(HANDLE.get_or_init(|| handle))
}

/// Measures the rows in memory.
pub(crate) async fn in_memory(table: &mut Table) -> Result<()> {
    const NODES: usize = 1_000;
    if !table.wants("core/metrics") {
        return Ok(());
    }
    let handle = installed()?;
    let graph = graphs::chain(NODES, Effect::Pure)?;
    let chain = async |on| {
        RECORDS.store(on, Ordering::Relaxed);
        let runtime = Runtime::builder(MemoryStore::new()).build().await?;
        let disabled = CheckpointFrequency::Disabled;
        let ended = graphs::run_with(&runtime, &graph, Small::default(), disabled).await?;
        RECORDS.store(false, Ordering::Relaxed);
        ensure!(ended.count == NODES as u64, "the chain lost a node");
        anyhow::Ok(())
    };
    let rounds = Rounds::warm(table.args.scaled(31, 5));
    let pair = in_turn(rounds, [NODES as f64; 2], async || chain(true).await, async || chain(false).await);
    let name = "chain of 1,000 `Pure` nodes, checkpoints disabled, metrics recorded for Prometheus";
    let row = Row::pair("core/metrics", name, "without metrics", "µs/node", pair.await?, Goal::Extra(0.15));
    table.push(row);
    handle.run_upkeep();
    Ok(())
}

/// Measures the rows of many concurrent runs on a store.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let name = Kind::of(server)?.name();
    let (metrics, traces) = (format!("{name}/runs-64-metrics"), format!("{name}/runs-64-traces"));
    if !(table.wants(&metrics) || table.wants(&traces)) {
        return Ok(());
    }
    let handle = installed()?;
    let space = Space::make(server).await?;
    let graph = graphs::chain(NODES, Effect::Write)?;
    let workload = |what| format!("{WIDTH} runs of {NODES} `Write` nodes, {name}, {what}");
    let units = [(WIDTH * NODES) as f64; 2];
    let rounds = Rounds::warm(table.args.scaled(15, 2));
    let without = runtime(&space, &graph, false).await?;
    if table.wants(&metrics) {
        let with = runtime(&space, &graph, true).await?;
        let work = async |runtime| all(runtime, &graph, WIDTH).await.map(drop);
        let pair = in_turn(rounds, units, async || work(&with).await, async || work(&without).await);
        let workload = workload("metrics recorded for Prometheus");
        let row = Row::pair(metrics, workload, "without metrics", "µs/node", pair.await?, Goal::Times(1.03));
        table.push(row);
        handle.run_upkeep();
    }
    if table.wants(&traces) {
        let with = Runtime::builder_with(space.open()?).trace_context(OpenTelemetry::new()).build().await?;
        let work = async |runtime, on| {
            set_traces(on);
            let done = all(runtime, &graph, WIDTH).await;
            set_traces(false);
            done.map(drop)
        };
        let pair =
            in_turn(rounds, units, async || work(&with, true).await, async || work(&without, false).await);
        let workload = workload("spans made and none sampled");
        let row = Row::pair(traces, workload, "without spans", "µs/node", pair.await?, Goal::Times(1.05));
        table.push(row);
    }
    space.remove().await
}

/// Opens a runtime that records or does not record. A runtime creates its metric handles when it is built, and at the first run of a workflow.
async fn runtime(space: &Space, graph: &Graph<Small>, on: bool) -> Result<Runtime> {
    RECORDS.store(on, Ordering::Relaxed);
    let runtime = super::runtime(space).await?;
    runtime.start(graph, Small::default()).await?.wait().await?;
    RECORDS.store(false, Ordering::Relaxed);
    Ok(runtime)
}

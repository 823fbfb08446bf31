//! Metrics for Prometheus. `/metrics` reports on the runs that are active at the same time.
//!
//! ```text
//! cargo run --features metrics --example metrics -- 127.0.0.1:9464
//! ```
#![expect(clippy::print_stdout, reason = "whoever starts it must know where it listens")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use ferrata::metrics::{ALL, BATCHES, MetricKind, SECONDS};
use ferrata::prelude::*;
use ferrata::{Clock, MemoryStore, RetryPolicy, SystemClock};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;

/// Interval of new orders, and of the exporter's upkeep.
const INTERVAL: Duration = Duration::from_millis(100);

/// Installs the recorder. Call it before the runtime is built, because the runtime then creates its metric handles.
fn install() -> Result<PrometheusHandle, Box<dyn Error>> {
    let mut builder = PrometheusBuilder::new().with_recommended_naming(true);
    for metric in ALL.iter().filter(|metric| metric.kind == MetricKind::Histogram) {
        let buckets = if metric.unit == "s" { SECONDS } else { BATCHES };
        builder = builder.set_buckets_for_metric(Matcher::Full(metric.name.into()), buckets)?;
    }
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder)?;
    Ok(handle)
}

/// An order. The payment sometimes fails and is retried.
fn graph() -> Result<Graph<Context>, ferrata::graph::GraphError> {
    Graph::<Context>::builder("order")
        .node("pay", async |cx, mut s| {
            let number: u64 = s.get("number")?.unwrap_or_default();
            if number.is_multiple_of(3) && cx.attempt() == 1 {
                return Err(NodeError::new("the card was refused"));
            }
            s.set("paid", true)?;
            Ok(s)
        })
        .retry(RetryPolicy::none().with_attempts(3).with_delay(Duration::from_millis(10)))
        .node("ship", async |_cx, mut s| {
            s.set("shipped", true)?;
            Ok(s)
        })
        .entry("pay")
        .edge("pay", "ship")
        .build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let handle = Arc::new(install()?);
    let (graph, clock) = (graph()?, SystemClock::new());
    let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    runtime.serve(&graph)?;

    let listener = TcpListener::bind(&address).await?;
    println!("metrics on http://{}/metrics", listener.local_addr()?);
    let rendered = Arc::clone(&handle);
    let routes = Router::new().route("/metrics", get(async move || rendered.render()));
    let orders = async {
        for number in 0_u64.. {
            let mut order = Context::new();
            order.set("number", number)?;
            runtime.start(&graph, order).await?;
            clock.sleep(INTERVAL).await;
            handle.run_upkeep();
        }
        Ok::<_, Box<dyn Error>>(())
    };
    tokio::select! {
        served = axum::serve(listener, routes) => served?,
        placed = orders => placed?,
        _ = tokio::signal::ctrl_c() => {}
    }
    runtime.shutdown(Duration::from_secs(1)).await?;
    Ok(())
}

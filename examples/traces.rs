//! One trace of a run over two processes, sent to an OpenTelemetry collector. The first process is killed.
//!
//! ```text
//! cargo run --features otlp --example traces [-- --store URL]
//! ```
//!
//! `OTEL_EXPORTER_OTLP_ENDPOINT` names the collector, by default `http://localhost:4318`. The program starts
//! itself as a child process that receives a request, kills it with `kill -9`, and then claims its run.
#![expect(clippy::print_stdout, reason = "it shows what happens")]
#![expect(clippy::print_stderr, reason = "errors of a command go there")]

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::{Clock, IdSource, OpenTelemetry, RandomIds, RunKey, SystemClock};
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Instrument as _, Level, info_span};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, Registry};

const USAGE: &str = "\
usage: traces [--store URL]

  --store URL  where the run is recorded (default: file:.ferrata)

OTEL_EXPORTER_OTLP_ENDPOINT names the collector (default: http://localhost:4318)";

const STORE: &str = "file:.ferrata";

/// The line by which the child asks to be killed.
const KILL_ME: &str = "stops in `pack` and waits for its end";

/// The exporter of spans, and whether this process is the one that is killed.
struct Process {
    spans: SdkTracerProvider,
    dies: bool,
}

/// Sends the spans of this process to the collector.
fn install() -> Result<SdkTracerProvider, Box<dyn Error>> {
    let exporter = SpanExporter::builder().with_http().build()?;
    let process = KeyValue::new("process.pid", i64::from(std::process::id()));
    let resource = Resource::builder().with_service_name("orders").with_attribute(process).build();
    let spans = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let layer = tracing_opentelemetry::layer().with_tracer(spans.tracer("traces"));
    // The spans of runs have the level info. The spans of their nodes, steps and store calls have the level debug.
    let wanted = Targets::new().with_target("ferrata", Level::DEBUG).with_target("traces", Level::INFO);
    tracing::subscriber::set_global_default(Registry::default().with(layer.with_filter(wanted)))?;
    Ok(spans)
}

/// An order. A child run prints its label.
fn graph() -> Result<Graph<Context>, GraphError> {
    let label =
        Graph::<Context>::builder("label").node("print", async |_cx, s| Ok(s)).entry("print").build()?;
    Graph::<Context>::builder("order")
        .node("pay", async |cx: NodeContext, mut s: Draft<Context>| {
            let receipt: u32 = cx.step("charge", async || Ok::<_, NodeError>(4711)).await?;
            s.set("receipt", receipt)?;
            Ok(s)
        })
        .node("pack", async |cx: NodeContext, s: Draft<Context>| {
            let process = cx.resource::<Process>();
            if process.dies {
                // The kill loses unsent spans. Send all ended spans first, so that the trace is complete.
                let spans = process.spans.clone();
                tokio::task::spawn_blocking(move || spans.force_flush()).await??;
                println!("process {}: {KILL_ME}", std::process::id());
                std::future::pending::<()>().await;
            }
            Ok(s)
        })
        .node("send", move |cx: NodeContext, s: Draft<Context>| {
            let label = label.clone();
            async move {
                cx.child(&label, Context::new()).await?;
                Ok(s)
            }
        })
        .entry("pay")
        .edge("pay", "pack")
        .edge("pack", "send")
        .build()
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ended = match args[..] {
        ["-h" | "--help"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        [] => traces(STORE).await,
        ["--store", url] => traces(url).await,
        // The program starts its child with this argument.
        ["--store", url, "--child", id] => child(url, id).await,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn build(url: &str, dies: bool) -> Result<(Runtime, SdkTracerProvider), Box<dyn Error>> {
    let (store, spans) = (ferrata_examples::open(url)?, install()?);
    let process = Process { spans: spans.clone(), dies };
    let runtime =
        Runtime::builder_with(store).trace_context(OpenTelemetry::new()).resource(process).build().await?;
    Ok((runtime, spans))
}

async fn child(url: &str, id: &str) -> Result<(), Box<dyn Error>> {
    let (runtime, _spans) = build(url, true).await?;
    // In a service, this is the span of the web server, which continues the `traceparent` of the request.
    let start = runtime.start(&graph()?, Context::new()).id(id).into_future();
    let run = start.instrument(info_span!("POST /orders")).await?;
    let ended = run.wait().await?;
    Err(format!("this process was to be killed, and its run has ended: {ended:?}").into())
}

async fn traces(url: &str) -> Result<(), Box<dyn Error>> {
    let id = format!("order-{}", RandomIds::new().next(SystemClock::new().now()));
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--store", url, "--child", &id])
        .stdout(Stdio::piped())
        .spawn()?;
    let said = child.stdout.take().ok_or("the child has no output")?;
    for line in BufReader::new(said).lines() {
        let line = line?;
        println!("{line}");
        if line.ends_with(KILL_ME) {
            // SIGKILL: the child cannot catch it.
            child.kill()?;
        }
    }
    let ended = child.wait()?;
    println!("the child ended with {ended}; process {} continues", std::process::id());
    if ended.code().is_some() {
        return Err(
            "the child was not killed; is there a collector where OTEL_EXPORTER_OTLP_ENDPOINT says?".into()
        );
    }

    let (runtime, spans) = build(url, false).await?;
    let run = RunKey::try_from(&*id)?;
    let resumed = runtime.resume(&graph()?, &run).take_over().into_future();
    resumed.instrument(info_span!("ferrata resume")).await?.completed().await?;
    let head = runtime.head(&run).await?.ok_or("the run is gone")?;
    runtime.shutdown(Duration::ZERO).await?;
    tokio::task::spawn_blocking(move || spans.shutdown()).await??;
    // `00-TRACE-SPAN-FLAGS`. Every process continues this trace.
    let parent = head.facts.labels.get("ferrata.trace").ok_or("the run has no trace")?;
    println!("the run completed; its trace is {}", parent.split('-').nth(1).unwrap_or_default());
    Ok(())
}

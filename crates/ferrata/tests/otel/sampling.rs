//! The sampling decision of a trace is made once, and a caller's decision is recorded.

use ferrata::runtime::TraceParent;
use ferrata::testing::LedgerStore;
use ferrata::{CheckpointStore, Context, ErrorKind, Graph, MemoryStore, OpenTelemetry, RunKey, Runtime};
use opentelemetry_sdk::trace::Sampler;
use tracing::Instrument as _;

use crate::collector::{collected, subscriber};

fn graph() -> Graph<Context> {
    Graph::<Context>::builder("w").node("a", async |_cx, s| Ok(s)).entry("a").build().unwrap()
}

async fn runtime(store: &MemoryStore) -> Runtime {
    Runtime::builder(store.clone()).trace_context(OpenTelemetry::new()).build().await.unwrap()
}

async fn recorded(store: &MemoryStore, run: &str) -> Option<TraceParent> {
    let head = store.head(&RunKey::try_from(run).unwrap()).await.unwrap().unwrap();
    head.facts.labels.get("ferrata.trace").map(|text| TraceParent::new(text).unwrap())
}

const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const LEFT_OUT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// Guarantees: TRACE-2.
#[tokio::test]
async fn a_trace_that_is_not_sampled_stays_so() {
    let (folder, store) = (tempfile::tempdir().unwrap(), MemoryStore::new());
    let file = folder.path().join("spans");
    let sampler = Sampler::ParentBased(Box::new(Sampler::AlwaysOn));
    let _installed = tracing::subscriber::set_default(subscriber("one", &file, sampler));
    let runtime = runtime(&store).await;
    runtime
        .start(&graph(), Context::new())
        .id("out")
        .trace_parent(LEFT_OUT)
        .await
        .unwrap()
        .completed()
        .await
        .unwrap();
    assert!(collected(&file).is_empty());
    let out = recorded(&store, "out").await.unwrap();
    assert_eq!((out.trace(), out.flags()), ("0af7651916cd43dd8448eb211c80319c", 0));

    runtime
        .start(&graph(), Context::new())
        .id("in")
        .trace_parent(SAMPLED)
        .await
        .unwrap()
        .completed()
        .await
        .unwrap();
    let spans = collected(&file);
    assert!(spans.iter().any(|span| span.name == "ferrata.node" && span.ended));
    assert!(spans.iter().all(|span| span.trace == "0af7651916cd43dd8448eb211c80319c"), "{spans:#?}");
    assert!(spans.iter().any(|span| span.name == "ferrata.start" && span.parent == "b7ad6b7169203331"));
}

/// Guarantees: TRACE-3.
#[tokio::test]
async fn start_trace_is_recorded_only_if_present() {
    let store = MemoryStore::new();
    let runtime = runtime(&store).await;
    let start = |id| runtime.start(&graph(), Context::new()).id(id);
    start("without").await.unwrap();
    assert_eq!(recorded(&store, "without").await, None, "no layer exports spans");
    start("said").trace_parent(SAMPLED).await.unwrap();
    assert_eq!(recorded(&store, "said").await.unwrap().as_str(), SAMPLED);
    let refused = start("wrong").trace_parent("00-0-0-01").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let refused = start("set").label("ferrata.trace", SAMPLED).await.unwrap_err();
    assert!(refused.to_string().contains("trace_parent"), "{refused}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("spans");
    let _installed = tracing::subscriber::set_default(subscriber("one", &file, Sampler::AlwaysOn));
    let request = tracing::info_span!("request");
    start("within").into_future().instrument(request).await.unwrap().completed().await.unwrap();
    let request = collected(&file).into_iter().find(|span| span.name == "request").unwrap();
    assert_eq!(recorded(&store, "within").await.unwrap().trace(), request.trace);
    // A fork is another run, and belongs to another request.
    let source = RunKey::try_from("within").unwrap();
    let fork = runtime.fork(&source, ferrata::Seq::new(0)).id("fork").await.unwrap();
    assert_eq!(recorded(&store, fork.run.as_str()).await, None);
}

/// A run that starts within a transaction of the application has a start span, like any other run.
///
/// Guarantees: TRACE-4.
#[tokio::test]
async fn start_in_transaction_has_start_span() {
    let (folder, store) = (tempfile::tempdir().unwrap(), LedgerStore::new());
    let file = folder.path().join("spans");
    let _installed = tracing::subscriber::set_default(subscriber("one", &file, Sampler::AlwaysOn));
    let runtime = Runtime::builder(store.clone()).trace_context(OpenTelemetry::new()).build().await.unwrap();
    let mut transaction = store.transaction().await.unwrap();
    let start = runtime.start(&graph(), Context::new()).id("r").trace_parent(SAMPLED);
    let ticket = start.in_transaction(&mut *transaction).await.unwrap();
    store.finish(transaction).await.unwrap();
    ticket.drive().await.unwrap().completed().await.unwrap();
    let spans = collected(&file);
    let of = |name: &str| spans.iter().find(|span| span.name == name && span.ended).unwrap();
    assert_eq!(of("ferrata.start").parent, "b7ad6b7169203331");
    assert_eq!(of("ferrata.run").parent, of("ferrata.start").id);
}

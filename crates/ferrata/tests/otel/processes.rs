//! Two processes. The first is killed while a node is running.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::{FsStore, OpenTelemetry, RunKey};
use opentelemetry_sdk::trace::Sampler;
use tokio::sync::Notify;
use tracing::Instrument as _;

use crate::collector::{Line, collected, subscriber};

/// The environment variables for the role of a process, and for the folder.
const ROLE: &str = "FERRATA_OTEL_ROLE";
const FOLDER: &str = "FERRATA_OTEL_FOLDER";

/// Printed by the first process when the node is running with which it is killed.
const READY: &str = "the node is at work";

fn graph(started: Option<Arc<Notify>>) -> Graph<Context> {
    let child = Graph::<Context>::builder("child")
        .node("inner", async |_cx, s| Ok(s))
        .entry("inner")
        .build()
        .unwrap();
    Graph::<Context>::builder("w")
        .node("before", async |cx: NodeContext, s: Draft<Context>| {
            cx.step("work", async || Ok::<_, std::io::Error>(1)).await?;
            Ok(s)
        })
        .node("killed", move |_cx: NodeContext, s: Draft<Context>| {
            let started = started.clone();
            async move {
                if let Some(started) = started {
                    // The run may reach this node before its start has returned.
                    started.notified().await;
                    println!("{READY}");
                    std::future::pending::<()>().await;
                }
                Ok(s)
            }
        })
        .node("after", move |cx: NodeContext, s: Draft<Context>| {
            let child = child.clone();
            async move {
                cx.child(&child, Context::new()).await?;
                Ok(s)
            }
        })
        .entry("before")
        .edge("before", "killed")
        .edge("killed", "after")
        .build()
        .unwrap()
}

async fn play(role: &str, folder: &Path) {
    let file = folder.join("spans");
    tracing::subscriber::set_global_default(subscriber(role, &file, Sampler::AlwaysOn)).unwrap();
    let store = FsStore::open(folder.join("store")).unwrap();
    let runtime = Runtime::builder(store).trace_context(OpenTelemetry::new()).build().await.unwrap();
    let first = role == "first";
    let started = first.then(|| Arc::new(Notify::new()));
    let (graph, run) = (graph(started.clone()), RunKey::try_from("r").unwrap());
    if let Some(started) = started {
        let request = tracing::info_span!("request");
        let start = runtime.start(&graph, Context::new()).id("r").into_future();
        let run = start.instrument(request).await.unwrap();
        started.notify_one();
        run.wait().await.unwrap();
    } else {
        let operator = tracing::info_span!("operator");
        let resume = runtime.resume(&graph, &run).take_over().into_future();
        resume.instrument(operator).await.unwrap().completed().await.unwrap();
        runtime.shutdown(Duration::ZERO).await.unwrap();
    }
}

fn process(role: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::one_trace_reaches_over_a_kill", "--nocapture"]);
    command.env(ROLE, role).env(FOLDER, folder);
    command
}

fn named<'a>(spans: &'a BTreeMap<String, Line>, name: &str) -> Vec<&'a Line> {
    spans.values().filter(|span| span.name == name).collect()
}

/// Guarantees: TRACE-1.
#[test]
fn one_trace_reaches_over_a_kill() {
    if let Some(role) = std::env::var_os(ROLE) {
        // This is one of the two processes that the test below starts.
        let folder = std::env::var_os(FOLDER).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(play(role.to_str().unwrap(), folder.as_ref()));
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut first = process("first", folder).stdout(Stdio::piped()).spawn().unwrap();
    let told = BufReader::new(first.stdout.take().unwrap());
    assert!(
        told.lines().any(|line| line.unwrap().contains(READY)),
        "the first process does not reach the node"
    );
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(process("second", folder).status().unwrap().success());

    let lines = collected(&folder.join("spans"));
    let ended: BTreeSet<&str> = lines.iter().filter(|line| line.ended).map(|line| line.id.as_str()).collect();
    // The last line of each span.
    let spans: BTreeMap<String, Line> = lines.iter().map(|line| (line.id.clone(), line.clone())).collect();
    let [request] = named(&spans, "request")[..] else { panic!("{spans:#?}") };
    let [operator] = named(&spans, "operator")[..] else { panic!("{spans:#?}") };
    let ours: Vec<&Line> = spans.values().filter(|span| span.trace == request.trace).collect();

    // All spans of the run are in the trace of the request, whichever process created them.
    for name in ["ferrata.start", "ferrata.run", "ferrata.node", "ferrata.step"] {
        assert!(named(&spans, name).iter().all(|span| span.trace == request.trace), "{name}");
    }
    let nodes: Vec<(&str, &str, bool)> = ["before", "killed", "after", "inner"]
        .into_iter()
        .flat_map(|node| {
            let attempts = named(&spans, "ferrata.node").into_iter();
            let mut attempts: Vec<_> = attempts
                .filter(|span| span.attributes["node.id"] == node)
                .map(|span| (node, span.process.as_str(), ended.contains(span.id.as_str())))
                .collect();
            attempts.sort_unstable();
            attempts
        })
        .collect();
    let expected = [
        ("before", "first", true),
        ("killed", "first", false),
        ("killed", "second", true),
        ("after", "second", true),
        ("inner", "second", true),
    ];
    assert_eq!(nodes, expected);

    // The spans form one tree: the request is its only root, and every other span has a collected parent.
    let orphans: Vec<_> =
        ours.iter().filter(|span| !spans.contains_key(&span.parent) && span.id != request.id).collect();
    assert!(orphans.is_empty(), "{orphans:#?}");
    // The kill lost the spans that were open: the drive of the run, and the running node.
    let lost: Vec<_> = ours.iter().filter(|span| !ended.contains(span.id.as_str())).collect();
    let names: BTreeSet<(&str, &str)> =
        lost.iter().map(|span| (span.process.as_str(), span.name.as_str())).collect();
    assert_eq!(names, BTreeSet::from([("first", "ferrata.node"), ("first", "ferrata.run")]));

    // Both drives are below the start, and the second one is linked to the caller that resumed the run.
    let [start] = ours
        .iter()
        .filter(|span| span.name == "ferrata.start" && span.process == "first")
        .collect::<Vec<_>>()[..]
    else {
        panic!("{ours:#?}")
    };
    assert_eq!(start.parent, request.id);
    let drives: Vec<_> =
        ours.iter().filter(|span| span.name == "ferrata.run" && span.parent == start.id).collect();
    assert_eq!(drives.len(), 2, "{drives:#?}");
    let second = drives.iter().find(|span| span.process == "second").unwrap();
    assert_eq!(second.links, std::slice::from_ref(&operator.id));
    assert_eq!(second.attributes["run.status"], "completed");
    assert_ne!(operator.trace, request.trace);

    // The child is below the node that started it, and the step below its node.
    let above = |span: &Line| spans[&span.parent].clone();
    let inner =
        named(&spans, "ferrata.node").into_iter().find(|span| span.attributes["node.id"] == "inner").unwrap();
    let run = above(inner);
    let started = above(&run);
    let node = above(&started);
    assert_eq!((run.name.as_str(), started.name.as_str()), ("ferrata.run", "ferrata.start"));
    assert_eq!(node.attributes["node.id"], "after");
    let step = named(&spans, "ferrata.step")[0];
    assert_eq!(above(step).attributes["node.id"], "before");
    // Appends of a run are below its drive.
    let append = ours.iter().find(|span| span.name == "store.append" && span.process == "second").unwrap();
    assert_eq!(above(append).name, "ferrata.append");
}

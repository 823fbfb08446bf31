//! Logs that format 1 wrote, which later versions must read. Files in `golden/` are added and never edited.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod counted;
mod doubts;
mod given;
mod letters;
mod waits;

use std::path::Path;

use ferrata_core::graph::{Effect, Graph, NodeCheckpoint, RetryPolicy, Route};
use ferrata_core::record::{
    FORMAT, FailureKind, Record, RecordHeader, RecordKind, Resolution, RunFacts, RunStatus,
};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Reducer, Update};
use ferrata_core::store::{CheckpointStore, MemoryStore, RunAppend};
use ferrata_core::{ErrorKind, RunKey};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Golden {
    facts: RunFacts,
    records: Vec<GoldenRecord>,
}

#[derive(Deserialize)]
struct GoldenRecord {
    header: RecordHeader,
    body: Box<RawValue>,
}

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

fn read(name: &str) -> (RunFacts, Vec<Record>) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(name).with_extension("json");
    let golden: Golden = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let record = |record: GoldenRecord| Record {
        header: record.header,
        body: record.body.get().to_owned().into_bytes().into(),
    };
    (golden.facts, golden.records.into_iter().map(record).collect())
}

/// Imports a golden log into a store through the public API, with all checksums.
async fn stored(name: &str) -> (MemoryStore, Runtime) {
    let store = MemoryStore::new();
    let (facts, records) = read(name);
    let append = RunAppend { run: key(), expected: None, records, facts: Some(facts) };
    store.append(vec![append]).await.pop().unwrap().unwrap();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    (store, runtime)
}

/// The graph of the golden runs, without the nodes that had to hang.
fn review() -> Graph<Context> {
    Graph::<Context>::builder("review")
        .version("1")
        .channel("notes", Reducer::Append)
        .node("write", async |_cx, s| Ok(s))
        .retry(RetryPolicy::none().with_attempts(2))
        .node("split", async |_cx, s| Ok(s))
        .node("check", async |_cx, _s| Ok(Update::none()))
        .node("publish", async |_cx, mut s| {
            s.set("published", true)?;
            Ok(s)
        })
        .effect(Effect::External)
        .entry("write")
        .edge("write", "split")
        .route("split", ["check"], |_s, _cx| Route::each("check", 0..2u32))
        .edge("check", "publish")
        .build()
        .unwrap()
}

fn flaky() -> Graph<Context> {
    Graph::<Context>::builder("flaky").node("a", async |_cx, s| Ok(s)).entry("a").build().unwrap()
}

/// A graph whose review never accepts a draft.
fn replanned() -> Graph<Context> {
    Graph::<Context>::builder("replanned")
        .node("plan", async |_cx, s| Ok(s))
        .node("draft", async |cx, s| {
            cx.checkpoint().await?;
            Ok(s)
        })
        .checkpoint(NodeCheckpoint::After)
        .entry("plan")
        .edge("plan", "draft")
        .route("draft", ["plan"], |_s, cx| {
            Route::revisit("plan", format!("draft {} is too long", cx.visit()))
        })
        .build()
        .unwrap()
}

fn notes(state: &Context) -> Vec<String> {
    state.get("notes").unwrap().unwrap_or_default()
}

/// A start of an existing run with its original input returns the existing run.
async fn found(runtime: &Runtime, graph: &Graph<Context>, title: Option<&str>) -> Outcome<Context> {
    let mut input = Context::new();
    if let Some(title) = title {
        input.set("title", title).unwrap();
    }
    runtime.start(graph, input).id("r").await.unwrap().wait().await.unwrap()
}

/// Guarantees: FORMAT-4.
#[tokio::test]
async fn input_identifies_completed_run() {
    let (_, runtime) = stored("completed").await;
    let state = found(&runtime, &review(), Some("On anchors")).await.completed().unwrap();
    assert_eq!(state.get::<String>("draft").unwrap().as_deref(), Some("text"));
    assert_eq!(notes(&state), ["checked 0", "checked 1"]);
    let head = runtime.head(&key()).await.unwrap().unwrap();
    assert_eq!(head.facts.labels.get("team"), Some("press"));
    assert_eq!(head.facts.user.as_deref(), Some("ana"));
}

#[tokio::test]
async fn an_interrupted_run_is_answered_and_goes_on() {
    let (_, runtime) = stored("interrupted").await;
    let questions = runtime.questions(&key()).await.unwrap();
    assert_eq!(questions.iter().map(|question| question.id.as_str()).collect::<Vec<_>>(), ["publish@1"]);
    runtime.respond(&key(), "publish@1", Resolution::Retry).await.unwrap();
    let run = runtime.resume(&review(), "r").await.unwrap();
    let state = run.wait().await.unwrap().completed().unwrap();
    assert_eq!(state.get::<bool>("published").unwrap(), Some(true));
    assert_eq!(notes(&state), ["checked 0", "checked 1"]);
}

/// Guarantees: DURABLE-12, FORMAT-4.
#[tokio::test]
async fn recorded_answer_replaces_node_output() {
    let (_, runtime) = stored("answered").await;
    let run = runtime.resume(&review(), "r").await.unwrap();
    let state = run.wait().await.unwrap().completed().unwrap();
    assert_eq!(state.get::<String>("draft").unwrap().as_deref(), Some("sent"));
    assert_eq!(state.get::<bool>("published").unwrap(), None);
}

/// Guarantees: FORMAT-4.
#[tokio::test]
async fn a_cancelled_run_says_why() {
    let (_, runtime) = stored("cancelled").await;
    let outcome = found(&runtime, &review(), Some("On anchors")).await;
    let Outcome::Cancelled { reason, .. } = outcome else { panic!("not cancelled") };
    assert_eq!(reason, "not needed any more");
}

/// Guarantees: FORMAT-4.
#[tokio::test]
async fn failed_run_shows_failure_and_retry_continues() {
    let (_, runtime) = stored("failed").await;
    let outcome = found(&runtime, &flaky(), None).await;
    let Outcome::Failed { failure, .. } = outcome else { panic!("not failed") };
    assert_eq!(failure.message, "no input");
    let (_, runtime) = stored("retried").await;
    let run = runtime.resume(&flaky(), "r").await.unwrap();
    assert!(run.wait().await.unwrap().completed().is_some());
}

#[tokio::test]
async fn replans_are_counted_from_records_and_from_bases() {
    for name in ["replanned", "replanned-bases"] {
        let (_, runtime) = stored(name).await;
        let history = |most: u32| -> Vec<String> {
            (1..=most).map(|n| format!("draft@{n} -> plan: draft {n} is too long")).collect()
        };
        let Outcome::Failed { failure, .. } = found(&runtime, &replanned(), None).await else {
            panic!("not failed")
        };
        assert_eq!((failure.kind, failure.causes), (FailureKind::Replan, history(3)), "{name}");
        runtime.retry(&key()).await.unwrap();
        let run = runtime.resume(&replanned(), "r").await.unwrap();
        let Outcome::Failed { failure, .. } = run.wait().await.unwrap() else { panic!("not failed") };
        assert_eq!((failure.kind, failure.causes), (FailureKind::Replan, history(4)), "{name}");
    }
    let bodies = |name: &str| -> Vec<String> {
        read(name).1.iter().map(|record| String::from_utf8_lossy(&record.body).into_owned()).collect()
    };
    let (records, bases) = (bodies("replanned"), bodies("replanned-bases"));
    let (reason, counted) = (r#"{"to":"plan","reason":"draft 1 is too long"}"#, r#""replans":2"#);
    assert!(records.iter().any(|body| body.contains(reason)) && !records.iter().any(|b| b.contains(counted)));
    assert!(bases.iter().any(|body| body.contains(counted)) && !bases.iter().any(|b| b.contains(reason)));
}

/// Guarantees: FORMAT-4.
#[test]
fn the_golden_logs_hold_every_kind_and_status() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
    let names = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let headers: Vec<_> = names.flat_map(|name| read(&name).1).map(|record| record.header).collect();
    assert!(headers.iter().all(|header| header.format == 1));
    for kind in RecordKind::ALL {
        assert!(headers.iter().any(|header| header.kind == kind), "{kind:?}");
    }
    for status in RunStatus::ALL {
        assert!(headers.iter().any(|header| header.status == status), "{status}");
    }
    let late = headers.iter().filter(|header| header.base && header.seq.get() > 0);
    assert!(late.count() > 0, "no base after the first record");
}

/// Guarantees: FORMAT-8.
#[tokio::test]
async fn damaged_byte_is_corrupt_newer_format_unsupported() {
    let last = read("interrupted").1.len() - 1;
    for at in 0..=last {
        let (store, runtime) = stored("interrupted").await;
        store.tamper(&key(), |records| {
            let mut body = records[at].body.to_vec();
            let middle = body.len() / 2;
            body[middle] ^= 1;
            records[at].body = body.into();
        });
        let error = runtime.questions(&key()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "record {at}");

        let (store, runtime) = stored("interrupted").await;
        store.tamper(&key(), |records| records[at].header.format = FORMAT + 1);
        let error = runtime.questions(&key()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "record {at}");
    }
}

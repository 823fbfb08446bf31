//! Redacted exports: they contain no value of the application, and everything else of the run.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::path::Path;

use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::{Failure, FailureKind, Record, RecordHeader, RunFacts, RunStatus};
use ferrata_core::runtime::{Position, RedactedNumbers, RetentionPolicy, Runtime, TimelineEntry};
use ferrata_core::state::{Artifact, Context, Draft, MemoryRead, Op, Patch};
use ferrata_core::store::{CheckpointStore, MemoryStore, RunAppend, RunHead};
use ferrata_core::{RunKey, Seq};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Every generated text begins with it. Ids and checksums never contain it.
const MARK: &str = "zq";

fn text() -> impl Strategy<Value = String> {
    "zq[a-zA-Z0-9 .@é\"]{0,90}"
}

/// Any JSON of an application. Some names of fields are data, too.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    let names =
        prop_oneof![Just("name".to_owned()), Just("outcome".to_owned()), text().prop_map(|text| name(&text))];
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..4).prop_map(|fields| json!(fields)),
        ]
    })
}

/// Returns a name of a field that is data, because it does not look like an identifier.
fn name(text: &str) -> String {
    format!("{text}@")
}

/// The data of a run.
#[derive(Clone, Debug)]
struct RunData {
    texts: Vec<String>,
    values: Vec<Value>,
}

fn data() -> impl Strategy<Value = RunData> {
    (prop::collection::vec(text(), 12), prop::collection::vec(value(), 8))
        .prop_map(|(texts, values)| RunData { texts, values })
}

/// Uses each place of a log that can contain data, and fails.
fn graph(data: &RunData) -> Graph<Context> {
    let (gather, ask, fail) = (data.clone(), data.clone(), data.clone());
    Graph::<Context>::builder("bug")
        .node("gather", move |cx: NodeContext, mut s: Draft<Context>| {
            let data = gather.clone();
            async move {
                let fetched = data.values[0].clone();
                let step: Value = cx.step("fetch", || async { Ok::<_, NodeError>(fetched) }).await?;
                cx.progress(&data.values[1]).await?;
                let message: Value = cx.receive().await?;
                cx.artifact(Artifact::new(&data.texts[0], &data.texts[1]).with_hash(&data.texts[2]))?;
                cx.remember_read(MemoryRead::new(&data.texts[0], &data.texts[1], 0.75).with("more", step.clone()))?;
                cx.send_out("mail", &data.values[2])?;
                s.set("doc", step)?;
                s.set("message", message)?;
                s.set("log", json!([data.values[3]]))?;
                s.set("entries", json!({ name(&data.texts[3]): data.values[4] }))?;
                Ok(s)
            }
        })
        .gate(
            "approve",
            move |_s: &Context| Ask::<String>::new(&ask.values[5]).choices([&ask.texts[4], &ask.texts[5]]),
            |s, answer| s.set("answer", answer),
        )
        .node("send", move |_cx, _s: Draft<Context>| {
            let data = fail.clone();
            async move { Err::<Draft<Context>, _>(NodeError::new(std::io::Error::other(data.texts[6].clone()))) }
        })
        .retry(RetryPolicy::none().with_attempts(2).with_delay(std::time::Duration::ZERO))
        .entry("gather")
        .edge("gather", "approve")
        .edge("approve", "send")
        .build()
        .unwrap()
}

/// Runs the graph until it failed twice, with all signals that can contain data.
async fn failed_run(runtime: &Runtime, data: &RunData) -> RunKey {
    let graph = graph(data);
    let mut input = Context::new();
    input.set("first", &data.values[6]).unwrap();
    let start = runtime.start(&graph, input).id(format!("{MARK}-run")).user(&data.texts[7]);
    let start = start.label("customer", &data.texts[8]).config(&data.values[7]);
    let run = start.message(&data.values[0]).await.unwrap();
    let key = run.run().clone();
    run.wait().await.unwrap();
    runtime.pause(&key, &data.texts[9]).by(&data.texts[10]).await.unwrap();
    let (first, second) = (data.values[3].clone(), data.values[4].clone());
    let patch = Patch::from_ops(&[
        Op::Append("log".into(), vec![first.clone()]),
        Op::Merge("entries".into(), [(name(&data.texts[11]), second)].into_iter().collect()),
        Op::Remove("entries".into(), vec![name(&data.texts[3])]),
        Op::Set(name(&data.texts[0]), first),
    ]);
    runtime.edit(&key, patch.unwrap()).by(&data.texts[10]).await.unwrap();
    runtime.send(&key, &data.values[1]).key(&data.texts[11]).await.unwrap();
    compare_pruned(runtime, &key).await;
    runtime.unpause(&key).await.unwrap();
    let answer = Answer::accept(&data.texts[4]).unwrap();
    runtime.respond(&key, "approve", answer).by(&data.texts[10]).await.unwrap();
    let handle = runtime.resume(&graph, &key).await.unwrap();
    handle.wait().await.unwrap();
    key
}

/// The parts of a header that a redaction and an import keep. The import of a pruned log counts records from 0.
fn kept(header: &RecordHeader) -> RecordHeader {
    RecordHeader { seq: Seq::new(0), prev: None, body_len: 0, body_crc: 0, owner: None, ..header.clone() }
}

/// Compares a run with its redacted copy, then drops most records, so that the first record has the whole run, and compares again.
async fn compare_pruned(runtime: &Runtime, run: &RunKey) -> (Runtime, RunKey) {
    compare(runtime, run).await;
    let policy = RetentionPolicy::keep_all().keep_last(1);
    runtime.apply_retention(run, &policy).await.unwrap();
    compare(runtime, run).await
}

/// Imports a redacted export in another store, and compares the copy with the run.
async fn compare(runtime: &Runtime, run: &RunKey) -> (Runtime, RunKey) {
    assert!(runtime.export(run).await.unwrap().contains(MARK));
    let (other, copy, text) = compare_logs(runtime, run).await;
    assert!(!text.contains(MARK), "{text}");
    (other, copy)
}

async fn compare_logs(runtime: &Runtime, run: &RunKey) -> (Runtime, RunKey, String) {
    let text = runtime.export_redacted(run, RedactedNumbers::Zero).await.unwrap();
    let other = Runtime::builder(MemoryStore::new()).operator();
    let copy = other.import(&text, None).await.unwrap();
    let log = other.check_log(&copy).await.unwrap();
    assert_eq!(log.records, runtime.check_log(run).await.unwrap().records);
    let (mine, theirs) = (runtime.timeline(run, Seq::new(0)).await, other.timeline(&copy, Seq::new(0)).await);
    let lines = |timeline: Vec<TimelineEntry>| -> Vec<_> {
        timeline.into_iter().map(|entry| (kept(&entry.header), entry.activation)).collect()
    };
    assert_eq!(lines(mine.unwrap()), lines(theirs.unwrap()));
    let head = |head: Option<RunHead>| head.unwrap();
    let (mine, theirs) = (head(runtime.head(run).await.unwrap()), head(other.head(&copy).await.unwrap()));
    assert_eq!((mine.status, mine.updated), (theirs.status, theirs.updated));
    let (mine, theirs) = (
        runtime.checkpoint(run, Position::Latest).await.unwrap(),
        other.checkpoint(&copy, Position::Latest).await.unwrap(),
    );
    let kind = |failure: &Option<Failure>| {
        failure.as_ref().map(|failure| (failure.kind, failure.node.clone(), failure.causes.len()))
    };
    assert_eq!(kind(&mine.failure), kind(&theirs.failure));
    assert_eq!(mine.visited, theirs.visited);
    assert_eq!(mine.questions.len(), theirs.questions.len());
    (other, copy, text)
}

/// Guarantees: COPY-4.
#[test]
fn redacted_export_contains_no_values() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut cases =
        TestRunner::new(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() });
    let tested = cases.run(&data(), |data| {
        tokio.block_on(async {
            let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
            let run = failed_run(&runtime, &data).await;
            let (other, copy) = compare_pruned(&runtime, &run).await;
            let checkpoint = other.checkpoint(&copy, Position::Latest).await.unwrap();
            assert_eq!(checkpoint.status, RunStatus::Failed);
            assert_eq!(checkpoint.failure.unwrap().kind, FailureKind::Node);
        });
        Ok(())
    });
    tested.unwrap_or_else(|error| panic!("{error}"));
}

#[derive(Deserialize)]
struct GoldenLog {
    facts: RunFacts,
    records: Vec<GoldenRecord>,
}

#[derive(Deserialize)]
struct GoldenRecord {
    header: RecordHeader,
    body: Box<RawValue>,
}

/// Texts of the application in the golden logs.
const GOLDEN_TEXTS: [&str; 8] =
    ["On anchors", "checked 0", "press", "ana", "too long", "printer", "the bank", "hello"];

/// The golden logs have each kind of record, and the whole run in many records.
///
/// Guarantees: COPY-4.
#[tokio::test]
async fn redacted_golden_logs_replay() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/golden/v1");
    let mut read = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let golden: GoldenLog = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let record = |record: GoldenRecord| Record {
            header: record.header,
            body: record.body.get().to_owned().into_bytes().into(),
        };
        let records = golden.records.into_iter().map(record).collect();
        let (store, run) = (MemoryStore::new(), RunKey::try_from("golden").unwrap());
        let append = RunAppend { run: run.clone(), expected: None, records, facts: Some(golden.facts) };
        store.append(vec![append]).await.pop().unwrap().unwrap();
        let runtime = Runtime::builder(store).operator();
        let (_, _, text) = compare_logs(&runtime, &run).await;
        for data in GOLDEN_TEXTS {
            assert!(!text.contains(data), "{}: `{data}` in {text}", path.display());
        }
        read += 1;
    }
    assert!(read >= 20);
}

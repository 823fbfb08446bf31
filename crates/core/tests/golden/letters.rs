//! Golden logs of a run with outbox messages, artifacts and memory reads: as records, and with a base in each record.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::Timestamp;
use ferrata_core::ask::Answer;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{OutboxMessage, OutboxSink, Position, Runtime, SinkError};
use ferrata_core::state::{Artifact, Context, Draft, MemoryRead, Update};
use ferrata_core::store::MemoryStore;
use ferrata_testing::ManualClock;
use serde_json::{Value, json};

use super::waits::prefix;
use super::{key, read};

/// The graph of the golden run.
fn order() -> Graph<Context> {
    Graph::<Context>::builder("order")
        .node("recall", async |cx: NodeContext, s: Draft<Context>| {
            cx.remember_read(MemoryRead::new("t-1", "likes tea", 0.75).with("scope", "user"))?;
            let report = Artifact::new("report", "file:report.pdf").with_bytes(7);
            cx.artifact(report.with_media_type("application/pdf").with_hash("sha256:00"))?;
            cx.send_out("mail", json!({ "to": "ann" }))?;
            Ok(Update::from(s).send_out("memory", "likes green tea").send_out("mail", "second"))
        })
        .node("end", async |_cx: NodeContext, s: Draft<Context>| {
            Ok(Update::from(s).send_out("mail", "third").send_out("log", 4))
        })
        .interrupt_before()
        .entry("recall")
        .edge("recall", "end")
        .build()
        .unwrap()
}

/// A sink that accepts everything.
#[derive(Clone, Default)]
struct Takes(Arc<Mutex<Vec<(String, String)>>>);

#[async_trait]
impl OutboxSink for Takes {
    async fn deliver(&self, batch: &[OutboxMessage]) -> Result<(), SinkError> {
        let texts = batch.iter().map(|letter| (letter.topic.to_string(), letter.json().to_owned()));
        self.0.lock().unwrap().extend(texts);
        Ok(())
    }
}

/// Continues the run to its end and delivers all outbox messages. Returns their topics and texts in the order of delivery.
async fn finish(store: &MemoryStore) -> Vec<(String, String)> {
    let (clock, takes) =
        (Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_795_270_000_000))), Takes::default());
    let builder = Runtime::builder(store.clone()).clock(Arc::clone(&clock) as _);
    let builder = builder.sink("mail", takes.clone()).sink("memory", takes.clone());
    let runtime = builder.sink("log", takes.clone()).build().await.unwrap();
    runtime.serve(&order()).unwrap();
    for _ in 0..100_000 {
        let head = runtime.head(&key()).await.unwrap().unwrap();
        match head.status {
            RunStatus::Completed if !head.is_delivering() => {
                let mut came = takes.0.lock().unwrap().clone();
                came.sort_by(|one, other| one.0.cmp(&other.0));
                return came;
            }
            RunStatus::Interrupted => {
                let _ = runtime.respond(&key(), "end@1:before", Answer::accept(()).unwrap()).await;
            }
            _ => {}
        }
        let _ = runtime.retry_outbox(&key(), &[]).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(1));
    }
    panic!("the run does not end");
}

/// The visible outbox messages and notes.
async fn seen(store: &MemoryStore) -> Value {
    let runtime = Runtime::builder(store.clone()).operator();
    let letters = runtime.outbox(&key()).await.unwrap();
    let shown: Vec<_> = letters
        .iter()
        .map(|letter| {
            let OutboxMessage { number, topic, node, tries, why, retry_at, is_dead, .. } = letter;
            json!([number, topic, letter.json(), node, tries, why, retry_at, is_dead])
        })
        .collect();
    let checkpoint = runtime.checkpoint(&key(), Position::Latest).await.unwrap();
    let mut checkpoint = serde_json::to_value(&checkpoint).unwrap();
    json!({ "letters": shown, "memory": checkpoint["memory"].take(), "artifacts": checkpoint["artifacts"].take() })
}

/// From each record of both logs, the same messages wait, and the same messages arrive in the end.
///
/// Guarantees: FORMAT-5.
#[tokio::test]
async fn every_record_restores_outbox_messages_and_notes() {
    let (one, two) = (read("letters").1, read("letters-bases").1);
    assert_eq!(one.len(), two.len());
    for records in 1..=one.len() {
        let mut told = Vec::new();
        for name in ["letters", "letters-bases"] {
            let store = prefix(name, records).await;
            told.push((seen(&store).await, finish(&store).await));
        }
        assert_eq!(told[0], told[1], "after {records} records");
    }
    let whole = seen(&prefix("letters", usize::MAX).await).await;
    assert_eq!(whole["memory"]["reads"][0]["content"], "likes tea");
    assert_eq!(whole["artifacts"]["recall"][0]["hash"], "sha256:00");
    let letters = whole["letters"].as_array().unwrap();
    assert_eq!((letters.len(), &letters[0][1]), (1, &json!("log")), "{letters:?}");
    let start = finish(&prefix("letters", 1).await).await;
    let came: Vec<_> = start.iter().map(|(topic, text)| format!("{topic} {text}")).collect();
    let all =
        ["log 4", "mail {\"to\":\"ann\"}", "mail \"second\"", "mail \"third\"", "memory \"likes green tea\""];
    assert_eq!(came, all);
}

/// The logs contain every kind of outbox record, and every field of a waiting message.
///
/// Guarantees: FORMAT-5.
#[test]
fn every_content_of_letters_is_held() {
    let bodies = |name: &str| -> String {
        let bodies = read(name).1;
        bodies.iter().map(|record| String::from_utf8_lossy(&record.body).into_owned() + "\n").collect()
    };
    let records = bodies("letters");
    for content in [
        r#""letters":[{"topic":"mail","payload":{"to":"ann"},"at":"#,
        r#""artifacts":[{"name":"report","reference":"file:report.pdf","bytes":7,"media_type":"application/pdf","hash":"sha256:00"}]"#,
        r#""reads":[{"trace_id":"t-1","content":"likes tea","strength":0.75,"scope":"user"}]"#,
        r#""change":"taken""#,
        r#""change":{"delivered":{"numbers":["#,
        r#""change":{"failed":{"number":3,"tries":1,"why":"it is down","retry_at":"#,
        r#""change":{"failed":{"number":3,"tries":2,"why":"no such address"}}"#,
        r#""change":{"retry":{"numbers":[]}}"#,
        r#""change":{"drop":{"numbers":[2]}}"#,
    ] {
        assert!(records.contains(content), "no {content}");
    }
    let bases = bodies("letters-bases");
    for field in [
        r#""letters":{"sent":3,"waiting":[{"number":"#,
        r#""tries":1,"why":"it is down","retry_at":"#,
        r#""tries":2,"why":"no such address","dead":true"#,
    ] {
        assert!(bases.contains(field), "no {field} in a base");
    }
    // A completed run with undelivered messages has a wake-up time for their delivery.
    let last = read("letters").1.pop().unwrap().header;
    assert!(last.status == RunStatus::Completed && last.wake_at.is_some());
}

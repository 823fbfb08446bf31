//! A golden log of attempts that must not repeat: one that was not done, one with unknown outcome, and one that failed for good.

use std::time::Duration;

use ferrata_core::ask::QuestionKind;
use ferrata_core::graph::{Effect, Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError, NodeResult};
use ferrata_core::record::Resolution;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft, Reducer};

use super::waits::prefix;
use super::{key, notes, read};

/// The reports of the attempts when the log was written: first that nothing was done, then an unknown outcome.
async fn pay(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    match cx.attempt() {
        1 => Err(NodeError::new("the bank is closed").not_done()),
        2 => Err(NodeError::new("the line broke")),
        _ => Ok(Context::update().append("notes", ["paid"]).into()),
    }
}

fn order() -> Graph<Context> {
    Graph::<Context>::builder("order")
        .channel("notes", Reducer::Append)
        .node("pay", pay)
        .effect(Effect::External)
        .retry(RetryPolicy::none().with_attempts(3).with_delay(Duration::from_millis(1)))
        .node("mail", async |_cx, _s: Draft<Context>| {
            Err::<(), _>(NodeError::new("no such address").not_done().fatal())
        })
        .effect(Effect::External)
        .node("tell", async |_cx, _s| Ok(Context::update().append("notes", ["told"])))
        .entry("pay")
        .edge("pay", "mail")
        .edge("mail", "tell")
        .on_failure()
        .build()
        .unwrap()
}

/// Continues from a record, and resolves unknown outcomes as done. Returns the questions and the outcome.
async fn finish(name: &str, records: usize) -> (Vec<String>, Vec<String>) {
    let runtime = Runtime::builder(prefix(name, records).await).build().await.unwrap();
    let mut asked = Vec::new();
    for _ in 0..10 {
        let run = runtime.start(&order(), Context::new()).id("r").await.unwrap();
        match run.wait().await.unwrap() {
            Outcome::Completed(state) => return (asked, notes(&state)),
            Outcome::Interrupted(questions) => {
                assert!(questions.iter().all(|question| question.kind == QuestionKind::Doubt));
                asked.extend(questions.iter().map(|question| format!("{question:?}")));
                runtime.respond(&key(), &questions[0].id, Resolution::Skip).await.unwrap();
            }
            other => panic!("{name} after {records} records: {other:?}"),
        }
    }
    panic!("{name} after {records} records: the run asks endlessly");
}

#[tokio::test]
async fn records_and_bases_tell_the_same_of_doubts() {
    let (one, two) = (read("doubts").1.len(), read("doubts-bases").1.len());
    assert_eq!(one, two);
    let mut failed = 0;
    for records in 1..=one {
        let told = [finish("doubts", records).await, finish("doubts-bases", records).await];
        assert_eq!(told[0], told[1], "after {records} records");
        failed += usize::from(told[0].0.iter().any(|asked| asked.contains("the line broke")));
    }
    assert!(failed > 2, "the activation with unknown outcome must be known");
}

#[test]
fn every_content_of_doubts_is_held() {
    let bodies = |name: &str| -> String {
        read(name).1.iter().map(|record| String::from_utf8_lossy(&record.body).into_owned() + "\n").collect()
    };
    let records = bodies("doubts");
    for content in [
        r#""failed":1,"failure":{"kind":"node","message":"the bank is closed","node":"pay","not_done":true},"retry_at":"#,
        r#""failed":2,"failure":{"kind":"node","message":"the line broke","node":"pay"}}"#,
        r#""failure":{"kind":"node","message":"no such address","node":"mail","not_done":true}"#,
    ] {
        assert!(records.contains(content), "no {content} in {records}");
    }
    let field = r#""in_doubt":true,"why":{"kind":"node","message":"the line broke","node":"pay"}"#;
    assert!(bodies("doubts-bases").contains(field), "no {field}");
}

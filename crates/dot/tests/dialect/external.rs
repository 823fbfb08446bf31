//! `External` nodes, which must not be repeated.
#![expect(clippy::disallowed_methods, reason = "a deadline in real time")]

use std::time::Duration;

use crate::support::{compile, path_of, registry, source};
use ferrata_core::record::{RecordKind, Resolution};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, HeaderRange, MemoryStore};

/// Runs a pipeline of one node. Returns the outcome, and the number of starts of the node.
async fn ended(node: &str) -> (Outcome<Context>, usize) {
    let store = MemoryStore::new();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let graph = compile(&source(&format!("{node} start -> a -> exit")), registry());
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let outcome = run.wait().await.unwrap();
    let records = store.headers(run.run(), HeaderRange::newest(100)).await.unwrap().items;
    (outcome, records.iter().filter(|record| record.kind == RecordKind::Intent).count())
}

#[tokio::test]
async fn external_node_asks_for_unknown_outcome_and_continues() {
    let text = source("a [does=hang, effect=external] b start -> a -> b -> exit");
    let store = MemoryStore::new();
    let graph = compile(&text, registry());
    let first = Runtime::builder(store.clone()).build().await.unwrap();
    let run = first.start(&graph, Context::new()).id("r").await.unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while path_of(&store, run.run()).await.is_empty()
        || store.headers(run.run(), HeaderRange::newest(1)).await.unwrap().items[0].kind != RecordKind::Intent
    {
        assert!(std::time::Instant::now() < deadline, "the intent is not recorded");
        tokio::task::yield_now().await;
    }
    drop((first, run));
    let second = Runtime::builder(store.clone()).build().await.unwrap();
    let run = second.resume(&graph, "r").take_over().await.unwrap();
    let Outcome::Interrupted(questions) = run.wait().await.unwrap() else { panic!("no question") };
    second.respond(run.run(), &questions[0].id, Resolution::Skip).await.unwrap();
    let run = second.resume(&graph, "r").await.unwrap();
    assert!(run.wait().await.unwrap().completed().is_some());
    assert_eq!(path_of(&store, run.run()).await.join(" "), "start a b exit");
}

/// An `External` node is not retried after a timeout, a panic or a transient error, unless the attempt reports that nothing was done.
#[tokio::test]
async fn external_node_retries_only_if_nothing_happened() {
    for (does, begun, why) in [
        ("hang", 1, "exceeded its timeout"),
        ("panic", 1, "oh no"),
        ("transient", 1, "the network is away"),
        ("permanent", 1, "the key is wrong"),
        ("no_status", 1, "nobody said"),
        ("fail", 1, "a failed"),
        // The outcome `retry` reports that nothing was done.
        ("retry,transient", 2, "the network is away"),
    ] {
        let node = format!("a [does=\"{does}\", effect=external, max_retries=3, timeout=\"20ms\"]");
        let (outcome, intents) = ended(&node).await;
        let Outcome::Interrupted(questions) = outcome else { panic!("{does}: {outcome:?}") };
        assert!(questions[0].text.as_ref().unwrap().contains(why), "{does}: {questions:?}");
        assert_eq!(intents, begun, "{does}");
    }
}

/// No attempt did anything: the node fails without a question.
#[tokio::test]
async fn external_node_without_effect_fails_without_question() {
    for (does, begun) in [("retry", 2), ("refused", 1)] {
        let (outcome, intents) = ended(&format!("a [does={does}, effect=external, max_retries=1]")).await;
        assert!(matches!(outcome, Outcome::Failed { .. }), "{does}: {outcome:?}");
        assert_eq!(intents, begun, "{does}");
    }
}

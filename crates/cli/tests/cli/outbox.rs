//! Undelivered outbox messages, and an operator's decisions about them.

use ferrata::prelude::*;
use serde_json::json;

use crate::support::Place;

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_listed_and_dropped_by_an_operator() {
    let place = Place::new();
    // No process of this service has a sink for mail.
    let runtime = Runtime::builder_with(place.open()).build().await.unwrap();
    let graph = Graph::<Context>::builder("order")
        .node("confirm", async |_cx, s: Draft<Context>| {
            Ok(Update::from(s).send_out("mail", json!({"to": "ann"})).send_out("mail", 2))
        })
        .entry("confirm")
        .build()
        .unwrap();
    runtime.start(&graph, Context::new()).id("order-1").await.unwrap().completed().await.unwrap();
    runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    for line in [&["outbox"][..], &["outbox", "order-1"]] {
        let letters = place.json(line);
        assert_eq!((&letters[0]["topic"], &letters[0]["payload"]), (&json!("mail"), &json!({"to": "ann"})));
        assert_eq!((&letters[1]["number"], &letters[1]["put_aside"]), (&json!(2), &json!(false)));
    }
    assert_eq!(place.ok(&["outbox", "order-1", "--message", "2", "-o", "ids"]), "order-1 2\n");
    let listed = place.ok(&["outbox"]);
    assert!(listed.contains("confirm@1") && listed.contains("mail"), "{listed}");
    assert!(place.ok(&["ls"]).contains("delivers outbox messages"));
    let kept = place.call(&["purge", "order-1", "--yes"]);
    assert!(kept.code != 0 && kept.err.contains("undelivered outbox messages"), "{kept:?}");
    // No message was set aside.
    assert_ne!(place.call(&["outbox", "order-1", "--retry"]).code, 0);
    assert_eq!(place.json(&["outbox", "order-1", "--drop", "--message", "1", "--by", "eve"]), json!([]));
    assert_eq!(place.ok(&["outbox", "-o", "ids"]), "order-1 2\n");
    place.ok(&["outbox", "order-1", "--drop", "--message", "2"]);
    assert_eq!(place.json(&["outbox"]), json!([]));
    let logs = place.ok(&["logs", "order-1"]);
    assert!(logs.contains("eve dropped outbox message 1"), "{logs}");
    place.ok(&["purge", "order-1", "--yes"]);
}

/// Guarantees: CLI-12.
#[tokio::test(flavor = "multi_thread")]
async fn bulk_purge_refuses_all_if_one_fails() {
    let place = Place::new();
    let runtime = Runtime::builder_with(place.open()).build().await.unwrap();
    let graph = Graph::<Context>::builder("order")
        .node("confirm", async |cx, s: Draft<Context>| {
            let update = Update::from(s);
            Ok(if cx.run().run.as_str() == "paid" { update } else { update.send_out("mail", 1) })
        })
        .entry("confirm")
        .build()
        .unwrap();
    for id in ["paid", "told"] {
        runtime.start(&graph, Context::new()).id(id).await.unwrap().completed().await.unwrap();
    }
    runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    let refused = place.call(&["purge", "paid", "told", "--yes"]);
    assert!(refused.code == 8 && refused.err.contains("undelivered outbox messages"), "{refused:?}");
    assert!(refused.out.is_empty(), "{refused:?}");
    place.ok(&["show", "paid"]);
    place.ok(&["purge", "paid", "told", "--yes", "--force"]);
}

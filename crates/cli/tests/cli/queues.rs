//! Queues on the command line.

use ferrata::prelude::*;
use serde_json::json;

use crate::service::{Service, busy};
use crate::support::Place;

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_listed_shown_set_paused_and_let_go_on() {
    let place = Place::new();
    let service = Service::start(&place).await;
    let said = place.call(&["queue", "ls"]);
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
    assert!(said.err.contains("no queues"), "{said:?}");
    service.runtime.queue("mail").at_once(5).declare().await.unwrap();

    place.ok(&["queue", "pause", "mail", "--by", "eve", "--reason", "stocktaking"]);
    let start = service.runtime.start(&busy(), Context::new()).id("one").queue("mail").key("ann").priority(2);
    let one = start.await.unwrap();
    assert!(one.is_waiting().await.unwrap());
    let listed = place.json(&["queue", "ls"]);
    assert_eq!((&listed[0]["name"], &listed[0]["waiting"]), (&json!("mail"), &json!(1)));
    assert_eq!(listed[0]["overrides"]["paused"], json!("stocktaking"));
    assert_eq!(place.ok(&["queue", "ls", "-o", "ids"]), "mail\n");
    let shown = place.ok(&["queue", "show", "mail"]);
    for part in ["mail version 1", "paused: stocktaking", "at once   5", "waits 1", "ann"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // `show` and `ls` of the run say what it waits for.
    assert!(place.ok(&["show", "one"]).contains("waits for its turn in the queue `mail`"));

    place.ok(&["queue", "set", "mail", "--at-once", "2", "--rate", "100/60s", "--burst", "3"]);
    let shown = place.ok(&["queue", "show", "mail"]);
    assert!(
        shown.contains("2, set by an operator") && shown.contains("100 in 60s, 3 at a moment"),
        "{shown}"
    );
    place.ok(&["queue", "set", "mail", "--reset", "--at-once", "3"]);
    let status = place.json(&["queue", "show", "mail"]);
    assert_eq!(status["overrides"], json!({ "paused": "stocktaking", "at_once": 3 }));
    place.ok(&["queue", "unpause", "mail"]);
    for line in [
        vec!["queue", "set", "mail"],
        vec!["queue", "set", "mail", "--rate", "5"],
        vec!["queue", "show", "a b"],
    ] {
        assert_eq!(place.call(&line).code, 2, "{line:?}");
    }
    let said = place.call(&["queue", "show", "none"]);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.err.contains("ferrata queue ls"), "{said:?}");
}

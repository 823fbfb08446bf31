//! Queues on the command line.

use ferrata::RunStatus;
use ferrata::prelude::*;
use serde_json::json;

use crate::service::{Service, busy};
use crate::support::Place;

#[tokio::test(flavor = "multi_thread")]
async fn queue_can_be_listed_configured_paused_unpaused() {
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
    for part in ["mail version 1", "paused: stocktaking", "slots     5", "waits 1", "ann"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // `show` and `ls` state what the run waits for.
    let shown = place.ok(&["show", "one"]);
    let waits = |ahead: &str| {
        format!(
            "waits for a slot of queue `mail` ({ahead}, 0 of 5 slots held); the queue is paused: stocktaking, since "
        )
    };
    assert!(shown.contains(&format!("why       {}", waits("next in line"))), "{shown}");
    assert!(!shown.contains("is paused: it waits"), "the wait must be listed once: {shown}");
    assert!(shown.contains("\nnext: ferrata queue show mail"), "{shown}");
    let start = service.runtime.start(&busy(), Context::new()).id("two").queue("mail").key("ann");
    start.await.unwrap();
    assert!(place.ok(&["show", "two"]).contains(&waits("1 ahead")));
    let standing = &place.json(&["show", "two"])["queues"][0];
    assert_eq!((&standing["queue"], &standing["before"]), (&json!("mail"), &json!(1)));
    let listed = place.ok(&["ls"]);
    let says =
        |run: &str, what: &str| listed.lines().any(|line| line.starts_with(run) && line.contains(what));
    assert!(says("one", &waits("next in line")), "{listed}");
    assert!(says("two", &waits("1 ahead")), "{listed}");
    let listed = place.json(&["ls"]);
    assert_eq!(
        (&listed[0]["run"]["run"], &listed[0]["queues"][0]["before"]),
        (&json!("two"), &json!(1)),
        "{listed}"
    );
    assert_eq!(place.ok(&["ls", "-o", "ids"]), "two\none\n");
    // An ended run does not wait, even before the queue has noticed its end.
    place.ok(&["cancel", "two", "--reason", "not needed", "--yes"]);
    assert_eq!(place.ok(&["ls"]).matches("waits for a slot").count(), 1);

    place.ok(&["queue", "set", "mail", "--at-once", "2", "--rate", "100/60s", "--burst", "3"]);
    place.ok(&["queue", "set", "mail", "--rate-per-key", "10/60s", "--burst-per-key", "2"]);
    let shown = place.ok(&["queue", "show", "mail"]);
    for said in ["2, set by an operator", "100 in 60s, bursts of 3", "10 in 60s, bursts of 2, set by"] {
        assert!(shown.contains(said), "{said} in {shown}");
    }
    place.ok(&["queue", "set", "mail", "--reset", "--at-once", "3"]);
    let status = place.json(&["queue", "show", "mail"]);
    assert_eq!(status["overrides"], json!({ "paused": "stocktaking", "at_once": 3 }));
    place.ok(&["queue", "unpause", "mail"]);
    for line in [
        vec!["queue", "set", "mail"],
        vec!["queue", "set", "mail", "--rate", "5"],
        vec!["queue", "set", "mail", "--rate", "5/s", "--burst-per-key", "2"],
        vec!["queue", "show", "a b"],
    ] {
        assert_eq!(place.call(&line).code, 2, "{line:?}");
    }
    let said = place.call(&["queue", "show", "none"]);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.err.contains("ferrata queue ls"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_without_process_with_tags_is_reported() {
    let place = Place::new();
    let service = Service::start(&place).await;
    service.runtime.queue("render").at_once(1).tags(["gpu"]).declare().await.unwrap();
    service.runtime.start(&busy(), Context::new()).id("one").queue("render").await.unwrap();
    for verb in [["show", "one"].as_slice(), &["ls"]] {
        let told = place.ok(verb);
        assert!(told.contains("a slot is free, and no process with the tags `gpu` runs"), "{told}");
    }
    assert!(place.ok(&["queue", "show", "render"]).contains("processes with the tags gpu"));
    assert_eq!(place.json(&["show", "one"])["queues"][0]["lacks"], json!(["gpu"]));
}

/// A bulk verb does not touch the runs of queues and schedules. A cancelled queue run would grant no slots.
///
/// Guarantees: SCHEDULE-14.
#[tokio::test(flavor = "multi_thread")]
async fn bulk_verbs_skip_queues_and_schedules() {
    let place = Place::new();
    let service = Service::start(&place).await;
    service.runtime.queue("mail").at_once(1).declare().await.unwrap();
    let nightly = service.runtime.schedule("nightly").cron("0 3 * * *");
    let nightly = nightly.start(&busy(), Context::new()).await.unwrap();
    nightly.pause("stocktaking").await.unwrap().await.unwrap();
    service.runtime.start(&busy(), Context::new()).id("one").on_hold("not yet").await.unwrap();

    assert_eq!(place.ok(&["ls", "-o", "ids"]), "one\n");
    assert_eq!(place.ok(&["ls", "--label", "queue=mail", "-o", "ids"]), "");
    assert_eq!(place.ok(&["ls", "--workflow", "queue", "-o", "ids"]), "queue:mail\n");
    let asked = place.ok(&["unpause", "--status", "waiting", "--dry-run", "-o", "ids"]);
    assert_eq!(asked, "one\n");
    place.ok(&["cancel", "--since", "1h", "--reason", "an emergency", "--yes"]);
    let head = service.runtime.head(&"queue:mail".try_into().unwrap()).await.unwrap().unwrap();
    assert_eq!(head.status, RunStatus::Interrupted);
    let status = nightly.status().await.unwrap();
    assert!(status.is_paused && !status.has_ended(), "{status:?}");
    place.ok(&["cancel", "queue:mail", "--reason", "it is not needed", "--yes"]);
    assert_eq!(place.ok(&["purge", "--status", "cancelled", "--dry-run", "-o", "ids"]), "one\n");
}

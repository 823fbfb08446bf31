//! The sentences that a state and a record permit, derived from their facts alone.

use ferrata::runtime::{Checkpoint, PendingActivation};
use ferrata::store::At;
use ferrata::{CheckpointStore, RunKey, RunStatus};
use serde_json::Value;

/// Reads the events of a run's log as JSON, with their sequence numbers.
pub(super) async fn events(store: &dyn CheckpointStore, run: &RunKey) -> Vec<(u64, Value)> {
    let records = store.load(run, At::Latest).await.unwrap().unwrap();
    assert_eq!(records[0].header.seq.get(), 0, "{run} must have one segment");
    let event = |record: &ferrata::record::Record| {
        (record.header.seq.get(), serde_json::from_slice(&record.body).unwrap())
    };
    records.iter().map(event).collect()
}

/// The conditions that an activation waits for, each with its text.
fn waits(now: &Checkpoint, pending: &PendingActivation) -> Vec<&'static str> {
    let asks = now.questions.iter().any(|one| one.node == pending.node && one.visit == pending.visit);
    [
        (pending.stopped, "stopped the run"),
        (asks, "waits for an answer"),
        (!pending.children.is_empty(), "waits for runs that it started"),
        (pending.receiving, "waits for a message"),
        (pending.retry_at.is_some_and(|at| at > now.at), "waits for its next attempt"),
        (pending.timers.iter().any(|at| *at > now.at), "sleeps"),
    ]
    .into_iter()
    .filter_map(|(holds, words)| holds.then_some(words))
    .collect()
}

/// Checks the texts about active activations.
pub(super) fn check_activations(about: &str, now: &Checkpoint, shown: &Value) {
    let shown = shown.as_array().unwrap();
    assert_eq!(shown.len(), now.next.len(), "{about}");
    for (pending, shown) in now.next.iter().zip(shown) {
        let (doing, waits) = (shown["doing"].as_str().unwrap(), waits(now, pending));
        let about = format!("{about}: {}@{} {doing}, {waits:?}", pending.node, pending.visit);
        assert_eq!(shown["node"], pending.node.as_str(), "{about}");
        if !waits.is_empty() {
            assert!(waits.contains(&doing), "{about}");
            continue;
        }
        let (goes_on, has_owner) = (now.status == RunStatus::InProgress, now.owner.is_some());
        match doing {
            "is running" => assert!(goes_on && has_owner, "{about}"),
            "waits for a process" => assert!(goes_on && !has_owner, "{about}"),
            "waits" => assert!(!goes_on || now.wake_at.is_some(), "{about}"),
            _ => panic!("{about}"),
        }
    }
}

/// Checks how the graph's nodes are drawn.
pub(super) fn check_nodes(about: &str, now: &Checkpoint, shown: &Value) {
    for shown in shown.as_array().unwrap() {
        let (name, look) = (shown["name"].as_str().unwrap(), shown["look"].as_str().unwrap());
        let about = format!("{about}: {name} is {look}");
        let open = now.next.iter().find(|one| one.node.as_str() == name);
        let last = now.history.iter().rev().find(|one| one.node.as_str() == name);
        match (look, open, last) {
            ("plain", None, None) => {}
            ("done", None, Some(past)) => assert!(past.ok, "{about}"),
            ("failed", None, Some(past)) => assert!(!past.ok, "{about}"),
            ("failed", Some(open), _) => assert!(open.stopped, "{about}"),
            ("going", Some(open), _) => {
                assert!(waits(now, open).is_empty() && now.owner.is_some(), "{about}")
            }
            ("waiting", Some(open), _) => {
                assert!(!open.stopped && (now.owner.is_none() || !waits(now, open).is_empty()), "{about}");
            }
            _ => panic!("{about}"),
        }
    }
}

/// Checks the reasons for a run's status.
pub(super) fn check_reasons(about: &str, now: &Checkpoint, why: &[String]) {
    let is_over = now.status.is_finished();
    let says = |part: &str| why.iter().any(|line| line.contains(part));
    // For a run that a queue holds, the reason of the queue replaces the pause.
    let is_held = why.iter().any(|line| line.starts_with("waits for a slot of queue"))
        && now.paused.as_deref().is_some_and(|why| why.contains("queue"));
    let failure = now.failure.as_ref().map(|failure| &*failure.message);
    // Each fact, the words that only it allows, and a part that they must contain.
    let claims: [(&str, bool, Option<&str>); 6] = [
        ("failed at ", now.status == RunStatus::Failed, failure),
        ("is paused: ", now.paused.is_some() && !is_over && !is_held, now.paused.as_deref()),
        ("was cancelled: ", now.status == RunStatus::Cancelled, now.cancelled.as_deref()),
        ("is being cancelled: ", now.cancelled.is_some() && !is_over, now.cancelled.as_deref()),
        ("asks ", !now.questions.is_empty(), None),
        ("tries ", now.next.iter().any(|one| one.retry_at.is_some_and(|at| at > now.at)), None),
    ];
    for (words, holds, part) in claims {
        // The status of a child comes later in a line.
        let begins = why.iter().any(|line| line.starts_with(words));
        assert_eq!(begins, holds, "{about}: {words}: {why:?}");
        assert!(!holds || part.is_none_or(says), "{about}: {part:?}: {why:?}");
    }
    for question in now.questions.iter().filter(|_| !is_over) {
        assert!(says(&format!("`{}`: {}", question.id, question.prompt())), "{about}: {why:?}");
    }
    // An active run has a reason to run or to wait.
    assert_eq!(why.is_empty(), now.status == RunStatus::Completed, "{about}: {why:?}");
    assert!(!says("is running in process") || now.owner.is_some(), "{about}: {why:?}");
}

/// Checks the line about a record.
pub(super) fn check_line(about: &str, event: &Value, line: &str) {
    let about = format!("{about}: {line}: {event}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut parts: Vec<String> = Vec::new();
    let what = &event["change"]["what"];
    if event["change"]["by"].is_string() {
        parts.push(text(&event["change"]["by"]));
    }
    if let Some(answered) = what.get("answer") {
        parts.push(format!("answered `{}`: ", text(&answered["question"])));
        let words = match &answered["answer"] {
            Value::Object(fields) => match (fields.get("accept"), fields.get("reject")) {
                (Some(Value::Bool(yes)), _) => if *yes { "yes" } else { "no" }.to_owned(),
                (Some(value), _) => value.to_string(),
                (_, Some(comment)) => format!("rejected: {}", text(comment)),
                _ => panic!("{about}"),
            },
            _ => panic!("{about}"),
        };
        assert_eq!(line.rsplit_once("`: ").unwrap().1, words, "{about}");
    }
    if let Some(responded) = what.get("respond") {
        parts.push(format!("answered `{}`: ", text(&responded["question"])));
    }
    for (name, words) in [("pause", "paused it: "), ("cancel", "asked to cancel it: ")] {
        parts.extend(what.get(name).map(|signal| format!("{words}{}", text(&signal["reason"]))));
    }
    parts.extend(what.get("retry").map(|_| "retried it".to_owned()));
    parts.extend(event["change"].get("failed").map(|failure| text(&failure["message"])));
    if let Some(asked) = event["change"].get("asked") {
        parts.extend([
            format!("`{}@{}` asks", text(&asked["node"]), asked["visit"]),
            text(&asked["ask"]["question"]),
        ]);
    }
    parts.extend(event.get("entry").map(|entry| format!("started at `{}`", text(entry))));
    parts.extend(event.get("failure").map(|failure| text(&failure["message"])));
    parts.extend(event.get("executor").map(text));
    for done in event["done"].as_array().into_iter().flatten() {
        let how = if done.get("failure").is_some() { "failed" } else { "succeeded" };
        parts.push(format!("`{}@{}` {how}", text(&done["node"]), done["visit"]));
    }
    for part in parts {
        assert!(line.contains(&part), "{part:?} is not in {about}");
    }
}

/// Checks that no count of one has a plural, and that no Rust type or unit name is shown.
pub(super) fn check_plurals(text: &str) {
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    for pair in words.flat_map(|words| words.windows(2).map(|pair| [pair[0], pair[1]]).collect::<Vec<_>>()) {
        let noun = pair[1].trim_matches(|c: char| !c.is_alphabetic());
        let is_plural =
            noun.ends_with('s') && noun.len() > 3 && !noun.ends_with("ss") && !noun.ends_with("us");
        assert!(pair[0] != "1" || !is_plural, "{pair:?} in {text}");
    }
    for part in ["0ns", "accepted", "Accept(", "Some(", "None,", "in in ", "onin"] {
        assert!(!text.contains(part), "{part} in {text}");
    }
}

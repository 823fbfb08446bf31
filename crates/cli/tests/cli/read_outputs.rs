//! Outputs of the reading verbs, as JSON and as text.

use ferrata::graph::Graph;
use ferrata::node::NodeContext;
use ferrata::state::{Artifact, Draft, MemoryRead, Update};
use ferrata::{Context, RunStatus};
use serde_json::Value;

use crate::service::{Service, pay, some_runs};
use crate::support::{Place, expect, timeless};

/// Compares the JSON output of a line with a file.
fn check(place: &Place, name: &str, line: &[&str]) {
    let value: Value = place.json(line);
    let text = format!("{:#}\n", timeless(value));
    expect(&format!("{name}.json"), &place.normal(&text));
}

/// Guarantees: CLI-13.
#[tokio::test(flavor = "multi_thread")]
async fn reading_verbs_print_documented_json() {
    let place = Place::new();
    // Stop the service, so that the output does not change.
    let service = some_runs(&place).await;
    service.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    check(&place, "ls", &["ls", "--workflow", "pay"]);
    check(&place, "show", &["show", "pay-3"]);
    check(&place, "show-node", &["show", "pay-3", "--node", "send"]);
    check(&place, "history", &["history", "pay-2"]);
    check(&place, "state", &["state", "pay-2"]);
    check(&place, "diff", &["diff", "pay-2", "begin@1", "latest"]);
    check(&place, "logs", &["logs", "pay-3"]);
    check(&place, "questions", &["questions"]);
    check(&place, "fork-list", &["fork", "pay-2", "--list"]);
    check(&place, "verify", &["verify", "pay-2"]);
    check(&place, "graph", &["graph", "pay-2"]);
    check(&place, "prune", &["prune", "pay-2", "--keep-last", "1"]);
    check(&place, "sweep", &["sweep", "--purge", "completed=0s"]);
    check(&place, "wait", &["wait", "pay-2"]);
    let one = ["ls", "show", "history", "diff", "logs", "questions", "state", "graph"];
    for verb in one {
        let line: &[&str] = match verb {
            "ls" | "questions" => &[verb],
            "diff" => &[verb, "pay-2", "begin@1"],
            _ => &[verb, "pay-2"],
        };
        let lines = place.ok(&[line, &["-o", "jsonl"]].concat());
        assert!(!lines.is_empty(), "{verb}");
        for line in lines.lines() {
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{verb}: {error}: {line}"));
        }
        let ids = place.ok(&[line, &["-o", "ids"]].concat());
        assert!(!ids.is_empty() && !ids.contains('{'), "{verb}: {ids}");
    }
}

/// Guarantees: CLI-13.
#[tokio::test(flavor = "multi_thread")]
async fn text_output_shows_facts_and_next_command() {
    let place = Place::new();
    let service = some_runs(&place).await;
    service.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    let listed = place.ok(&["ls", "--status", "failed,waiting", "--label", "team=red"]);
    for part in ["RUN ", "pay-1 ", "chat-1 ", "pay-3 ", "team=red"] {
        assert!(listed.contains(part), "{part} is not in {listed}");
    }
    assert!(!listed.contains("pay-2"), "{listed}");
    for (run, next) in [
        ("pay-1", "ferrata answer pay-1 approve@1:"),
        ("chat-1", "ferrata send chat-1"),
        ("pay-3", "ferrata retry pay-3"),
    ] {
        let shown = place.ok(&["show", run]);
        assert!(shown.contains(&format!("next: {next}")), "{shown}");
    }
    assert!(place.ok(&["show", "pay-3"]).contains("the bank is closed"));
    assert!(place.ok(&["show", "pay-3", "--report"]).starts_with("# Run default/pay-3"));
    assert!(place.ok(&["diff", "pay-2", "begin@1"]).contains("+ /sent  true"));
    assert!(place.ok(&["logs", "pay-2"]).contains("ann answered `approve"));
    assert_eq!(place.ok(&["logs", "pay-2", "-n", "1"]).lines().count(), 1);
    assert_eq!(place.ok(&["state", "pay-2", "/amount"]), "120\n");
    assert_eq!(place.ok(&["state", "pay-2", "/amount", "--at", "begin@1"]), "120\n");
    // Colors only on request. The text is the same.
    let plain = place.ok(&["ls"]);
    let colored = place.ok(&["ls", "--color", "always"]);
    assert!(!plain.contains('\u{1b}') && colored.contains('\u{1b}'));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nodes_made_and_remembered_is_shown() {
    let place = Place::new();
    let service = Service::start(&place).await;
    let graph = Graph::<Context>::builder("recalls")
        .node("recall", async |cx: NodeContext, s: Draft<Context>| {
            cx.remember_read(MemoryRead::new("t-1", "likes tea", 0.75))?;
            cx.artifact(Artifact::new("report", "file:report.pdf").with_bytes(7))?;
            Ok(Update::from(s).send_out("memory", "likes green tea"))
        })
        .entry("recall")
        .build()
        .unwrap();
    let run = service.run(&graph, "recalls-1", Context::new()).await;
    service.until(&run, RunStatus::Completed).await;
    service.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    let shown = place.ok(&["show", "recalls-1"]);
    for part in [
        "memory    reads 1, pending writes 1\n",
        "NODE    ARTIFACT  BYTES  WHERE\nrecall  report    7      file:report.pdf\n",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let memory = &place.json(&["show", "recalls-1"])["checkpoint"]["memory"];
    assert_eq!(memory["reads"][0]["content"], "likes tea");
    assert_eq!(memory["pending_writes"], serde_json::json!(["likes green tea"]));
}

/// Guarantees: CLI-6.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new();
    drop(some_runs(&place).await);
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_ferrata"))
        .args(["history", "pay-2", "-o", "jsonl", "--store", &place.url()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()));
}

/// The exit code is correct even if the reader of the output closed it early.
///
/// Guarantees: CLI-6.
#[tokio::test(flavor = "multi_thread")]
async fn closed_stdout_preserves_exit_code() {
    let place = Place::new();
    let service = some_runs(&place).await;
    service.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    let wrong = place.write("wrong.dot", "digraph Wrong { a -> b }");
    let lines: &[(&[&str], i32)] = &[
        (&["wait", "pay-3"], 1),
        (&["wait", "pay-1"], 5),
        (&["lint", wrong.to_str().unwrap()], 3),
        (&["logs", "pay-3", "-f"], 1),
        (&["show", "pay-3", "--watch=10ms"], 1),
        (&["pause", "pay-1", "pay-2", "--quiet", "-o", "jsonl"], 8),
        (&["ls", "-o", "jsonl"], 0),
        // These commands do not end on their own.
        (&["ls", "--watch=10ms"], 0),
        (&["logs", "chat-1", "-f"], 0),
        (&["serve"], 0),
    ];
    for (line, code) in lines {
        let (_, unread) = std::io::pipe().unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ferrata"));
        command.args(*line).args(["--store", &place.url()]).stdin(std::process::Stdio::null());
        let output = command.stdout(unread).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(*code), "{line:?}: {told}");
        assert!(
            !told.contains("Broken pipe") && !told.contains("cannot write the output"),
            "{line:?}: {told}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_filters_runs_by_user() {
    let place = Place::new();
    let service = Service::start(&place).await;
    for (run, user) in [("of-ann", "ann"), ("of-ben", "ben")] {
        service.runtime.start(&pay(), ferrata::Context::new()).id(run).user(user).await.unwrap();
    }
    service.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    let listed = place.json(&["ls", "--user", "ann"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed[0]["run"]["run"], "of-ann");
    assert_eq!(place.json(&["ls", "--user", "an"]), serde_json::json!([]));
}

//! Warnings before a wait: a change to a run that no process serves, and a fork that may repeat effects.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use ferrata::record::RunStatus;
use ferrata::{Context, RunKey};

use crate::service::{Service, charge, some_runs};
use crate::support::Place;

fn key(id: &str) -> RunKey {
    RunKey::try_from(id).unwrap()
}

/// If no process serves the run's workflow, a change to the run prints a warning.
///
/// Guarantees: CLI-17.
#[tokio::test(flavor = "multi_thread")]
async fn signal_verbs_warn_of_unclaimed_run() {
    let place = Place::new();
    let service = some_runs(&place).await;
    service.runtime.shutdown(Duration::ZERO).await.unwrap();
    let lines: [&[&str]; 4] = [
        &["answer", "pay-1", "yes"],
        &["send", "chat-1", "hello"],
        &["retry", "pay-3"],
        &["fork", "pay-2", "approve@1", "--id", "again", "--yes"],
    ];
    let told = |run: &str, workflow: &str| {
        format!(
            "no process has claimed {run} yet; an idle process that serves `{workflow}` claims it at its next sweep; if there is none, start one\n"
        )
    };
    // Run the commands in parallel, because each waits for a process to claim the run.
    let said = std::thread::scope(|scope| {
        let calls = lines.map(|line| scope.spawn(|| place.call(line)));
        calls.map(|call| call.join().unwrap())
    });
    for (said, (run, workflow)) in
        said.iter().zip([("pay-1", "pay"), ("chat-1", "chat"), ("pay-3", "pay"), ("again", "pay")])
    {
        assert_eq!(said.code, 0, "{said:?}");
        assert!(said.err.ends_with(&told(run, workflow)), "{said:?}");
    }
    let waited = place.call(&["wait", "pay-1", "--timeout", "50ms"]);
    assert_eq!(waited.code, 7, "{waited:?}");
    assert!(waited.err.contains(&format!("the timeout expired; {}", told("pay-1", "pay"))), "{waited:?}");

    // With `--quiet`, the command does not wait.
    let quiet = place.call(&["send", "chat-1", "more", "--quiet"]);
    assert_eq!((quiet.code, quiet.err.as_str()), (0, ""));
    // If a process claims the run, no warning is printed.
    let service = Service::start(&place).await;
    service.until(&key("again"), RunStatus::Completed).await;
    service.until(&key("chat-1"), RunStatus::AwaitingInput).await;
    let said = place.call(&["send", "chat-1", "bye"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
}

/// If the store fails after a change was recorded, the command still succeeds, so that callers do not repeat the change.
///
/// Guarantees: CLI-17.
#[tokio::test(flavor = "multi_thread")]
async fn recorded_signal_succeeds_despite_later_outage() {
    let place = Place::new();
    let service = some_runs(&place).await;
    service.runtime.shutdown(Duration::ZERO).await.unwrap();
    let (here, away) = (place.folder.path().join("runs"), place.folder.path().join("away"));
    let lines: [&[&str]; 6] = [
        &["answer", "pay-1", "yes"],
        &["pause", "pay-1"],
        &["goto", "chat-1", "end", "--reason", "enough", "--yes"],
        &["send", "chat-1", "hello"],
        &["retry", "pay-3"],
        &["fork", "pay-2", "approve@1", "--id", "again", "--yes"],
    ];
    for line in lines {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ferrata"))
            .args(line)
            .args(["-o", "ids", "--store", &place.url()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // From now on, the command polls for up to two seconds whether a process claims the run.
        let mut told = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut told).unwrap();
        assert!(told.starts_with(if line[0] == "fork" { "again" } else { line[1] }), "{line:?}: {told}");
        std::fs::rename(&here, &away).unwrap();
        let output = child.wait_with_output().unwrap();
        std::fs::rename(&away, &here).unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{line:?}: {told}");
        assert!(!told.contains("error: "), "{line:?}: {told}");
    }
}

/// A fork lists the effects that it would repeat, and asks before it continues.
///
/// Guarantees: CLI-18.
#[tokio::test(flavor = "multi_thread")]
async fn fork_that_repeats_effects_asks_confirmation() {
    let place = Place::new();
    let service = some_runs(&place).await;
    let charged = service.run(&charge(), "charge-1", Context::new()).await;
    service.until(&charged, RunStatus::Interrupted).await;
    place.ok(&["answer", "charge-1", "card", "--resolve", "retry"]);
    service.until(&charged, RunStatus::Completed).await;
    for (line, lists) in [
        (
            &["fork", "pay-2", "begin@1", "--id", "again", "--set", "amount=7 EUR"][..],
            "\n  send  write, 1×\nnext:",
        ),
        (&["fork", "pay-2", "--start-at", "send", "--id", "again"], "\n  send  write, 1×\nnext:"),
        (&["fork", "charge-1", "0", "--id", "again"], "\n  card  external, 1×\nnext:"),
    ] {
        let said = place.call(line);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{line:?}: {said:?}");
        assert!(said.err.contains(lists), "{line:?}: {said:?}");
        assert_eq!(place.call(&["show", "again"]).code, 4, "{line:?} forked without confirmation");
        let next = said.err.lines().find_map(|line| line.strip_prefix("next: ")).unwrap().to_owned();
        assert!(next.ends_with("--yes"), "{next}");
        if line.contains(&"0") {
            let typed = place.shell(&next);
            assert_eq!((typed.code, typed.out.contains("again")), (0, true), "{typed:?}");
        }
    }
    // After the last record, there are no effects to repeat.
    place.ok(&["fork", "pay-1", "--id", "latest"]);
}

/// The list of repeated effects is complete: it includes unknown outcomes, effects before the nodes of `--start-at`, and those of a fork or a pruned
/// log.
///
/// Guarantees: CLI-18.
#[tokio::test(flavor = "multi_thread")]
async fn fork_asks_confirmation_for_every_possible_repeat() {
    let place = Place::new();
    let service = some_runs(&place).await;
    let charged = service.run(&charge(), "charge-1", Context::new()).await;
    service.until(&charged, RunStatus::Interrupted).await;
    place.ok(&["fork", "pay-2", "begin@1", "--id", "fork", "--yes"]);
    service.until(&key("fork"), RunStatus::Interrupted).await;
    place.ok(&["answer", "fork", "yes"]);
    service.until(&key("fork"), RunStatus::Completed).await;
    place.ok(&["export", "pay-2", "--to", "pay.jsonl"]);
    place.ok(&["import", "pay.jsonl", "--id", "pruned"]);
    place.ok(&["prune", "pruned", "--keep-last", "1", "--yes"]);
    for (line, lists) in [
        (&["fork", "charge-1"][..], "\n  card  external, 1×\nnext:"),
        (&["fork", "charge-1", "0"], "\n  card  external, 1×\nnext:"),
        (&["fork", "pay-2", "--start-at", "begin"], "\n  begin  write, 1×\n  send  write, 1×\nnext:"),
        (&["fork", "fork", "0"], "\n  send  unknown effect, 1×\nnext:"),
        (&["fork", "pruned", "--start-at", "send"], "\n  send  unknown effect, 1×\nnext:"),
    ] {
        let said = place.call(&[line, &["--id", "again"]].concat());
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{line:?}: {said:?}");
        assert!(said.err.contains(lists), "{line:?}: {said:?}");
        assert_eq!(place.call(&["show", "again"]).code, 4, "{line:?} forked without confirmation");
    }
    let said = place.call(&["fork", "pay-2", "--start-at", "sent"]);
    assert_eq!(said.code, 4, "an unknown node must be reported before any question: {said:?}");
    // The fork does not repeat a skipped node either.
    service.runtime.shutdown(Duration::ZERO).await.unwrap();
    place.ok(&["answer", "charge-1", "card", "--resolve", "skip"]);
    place.ok(&["fork", "charge-1", "--id", "skipped"]);
}

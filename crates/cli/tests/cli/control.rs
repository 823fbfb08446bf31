//! Signals from the command reach the runs of a service.

use std::io::BufRead;

use ferrata::record::RunStatus;
use ferrata::{Context, RunKey};

use crate::service::{Service, busy, charge, chat, pay, some_runs};
use crate::support::Place;

fn key(id: &str) -> RunKey {
    RunKey::try_from(id).unwrap()
}

/// Guarantees: CLI-15.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_reaches_the_service() {
    let place = Place::new();
    let service = some_runs(&place).await;
    assert_eq!(place.ok(&["questions", "pay-1", "-o", "ids"]).split_whitespace().next(), Some("pay-1"));
    // `y` is a unique prefix of a choice.
    place.ok(&["answer", "pay-1", "y", "--by", "bob"]);
    service.until(&key("pay-1"), RunStatus::Completed).await;
    assert_eq!(place.json(&["state", "pay-1", "/answer"]), "yes");
    assert!(place.ok(&["logs", "pay-1"]).contains("bob answered"));
    let again = place.call(&["answer", "pay-1", "approve", "yes"]);
    assert_eq!(again.code, 8, "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_answer_and_rejection_have_different_outcomes() {
    let place = Place::new();
    let service = some_runs(&place).await;
    let wrong = place.call(&["answer", "pay-1", "perhaps"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.err.contains("yes") && wrong.err.contains("next: ferrata answer pay-1"), "{wrong:?}");
    let nothing = place.call(&["answer", "pay-1"]);
    assert_eq!(nothing.code, 2, "without a terminal, the command must not ask: {nothing:?}");
    assert_eq!(place.call(&["wait", "pay-1"]).code, 5, "the run must still wait");
    place.ok(&["answer", "pay-1", "--reject", "too much"]);
    service.until(&key("pay-1"), RunStatus::Failed).await;
    assert!(place.ok(&["show", "pay-1"]).contains("too much"));
}

/// Guarantees: CLI-15.
#[tokio::test(flavor = "multi_thread")]
async fn messages_reach_the_service_in_order() {
    let place = Place::new();
    let service = some_runs(&place).await;
    place.ok(&["send", "chat-1", "hello"]);
    let file = place.write("message.json", "\"from a file\"");
    place.ok(&["send", "chat-1", &format!("@{}", file.display())]);
    assert_eq!(place.call_with(&["send", "chat-1", "-"], "bye", &[("FERRATA_STORE", &place.url())]).code, 0);
    service.until(&key("chat-1"), RunStatus::Completed).await;
    assert_eq!(place.json(&["state", "chat-1", "/last"]), "from a file");
    assert_eq!(place.call(&["send", "chat-1", "late"]).code, 8);
}

/// Guarantees: CLI-15.
#[tokio::test(flavor = "multi_thread")]
async fn pause_stops_run_unpause_continues_it() {
    let place = Place::new();
    let service = Service::start(&place).await;
    let run = service.run(&chat(), "chat-1", Context::new()).await;
    service.until(&run, RunStatus::AwaitingInput).await;
    place.ok(&["pause", "chat-1", "--reason", "lunch", "--by", "ann"]);
    service.until(&run, RunStatus::Interrupted).await;
    let shown = place.ok(&["show", "chat-1"]);
    assert!(shown.contains("lunch") && shown.contains("next: ferrata unpause chat-1"), "{shown}");
    place.ok(&["send", "chat-1", "bye"]);
    assert_eq!(place.json(&["ls"])[0]["status"], "interrupted", "a paused run must wait");
    place.ok(&["unpause", "chat-1"]);
    service.until(&run, RunStatus::Completed).await;
}

/// Guarantees: CLI-15.
#[tokio::test(flavor = "multi_thread")]
async fn cancel_stops_active_run_after_confirmation() {
    let place = Place::new();
    let service = Service::start(&place).await;
    let run = service.run(&busy(), "busy-1", Context::new()).await;
    let refused = place.call(&["cancel", "busy-1"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("next: ferrata cancel busy-1 --yes"), "{refused:?}");
    let timeout = place.call(&["wait", "busy-1", "--timeout", "50ms"]);
    assert_eq!(timeout.code, 7, "the run must continue unchanged: {timeout:?}");
    let url = place.url();
    let said = place.call_with(
        &["cancel", "-", "--yes", "--reason", "enough"],
        "busy-1\n",
        &[("FERRATA_STORE", &url)],
    );
    assert_eq!(said.code, 0, "{said:?}");
    service.until(&run, RunStatus::Cancelled).await;
    assert_eq!(place.call(&["wait", "busy-1"]).code, 6);
    assert!(place.ok(&["show", "busy-1"]).contains("enough"));
}

/// A bulk action selects runs by a filter, and lists refusals after the others.
///
/// Guarantees: CLI-16, CONTROL-10.
#[tokio::test(flavor = "multi_thread")]
async fn flags_select_runs_for_bulk_verb() {
    let place = Place::new();
    let service = Service::start(&place).await;
    for id in ["busy-1", "busy-2"] {
        service.run(&busy(), id, Context::new()).await;
    }
    let other = service.run(&chat(), "chat-1", Context::new()).await;
    service.until(&other, RunStatus::AwaitingInput).await;
    let listed = place.call(&["cancel", "--workflow", "busy", "--label", "team=red", "--dry-run"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(listed.out.contains("busy-1") && listed.out.contains("busy-2"), "{listed:?}");
    assert!(!listed.out.contains("chat-1") && listed.err.contains("dry run, nothing changed"), "{listed:?}");
    let refused = place.call(&["cancel", "--workflow", "busy"]);
    assert!(refused.code == 2 && refused.err.contains("cancel 2 runs for good"), "{refused:?}");
    assert_eq!(
        place.call(&["cancel", "busy-1", "--workflow", "busy"]).code,
        2,
        "runs must not be both named and selected"
    );
    assert_eq!(place.call(&["cancel", "--yes"]).code, 2, "runs must be named or selected");

    place.ok(&["cancel", "--workflow", "busy", "--yes", "--reason", "enough"]);
    for id in ["busy-1", "busy-2"] {
        service.until(&key(id), RunStatus::Cancelled).await;
    }
    let none = place.call(&["cancel", "--workflow", "busy", "--yes"]);
    assert!(
        none.code == 0 && none.err.contains("no matching runs"),
        "ended runs must not be selected: {none:?}"
    );
    place.ok(&["pause", "--label", "team=red"]);
    service.until(&other, RunStatus::Interrupted).await;
    place.ok(&["unpause", "--workflow", "chat"]);
    service.until(&other, RunStatus::AwaitingInput).await;
    place.ok(&["purge", "--status", "cancelled", "--yes"]);
    assert_eq!(place.ok(&["ls", "-o", "ids"]).split_whitespace().collect::<Vec<_>>(), ["chat-1"]);
}

/// Piped ids must be complete. An id whose run is gone must not match another run as its prefix.
///
/// Guarantees: CLI-7.
#[tokio::test(flavor = "multi_thread")]
async fn stdin_id_is_never_prefix_match() {
    let place = Place::new();
    let service = Service::start(&place).await;
    let run = service.run(&busy(), "busy-12", Context::new()).await;
    let other = service.runtime.start(&chat(), Context::new()).id("chat-1").tenant("red").await.unwrap();
    service.until(other.run(), RunStatus::AwaitingInput).await;
    let url = place.url();
    let env = [("FERRATA_STORE", url.as_str())];
    for (line, input) in [
        (&["cancel", "-", "--yes"][..], "busy-1\n"),
        (&["cancel", "-", "--yes"], "chat-1\n"),
        (&["cancel", "-", "--yes", "--tenant", "red"], "chat\n"),
        (&["cancel", "-", "--dry-run"], "busy-1\n"),
        (&["purge", "-", "--yes", "--force"], "busy-1\n"),
        (&["purge", "-", "--yes", "--force"], "red/chat\n"),
    ] {
        let said = place.call_with(line, input, &env);
        assert_eq!((said.code, said.out.as_str()), (4, ""), "{line:?} {input}: {said:?}");
        assert!(said.err.contains("its full id is required here"), "{line:?} {input}: {said:?}");
    }
    // Both runs continue unchanged.
    for (run, records) in [(&run, 0), (other.run(), 1)] {
        let head = service.runtime.head(run).await.unwrap().unwrap();
        assert!(!head.status.is_finished() && head.seq.get() <= records, "{head:?}");
    }
    // On the command line, an id may be a prefix.
    assert_eq!(place.call(&["cancel", "busy-1", "--dry-run", "-o", "ids"]).out, "busy-12\n");
    let said = place.call_with(&["cancel", "-", "--yes", "--tenant", "red"], "chat-1\n", &env);
    assert_eq!(said.code, 0, "{said:?}");
    service.until(other.run(), RunStatus::Cancelled).await;
}

/// With a tenant in the environment, ids that one command prints for the default tenant still name those runs in the next command.
///
/// Guarantees: CLI-7.
#[tokio::test(flavor = "multi_thread")]
async fn printed_id_selects_run_despite_tenant_setting() {
    let place = Place::new();
    let service = Service::start(&place).await;
    let ours = service.run(&chat(), "chat-1", Context::new()).await;
    let theirs = service.runtime.start(&chat(), Context::new()).id("chat-1").tenant("red").await.unwrap();
    for run in [&ours, theirs.run()] {
        service.until(run, RunStatus::AwaitingInput).await;
    }
    let url = place.url();
    let env = [("FERRATA_STORE", url.as_str()), ("FERRATA_TENANT", "red")];
    let said = |line: &[&str], input: &str| {
        let said = place.call_with(line, input, &env);
        assert_eq!(said.code, 0, "{line:?}: {said:?}");
        said
    };
    let listed = said(&["ls", "--tenant", "default", "-o", "ids"], "").out;
    assert_eq!(listed, "default/chat-1\n");
    assert_eq!(said(&["ls", "-o", "ids"], "").out, "red/chat-1\n");
    assert_eq!(
        place.ok(&["ls", "--tenant", "default", "-o", "ids"]),
        listed,
        "this also holds without the variable"
    );
    // The text output and its suggested commands also name the tenant.
    let shown = said(&["show", "default/chat-1"], "");
    assert!(!shown.out.contains(" chat-1") && !shown.err.contains(" chat-1"), "{shown:?}");
    let done = said(&["cancel", "-", "--yes", "-o", "ids"], &listed).out;
    assert_eq!(done, listed);
    service.until(&ours, RunStatus::Cancelled).await;
    let other = service.runtime.head(theirs.run()).await.unwrap().unwrap();
    assert_eq!(other.status, RunStatus::AwaitingInput, "the other tenant's run must be unchanged");
    said(&["purge", "-", "--yes"], &done);
    assert!(service.runtime.head(&ours).await.unwrap().is_none());
}

/// Guarantees: CLI-15.
#[tokio::test(flavor = "multi_thread")]
async fn retry_after_edit_completes_failed_run() {
    let place = Place::new();
    let service = some_runs(&place).await;
    assert_eq!(place.call(&["wait", "pay-3"]).code, 1);
    let unfit = place.call(&["edit", "pay-3", "--set", "broken=maybe"]);
    assert_eq!(unfit.code, 2, "{unfit:?}");
    assert!(unfit.err.contains("--force"), "{unfit:?}");
    place.ok(&["edit", "pay-3", "--set", "broken=false", "--by", "ann"]);
    place.ok(&["retry", "pay-3"]);
    service.until(&key("pay-3"), RunStatus::Completed).await;
    assert_eq!(place.json(&["state", "pay-3", "/sent"]), true);
    let many = place.call(&["retry", "pay-3", "nobody"]);
    assert_eq!(many.code, 8, "the first refusal must be listed: {many:?}");
    assert!(many.err.contains("nobody"), "the second run must still be tried: {many:?}");
}

/// Guarantees: CLI-15.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_run_goes_on_elsewhere() {
    let place = Place::new();
    let service = some_runs(&place).await;
    let asked = place.call(&["goto", "pay-3", "begin", "--reason", "from the start"]);
    assert!(
        asked.code == 2
            && asked.err.contains("drop the unfinished activations of pay-3 and continue at begin"),
        "{asked:?}"
    );
    let unknown = place.call(&["goto", "pay-3", "begni", "--reason", "from the start", "--yes"]);
    assert!(unknown.err.contains("did you mean `begin`?"), "{unknown:?}");
    assert!(place.call(&["goto", "pay-3", "begin", "--yes"]).code == 2, "the command must ask for a reason");
    place.ok(&["goto", "pay-3", "begin", "--reason", "from the start", "--by", "ann", "--yes"]);
    // The node asks again whether to pay.
    service.until(&key("pay-3"), RunStatus::Interrupted).await;
    let told = place.ok(&["show", "pay-3", "--report"]);
    assert!(told.contains("ann moved it to `begin`: from the start"), "{told}");
}

/// Guarantees: CLI-15.
#[tokio::test(flavor = "multi_thread")]
async fn a_fork_is_taken_up_by_the_service() {
    let place = Place::new();
    let service = some_runs(&place).await;
    let before = place.ok(&["export", "pay-2"]);
    place.ok(&[
        "fork",
        "pay-2",
        "approve@1",
        "--id",
        "again",
        "--set",
        "amount=7",
        "--label",
        "try=2",
        "--yes",
    ]);
    service.until(&key("again"), RunStatus::Completed).await;
    assert_eq!(place.json(&["state", "again", "/amount"]), 7);
    assert_eq!(place.json(&["ls", "--label", "try=2", "--parent", "pay-2"])[0]["run"]["run"], "again");
    assert_eq!(place.ok(&["export", "pay-2"]), before, "the source must be unchanged");
    assert!(place.ok(&["diff", "pay-2", "latest", "again:latest"]).contains("~ /amount  120 → 7"));
    let place_of_none = place.call(&["fork", "pay-2", "send@9"]);
    assert_eq!(place_of_none.code, 4, "{place_of_none:?}");
    assert!(place_of_none.err.contains("next: ferrata fork pay-2 --list"), "{place_of_none:?}");
}

/// Guarantees: CLI-14.
#[tokio::test(flavor = "multi_thread")]
async fn followed_logs_end_with_the_run() {
    let place = Place::new();
    let service = Service::start(&place).await;
    let run = service.run(&pay(), "pay-1", Context::new()).await;
    service.until(&run, RunStatus::Interrupted).await;
    let rests_at = service.runtime.head(&run).await.unwrap().unwrap().seq.get();
    let mut follow = std::process::Command::new(env!("CARGO_BIN_EXE_ferrata"))
        .args(["logs", "pay-1", "-f", "--store", &place.url(), "-o", "jsonl"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(follow.stdout.take().unwrap()).lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        line["seq"].as_u64().unwrap()
    });
    // These records follow the start of the command, so they are not part of its first read.
    let mut seqs = Vec::new();
    while seqs.last() != Some(&rests_at) {
        seqs.push(lines.next().expect("the command must follow the run to its end"));
    }
    place.ok(&["answer", "pay-1", "yes"]);
    seqs.extend(lines);
    assert_eq!(follow.wait().unwrap().code(), Some(0));
    let all = place.json(&["history", "pay-1", "--all"]).as_array().unwrap().len() as u64;
    assert_eq!(seqs, (0..all).collect::<Vec<_>>(), "each record once, in order");
}

/// For an unknown outcome, `show` names the work and lists all four resolutions as commands. A plain `retry` would risk paying twice.
#[tokio::test(flavor = "multi_thread")]
async fn show_offers_four_resolutions_of_unknown_outcome() {
    let place = Place::new();
    let service = Service::start(&place).await;
    let ends = [
        ("supply", RunStatus::Completed),
        ("skip", RunStatus::Completed),
        ("fail", RunStatus::Failed),
        ("retry", RunStatus::Completed),
    ];
    for (at, (how, status)) in ends.into_iter().enumerate() {
        let name = format!("charge-{how}");
        let run = service.run(&charge(), &name, Context::new()).await;
        service.until(&run, RunStatus::Interrupted).await;
        let shown = place.ok(&["show", &name]);
        let why = "? card@1  It failed, and whether its work was done is unknown: the bank hung up";
        assert!(shown.contains(why), "{shown}");
        assert!(!shown.contains("next:"), "no default resolution must be suggested: {shown}");
        let commands: Vec<&str> =
            shown.lines().map(str::trim).filter(|line| line.starts_with("ferrata answer")).collect();
        assert_eq!(commands.len(), 4, "{shown}");
        assert!(commands[at].contains(how), "{shown}");
        let value = place.call(&["answer", &name, "yes"]);
        assert!(value.err.contains(&format!("next: ferrata show {name}")), "{value:?}");
        let typed = place.shell(commands[at]);
        assert_eq!(typed.code, 0, "{typed:?}");
        service.until(&run, status).await;
    }
}

/// `--watch` repeats a listing.
///
/// Guarantees: CLI-14.
#[tokio::test(flavor = "multi_thread")]
async fn watch_prints_until_nothing_changes() {
    let place = Place::new();
    let service = Service::start(&place).await;
    let run = service.run(&pay(), "pay-1", Context::new()).await;
    service.until(&run, RunStatus::Interrupted).await;
    let watch = |line: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ferrata"));
        command
            .args(line)
            .args(["--store", &place.url(), "--time", "unix"])
            .stdout(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let mut list = watch(&["ls", "--watch=10ms"]);
    let show = watch(&["show", "pay-1", "--watch=10ms"]);
    let mut lines = std::io::BufReader::new(list.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    assert!(lines.any(|line| line.contains("interrupted")));
    place.ok(&["answer", "pay-1", "yes"]);
    assert!(lines.any(|line| line.contains("completed")));
    // One run ends. The listing continues until it is interrupted, or its reader is gone.
    let shown = show.wait_with_output().unwrap();
    assert_eq!(shown.status.code(), Some(0));
    assert!(String::from_utf8(shown.stdout).unwrap().contains("completed"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&list), rustix::process::Signal::INT)
        .unwrap();
    assert_eq!(list.wait().unwrap().code(), Some(130));
}

/// Ctrl-C during a bulk operation must not lose the list of the runs that were already signalled.
///
/// Guarantees: CLI-16.
#[tokio::test(flavor = "multi_thread")]
async fn bulk_verb_prints_each_run_at_once() {
    let place = Place::new();
    let service = some_runs(&place).await;
    service.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    for (verb, format) in [("pause", "jsonl"), ("cancel", "ids")] {
        // This lock on the log blocks the writes to the second run.
        let log = std::fs::File::open(place.folder.path().join("runs/runs/default/chat-1.jsonl")).unwrap();
        log.lock_shared().unwrap();
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_ferrata"))
            .args(["-o", format, "--quiet", "--store", &place.url(), verb, "pay-1", "chat-1"])
            .args((verb == "cancel").then_some("--yes"))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines =
            std::io::BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        assert!(lines.next().unwrap().contains("pay-1"));
        drop(log);
        assert!(lines.next().expect("the second run must be listed, too").contains("chat-1"));
        assert_eq!((lines.next(), child.wait().unwrap().code()), (None, Some(0)));
    }
}

/// A failed poll is reported, and the watch continues until the store is back.
///
/// Guarantees: CLI-14.
#[tokio::test(flavor = "multi_thread")]
async fn watch_polls_again_after_store_outage() {
    let place = Place::new();
    drop(some_runs(&place).await);
    let mut list = std::process::Command::new(env!("CARGO_BIN_EXE_ferrata"))
        .args(["ls", "--watch=10ms", "-o", "ids", "--store", &place.url()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(list.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let mut told = std::io::BufReader::new(list.stderr.take().unwrap()).lines().map(|line| line.unwrap());
    assert_eq!(lines.next().as_deref(), Some("pay-3"));
    let (here, away) = (place.folder.path().join("runs"), place.folder.path().join("away"));
    std::fs::rename(&here, &away).unwrap();
    assert!(
        told.any(|line| line.starts_with("error: ")),
        "the command must report that the store is unavailable"
    );
    std::fs::rename(&away, &here).unwrap();
    // Earlier output comes first.
    place.ok(&["fork", "pay-1", "--id", "new", "--quiet"]);
    assert!(lines.any(|line| line == "new"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&list), rustix::process::Signal::INT)
        .unwrap();
    assert_eq!(list.wait().unwrap().code(), Some(130));
}

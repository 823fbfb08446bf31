//! Killed, interrupted and resumed runs.

use rustix::process::Signal;

use crate::support::{Place, gone, history, until};

/// `b` writes its process id and that of a child, and continues once the file `go` exists.
const SLOW: &str = r#"
    a [tool_command="echo a >> log"]
    b [tool_command="echo b >> log; if [ ! -e go ]; then sleep 1000 & echo $! >> pids; echo $$ >> pids; wait; fi"]
    c [tool_command="echo c >> log"]
    start -> a -> b -> c -> exit"#;

/// Guarantees: PIPELINE-1.
#[test]
fn killed_run_continues_without_leftover_processes() {
    let place = Place::new();
    place.pipeline("K", SLOW);
    let run = place.spawn(&["run", "K.dot", "--run-dir", "d"]);
    let pids = place.pids("pids", 2);
    run.kill();
    gone(&pids);
    place.write("go", "");
    let said = place.call(&["resume", "d"]).ends(0);
    assert_eq!(said.json()["status"], "completed");
    assert_eq!(place.read("log"), "a\nb\nb\nc\n", "recorded nodes must not run again");
    assert_eq!(history(&place.path("d")), ["start", "a", "b", "c", "exit"]);
    // As in the third source document, with the file and the directory to resume.
    let said = place.call(&["run", "K.dot", "--resume", "d"]).ends(0);
    assert!(said.err.contains("is already completed"), "{}", said.err);
    assert_eq!(said.json()["status"], "completed");
}

/// Guarantees: PIPELINE-4.
#[test]
fn first_ctrl_c_saves_run_and_prints_resume() {
    for signal in [Signal::INT, Signal::TERM] {
        let place = Place::new();
        place.pipeline("K", SLOW);
        let run = place.spawn(&["run", "K.dot", "--run-dir", "d"]);
        let pids = place.pids("pids", 2);
        run.tell(signal);
        let said = run.end().ends(130);
        gone(&pids);
        assert_eq!(said.json()["status"], "in_progress");
        assert_eq!(said.next(), ["resume", "d"]);
        place.write("go", "");
        let next = said.next();
        let line: Vec<&str> = next.iter().map(String::as_str).collect();
        place.call(&line).ends(0);
        assert_eq!(place.read("log"), "a\nb\nb\nc\n");
    }
}

/// Guarantees: PIPELINE-4.
#[test]
fn second_ctrl_c_exits_and_kills_stubborn_commands() {
    let place = Place::new();
    place.pipeline(
        "K",
        r#"b [tool_command="trap '' TERM; echo $$ >> pids; while [ ! -e go ]; do sleep 0.05; done"] start -> b -> exit"#,
    );
    // A grace that never ends first, even on a busy machine.
    let mut run = place.spawn(&["run", "K.dot", "--run-dir", "d", "--grace", "1h"]);
    let pids = place.pids("pids", 1);
    // Two equal signals may merge into one, so repeat the signal until the command exits.
    until("it leaves", || {
        let ended = run.has_ended();
        if !ended {
            run.tell(Signal::INT);
        }
        ended
    });
    let said = run.end().ends(130);
    assert!(said.out.is_empty(), "the command waited for nothing: {}", said.out);
    gone(&pids);
    assert_eq!(said.next(), ["resume", "d"]);
    place.write("go", "");
    place.call(&["resume", "d"]).ends(0);
}

/// The first node runs before the start returns. A signal in between must end the command with the report of an interrupted run.
///
/// Guarantees: PIPELINE-4.
#[test]
fn signal_at_start_stops_run() {
    for _ in 0..4 {
        let place = Place::new();
        place.pipeline("K", SLOW);
        // The command blocks at its first printed line, after the start.
        let (run, stderr) = place.spawn_with_full_stderr(&["run", "K.dot", "--run-dir", "d"]);
        let pids = place.pids("pids", 2);
        run.tell(Signal::INT);
        let (said, err) = run.end_reading(stderr);
        assert_eq!(said.code, 130, "{err}");
        assert!(err.contains("was stopped; recorded results are kept"), "{err}");
        gone(&pids);
        assert_eq!(said.json()["status"], "in_progress");
        place.write("go", "");
        place.call(&["resume", "d"]).ends(0);
    }
}

/// Guarantees: PIPELINE-3.
#[test]
fn run_of_live_process_is_refused_without_takeover() {
    let place = Place::new();
    place.pipeline("K", SLOW);
    let first = place.spawn(&["run", "K.dot", "--run-dir", "d"]);
    let pids = place.pids("pids", 2);
    let said = place.call(&["resume", "d"]).ends(8);
    assert!(said.err.contains("another process drives run"), "{}", said.err);
    let said = place.call(&["run", "K.dot", "--run-dir", "d"]).ends(8);
    assert!(said.err.contains("already has the run"), "{}", said.err);
    place.write("go", "");
    place.call(&["resume", "d", "--take-over"]).ends(0);
    let said = first.end();
    assert_eq!(said.code, 8, "{}", said.err);
    gone(&pids);
    assert_eq!(history(&place.path("d")), ["start", "a", "b", "c", "exit"]);
}

/// Guarantees: PIPELINE-17.
#[test]
fn default_store_finds_run_by_pipeline_and_id() {
    let place = Place::new();
    place.pipeline("K", SLOW);
    let run = place.spawn(&["run", "K.dot", "--id", "k-1"]);
    place.pids("pids", 2);
    run.kill();
    place.write("go", "");
    place.call(&["run", "K.dot", "--resume"]).ends(0);
    assert_eq!(place.read("log"), "a\nb\nb\nc\n");
    place.call(&["run", "K.dot", "--resume"]).ends(4);
    assert_eq!(place.call(&["resume", "k-1"]).ends(0).json()["status"], "completed");
    assert_eq!(history(&place.path(".ferrata/runs/k-1")), ["start", "a", "b", "c", "exit"]);
    // A repeated start returns the same run.
    assert_eq!(place.call(&["run", "K.dot", "--id", "k-1"]).ends(0).json()["status"], "completed");
    place.call(&["run", "K.dot", "--id", "k-1", "--input", "a=b"]).ends(8);
    assert_eq!(place.read("log"), "a\nb\nb\nc\n");
}

#[test]
fn failed_run_names_files_and_can_retry() {
    let place = Place::new();
    place.pipeline("F", r#"t [tool_command="echo out; echo why >&2; test -e go"] start -> t -> exit"#);
    let said = place.call(&["run", "F.dot", "--run-dir", "d"]).ends(1);
    assert!(said.err.contains("why") && said.err.contains("see d/t/1.1/errors.txt"), "{}", said.err);
    assert_eq!(place.read("d/t/1.1/output.txt"), "out\n");
    assert_eq!(said.json()["status"], "failed");
    let refused = place.call(&["resume", "d"]).ends(8);
    assert!(refused.err.contains("ferrata retry"), "{}", refused.err);
    let id = said.json()["run"].as_str().unwrap().to_owned();
    place.write("go", "");
    place.call(&["retry", &id, "--store", "file:d/.ferrata"]).ends(0);
    place.call(&["resume", "d"]).ends(0);
}

/// The attempt after a retry has the number of the one before. The view of the earlier attempt must not count as files of the command.
///
/// Guarantees: DOT-5.
#[test]
fn retry_ignores_outcome_file_of_earlier_attempt() {
    let place = Place::new();
    let command = "test -e go || exit 3; until test -s d/t/1.1/status.json; do sleep 0.01; done; echo done";
    place.pipeline("R", &format!("t [tool_command=\"{command}\"] start -> t -> exit"));
    let said = place.call(&["run", "R.dot", "--run-dir", "d"]).ends(1);
    let id = said.json()["run"].as_str().unwrap().to_owned();
    place.write("go", "");
    place.call(&["retry", &id, "--store", "file:d/.ferrata"]).ends(0);
    place.call(&["resume", "d"]).ends(0);
    assert_eq!(place.read("d/t/1.1/output.txt"), "done\n");
    assert!(place.read("d/t/1.1/status.json").contains("success"));
}

/// Guarantees: PIPELINE-10.
#[test]
fn resume_recreates_lost_run_directory_views() {
    let place = Place::new();
    place.pipeline(
        "V",
        r#"a [tool_command="echo a"] ask [shape=hexagon] start -> a -> ask ask -> exit [label="Yes"]"#,
    );
    place.call(&["run", "V.dot", "--run-dir", "d"]).ends(5);
    let names = [
        "checkpoint.json",
        "manifest.json",
        "events.jsonl",
        "pipeline.dot",
        "a/1.1/output.txt",
        "a/1.1/status.json",
    ];
    let before = names.map(|name| place.read(&format!("d/{name}")));
    assert!(before.iter().all(|text| !text.is_empty()));
    for name in names {
        std::fs::remove_file(place.path(&format!("d/{name}"))).unwrap();
    }
    place.call(&["resume", "d", "--file", "V.dot"]).ends(5);
    assert_eq!(names.map(|name| place.read(&format!("d/{name}"))), before);
}

/// For an unknown outcome, an idle run prints all four resolutions as commands with the question. A plain `retry` would risk paying twice.
#[test]
fn idle_run_prints_four_resolutions_of_unknown_outcome() {
    for (at, how, log) in [
        (0, "--resolve supply --set", "pay\nafter\n"),
        (1, "skip", "pay\nafter\n"),
        (2, "fail:", "pay\n"),
        (3, "retry", "pay\npay\nafter\n"),
    ] {
        let place = Place::new();
        place.pipeline(
            "K",
            r#"pay [tool_command="echo pay >> log; [ -e go ]", effect=external, max_retries=2]
            after [tool_command="echo after >> log"] start -> pay -> after -> exit"#,
        );
        let said = place.call(&["run", "K.dot", "--run-dir", "d"]).ends(5);
        assert!(said.err.contains("It failed, and whether its work was done is unknown"), "{}", said.err);
        assert_eq!(said.next(), ["resume", "d"]);
        let commands: Vec<&str> =
            said.err.lines().map(str::trim).filter(|line| line.starts_with("ferrata answer ")).collect();
        assert_eq!(commands.len(), 4, "{}", said.err);
        assert!(commands[at].contains(how), "{}", said.err);
        place.write("go", "");
        place.shell(commands[at]).ends(0);
        place.call(&["resume", "d"]).ends(if how == "fail:" { 1 } else { 0 });
        assert_eq!(place.read("log"), log, "{how}");
    }
}

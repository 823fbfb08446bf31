//! The example pipelines as in the README, including kills and a server store.

use std::path::{Path, PathBuf};

use ferrata_test_servers::Service;
use ferrata_tests::Space;

use crate::support::{Place, history, until};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A folder with the pipelines at the paths of the README, and some texts.
fn place() -> Place {
    let place = Place::new();
    for entry in std::fs::read_dir(repository().join("examples/pipelines")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        place.write(&format!("examples/pipelines/{name}"), &std::fs::read_to_string(&path).unwrap());
    }
    for at in 1..=7 {
        let text = format!(
            "# Text {at}\n\nThis is text {at}. {}It ends here. And this is too much.\n",
            "A word. ".repeat(at)
        );
        place.write(&format!("texts/{at}.md"), &text);
    }
    place
}

const DIGEST: &str = "examples/pipelines/digest.dot";
const CHECK: &str = "examples/pipelines/check.dot";

fn is_digested(place: &Place) {
    let digest = place.read("out/digest.md");
    let order: Vec<&str> =
        digest.lines().filter_map(|line| line.strip_prefix("## texts/")?.split('.').next()).collect();
    assert_eq!(order, ["7", "6", "5", "4", "3", "2", "1"], "{digest}");
    assert!(digest.contains("This is text 3. A word."), "{digest}");
}

#[test]
fn digest_processes_each_file_once_as_chosen() {
    let place = place();
    let input = ["--input", "files=texts/*.md", "--input", "out=out"];
    let said = place.call(&[&["run", DIGEST, "--run-dir", "d"], &input[..]].concat()).ends(5);
    assert!(said.err.contains("Write the digest?") || said.err.contains("ask@1"), "{}", said.err);
    place.write("answers.json", r#"{"ask": "All of them"}"#);
    place.call(&["resume", "d", "--answers", "answers.json"]).ends(0);
    is_digested(&place);
    let summaries = history(&place.path("d")).iter().filter(|node| node.starts_with("sum_")).count();
    assert_eq!(summaries, 7);
    place.write("answers.json", r#"{"ask": "b"}"#);
    place
        .call(&[&["run", DIGEST, "--run-dir", "e", "--answers", "answers.json"], &input[..]].concat())
        .ends(0);
    assert_eq!(place.read("out/digest.md").matches("## ").count(), 3);
    place.call(&["run", DIGEST, "--run-dir", "f", "--input", "files=nowhere.md"]).ends(1);
}

#[test]
fn digest_that_is_killed_goes_on() {
    let place = place();
    digest_is_killed(&place, &["--run-dir", "d"], &[]);
}

/// Starts a digest, kills it once some files are summarised, and resumes it with `--resume`.
fn digest_is_killed(place: &Place, at: &[&str], more: &[(&str, String)]) {
    let start = [
        &["run", DIGEST, "--input", "files=texts/*.md", "--input", "out=out", "--auto-answer", "--backend"],
        &["echo $FERRATA_CONTEXT_tool_output >> seen; [ -e go ] || [ $(wc -l < seen) -lt 4 ] || sleep 1000; sh examples/pipelines/summarise.sh"][..],
        at,
    ]
    .concat();
    let command = |line: &[&str]| {
        let mut command = place.command(line);
        command.envs(more.iter().map(|(name, value)| (*name, value.as_str())));
        crate::support::Running::of(command)
    };
    let run = command(&start);
    until("four files are at work", || place.read("seen").lines().count() >= 4);
    run.kill();
    place.write("go", "");
    let resume = [
        &["run", DIGEST, "--resume", "--auto-answer", "--backend"],
        &["echo $FERRATA_CONTEXT_tool_output >> seen; sh examples/pipelines/summarise.sh"][..],
        at,
    ]
    .concat();
    command(&resume).end().ends(0);
    is_digested(place);
    // Recorded files are not summarised again. At most three were running.
    let seen = place.read("seen").lines().count();
    assert!((7..=10).contains(&seen), "{seen}");
}

#[test]
fn check_repairs_at_most_twice_then_asks() {
    let place = place();
    let run = |directory: &str, tests: &str| {
        let tests = format!("tests={tests}");
        place.call(&[
            "run",
            CHECK,
            "--run-dir",
            directory,
            "--auto-answer",
            "--input",
            "report=report.md",
            "--input",
            "fmt=true",
            "--input",
            "lint=true",
            "--input",
            &tests,
            "--input",
            "fix=echo fixed >> fixes",
        ])
    };
    run("good", "true").ends(0);
    assert!(
        place.read("report.md").contains("- tests: success")
            && place.read("report.md").ends_with("- a person: accepted\n")
    );
    assert_eq!(place.read("fixes"), "");
    run("mended", "test $(wc -l < fixes) -ge 1").ends(0);
    assert!(place.read("report.md").contains("- tests: success"), "{}", place.read("report.md"));
    let before = place.read("fixes").lines().count();
    run("bad", "echo it is broken >&2; exit 3").ends(0);
    assert_eq!(place.read("fixes").lines().count() - before, 2);
    let report = place.read("report.md");
    assert!(report.contains("- tests: fail (the command ended with status 3: it is broken)"), "{report}");
    // All three fail at once, which fails the join.
    let fails =
        ["--input", "fmt=false", "--input", "lint=false", "--input", "tests=false", "--input", "fix=true"];
    place
        .call(
            &[
                &["run", CHECK, "--run-dir", "worst", "--auto-answer", "--input", "report=report.md"],
                &fails[..],
            ]
            .concat(),
        )
        .ends(0);
    assert_eq!(place.read("report.md").matches(": fail (").count(), 3, "{}", place.read("report.md"));
}

#[test]
fn killed_check_continues_with_running_nodes() {
    let place = place();
    let input = [
        "report=report.md",
        "fmt=echo fmt >> log",
        "lint=echo lint >> log",
        "tests=echo tests >> log; test -e go || sleep 1000",
    ];
    let input: Vec<&str> = input.iter().flat_map(|part| ["--input", part]).collect();
    let run = place.spawn(&[&["run", CHECK, "--run-dir", "d", "--auto-answer"], &input[..]].concat());
    let log = || place.read("log").lines().count();
    until("the checks are at work", || {
        log() == 3 && place.read("d/events.jsonl").matches("node.finished").count() >= 4
    });
    run.kill();
    place.write("go", "");
    place.call(&["resume", "d", "--auto-answer"]).ends(0);
    let mut lines: Vec<String> = place.read("log").lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["fmt", "lint", "tests", "tests"]);
}

mod postgres {
    use super::{Service, Space, digest_is_killed, place};

    #[tokio::test]
    async fn killed_digest_continues_from_server() {
        Space::within(Some(Service::Postgres), async |space| {
            let place = place();
            digest_is_killed(&place, &["--store", space.url(), "--id", "digest-1"], &space.environment());
        })
        .await;
    }
}

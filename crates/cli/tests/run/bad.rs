//! Invalid input: a clear error and the documented exit code. No data is lost, and no process remains.

use std::fmt::Write as _;

use crate::support::{Place, gone};

#[test]
fn invalid_pipeline_is_refused_with_position() {
    let place = Place::new();
    place.write("no.dot", "this is no pipeline");
    let said = place.call(&["run", "no.dot", "--run-dir", "d"]).ends(3);
    assert!(
        said.err.contains("no.dot:1:1") && said.err.contains("next: ferrata lint no.dot"),
        "{}",
        said.err
    );
    let said = place.call(&["run", "nowhere.dot"]).ends(4);
    assert!(said.err.contains("cannot read `nowhere.dot`"), "{}", said.err);
    place.call(&["run"]).ends(2);
    // Ten million bytes of all values.
    let garbage: Vec<u8> =
        (0..10_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(place.path("garbage.dot"), garbage).unwrap();
    let said = place.call(&["run", "garbage.dot", "--run-dir", "d"]).ends(3);
    assert!(said.err.len() < 10_000, "the error must be short: {} bytes", said.err.len());
    assert!(!place.path("d").exists(), "nothing must start");
}

#[test]
fn node_id_with_path_is_refused() {
    let place = Place::new();
    for name in ["../x", "..", "/etc"] {
        place.pipeline("N", &format!("start -> {name} -> exit {name} [tool_command=x]"));
        place.call(&["run", "N.dot", "--run-dir", "d"]).ends(3);
    }
    assert!(!place.path("d").exists());
    // The id of a quoted name is a single path component.
    place.pipeline("N", "start -> \"../x\" -> exit \"../x\" [tool_command=true]");
    place.call(&["run", "N.dot", "--run-dir", "d"]).ends(0);
    assert!(place.path("d/___x/1.1/status.json").exists() && !place.path("x").exists());
}

#[test]
fn pipeline_with_lint_errors_is_refused() {
    let place = Place::new();
    place.pipeline("N", "a [tool_command=x] start -> a");
    let said = place.call(&["run", "N.dot"]).ends(3);
    assert!(said.err.contains("next: ferrata lint N.dot"), "{}", said.err);
    place.pipeline("E", "a start -> a -> exit");
    let said = place.call(&["run", "E.dot"]).ends(3);
    assert!(said.err.contains("the tool has no command"), "{}", said.err);
}

#[test]
fn gigabyte_command_output_stays_bounded() {
    let place = Place::new();
    place.pipeline(
        "P",
        r#"a [tool_command="head -c 1000000000 /dev/zero | tr '\\0' x; echo end"] start -> a -> exit"#,
    );
    let said = place.call(&["run", "P.dot", "--run-dir", "d"]).ends(0);
    let output = place.read("d/a/1.1/output.txt");
    assert!(
        output.len() < 100_000 && output.ends_with("xend\n") && output.contains("bytes left out"),
        "{}",
        output.len()
    );
    assert!(said.out.len() < 200_000, "{}", said.out.len());
}

#[test]
fn timeout_kills_endless_command_with_its_children() {
    let place = Place::new();
    // All processes have started before the timeout.
    let command =
        "for n in 1 2 3; do sh -c 'echo $$ >> pids; sleep 1000; true' & done; echo $$ >> pids; wait";
    place.pipeline("N", &format!("a [timeout=10s, tool_command=\"{command}\"] start -> a -> exit"));
    let said = place.call(&["run", "N.dot", "--run-dir", "d"]).ends(1);
    assert!(said.err.contains("timeout"), "{}", said.err);
    gone(&place.pids("pids", 4));
}

#[test]
fn background_processes_die_with_their_command() {
    let place = Place::new();
    let command = "for n in 1 2 3; do sleep 1000 & echo $! >> pids; done";
    place.pipeline("N", &format!("a [tool_command=\"{command}\"] start -> a -> exit"));
    place.call(&["run", "N.dot", "--run-dir", "d"]).ends(0);
    gone(&place.pids("pids", 3));
}

#[test]
fn store_outage_message_hides_password() {
    let place = Place::new();
    place.pipeline("S", r#"a [tool_command="touch touched"] start -> a -> exit"#);
    let url = "postgres://me:s3cret@127.0.0.1:1/db";
    let said = place.call(&["run", "S.dot", "--store", url, "--timeout", "30s"]).ends(70);
    assert!(said.err.contains("next: ") && !said.err.contains("s3cret"), "{}", said.err);
    let said = place.call(&["run", "S.dot", "--store", "pigeon:loft"]).ends(70);
    assert!(said.err.contains("no store for `pigeon:` URLs"), "{}", said.err);
    assert!(!place.path("touched").exists());
}

#[test]
fn unwritable_run_directory_is_error() {
    let place = Place::new();
    place.pipeline("S", r#"a [tool_command="touch touched"] start -> a -> exit"#);
    place.write("file", "");
    let said = place.call(&["run", "S.dot", "--run-dir", "file/d"]).ends(70);
    assert!(said.err.contains("file/d"), "{}", said.err);
    assert!(!place.path("touched").exists());
    place.call(&["resume", "nowhere"]).ends(4);
}

#[test]
fn pipeline_of_hundred_thousand_nodes_starts() {
    let place = Place::new();
    let mut text = String::from(
        "digraph Many { start [shape=Mdiamond] exit [shape=Msquare] node [shape=parallelogram, tool_command=true] start",
    );
    for at in 0..100_000 {
        write!(text, " -> n{at}").unwrap();
    }
    text.push_str(" -> exit }");
    let declared: String = (0..100_000).fold(String::new(), |mut all, at| {
        write!(all, "n{at} ").unwrap();
        all
    });
    let text = text.replacen("start ->", &format!("{declared} start ->"), 1);
    place.write("Many.dot", &text);
    let said = place.call(&[
        "run",
        "Many.dot",
        "--run-dir",
        "d",
        "--until",
        "n3",
        "--progress",
        "none",
        "-o",
        "ids",
    ]);
    said.ends(0);
}

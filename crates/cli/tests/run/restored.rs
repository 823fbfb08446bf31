//! Runs that restart from `checkpoint.json` alone.

use crate::support::{Place, history};

const GATE: &str = r#"
    a [tool_command="echo of a; echo a >> log", goal_gate=true, retry_target=a] b [tool_command="echo b >> log; echo $FERRATA_CONTEXT_tool_output"]
    ask [shape=hexagon, label="Ship?"] c [tool_command="echo c >> log"]
    start -> a -> b -> ask ask -> c [label="Yes"] c -> exit"#;

/// A directory that contains only a checkpoint.
fn only_a_checkpoint(text: Option<&str>) -> Place {
    let place = Place::new();
    place.pipeline("G", GATE);
    place.call(&["run", "G.dot", "--run-dir", "t", "--id", "g"]).ends(5);
    place.write("d/checkpoint.json", text.unwrap_or(&place.read("t/checkpoint.json")));
    place
}

/// A run can restart from its checkpoint without a log.
///
/// Guarantees: PIPELINE-15.
#[test]
fn a_checkpoint_alone_is_enough_to_go_on() {
    let place = only_a_checkpoint(None);
    let said = place.call(&["run", "G.dot", "--resume", "d", "--auto-answer"]).ends(0);
    assert_eq!(place.read("log"), "a\nb\nc\n", "ended nodes must not run again");
    assert!(
        said.err.contains("starts at `ask`") && said.err.contains("nodes that had ended: 3"),
        "{}",
        said.err
    );
    assert_eq!(said.json()["run"], "g");
    assert_eq!(said.json()["context"]["tool.output"], "");
    assert_eq!(history(&place.path("d")), ["ask", "c", "exit"]);
    assert!(
        place.read("d/checkpoint.json").contains("\"a\": \"success\""),
        "the goal gate must be met: {}",
        place.read("d/checkpoint.json")
    );
    // From then on, it is an ordinary run.
    assert_eq!(place.call(&["resume", "d"]).ends(0).json()["status"], "completed");
    let place = only_a_checkpoint(None);
    place.write("d/pipeline.dot", &place.read("G.dot"));
    place.call(&["resume", "d", "--auto-answer"]).ends(0);
    assert_eq!(place.read("log"), "a\nb\nc\n");
}

/// Guarantees: PIPELINE-15.
#[test]
fn checkpoint_of_other_programs_resumes() {
    for (current, completed, log) in [
        ("b", r#"["start", "a"]"#, "a\nb\nb\nc\n"),
        // Completed nodes are not repeated.
        ("b", r#"["start", "a", "b"]"#, "a\nb\nc\n"),
        ("start", "[]", "a\nb\na\nb\nc\n"),
    ] {
        let text = format!(
            r#"{{"context": {{"tool.output": "kept"}}, "current_node_id": "{current}", "completed_nodes": {completed}}}"#
        );
        let place = only_a_checkpoint(Some(&text));
        place.call(&["run", "G.dot", "--resume", "d", "--auto-answer"]).ends(0);
        assert_eq!(place.read("log"), log, "{text}");
    }
}

/// Guarantees: PIPELINE-15.
#[test]
fn damaged_checkpoint_is_refused_with_position() {
    for (text, part) in [
        ("{\n \"context\": {\n", "line 3"),
        ("{\"current_node\": \"b\"}", "missing field `context`"),
        ("{\"context\": {}, \"current_node_id\": \"nobody\"}", "no such node"),
        ("{\"context\": {\"x\": {\"artifact\": \"artifacts/00\", \"bytes\": 9}}}", "`x`: artifacts/00"),
    ] {
        let place = only_a_checkpoint(Some(text));
        let said = place.call(&["run", "G.dot", "--resume", "d"]);
        assert!(said.code != 0 && said.err.contains(part), "{text}: {said:?}");
        assert_eq!(place.read("log"), "a\nb\n");
        assert_eq!(place.read("d/checkpoint.json"), text, "the file must be unchanged");
    }
    let place = only_a_checkpoint(None);
    std::fs::remove_file(place.path("d/checkpoint.json")).unwrap();
    place.call(&["run", "G.dot", "--resume", "d"]).ends(4);
}

#[test]
fn branches_running_at_checkpoint_restart_at_fork() {
    let place = Place::new();
    place.pipeline(
        "P",
        r#"p [shape=component] a [tool_command="echo a >> log"] b [tool_command="echo b >> log"] f [shape=tripleoctagon]
           start -> p p -> a -> f p -> b -> f -> exit"#,
    );
    place.write("d/checkpoint.json", r#"{"context": {}, "next_nodes": ["b", "a"], "current_node": "p"}"#);
    let said = place.call(&["run", "P.dot", "--resume", "d"]).ends(0);
    assert!(said.err.contains("branches of `p` were running"), "{}", said.err);
    assert_eq!(history(&place.path("d")).first().map(String::as_str), Some("p"));
}

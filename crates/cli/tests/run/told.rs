//! The result of each node in every view. No view shows a failed node as successful.

use crate::support::Place;

/// A failure that an edge handles, a failed branch, an abandoned branch, and a partial join.
const MIXED: &str = r#"
    t [tool_command="echo no such file >&2; exit 3"]
    p [shape=component] a [tool_command="echo broken >&2; exit 4"] b [tool_command=true] f [shape=tripleoctagon]
    q [shape=component, join_policy=first_success] fast [tool_command=true] slow [tool_command="sleep 1000"] g [shape=tripleoctagon]
    start -> t  t -> p [condition="outcome=fail"]  t -> exit [condition="outcome=success"]
    p -> a -> f  p -> b -> f -> q  q -> fast -> g  q -> slow -> g -> exit"#;

/// A node whose failure an edge handled is shown as failed: in the progress, in `show`, in `logs` and in the picture.
///
/// Guarantees: PIPELINE-10.
#[test]
fn every_view_shows_node_failure_and_reason() {
    let place = Place::new();
    place.pipeline("M", MIXED);
    let ran = place.call(&["run", "M.dot", "--run-dir", "d", "--id", "m"]).ends(0);
    let line = |text: &str, parts: &[&str]| {
        let found = text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "no line contains all of {parts:?}:\n{text}");
    };
    let why = "the command ended with status 3: no such file";
    line(&ran.err, &[" fail ", " t ", why]);
    line(&ran.err, &[" fail ", " a ", "status 4: broken"]);
    line(&ran.err, &[" part ", " f "]);
    line(&ran.err, &[" skip ", " slow ", "abandoned"]);
    line(&ran.err, &[" done ", " b "]);
    let shown = place.call(&["show", "d"]).ends(0).out;
    line(&shown, &["t@1", "✗ fail", why, "→ p"]);
    line(&shown, &["a@1", "✗ fail", "broken"]);
    line(&shown, &["f@1", "◐ partial_success"]);
    line(&shown, &["slow@1", "- skipped", "abandoned"]);
    line(&shown, &["fast@1", "✓ done"]);
    let logs = place.call(&["logs", "d"]).ends(0).out;
    line(&logs, &["`t@1` ended with fail", why, "on to `p`"]);
    line(&logs, &["`slow@1` ended with skipped", "abandoned"]);
    assert!(!logs.contains("`t@1` succeeded") && logs.contains("`b@1` succeeded"), "{logs}");
    line(&place.call(&["show", "d", "--report"]).ends(0).out, &["`a@1` ended with fail", "broken"]);
    line(&place.call(&["fork", "d", "--list"]).ends(0).out, &["a@1", "fail"]);
    let picture = place.call(&["graph", "d", "--format", "svg"]).ends(0).out;
    for part in ["✗ t", "✗ a", "◐ f", "- slow", "✓ b", why] {
        assert!(picture.contains(part), "{part}: {picture}");
    }
    assert!(!picture.contains("✓ t") && !picture.contains("✓ slow"), "{picture}");
    let mermaid = place.call(&["graph", "d", "--format", "mermaid"]).ends(0).out;
    assert!(mermaid.contains("classDef partial") && mermaid.contains("classDef failed"), "{mermaid}");
}

/// A run that stops before the exit fails, and its message names the reason.
///
/// Guarantees: DOT-18.
#[test]
fn run_stopping_before_exit_fails_with_reason() {
    let place = Place::new();
    place.pipeline(
        "S",
        r#"w [tool_command=true] a [tool_command=true] b [tool_command=true] start -> w
           w -> a [condition="tool.output=yes"] w -> b [condition="tool.output=no"] a -> exit b -> exit"#,
    );
    let said = place.call(&["run", "S.dot", "--run-dir", "s"]).ends(1);
    for part in ["`w` ended with `success`", "to `a` if `tool.output=yes`", "to `b` if `tool.output=no`"] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
    assert!(!said.err.contains("completed"), "{}", said.err);
    place.pipeline("V", r#"a [tool_command=true, max_visits=2] start -> a a -> a [weight=1] a -> exit"#);
    let said = place.call(&["run", "V.dot", "--run-dir", "v"]).ends(1);
    assert!(said.err.contains("raise `max_visits`"), "{}", said.err);
    // An end other than the exit is reported.
    place.pipeline(
        "E",
        r#"a [tool_command=true] b [tool_command=true] start -> a a -> b [weight=1] a -> exit"#,
    );
    let said = place.call(&["run", "E.dot", "--run-dir", "e"]).ends(0);
    assert!(said.err.contains("ended at `b`, not at the exit"), "{}", said.err);
}

/// The message about a waiting gate contains its text, default and deadline.
///
/// Guarantees: PIPELINE-7.
#[test]
fn question_shows_default_and_deadline() {
    let place = Place::new();
    place.pipeline(
        "Q",
        r#"q [shape=hexagon, label="Ship it?", timeout=1h, human.default_choice=exit] a [tool_command=true]
           start -> q q -> exit [label="Yes"] q -> a [label="No"] a -> exit"#,
    );
    let said = place.call(&["run", "Q.dot", "--run-dir", "d", "--timeout", "2m"]).ends(5);
    for part in ["q@1:choice: Ship it?", "[Y] Yes | [N] No", "default \"Yes\" in 59m"] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
    let question = &said.json()["questions"][0];
    assert_eq!((&question["text"], &question["default"]), (&"Ship it?".into(), &"Yes".into()));
    assert!(question["deadline"].as_str().is_some_and(|at| at.ends_with('Z')), "{question}");
}

/// Nodes of a child are marked, and not counted as nodes of the run.
#[test]
fn child_nodes_are_marked_and_not_counted() {
    let place = Place::new();
    place.pipeline(
        "Parent",
        r#"w [shape=house, stack.child_dotfile="Child.dot", manager.poll_interval=10s] start -> w -> exit"#,
    );
    place.pipeline("Child", r#"a [tool_command=true] b [tool_command=true] start -> a -> b -> exit"#);
    let said = place.call(&["run", "Parent.dot", "--run-dir", "d", "--id", "p"]).ends(0);
    assert!(said.err.contains(" p.w.1:a ") && said.err.contains("completed: 3 of 3 nodes"), "{}", said.err);
}

/// The suggested command works as printed.
///
/// Guarantees: PIPELINE-8.
#[test]
fn hints_work_as_they_are_printed() {
    let place = Place::new();
    place.pipeline("H", r#"a [tool_command=true] t [shape=box, prompt=x] start -> a -> t -> exit"#);
    let said = place
        .call(&["run", "H.dot", "--run-dir", "d", "--until", "a", "--backend", "echo 'it is' done"])
        .ends(0);
    let line = said.err.lines().find_map(|line| line.strip_prefix("next: ")).unwrap().to_owned();
    assert!(line.contains("--backend"), "{line}");
    assert_eq!(place.shell(&line).ends(0).json()["context"]["response.t"], "it is done\n");
    let said = place.call(&["fork", "d", "a@1", "--id", "again", "--yes"]).ends(0);
    let line = said.err.lines().find_map(|line| line.strip_prefix("next: ")).unwrap().to_owned();
    assert!(line.starts_with("ferrata resume again"), "{line}");
    assert_eq!(place.shell(&format!("{line} --backend 'echo again'")).ends(0).json()["run"], "again");
    // An unfinished run is mentioned when another one is started.
    place.pipeline("L", r#"q [shape=hexagon] start -> q -> exit"#);
    place.call(&["run", "L.dot", "--id", "left"]).ends(5);
    let said = place.call(&["run", "L.dot"]).ends(5);
    assert!(
        said.err.contains("run left of this pipeline has not ended")
            && said.err.contains("`ferrata resume left`"),
        "{}",
        said.err
    );
}

/// The picture of a run contains the whole pipeline, and its JSON all attributes, types and conditions.
#[test]
fn run_drawing_contains_entire_pipeline() {
    let place = Place::new();
    place.pipeline(
        "P",
        r#"a [tool_command="exit 3", label="Look"] b [shape=hexagon] start -> a a -> b [condition="outcome=success"] a -> exit b -> exit"#,
    );
    for line in [&["run", "P.dot", "--run-dir", "d"][..], &["run", "P.dot", "--id", "p"]] {
        place.call(line).ends(1);
        let told = place.call(&["graph", line[3], "-o", "json"]);
        let told = if told.code == 0 { told } else { place.call(&["graph", "p", "-o", "json"]) }.json();
        let nodes = told["nodes"].as_array().unwrap();
        let node = |id: &str| nodes.iter().find(|node| node["id"] == id).unwrap();
        assert_eq!(
            (&node("b")["look"], &node("b")["kind"]),
            (&"plain".into(), &"wait.human".into()),
            "{told}"
        );
        assert_eq!(
            (&node("a")["look"], &node("a")["attributes"]["tool_command"]),
            (&"failed".into(), &"exit 3".into())
        );
        let edges = told["edges"].as_array().unwrap();
        assert!(
            edges.iter().any(|edge| edge["condition"] == "outcome=success" && edge["taken"] == 0),
            "{told}"
        );
    }
    let picture = place.call(&["graph", "d", "--format", "svg"]).ends(0).out;
    assert!(
        picture.contains("<polygon") && picture.contains("✗ Look") && picture.contains("#8c959f"),
        "{picture}"
    );
}

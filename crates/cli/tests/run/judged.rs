//! `run` refuses exactly what `lint` refuses, before anything starts.

use serde_json::json;

use crate::support::{Place, history};

/// A pipeline with lint errors is not run.
///
/// Guarantees: PIPELINE-6.
#[test]
fn run_refuses_what_lint_does() {
    let place = Place::new();
    for (name, statements, part) in [
        ("Type", r#"s [type="subgraph", shape=box, label="Deploy"]"#, "the type `subgraph` has no handler"),
        ("Prompt", "s [tool_command=true, prompt=x]", "`prompt` has no effect on `s`"),
        ("Import", r#"s [shape=box, import="other.fabro"]"#, "an attribute of another dialect"),
        ("Template", r#"s [shape=box, prompt="{% if x %}"]"#, "contains the template statement"),
    ] {
        place.pipeline(name, &format!("{statements} start -> s -> exit"));
        let file = format!("{name}.dot");
        let lint = place.call(&["lint", &file]).ends(3);
        assert!(lint.out.split_whitespace().collect::<Vec<_>>().join(" ").contains(part), "{}", lint.out);
        for line in [&["run", &file, "--run-dir", "d"][..], &["run", &file, "--dry-run"]] {
            let said = place.call(line).ends(3);
            assert!(said.err.contains(part), "{}", said.err);
        }
    }
    assert!(!place.path("d").exists());
}

/// `run` prints the warnings of lint.
///
/// Guarantees: PIPELINE-6.
#[test]
fn run_says_warnings_of_lint() {
    let place = Place::new();
    place.pipeline("W", r#"a [tool_command="echo $TOKEN_OF_NOBODY", promt=x] start -> a -> exit"#);
    for line in [&["run", "W.dot", "--run-dir", "d"][..], &["run", "W.dot", "--dry-run"]] {
        let said = place.call(line).ends(0);
        assert!(said.err.contains("warning[unused_variables]: node a: "), "{}", said.err);
        assert!(
            said.err.contains("warning[attribute_known]") && said.err.contains("did you mean `prompt`?"),
            "{}",
            said.err
        );
    }
    // A resumed run prints no warning again.
    place.pipeline("X", r#"q [shape=hexagon, promt=x] start -> q -> exit"#);
    assert!(place.call(&["run", "X.dot", "--run-dir", "e"]).ends(5).err.contains("warning["));
    assert!(!place.call(&["resume", "e", "--auto-answer"]).ends(0).err.contains("warning["));
}

/// A goal from the command line takes effect.
///
/// Guarantees: PIPELINE-18.
#[test]
fn goal_is_given_from_outside() {
    let place = Place::new();
    place.pipeline("G", r#"goal="the usual" a [shape=box, prompt="Do: $goal"] t [tool_command="echo $goal"] start -> a -> t -> exit"#);
    for (id, option) in
        [("a", ["--goal", "mine"]), ("b", ["--var", "goal=mine"]), ("c", ["--input", "graph.goal=mine"])]
    {
        let said = place
            .call(&["run", "G.dot", "--id", id, option[0], option[1], "--backend", "cat"])
            .ends(0)
            .json();
        let context = &said["context"];
        assert!(context["response.a"].as_str().unwrap().ends_with("Do: mine"), "{context}");
        assert_eq!((&context["tool.output"], &context["graph.goal"]), (&json!("mine\n"), &json!("mine")));
    }
    let said = place
        .call(&["run", "G.dot", "--input", "graph.goal_gates=x", "--input", "graph.max_steps=1"])
        .ends(2);
    assert!(
        said.err.contains("`graph.max_steps`, which the pipeline reads only from its file"),
        "{}",
        said.err
    );
    place.pipeline("N", r#"t [tool_command="rm -rf ./$goal"] start -> t -> exit"#);
    let said = place.call(&["run", "N.dot"]).ends(1);
    assert!(said.err.contains("set `goal` in the graph, or pass `--goal`"), "{}", said.err);
}

/// `--var` also sets variables in commands.
///
/// Guarantees: PIPELINE-18.
#[test]
fn variable_is_given_to_command() {
    let place = Place::new();
    place.pipeline(
        "V",
        r#"params="target_dir" t [tool_command="echo would remove $target_dir/build"] start -> t -> exit"#,
    );
    let said = place.call(&["run", "V.dot", "--var", "target_dir=/tmp/x"]).ends(0).json();
    assert_eq!(said["context"]["tool.output"], "would remove /tmp/x/build\n");
    let said = place.call(&["run", "V.dot"]).ends(1);
    assert!(said.err.contains("`$target_dir`, which has no value"), "{}", said.err);
}

/// `verify` accepts a run that `--until` stopped, if its file is unchanged.
#[test]
fn verify_passes_over_until() {
    let place = Place::new();
    place.pipeline("U", "a [tool_command=true] b [tool_command=true] start -> a -> b -> exit");
    place.call(&["run", "U.dot", "--until", "a", "--run-dir", "d", "--id", "u"]).ends(0);
    place.call(&["resume", "d"]).ends(0);
    assert_eq!(history(&place.path("d")), ["start", "a", "b", "exit"]);
    let store = ["--store", "file:d/.ferrata"];
    let said = place.call(&["verify", "u", "U.dot", store[0], store[1]]).ends(0);
    assert!(said.out.contains("takes the same path"), "{}", said.out);
    place.pipeline(
        "U",
        "a [tool_command=true] b [tool_command=true] c [tool_command=true] start -> a -> c -> b -> exit",
    );
    place.call(&["verify", "u", "U.dot", store[0], store[1]]).ends(1);
}

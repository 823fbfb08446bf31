//! Answers of tasks and people: stored, shown, simulated and awaited.

use serde_json::{Value as Json, json};

use crate::support::{Place, history, until};

/// A command can leave its answer in different ways, next to its outcome.
#[test]
fn answer_is_kept_beside_status() {
    let place = Place::new();
    place.pipeline(
        "P",
        r#"plan [shape=box, prompt="Plan it"] code [shape=box, prompt="Do ${response.plan}"] start -> plan -> code -> exit"#,
    );
    let backend = r#"cat > /dev/null; echo "1. parse"; printf '{"outcome":"success","usage":{"tokens":18}}' > $FERRATA_STAGE_DIR/status.json"#;
    let said = place.call(&["run", "P.dot", "--run-dir", "d", "--backend", backend]).ends(0).json();
    assert_eq!(
        (&said["context"]["response.plan"], &said["context"]["usage.tokens"]),
        (&json!("1. parse\n"), &json!(36))
    );
    assert_eq!(place.read("d/plan/1.1/response.md"), "1. parse\n");
    assert!(place.read("d/code/1.1/prompt.md").ends_with("`plan` answered:\n1. parse\nTask:\nDo 1. parse\n"));
    // A failed task reports the reason and its directory.
    let backend = "echo 'the tests fail'; exit 1";
    let said = place.call(&["run", "P.dot", "--run-dir", "e", "--backend", backend]).ends(1);
    assert!(said.err.contains("the backend ended with status 1: the tests fail"), "{}", said.err);
    assert!(said.err.contains("e/plan/1.1/response.md"), "{}", said.err);
}

/// A run without a backend is marked as simulated, also with `-q`.
///
/// Guarantees: PIPELINE-9.
#[test]
fn simulated_run_is_marked() {
    let place = Place::new();
    place.pipeline("S", r#"t [shape=box, prompt=x] a [tool_command=true] start -> t -> a -> exit"#);
    let said = place.call(&["-q", "run", "S.dot", "--run-dir", "d"]).ends(0);
    assert_eq!(said.err, "no --backend: tasks are simulated\n");
    assert_eq!(said.json()["simulated"], true);
    let read = |name: &str| serde_json::from_str::<Json>(&place.read(name)).unwrap();
    assert_eq!(read("d/manifest.json")["labels"]["ferrata.backend"], "simulated");
    assert!(read("d/t/1.1/status.json")["notes"].as_str().unwrap().starts_with("Simulated"));
    assert!(place.call(&["show", "d"]).ends(0).out.contains("ferrata.backend=simulated"));
    let said = place.call(&["run", "S.dot", "--run-dir", "e"]).ends(0);
    assert!(
        said.err.contains("completed: 4 of 4 nodes") && said.err.contains("its tasks were simulated"),
        "{}",
        said.err
    );
    // With a backend, or without a task, nothing is simulated.
    let said = place.call(&["run", "S.dot", "--run-dir", "f", "--backend", "echo done"]).ends(0);
    assert!(said.json().get("simulated").is_none() && !said.err.contains("simulated"), "{}", said.err);
    place.pipeline("T", "a [tool_command=true] start -> a -> exit");
    let said = place.call(&["run", "T.dot", "--run-dir", "g"]).ends(0);
    assert!(said.json().get("simulated").is_none() && !said.err.contains("simulated"), "{}", said.err);
}

/// A gate shows its prompt and what is to be approved, not only its label.
///
/// Guarantees: PIPELINE-7.
#[test]
fn gate_shows_what_is_to_be_approved() {
    let place = Place::new();
    place.pipeline(
        "G",
        r#"plan [shape=box] ok [shape=hexagon, label="Review", prompt="Is the plan fine?"] start -> plan -> ok -> exit"#,
    );
    let said = place.call(&["run", "G.dot", "--run-dir", "d", "--backend", "seq -f 'step %g' 1 30"]).ends(5);
    for part in
        ["ok@1:choice: Is the plan fine?", "  | `plan` answered:", "  | step 1\n", "  | .. 11 more lines"]
    {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
    let question = &said.json()["questions"][0];
    assert_eq!((&question["text"], &question["title"]), (&json!("Is the plan fine?"), &json!("Review")));
    assert!(question["shown"].as_str().unwrap().ends_with("step 30\n"), "{question}");
}

/// Without a terminal, a gate waits: its default applies at its deadline, and an answer from elsewhere arrives.
///
/// Guarantees: PIPELINE-7.
#[test]
fn run_waits_off_a_terminal() {
    let place = Place::new();
    let gate = |timeout: &str| {
        format!(
            r#"q [shape=hexagon, label="Ship?", {timeout}] a [tool_command="echo no"] start -> q q -> exit [label="Yes"] q -> a [label="No"] a -> exit"#
        )
    };
    place.pipeline("D", &gate("timeout=100ms, human.default_choice=No"));
    place.call(&["run", "D.dot", "--run-dir", "d", "--wait"]).ends(0);
    assert_eq!(history(&place.path("d")), ["start", "q", "a", "exit"]);
    // An answer from elsewhere is received, also by a process that resumes the run.
    place.pipeline("E", &gate("human.default_choice=\"\""));
    for (directory, begin) in
        [("e", &["run", "E.dot", "--run-dir", "e", "--wait"][..]), ("f", &["resume", "f", "--wait"])]
    {
        if begin[0] == "resume" {
            place.call(&["run", "E.dot", "--run-dir", directory]).ends(5);
        }
        let running = place.spawn(begin);
        let store = format!("file:{directory}/.ferrata");
        until("the question is open", || {
            place.call(&["questions", "--store", &store]).out.contains("q@1:choice")
        });
        let id = place.call(&["ls", "--store", &store, "-o", "ids"]).out.trim().to_owned();
        place.call(&["answer", &id, "q@1:choice", "Yes", "--store", &store]).ends(0);
        let said = running.end().ends(0);
        let told = format!("waiting for an answer: ferrata answer {id} q@1:choice Yes --store {store}");
        assert!(said.err.contains("? q  Ship?") && said.err.contains(&told), "{}", said.err);
        assert_eq!(history(&place.path(directory)), ["start", "q", "exit"]);
    }
    place.call(&["run", "E.dot", "--run-dir", "g", "--wait", "--timeout", "1s"]).ends(7);
}

/// `--auto-answer` also answers a gate that takes any text and has no choice.
///
/// Guarantees: PIPELINE-7.
#[test]
fn gate_with_freeform_edge_alone_answers_itself() {
    let place = Place::new();
    place.pipeline("F", "q [shape=hexagon] start -> q q -> exit [freeform=true]");
    let said = place.call(&["run", "F.dot", "--run-dir", "d", "--auto-answer"]).ends(0);
    assert_eq!(said.json()["context"]["human.gate.text"], "auto-approved");
}

/// With `--auto-answer`, a loop through a gate stops at the limit of visits, with a message in terms of the pipeline.
///
/// Guarantees: PIPELINE-7.
#[test]
fn unattended_loop_ends() {
    let place = Place::new();
    place.pipeline(
        "L",
        r#"w [tool_command="echo x >> visits"] g [shape=hexagon] start -> w -> g g -> w [label="[A] Again"] g -> exit [label="[D] Done"]"#,
    );
    place.write("answers.json", r#"{"g": "Again"}"#);
    for more in [&["--auto-answer"][..], &["--answers", "answers.json"]] {
        place.write("visits", "");
        let line: Vec<&str> =
            ["run", "L.dot", "--id", more[0].trim_start_matches('-')].iter().chain(more).copied().collect();
        let said = place.call(&line).ends(1);
        assert!(said.err.contains("came to `w` more than 100 times and never waited"), "{}", said.err);
        assert_eq!(place.read("visits").lines().count(), 100);
    }
    place.pipeline("V", "a [tool_command=true, max_visits=2] start -> a a -> a [weight=1] a -> exit");
    let said = place.call(&["run", "V.dot", "--run-dir", "v"]).ends(1);
    let shown = [said.err, said.out, place.read("v/checkpoint.json"), place.call(&["show", "v"]).ends(0).out];
    for text in shown {
        assert!(text.contains("raise `max_visits`") && !text.contains(".max_visits(..)"), "{text}");
    }
}

//! The options of `run`.

use serde_json::json;

use crate::support::{Place, history};

const GATE: &str = r#"
    work [tool_command="echo $FERRATA_CONTEXT_who"]
    ask [shape=hexagon, label="Ship?"]
    redo [tool_command="echo redo >> log"]
    start -> work -> ask
    ask -> exit [label="[Y] Yes"]
    ask -> redo [label="[N] No"]
    redo -> ask"#;

fn gate() -> Place {
    let place = Place::new();
    place.pipeline("G", GATE);
    place
}

#[test]
fn question_without_terminal_exits_with_answer_command() {
    let place = gate();
    let said = place.call(&["run", "G.dot", "--run-dir", "d", "--input", "who=ana"]).ends(5);
    let told = said.json();
    assert_eq!((&told["status"], &told["context"]["tool.output"]), (&json!("interrupted"), &json!("ana\n")));
    let shown = "the last command printed:\nana\n";
    let question =
        json!({"id": "ask@1:choice", "text": "Ship?", "choices": ["[Y] Yes", "[N] No"], "shown": shown});
    assert_eq!(told["questions"], json!([question]));
    assert!(said.err.contains("waiting: run") && !said.err.contains("error:"), "{}", said.err);
    assert!(
        said.err.contains("ask@1:choice: Ship?") && said.err.contains("  [Y] Yes | [N] No"),
        "{}",
        said.err
    );
    let line = said.err.lines().find_map(|line| line.strip_prefix("next: ")).unwrap();
    let (answer, resume) = line.split_once(" && ").unwrap();
    let words = |line: &str| -> Vec<String> {
        // Quote the only word that contains a blank.
        line.replace("'[Y] Yes'", "[Y]\u{1}Yes")
            .split(' ')
            .skip(1)
            .map(|word| word.replace('\u{1}', " "))
            .collect()
    };
    for line in [answer, resume] {
        let words = words(line);
        place.call(&words.iter().map(String::as_str).collect::<Vec<_>>()).ends(0);
    }
    assert_eq!(history(&place.path("d")), ["start", "work", "ask", "exit"]);
}

/// Guarantees: PIPELINE-7.
#[test]
fn answers_come_from_a_file_for_each_visit() {
    let place = gate();
    place.write("answers.json", r#"{"ask": ["No", "n", "Yes"]}"#);
    place.call(&["run", "G.dot", "--run-dir", "d", "--answers", "answers.json"]).ends(0);
    assert_eq!(history(&place.path("d")), ["start", "work", "ask", "redo", "ask", "redo", "ask", "exit"]);
    // A question without an answer in the file stays open.
    place.write("answers.json", r#"{"ask": ["No", "never heard of"]}"#);
    place.call(&["run", "G.dot", "--run-dir", "e", "--answers", "answers.json"]).ends(5);
    // When a waiting run is resumed with a file, the file answers it.
    place.write("answers.json", r#"{"ask@2": "Yes"}"#);
    place.call(&["resume", "e", "--answers", "answers.json"]).ends(0);
    place.call(&["run", "G.dot", "--run-dir", "f", "--answers", "nowhere.json"]).ends(4);
    // A list applies visit by visit, so a list of one answer applies to one visit. Any other value applies to every visit.
    place.write("answers.json", r#"{"ask": ["No"]}"#);
    place.call(&["run", "G.dot", "--run-dir", "g", "--answers", "answers.json"]).ends(5);
    assert_eq!(history(&place.path("g")), ["start", "work", "ask", "redo"]);
    place.write("answers.json", r#"{"ask": "No", "ask@3": "Yes"}"#);
    place.call(&["run", "G.dot", "--run-dir", "h", "--answers", "answers.json"]).ends(0);
    assert_eq!(history(&place.path("h")), ["start", "work", "ask", "redo", "ask", "redo", "ask", "exit"]);
}

/// Guarantees: PIPELINE-7.
#[test]
fn auto_answer_picks_default_or_first_choice() {
    let place = gate();
    place.call(&["run", "G.dot", "--run-dir", "d", "--auto-answer"]).ends(0);
    assert_eq!(history(&place.path("d")), ["start", "work", "ask", "exit"]);
    place.write(
        "D.dot",
        &place
            .read("G.dot")
            .replace("label=\"Ship?\"", "label=\"Ship?\", timeout=1h, human.default_choice=redo"),
    );
    place.call(&["run", "D.dot", "--run-dir", "e", "--until", "redo", "--auto-answer"]).ends(0);
    assert_eq!(history(&place.path("e")), ["start", "work", "ask", "redo"]);
}

/// A gate that takes any text accepts an answer outside its choices.
///
/// Guarantees: PIPELINE-7.
#[test]
fn auto_answer_picks_first_choice_for_freeform_gate() {
    let place = Place::new();
    place.pipeline(
        "F",
        r#"ask [shape=hexagon] b [tool_command=true] start -> ask ask -> exit [label="[Y] Yes"] ask -> b [freeform=true] b -> exit"#,
    );
    place.call(&["run", "F.dot", "--run-dir", "d", "--auto-answer"]).ends(0);
    assert_eq!(history(&place.path("d")), ["start", "ask", "exit"]);
}

/// Guarantees: PIPELINE-18.
#[test]
fn stop_after_node_idles_run_until_resume() {
    let place = gate();
    let said = place.call(&["run", "G.dot", "--run-dir", "d", "--until", "work"]).ends(0);
    assert_eq!(history(&place.path("d")), ["start", "work"]);
    assert_eq!(said.next(), ["resume", "d"]);
    place.call(&["resume", "d", "--auto-answer"]).ends(0);
    assert_eq!(history(&place.path("d")), ["start", "work", "ask", "exit"]);
    let said = place.call(&["run", "G.dot", "--run-dir", "e", "--until", "nowhere"]).ends(2);
    assert!(said.err.contains("no node `nowhere`"), "{}", said.err);
}

/// Guarantees: PIPELINE-5.
#[test]
fn a_dry_run_executes_and_keeps_nothing() {
    let place = Place::new();
    place.pipeline(
        "D",
        r#"a [tool_command="touch touched"] w [shape=insulator, duration=1h] q [shape=hexagon] t [shape=box]
           start -> a -> w -> t -> q  q -> exit [label="Go"] q -> a [label="Again"]"#,
    );
    let said = place.call(&["run", "D.dot", "--dry-run"]).ends(0);
    assert_eq!(said.json()["path"], json!(["start", "a", "w", "t", "q", "exit"]));
    let names: Vec<_> =
        std::fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["D.dot"]);
    // An endless loop is stopped.
    place.pipeline("L", "a [tool_command=x] b [tool_command=x] start -> a -> b -> a  b -> exit [weight=-1]");
    let said = place.call(&["run", "L.dot", "--dry-run"]).ends(1);
    assert_eq!(said.json()["path"].as_array().unwrap().iter().filter(|node| **node == "a").count(), 10);
}

/// Guarantees: PIPELINE-18.
#[test]
fn time_limit_ends_command_and_run_resumes_later() {
    let place = Place::new();
    place.pipeline("T", r#"a [tool_command="echo a >> log; test -e go || sleep 1000"] start -> a -> exit"#);
    let said = place.call(&["run", "T.dot", "--run-dir", "d", "--timeout", "1s"]).ends(7);
    assert_eq!(said.next(), ["resume", "d"]);
    place.write("go", "");
    place.call(&["resume", "d", "--timeout", "10m"]).ends(0);
}

/// Guarantees: PIPELINE-18.
#[test]
fn backend_gets_prompt_and_leaves_files() {
    let place = Place::new();
    place.pipeline("B", r#"goal="ship" t [shape=box, prompt="Plan to $goal"] start -> t -> exit"#);
    let backend = "cat > seen; echo planned; echo $FERRATA_STAGE_DIR > stage";
    let said = place.call(&["run", "B.dot", "--run-dir", "d", "--backend", backend]).ends(0);
    assert_eq!(said.json()["context"]["response.t"], "planned\n");
    assert!(place.read("seen").ends_with("Plan to ship"), "{}", place.read("seen"));
    assert_eq!(place.read("d/t/1.1/prompt.md"), place.read("seen"));
    assert_eq!(place.read("d/t/1.1/response.md"), "planned\n");
    assert!(place.read("stage").trim_end().ends_with("d/t/1.1/stage"), "{}", place.read("stage"));
    // The graph can name a backend. Without any, tasks are simulated.
    place.write("C.dot", &place.read("B.dot").replace("goal=", "backend=\"echo of the graph\" goal="));
    let said = place.call(&["run", "C.dot", "--run-dir", "e"]).ends(0);
    assert_eq!(said.json()["context"]["response.t"], "of the graph\n");
    let said = place.call(&["run", "B.dot", "--run-dir", "f"]).ends(0);
    assert!(said.err.contains("tasks are simulated"), "{}", said.err);
}

#[test]
fn run_with_backend_cannot_resume_simulated() {
    let place = Place::new();
    place.pipeline("B", r#"t [shape=box] q [shape=hexagon] u [shape=box] start -> t -> q -> u -> exit"#);
    place.call(&["run", "B.dot", "--run-dir", "d", "--backend", "echo real"]).ends(5);
    let said = place.call(&["resume", "d", "--auto-answer"]).ends(2);
    assert!(said.err.contains("--backend"), "{}", said.err);
    let said = place.call(&["resume", "d", "--auto-answer", "--backend", "echo real"]).ends(0);
    assert_eq!(said.json()["context"]["response.u"], "real\n");
}

/// Guarantees: CLI-13.
#[test]
fn progress_goes_to_stderr_result_to_stdout() {
    let place = gate();
    let said =
        place.call(&["run", "G.dot", "--run-dir", "d", "--auto-answer", "--label", "team=press"]).ends(0);
    let words: Vec<Vec<&str>> = said.err.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(words.iter().any(|line| line.get(1..3) == Some(&["done", "work"])), "{}", said.err);
    said.json();
    let said = place.call(&["run", "G.dot", "--run-dir", "e", "--auto-answer", "--progress", "none"]).ends(0);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    let said = place.call(&["run", "G.dot", "--run-dir", "f", "--auto-answer", "-q", "-o", "ids"]).ends(0);
    assert_eq!((said.err.as_str(), said.out.lines().count()), ("", 1));
    assert!(place.read("d/manifest.json").contains("press"));
}

/// A command gets a restricted environment, without the URL and password of the store, because its output is stored.
///
/// Guarantees: DOT-8, SECURITY-8.
#[test]
fn commands_inherit_only_listed_environment_variables() {
    let place = Place::new();
    place.pipeline("seen", "a [tool_command=\"env > seen\"] start -> a -> exit");
    let store = format!("file:{}", place.path("runs").display());
    let mut command =
        place.command(&["run", "seen.dot", "--no-input", "--env", "SOMETHING", "--env", "MY_*"]);
    command.env("FERRATA_STORE", &store).env("SOMETHING", "else").env("MY_PASSWORD", "s3cret");
    command.env("MY_REGION", "here").env("API_KEY", "s3cret");
    crate::support::Running::of(command).end().ends(0);
    let seen = place.read("seen");
    assert!(seen.contains("SOMETHING=else") && seen.contains("FERRATA_RUN="), "{seen}");
    assert!(seen.contains("MY_REGION=here") && seen.contains("PATH="), "{seen}");
    assert!(!seen.contains("FERRATA_STORE") && !seen.contains("s3cret"), "{seen}");
    // The backend command of a task gets the caller's environment, because it may need API keys.
    place.write("task.dot", "digraph T { start [shape=Mdiamond] exit [shape=Msquare] a start -> a -> exit }");
    let mut command = place.command(&["run", "task.dot", "--no-input", "--backend", "env > seen; echo done"]);
    command.env("FERRATA_STORE", &store).env("API_KEY", "of-a-model").env("PGPASSWORD", "s3cret");
    crate::support::Running::of(command).end().ends(0);
    let seen = place.read("seen");
    assert!(seen.contains("API_KEY=of-a-model") && !seen.contains("s3cret"), "{seen}");
}

//! Pipelines that supervise others.

use serde_json::json;

use crate::support::{Place, history};

const PARENT: &str = r#"
    watch [shape=house, stack.child_dotfile="parts/Child.dot", manager.poll_interval=10s]
    start -> watch -> exit"#;

/// Guarantees: DOT-16.
#[test]
fn child_pipeline_next_to_parent_runs_to_end() {
    let place = Place::new();
    place.pipeline("Parent", PARENT);
    place.pipeline("Child", r#"work [tool_command="echo done >> log"] start -> work -> exit"#);
    std::fs::create_dir(place.path("parts")).unwrap();
    std::fs::rename(place.path("Child.dot"), place.path("parts/Child.dot")).unwrap();
    let dry = place.call(&["run", "Parent.dot", "--dry-run"]).ends(0).json();
    assert_eq!(dry["path"], json!(["start", "watch", "exit"]));
    assert_eq!(place.read("log"), "");

    let said = place.call(&["run", "Parent.dot", "--run-dir", "d"]).ends(0);
    assert!(
        said.err.contains("└─ watch@1 child  Parent-") && said.err.contains("Child  completed"),
        "{}",
        said.err
    );
    let told = said.json();
    assert_eq!(told["context"]["stack.child.status"], json!("completed"));
    assert_eq!(place.read("log"), "done\n");
    assert!(place.call(&["tree", "d"]).ends(0).out.contains("└─ watch@1 child"));
    assert_eq!(history(&place.path("d")), ["start", "watch", "exit"]);
}

#[test]
fn broken_child_pipeline_fails_before_start() {
    let place = Place::new();
    place.pipeline("Parent", PARENT);
    let said = place.call(&["run", "Parent.dot", "--run-dir", "d"]).ends(3);
    assert!(said.err.contains("parts/Child.dot"), "{}", said.err);
    assert!(!place.path("d").exists());
}

#[test]
fn a_child_that_fails_fails_the_run() {
    let place = Place::new();
    place.pipeline("Parent", PARENT);
    place.write(
        "parts/Child.dot",
        r#"digraph C { start [shape=Mdiamond] exit [shape=Msquare] bad [shape=parallelogram, tool_command="false"] start -> bad -> exit }"#,
    );
    place.call(&["run", "Parent.dot", "--run-dir", "d"]).ends(1);
}

/// Commands of a child can leave an outcome, and its nodes may have the names of the parent's.
///
/// Guarantees: DOT-16.
#[test]
fn child_outcomes_stay_separate_from_parent_nodes() {
    let place = Place::new();
    place.pipeline(
        "Parent",
        r#"work [tool_command="echo parent > $FERRATA_STAGE_DIR/mine"] watch [shape=house, stack.child_workflow="Child.dot"]
           start -> work -> watch -> exit"#,
    );
    let leaves = r#"test ! -e $FERRATA_STAGE_DIR/mine && echo {\"outcome\": \"success\", \"preferred_label\": \"far\"} > $FERRATA_STAGE_DIR/status.json"#;
    let child = format!(
        r#"work [tool_command="{}"] near far [tool_command="echo far >> log"] near [tool_command="echo near >> log"]
           start -> work work -> near [label=near] work -> far [label=far] near -> exit far -> exit"#,
        leaves.replace('\\', "\\\\").replace('"', "\\\"")
    );
    place.pipeline("Child", &child);
    let told = place.call(&["run", "Parent.dot", "--run-dir", "d"]).ends(0).json();
    assert_eq!(told["context"]["stack.child.status"], json!("completed"));
    assert_eq!(place.read("log"), "far\n");
    assert_eq!(place.read("d/work/1.1/stage/mine"), "parent\n");
    assert!(place.path("d/watch/1.1/child/work/1.1/stage/status.json").exists());
    place.call(&["purge", "d", "--yes"]).ends(0);
    assert!(!place.path("d/watch").exists());
}

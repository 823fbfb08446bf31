//! Outcomes of a tool's command beyond its exit status, and its retries.

use ferrata_core::state::Context;
use ferrata_dot::handler::{Registry, Tool};

use crate::support::run_with;

/// A tool can report any outcome in `status.json`.
///
/// Guarantees: DOT-5.
#[tokio::test]
async fn tool_can_write_outcome_file() {
    for (content, code, path) in [
        (
            "{\\\"outcome\\\": \\\"partial_success\\\", \\\"preferred_label\\\": \\\"go\\\"}",
            3,
            "start a b exit",
        ),
        ("{\\\"outcome\\\": \\\"fail\\\", \\\"failure_reason\\\": \\\"no\\\"}", 0, "start a"),
        ("{\\\"outcome\\\": \\\"nothing\\\"}", 0, "start a"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let source = format!(
            "digraph G {{ start exit a [shape=parallelogram, tool_command=\"echo out; echo '{content}' > $FERRATA_STAGE_DIR/status.json; exit {code}\"] \
             b [shape=parallelogram, tool_command=\"echo $FERRATA_CONTEXT_tool_output\"] start -> a a -> b [label=go] a -> exit [weight=5] b -> exit }}"
        );
        let registry = Registry::default().with("tool", Tool::default().with_run_directory(folder.path()));
        let ran = run_with(&source, registry, Context::new()).await;
        assert_eq!(ran.path(), path, "{content}: {:?}", ran.outcome);
        if path.ends_with("exit") {
            assert_eq!(ran.text("tool.output"), "out\n");
        }
    }
}

/// `max_retries=2` retries a command after any failing exit status.
///
/// Guarantees: DOT-18.
#[tokio::test]
async fn failing_command_with_retries_runs_again() {
    for (attributes, tries, code) in [
        ("max_retries=2, retry_policy=none", 3, "3"),
        ("max_retries=2, retry_policy=none, retry_on=retry", 1, "3"),
        ("max_retries=2, retry_policy=none, retry_on=fail", 3, "3"),
        ("label=x", 1, "3"),
        ("max_retries=2, retry_policy=none", 3, "75"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let source = format!(
            "digraph G {{ start exit a [shape=parallelogram, tool_command=\"echo x >> tries; exit {code}\", {attributes}] b \
             start -> a a -> b [condition=\"outcome=fail\"] b -> exit a -> exit }}"
        );
        let registry = Registry::default().with("tool", Tool::default().with_directory(folder.path()));
        let ran = run_with(&source, registry, Context::new()).await;
        assert_eq!(ran.path(), "start a b exit", "{attributes}");
        let tried = std::fs::read_to_string(folder.path().join("tries")).unwrap().lines().count();
        assert_eq!(tried, tries, "{attributes}, status {code}");
    }
}

/// Conditions of Amplifier and dotpowers pipelines on the last line of a command's output work.
///
/// Guarantees: DIALECT-1.
#[tokio::test]
async fn conditions_accept_foreign_names_for_command_output() {
    for (prints, path) in [
        ("many words; echo pass; echo", "start a d b exit"),
        ("fail", "start a d c exit"),
        ("  all  ", "start a d e exit"),
    ] {
        let source = format!(
            "digraph G {{ start exit node [shape=parallelogram, tool_command=true] a [tool_command=\"echo {prints}\"] d [shape=diamond] b c e \
             start -> a -> d d -> b [condition=\"context.tool.last_line=pass\"] d -> c [condition=\"tool.last_line=fail\"] \
             d -> e [condition=\"context.tool_stdout=all && tool.last_line!=nothing\"] b -> exit c -> exit e -> exit }}"
        );
        let ran = run_with(&source, Registry::default(), Context::new()).await;
        assert_eq!(ran.path(), path, "{prints}: {:?}", ran.outcome);
    }
}

//! Variables in prompts and commands, and their sources.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use crate::support::{Ran, run_with};
use ferrata_core::state::Context;
use ferrata_dot::handler::{Codergen, CommandBackend, Registry};

/// Runs statements between a start and an exit with an input. The backend answers with its prompt.
async fn run(statements: &str, input: &[(&str, &str)]) -> Ran {
    let mut context = Context::new();
    for (key, value) in input {
        context.set(*key, *value).unwrap();
    }
    let source = format!("digraph G {{ start exit default_fidelity=full {statements} }}");
    let registry = Registry::default().with("codergen", Codergen::new(CommandBackend::new("cat")));
    run_with(&source, registry, context).await
}

/// Guarantees: DOT-13.
#[tokio::test]
async fn goal_is_replaced_when_task_begins() {
    let prompt = "a [prompt=\"Do: $goal|${goal}|{{ goal }}|$goals\"] b [label=\"Check $goal\"] start -> a -> b -> exit";
    let ran = run(&format!("goal=\"the usual\" {prompt}"), &[]).await;
    assert_eq!(ran.text("response.a"), "Do: the usual|the usual|the usual|$goals");
    assert_eq!(ran.text("response.b"), "Check the usual", "the label replaces a missing prompt");
}

/// A goal from the input replaces the graph's goal, and `$goal` is never empty.
///
/// Guarantees: DOT-13.
#[tokio::test]
async fn goal_from_outside_wins() {
    let statements = "a [prompt=\"Do: $goal\"] start -> a -> exit";
    for graph in ["", "goal=\"the usual\""] {
        let ran = run(&format!("{graph} {statements}"), &[("graph.goal", "mine")]).await;
        assert_eq!(
            (ran.text("response.a"), ran.text("graph.goal")),
            ("Do: mine".into(), "mine".into()),
            "{graph}"
        );
    }
    assert_eq!(run(statements, &[]).await.text("response.a"), "Do: $goal", "the variable has no value");
    let ran = run(&format!("goal=\"ship {{{{ inputs.what }}}}\" {statements}"), &[("what", "v2")]).await;
    assert_eq!(ran.text("response.a"), "Do: ship v2", "the goal may contain inputs");
    let ran = run(&format!("goal=\"ship {{{{ inputs.what }}}}\" {statements}"), &[]).await;
    assert!(
        ran.failure().contains("the goal: the run has no input `{{ inputs.what }}`"),
        "{}",
        ran.failure()
    );
}

/// Variables in commands get their values, so that `rm -rf $target_dir/build` does not run on `/build`.
///
/// Guarantees: DOT-7.
#[tokio::test]
async fn variables_of_commands_have_values() {
    let command = "printf '%s|' $target_dir/build \\\"$goal\\\" {{ inputs.target_dir }} '{{ response.plan }}' ${none:-}";
    let statements = format!(
        "goal=\"to ship\" plan [prompt=\"it's; $(touch evil)\"] t [shape=parallelogram, tool_command=\"{command}\", \
         env.WHERE=\"in {{{{ goal }}}}\", working_dir=\"$here\"] start -> plan -> t -> exit"
    );
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().to_str().unwrap();
    let ran = run(&statements, &[("target_dir", "/tmp/x"), ("here", here)]).await;
    assert_eq!(ran.text("tool.output"), "/tmp/x/build|to ship|/tmp/x|it's; $(touch evil)|");
    assert!(!folder.path().join("evil").exists(), "a value must not be executed as code");
    let ran =
        run("t [shape=parallelogram, tool_command=\"touch $target_dir/build\"] start -> t -> exit", &[])
            .await;
    let failure = ran.failure();
    assert!(failure.contains("`$target_dir`, which has no value; pass `--var target_dir=..`"), "{failure}");
}

/// A hook expands variables like a command.
///
/// Guarantees: DOT-7.
#[tokio::test]
async fn variables_of_hooks_have_values() {
    let statements = "t [shape=parallelogram, tool_command=true, tool_hooks.pre=\"test $level = high\"] start -> t -> exit";
    assert_eq!(run(statements, &[("level", "high")]).await.text("outcome"), "success");
    assert_eq!(run(statements, &[("level", "low")]).await.text("tool.exit_code"), "", "the hook says no");
    assert!(run(statements, &[]).await.failure().contains("`$level`, which has no value"));
}

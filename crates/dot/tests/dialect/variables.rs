//! Variables: what they stand for in prompts and commands, and where they come from.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use crate::support::{Ran, run_with};
use ferrata_core::state::Context;
use ferrata_dot::handler::{Codergen, CommandBackend, Registry};

/// Runs statements between a start and an exit with an input; the backend answers with its prompt.
async fn run(statements: &str, input: &[(&str, &str)]) -> Ran {
    let mut context = Context::new();
    for (key, value) in input {
        context.set(*key, *value).unwrap();
    }
    let source = format!("digraph G {{ start exit default_fidelity=full {statements} }}");
    let registry = Registry::default().with("codergen", Codergen::new(CommandBackend::new("cat")));
    run_with(&source, registry, context).await
}

#[tokio::test]
async fn goal_is_replaced_when_task_begins() {
    let prompt = "a [prompt=\"Do: $goal|${goal}|{{ goal }}|$goals\"] b [label=\"Check $goal\"] start -> a -> b -> exit";
    let ran = run(&format!("goal=\"the usual\" {prompt}"), &[]).await;
    assert_eq!(ran.text("response.a"), "Do: the usual|the usual|the usual|$goals");
    assert_eq!(ran.text("response.b"), "Check the usual", "the label stands for the prompt");
}

/// A goal that was given from outside had no effect, and without one of the graph `$goal` became empty.
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
    assert_eq!(run(statements, &[]).await.text("response.a"), "Do: $goal", "nothing stands for it");
    let ran = run(&format!("goal=\"ship {{{{ inputs.what }}}}\" {statements}"), &[("what", "v2")]).await;
    assert_eq!(ran.text("response.a"), "Do: ship v2", "the goal may name inputs");
    let ran = run(&format!("goal=\"ship {{{{ inputs.what }}}}\" {statements}"), &[]).await;
    assert!(
        ran.failure().contains("the goal: `{{ inputs.what }}` is no input of the run"),
        "{}",
        ran.failure()
    );
}

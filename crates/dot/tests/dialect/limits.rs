//! Limits of loops: visits to a node without a wait.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use crate::pipelines::result;
use crate::support::{compile, path_of, registry, run, source};
use ferrata_core::RunKey;
use ferrata_core::ask::Answer;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::MemoryStore;

/// A loop without a wait is limited, even through a gate that does not wait. A loop counts as waiting only if the run waited for a person or for
/// time.
///
/// Guarantees: DOT-20.
#[tokio::test]
async fn loop_without_wait_ends_after_hundred_visits() {
    let ran = run("a b start -> a -> b -> a b -> exit [condition=\"outcome=skipped\"]").await;
    assert!(ran.failure().starts_with("the run came to `a` more than 100 times"), "{}", ran.failure());
    assert!(ran.failure().contains("`max_node_visits`"), "{}", ran.failure());
    assert_eq!(ran.path.iter().filter(|node| *node == "a").count(), 101);
    let ran = run("max_steps=500 max_node_visits=0 a start -> a a -> a [weight=1] a -> exit").await;
    assert!(ran.path.len() > 400, "0 must mean no limit: {}", ran.failure());
    let ran = run(
        "a [does=\"fail\", goal_gate=true, retry_target=a] start -> a a -> exit [condition=\"outcome=fail\"]",
    )
    .await;
    assert!(ran.failure().contains("more than 100 times"), "{}", ran.failure());
    let waits = "a w [type=wait, duration=1ms] start -> a -> w w -> a [weight=1] w -> exit max_steps=300";
    assert!(run(waits).await.failure().contains("steps"), "a loop that waits must have no limit of visits");
    // A gate whose edges all have conditions does not ask.
    let gate = "w g [type=\"wait.human\", prompt=\"\"] fix start -> w -> g g -> exit [condition=\"context.human=yes\"] \
                g -> fix [condition=\"outcome=fail\"] fix -> g";
    let ran = run(gate).await;
    assert!(ran.failure().starts_with("the run came to `g` more than 100 times"), "{}", ran.failure());
    // A fresh start does not reset the count.
    let ran =
        run("a b start -> a -> b b -> a [condition=\"outcome=success\", loop_restart=true] b -> exit").await;
    assert!(ran.failure().contains("more than 100 times"), "{}", ran.failure());
    // Each branch of a fork over many items visits its nodes once.
    let list: Vec<String> = (0..150).map(|at| at.to_string()).collect();
    let many = format!(
        "a [does=\"success/list:{}\"] p [type=parallel] b f [type=\"parallel.fan_in\"] c [does=\"success/again:yes success/again:no\"] \
         start -> a -> p p -> b [for_each=list] b -> f -> c c -> a [condition=\"again=yes\"] c -> exit [condition=\"again=no\"]",
        list.join("+")
    );
    assert!(run(&many).await.path.len() > 300);
}

/// Number of visits to `work` in a loop through a gate. An answerer or a person answers the gate 150 times with `again`.
async fn visits_through_gate(answers_itself: bool) -> (usize, String) {
    let statements =
        "work g [type=\"wait.human\"] start -> work -> g g -> work [label=again] g -> exit [label=done]";
    let graph = compile(&source(statements), registry());
    let store = MemoryStore::new();
    let builder = Runtime::builder(store.clone());
    let builder =
        if answers_itself { builder.answerer(ferrata_core::ask::AutomaticAnswerer) } else { builder };
    let runtime = builder.build().await.unwrap();
    let mut run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    for turn in 0.. {
        match run.wait().await.unwrap() {
            Outcome::Interrupted(questions) => {
                let answer = if turn < 150 { "again" } else { "done" };
                runtime.respond(run.run(), &questions[0].id, Answer::accept(answer).unwrap()).await.unwrap();
                run = runtime.resume(&graph, "r").await.unwrap();
            }
            outcome => {
                let key = RunKey::try_from("r").unwrap();
                let visits = path_of(&store, &key).await.iter().filter(|node| *node == "work").count();
                let (_, status, _) = result(&store, &key, outcome).await;
                return (visits, status);
            }
        }
    }
    unreachable!("the loop must end")
}

/// With `--auto-answer`, a gate does not exempt a loop from the limit of visits.
///
/// Guarantees: DOT-20.
#[tokio::test]
async fn only_a_wait_lifts_the_limit_of_visits() {
    let (visits, status) = visits_through_gate(true).await;
    assert!(visits == 101 && status.contains("never waited for a person or for time"), "{visits}: {status}");
    assert_eq!(visits_through_gate(false).await, (151, "completed".into()));
}

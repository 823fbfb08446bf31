//! Section 1.6: a fan-in with a prompt, with the best candidate chosen by a model.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::sync::{Arc, Mutex};

use crate::support::{Ran, registry, run_with, source};
use async_trait::async_trait;
use ferrata_core::state::Context;
use ferrata_dot::handler::{Backend, BackendAnswer, Codergen, HandlerError, TaskRequest};
use ferrata_dot::outcome::StageOutcome;

/// A backend that always gives the same answer, and records its prompts.
#[derive(Clone, Debug)]
struct Judge(BackendAnswer, Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Backend for Judge {
    async fn run(&self, request: TaskRequest<'_>) -> Result<BackendAnswer, HandlerError> {
        self.1.lock().unwrap().push(request.task.to_owned());
        Ok(self.0.clone())
    }
}

async fn judged(answer: BackendAnswer, a: &str, b: &str) -> (Ran, Vec<String>) {
    let judge = Judge(answer, Arc::default());
    let text = source(&format!(
        "p [type=parallel] f [shape=tripleoctagon, type=\"\", prompt=\"Which is the best?\"] a [does=\"{a}\"] b [does=\"{b}\"] bad \
         start -> p p -> a -> f p -> b -> f f -> exit f -> bad [condition=\"outcome=fail\"] bad -> exit"
    ));
    let ran =
        run_with(&text, registry().with("codergen", Codergen::new(judge.clone())), Context::new()).await;
    let asked = judge.1.lock().unwrap().clone();
    (ran, asked)
}

fn best(ran: &Ran) -> [String; 3] {
    ["parallel.fan_in.best_id", "parallel.fan_in.best_outcome", "parallel.fan_in.chosen_by"]
        .map(|key| ran.text(key))
}

/// Guarantees: BRANCH-5.
#[tokio::test]
async fn the_answer_names_the_best() {
    let (ran, asked) =
        judged(BackendAnswer::text("I like b best."), "success/color:red/score:9", "partial").await;
    assert_eq!(best(&ran), ["b", "partial_success", "answer"]);
    let [prompt] = &asked[..] else { panic!("{asked:?}") };
    assert!(prompt.starts_with("Which is the best?"), "{prompt}");
    assert!(
        prompt.contains("Candidate a: outcome \"success\", score 9.0") && prompt.contains("red"),
        "{prompt}"
    );
}

/// The judge may name the branch of an item by its id within a sentence.
///
/// Guarantees: BRANCH-5.
#[tokio::test]
async fn ranking_answer_can_name_item_in_sentence() {
    let text = source(
        "first [does=\"success/list:x+y\"] p [type=parallel] f [shape=tripleoctagon, type=\"\", prompt=\"Which is the best?\"] one \
         start -> first -> p p -> one [for_each=\"context.list\"] one -> f f -> exit",
    );
    for said in ["I like one:1 best.", "The best is one:1: it is short.", "one:1", "Best:one:1"] {
        let judge = Judge(BackendAnswer::text(said), Arc::default());
        let registry = registry().with("codergen", Codergen::new(judge));
        let ran = run_with(&text, registry, Context::new()).await;
        assert_eq!(best(&ran), ["one:1", "success", "answer"], "{said}");
    }
    let (ran, _) = judged(BackendAnswer::text("Best: b:"), "success", "success").await;
    assert_eq!(best(&ran), ["b", "success", "answer"]);
}

#[tokio::test]
async fn ranking_answer_without_name_falls_back_to_score() {
    let (ran, _) = judged(BackendAnswer::text("none of them"), "success/score:1", "success/score:2").await;
    assert_eq!(best(&ran), ["b", "success", "score"]);
}

#[tokio::test]
async fn a_failed_branch_is_no_candidate() {
    let (ran, asked) = judged(BackendAnswer::text("b"), "success", "fail").await;
    assert_eq!(best(&ran), ["a", "success", ""]);
    assert_eq!(asked.len(), 0, "a single candidate needs no choice");
}

#[tokio::test]
async fn a_judge_that_fails_fails_the_fan_in() {
    let (ran, _) = judged(BackendAnswer::outcome(StageOutcome::fail("no judge")), "success", "success").await;
    assert_eq!(ran.path.last().unwrap(), "exit");
    assert!(ran.path.contains(&"bad".to_owned()), "{}", ran.path());
}

#[tokio::test]
async fn default_prompt_does_not_request_ranking() {
    let judge = Judge(BackendAnswer::text("b"), Arc::default());
    let text = source(
        "p [type=parallel] f [type=\"parallel.fan_in\"] a b start -> p p -> a -> f p -> b -> f f -> exit",
    );
    let ran =
        run_with(&text, registry().with("codergen", Codergen::new(judge.clone())), Context::new()).await;
    assert_eq!(ran.text("parallel.fan_in.best_id"), "a");
    assert!(judge.1.lock().unwrap().is_empty());
}

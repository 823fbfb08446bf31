//! A fan-in with a prompt. The task handler chooses the best branch.

use std::cmp::Reverse;
use std::sync::Arc;

use async_trait::async_trait;
use ferrata_core::graph::Effect;
use serde_json::Value as Json;

use super::{Handler, HandlerError, Stage, response_key};
use crate::outcome::StageOutcome;
use crate::pipeline::Node;
use crate::suggest::beginning;
use crate::value::Value;
use crate::variable::expand;

/// The context key of the best branch.
pub(crate) const BEST: &str = "parallel.fan_in.best_id";

/// The context key of the results of the branches.
pub(crate) const RESULTS: &str = "parallel.results";

/// The context key that states whether an answer or a score chose the best branch.
pub(crate) const CHOSEN_BY: &str = "parallel.fan_in.chosen_by";

/// Maximum number of characters of the candidates' changes in a prompt. Each candidate gets an equal part.
const SHOWN: usize = 200_000;

/// Sends the prompt of the fan-in and the candidates to the task handler, and finds the id of a candidate in the answer.
#[derive(Debug)]
pub(crate) struct RankHandler {
    pub(crate) task: Arc<dyn Handler>,
}

/// Returns the results to choose from, by id. Branches that failed or were skipped are not candidates.
fn candidates(stage: &Stage) -> Vec<(String, &Json)> {
    let results = stage.context.get_value(RESULTS).and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let text = |result: &Json, key: &str| result[key].as_str().unwrap_or_default().to_owned();
    let good = |result: &&Json| matches!(&*text(result, "outcome"), "success" | "partial_success");
    results.iter().filter(good).map(|result| (text(result, "id"), result)).collect()
}

/// Finds the candidate that an answer names. The answer is the id, or contains it as a word; the first such word counts.
fn find_named(answer: &str, candidates: &[(String, &Json)]) -> Option<String> {
    let ids = || candidates.iter().map(|(id, _)| id).filter(|id| !id.is_empty());
    // An id may contain other characters, for example `work:1` for the branch of an item.
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let place = |id: &String| {
        let is_word =
            |at: usize| !answer[..at].ends_with(in_word) && !answer[at + id.len()..].starts_with(in_word);
        answer.match_indices(id.as_str()).map(|(at, _)| at).find(|at| is_word(*at))
    };
    let occurring = ids().filter_map(|id| Some((place(id)?, Reverse(id.len()), id)));
    let whole = ids().find(|id| **id == answer.trim());
    whole.or_else(|| occurring.min().map(|(.., id)| id)).cloned()
}

#[async_trait]
impl Handler for RankHandler {
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let candidates = candidates(stage);
        if candidates.len() < 2 {
            return Ok(StageOutcome::success());
        }
        let prompt = stage.node.attributes.text("prompt");
        let prompt =
            expand(&prompt, &stage.context).map_err(|why| HandlerError::permanent(why).not_done())?;
        let mut prompt = prompt.into_owned();
        prompt.push_str("\n\nAnswer with the id of one candidate.\n");
        let most = SHOWN / candidates.len();
        for (id, result) in &candidates {
            let set = result["context"].to_string();
            let (outcome, score) = (&result["outcome"], &result["score"]);
            let line =
                format!("\nCandidate {id}: outcome {outcome}, score {score}\n{}\n", beginning(&set, most));
            prompt.push_str(&line);
        }
        let mut node = Node::clone(&stage.node);
        node.attributes.set("prompt", Value::string(prompt.as_str()));
        let stage = Stage { node: Arc::new(node), is_expanded: true, ..stage.clone() };
        let mut outcome = self.task.run(&stage).await?;
        if !outcome.status.is_success() {
            return Ok(outcome);
        }
        let key = response_key(stage.node.id());
        let said = [BEST, &key].into_iter().find_map(|key| outcome.context_updates.get(key)?.as_str());
        let suggested = outcome.suggested_next_ids.first().map(String::as_str);
        let named = said.or(suggested).and_then(|answer| find_named(answer, &candidates));
        outcome.suggested_next_ids.clear();
        outcome.context_updates.remove(BEST);
        Ok(match named {
            Some(id) => outcome.with(BEST, id).with(CHOSEN_BY, "answer"),
            None => outcome
                .with_notes("the answer names no candidate; ranked by score instead")
                .with(CHOSEN_BY, "score"),
        })
    }

    fn effect(&self) -> Effect {
        self.task.effect()
    }

    fn is_task(&self) -> bool {
        true
    }
}

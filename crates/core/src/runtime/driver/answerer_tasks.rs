//! The tasks in which the runtime's answerer works on questions of the run.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use crate::ask::{Answer, Answerer, AnswererQuestion, Question};
use crate::id::RunKey;

/// The result of a task of the answerer: the id of the task, the question, and the answer with its author.
pub(super) type AnswererResult = (Id, (String, Option<(Answer, String)>));

/// The questions that the answerer is working on, and its answers that are not read yet. `None` until the first question.
#[derive(Default)]
pub(super) struct AnswererTasks(Option<Box<AnswererWork>>);

#[derive(Default)]
struct AnswererWork {
    /// Each question with the abort handle of its task.
    posed: HashMap<String, AbortHandle>,
    answering: JoinSet<(String, Option<(Answer, String)>)>,
}

impl AnswererTasks {
    /// Passes new questions to the answerer, and withdraws closed ones.
    pub(super) fn pose(&mut self, run: &RunKey, answerer: &Arc<dyn Answerer>, open: Vec<Question>) {
        if open.is_empty() && self.0.is_none() {
            return;
        }
        let AnswererWork { posed, answering } = &mut **self.0.get_or_insert_default();
        posed.retain(|id, task| {
            let stays = open.iter().any(|question| question.id == *id);
            if !stays {
                task.abort();
            }
            stays
        });
        for question in open {
            if let Entry::Vacant(place) = posed.entry(question.id.clone()) {
                let (run, answerer) = (run.clone(), Arc::clone(answerer));
                place.insert(answering.spawn(async move {
                    let asking = AnswererQuestion::new(run, question);
                    let answer = answerer.answer(&asking).await;
                    let signed = answer.map(|answer| (answer, answerer.author(&asking)));
                    (asking.question.id, signed)
                }));
            }
        }
    }

    /// Withdraws a question, because the node asks it again.
    pub(super) fn withdraw(&mut self, question: &str) {
        if let Some(task) = self.0.as_mut().and_then(|work| work.posed.remove(question)) {
            task.abort();
        }
    }

    /// Returns whether the answerer has no question.
    pub(super) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|work| work.posed.is_empty())
    }

    /// Returns whether the answerer is idle.
    pub(super) fn is_idle(&self) -> bool {
        self.0.as_ref().is_none_or(|work| work.answering.is_empty())
    }

    /// Returns whether this task works on the current form of the question. Another task's answer belongs to a question that was closed or asked
    /// again.
    pub(super) fn is_current(&self, task: Id, question: &str) -> bool {
        let posed = self.0.as_ref().and_then(|work| work.posed.get(question));
        posed.is_some_and(|posed| posed.id() == task)
    }

    /// Allows the question to be passed to the answerer again in the next iteration of the driver.
    pub(super) fn allow_again(&mut self, question: &str) {
        if let Some(work) = &mut self.0 {
            work.posed.remove(question);
        }
    }

    /// Waits for the next answer. Returns `None` if the answerer works on no question.
    ///
    /// Cancel safe: if the future is dropped, the next call returns the answer.
    pub(super) async fn next_answer(&mut self) -> Option<Result<AnswererResult, JoinError>> {
        match &mut self.0 {
            Some(work) => work.answering.join_next_with_id().await,
            None => None,
        }
    }
}

#[cfg(test)]
mod tests;

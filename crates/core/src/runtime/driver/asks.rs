//! The questions that the runtime's answerer works on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use crate::ask::{Answer, Answerer, AnswererQuestion, Question};
use crate::id::RunKey;

/// The work of the answerer: by which task, on which question, with which answer and author.
pub(super) type AnswererResult = (Id, (String, Option<(Answer, String)>));

/// The questions that the answerer works on, and its answers to come; absent as long as none was handed to it.
#[derive(Default)]
pub(super) struct AnswererTasks(Option<Box<Work>>);

#[derive(Default)]
struct Work {
    /// Each with what ends the work on it.
    posed: HashMap<String, AbortHandle>,
    answering: JoinSet<(String, Option<(Answer, String)>)>,
}

impl AnswererTasks {
    /// Hands the questions that are new to the answerer, and takes back those that are closed.
    pub(super) fn pose(&mut self, run: &RunKey, answerer: &Arc<dyn Answerer>, open: Vec<Question>) {
        if open.is_empty() && self.0.is_none() {
            return;
        }
        let Work { posed, answering } = &mut **self.0.get_or_insert_default();
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
                    let asking = AnswererQuestion { run, question };
                    let answer = answerer.answer(&asking).await;
                    let signed = answer.map(|answer| (answer, answerer.author(&asking)));
                    (asking.question.id, signed)
                }));
            }
        }
    }

    /// Takes a question back, because it is asked anew.
    pub(super) fn withdraw(&mut self, question: &str) {
        if let Some(task) = self.0.as_mut().and_then(|work| work.posed.remove(question)) {
            task.abort();
        }
    }

    /// Whether no question is with the answerer.
    pub(super) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|work| work.posed.is_empty())
    }

    /// Whether the answerer has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.0.as_ref().is_none_or(|work| work.answering.is_empty())
    }

    /// Whether this task works on the question as it is asked now. An answer of another is to a question that was closed meanwhile, or
    /// asked anew.
    pub(super) fn is_current(&self, task: Id, question: &str) -> bool {
        let posed = self.0.as_ref().and_then(|work| work.posed.get(question));
        posed.is_some_and(|posed| posed.id() == task)
    }

    /// Lets a question be posed again in the next turn.
    pub(super) fn forget(&mut self, question: &str) {
        if let Some(work) = &mut self.0 {
            work.posed.remove(question);
        }
    }

    /// Waits for the next answer; `None` if none is to come.
    ///
    /// Cancel safe: an answer that was not returned is returned by the next call.
    pub(super) async fn next_answer(&mut self) -> Option<Result<AnswererResult, JoinError>> {
        match &mut self.0 {
            Some(work) => work.answering.join_next_with_id().await,
            None => None,
        }
    }
}

#[cfg(test)]
mod tests;

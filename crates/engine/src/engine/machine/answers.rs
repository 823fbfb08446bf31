//! Applies an answer to a question to the machine of a run.

use std::sync::Arc;

use super::Machine;
use crate::ask::Answer;
use crate::clock::Timestamp;
use crate::engine::questions::{ClosedQuestion, QuestionSubject};
use crate::error::{Error, ErrorKind, Result};
use crate::record::memo::{AskedQuestion, Memo, Reply};
use crate::record::{Failure, FailureKind};

/// The number of answered questions that are remembered after their activations have ended. A second answer to such a question gets a precise error.
const ANSWERED: usize = 64;

impl Machine {
    /// Applies the answer to a node's question to the machine.
    pub(super) fn absorb_answer(
        &mut self,
        id: &str,
        answer: &Answer,
        by: Option<&String>,
        at: Timestamp,
    ) -> Result<()> {
        let corrupt = |error: Error| {
            Error::new(ErrorKind::Corrupt, "the log answers a question that was not open").with_source(error)
        };
        let posed = self.find_question(id).map_err(corrupt)?;
        let id = self.id_of(&posed);
        if let Answer::Cancel(reason) = answer {
            self.standing.ask_to_cancel(format!("the question `{id}` was cancelled: {reason}"));
        }
        match (&posed.name, &posed.about) {
            (_, QuestionSubject::After) => {
                self.frontier.release_successors(&posed.key);
                if let Answer::Reject(comment) = answer {
                    let who = by.map_or_else(String::new, |by| format!(" by {by}"));
                    let message = format!("continuing after the node was rejected{who}: {comment}");
                    let node = self.name(posed.key.0).clone();
                    self.standing.fail(Failure::new(FailureKind::Rejected, message).with_node(&node));
                }
            }
            (Some(name), QuestionSubject::Asked(asked)) => {
                let reply = Reply::Answered { answer: answer.clone(), by: by.cloned(), at };
                let memo = Memo::Asked(Arc::new(AskedQuestion { ask: asked.ask.clone(), reply }));
                if let Some(activation) = self.frontier.activation_mut(&posed.key) {
                    activation.memos.insert(name.clone(), memo);
                }
            }
            _ => {}
        }
        self.remember(ClosedQuestion { id, by: by.cloned(), at, expired: false });
        self.standing.wake_up();
        Ok(())
    }

    /// Remembers a closed question.
    pub(super) fn remember(&mut self, answered: ClosedQuestion) {
        if self.answered.len() >= ANSWERED {
            self.answered.remove(0);
        }
        self.answered.push(answered);
    }
}

//! The questions of a run. This module lists open questions, computes their ids, and checks answers.

use std::sync::Arc;

use super::frontier::ActivationKey;
use super::machine::Machine;
use crate::ask::{Answer, Shape};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Visit;
use crate::record::memo::{AskedQuestion, Memo, Reply};

/// The names of the questions that the graph declares before and after a node.
pub const BEFORE: &str = "before";
pub(crate) const AFTER: &str = "after";

/// The subject of a question: what it asks about.
#[derive(Clone, Debug)]
pub enum QuestionSubject {
    /// The question asks for the outcome of an activation that must not be repeated.
    Doubt,
    /// A node asked the question, or the graph declares it before the node.
    Asked(Arc<AskedQuestion>),
    /// The question asks whether the run may continue after a node.
    After,
}

/// A question that was answered or has expired. It is retained after its activation has ended, so that a late answer gets a precise error.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct ClosedQuestion {
    pub(crate) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    pub(crate) at: Timestamp,
    /// Whether the question expired without an answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) expired: bool,
}

/// A question that is or was open.
#[derive(Clone, Debug)]
pub struct QuestionState {
    pub key: ActivationKey,
    /// The name of the question within the activation. `None` for a question about an unknown outcome.
    pub name: Option<String>,
    pub about: QuestionSubject,
}

impl Machine {
    /// Lists the open questions, in the order of nodes and visits.
    pub fn posed(&self) -> Vec<QuestionState> {
        let mut posed = Vec::new();
        for (&key, activation) in self.in_flight().iter() {
            if activation.in_doubt {
                posed.push(QuestionState { key, name: None, about: QuestionSubject::Doubt });
            }
            for (name, memo) in activation.memos.iter() {
                if let Memo::Asked(asked) = memo
                    && asked.reply.is_open()
                {
                    posed.push(QuestionState {
                        key,
                        name: Some(name.clone()),
                        about: QuestionSubject::Asked(Arc::clone(asked)),
                    });
                }
            }
        }
        let holds = self.frontier().held_activations().iter();
        posed.extend(holds.map(|&key| QuestionState {
            key,
            name: Some(AFTER.into()),
            about: QuestionSubject::After,
        }));
        posed
    }

    /// Returns the id of a question.
    pub fn id_of(&self, posed: &QuestionState) -> String {
        let activation = self.question_id(posed.key);
        match &posed.name {
            None => activation,
            Some(name) => format!("{activation}:{name}"),
        }
    }

    /// Finds an open question by its id, or by a prefix (`node@visit` or `node`) that matches only one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] lists the open questions, [`ErrorKind::AlreadyExists`] names the author of the answer, [`ErrorKind::WrongStatus`]
    /// means that the question expired, [`ErrorKind::Invalid`] means that several questions match.
    pub(crate) fn find_question(&self, id: &str) -> Result<QuestionState> {
        let posed = self.posed();
        let ids: Vec<String> = posed.iter().map(|posed| self.id_of(posed)).collect();
        if let Some(at) = ids.iter().position(|known| known == id) {
            return Ok(posed[at].clone());
        }
        let begins =
            |known: &&String| known.strip_prefix(id).is_some_and(|rest| rest.starts_with(['@', ':']));
        let named: Vec<&String> = ids.iter().filter(begins).collect();
        if let [only] = *named
            && let Some(at) = ids.iter().position(|known| known == only)
        {
            return Ok(posed[at].clone());
        }
        if named.len() > 1 {
            let listed = named.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(", ");
            let message = format!("`{id}` matches several open questions: {listed}; use one of these ids");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        self.check_not_closed(id)?;
        let message = match &*ids {
            [] => format!("the question `{id}` is not open, and the run has no open question"),
            _ => {
                format!("the question `{id}` is not open; use one of the open questions: {}", ids.join(", "))
            }
        };
        Err(Error::new(ErrorKind::NotFound, message))
    }

    /// Returns an error if a question was answered or has expired.
    fn check_not_closed(&self, id: &str) -> Result<()> {
        let answered = |by: &Option<String>, at: Timestamp| {
            let by = by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            let message =
                format!("the question `{id}` was already answered{by} at {at}; this answer changed nothing");
            Err(Error::new(ErrorKind::AlreadyExists, message))
        };
        for (&key, activation) in self.in_flight().iter() {
            for (name, memo) in activation.memos.iter() {
                let Memo::Asked(asked) = memo else { continue };
                if self.id_of(&QuestionState { key, name: Some(name.clone()), about: QuestionSubject::Doubt })
                    != id
                {
                    continue;
                }
                return match &asked.reply {
                    Reply::Open => Ok(()),
                    Reply::Answered { by, at, .. } => answered(by, *at),
                    Reply::Expired { at } => Err(expired(id, *at)),
                };
            }
        }
        match self.closed_questions().iter().rev().find(|answered| answered.id == id) {
            Some(past) if past.expired => Err(expired(id, past.at)),
            Some(past) => answered(&past.by, past.at),
            None => Ok(()),
        }
    }

    /// Checks whether an answer is allowed. A refused answer leaves the run unchanged.
    pub(super) fn check_answer(&self, id: &str, answer: &Answer, now: Timestamp) -> Result<()> {
        let posed = self.find_question(id)?;
        let (expects, deadline) = match &posed.about {
            QuestionSubject::Doubt => {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!(
                        "the question `{id}` asks about the unknown outcome of an activation; answer with a `Resolution`"
                    ),
                ));
            }
            QuestionSubject::Asked(asked) => (Some(&asked.ask.expects), asked.ask.deadline),
            QuestionSubject::After => (None, None),
        };
        if let Some(deadline) = deadline.filter(|deadline| *deadline <= now) {
            return Err(expired(id, deadline));
        }
        match answer {
            Answer::Accept(value) => expects.map_or(Ok(()), |shape| check_shape(id, shape, value.get())),
            Answer::Reject(_) | Answer::Cancel(_) => Ok(()),
            Answer::Resolve(_) => Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "the question `{id}` does not ask about an unknown outcome; accept, reject or cancel it"
                ),
            )),
        }
    }

    /// Returns whether an activation cannot start yet, because the question after an earlier node is not answered.
    pub fn is_held(&self, key: ActivationKey) -> bool {
        !self.frontier().held_activations().is_empty()
            && self.in_flight().get(&key).is_some_and(|activation| {
                activation
                    .inputs
                    .iter()
                    .any(|token| self.frontier().held_activations().contains(&(token.from, token.visit)))
            })
    }

    /// Returns the id of the question about an activation itself.
    pub fn question_id(&self, key: ActivationKey) -> String {
        format!("{}@{}", self.name(key.0), key.1)
    }

    /// Returns the activation whose unknown outcome a question is about.
    pub(crate) fn doubted_activation(&self, id: &str) -> Option<ActivationKey> {
        let (node, visit) = id.rsplit_once('@')?;
        let key = (self.find(node)?, Visit::new(visit.parse().ok()?));
        self.in_flight().get(&key).filter(|activation| activation.in_doubt).map(|_| key)
    }
}

fn check_shape(id: &str, shape: &Shape, value: &str) -> Result<()> {
    shape.check(value).map_err(|problem| {
        let message = format!("the question `{id}` expects {shape}, and the answer does not fit: {problem}");
        Error::new(ErrorKind::Invalid, message)
    })
}

fn expired(id: &str, at: Timestamp) -> Error {
    let message = format!("the question `{id}` expired at {at}; this answer changed nothing");
    Error::new(ErrorKind::WrongStatus, message)
}

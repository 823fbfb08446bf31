//! Answerers, which answer questions instead of a person.

use std::fmt;

use async_trait::async_trait;
use serde_json::value::RawValue;

use super::{Answer, Question};
use crate::id::RunKey;

/// Code that answers the questions of the active runs in this process. Register it with `RuntimeBuilder::answerer`.
///
/// The runtime passes a question to the answerer when a node asks it, and when a process claims the run while the question is open. It also does so
/// when the run asks again because the answer could not be decoded. The run stays in memory until the answerer has decided. The answerer does not
/// receive questions about activations with unknown outcome, because a person must decide these.
#[async_trait]
pub trait Answerer: fmt::Debug + Send + Sync + 'static {
    /// Answers the question. If it returns `None`, or an answer that does not fit, the question stays open for other answers.
    ///
    /// # Cancel safety
    ///
    /// The runtime drops the future if another answer arrives first, if the question expires or is asked again, or if this process releases the run.
    async fn answer(&self, question: &AnswererQuestion) -> Option<Answer>;

    /// Returns the name that is recorded as the author of the answers.
    fn name(&self) -> String;

    /// Returns the name that is recorded as the author of the answer to `question`. The default is [`name`](Self::name). If an answerer asks people
    /// some questions and decides other questions without a person, it returns [`AUTOMATIC`] for the questions that it decides.
    fn author(&self, question: &AnswererQuestion) -> String {
        let _ = question;
        self.name()
    }
}

/// The author that is recorded for automatic answers.
#[doc(hidden)]
pub const AUTOMATIC: &str = "automatic";

/// A question and the run that asks it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AnswererQuestion {
    /// The key of the run that asks.
    pub run: RunKey,
    /// The question.
    pub question: Question,
}

impl AnswererQuestion {
    /// Pairs a question with the run that asks it.
    #[doc(hidden)]
    pub const fn new(run: RunKey, question: Question) -> Self {
        Self { run, question }
    }
}

/// An answerer that gives the first of these values that the question accepts: the default of the question, its first choice, or `true`.
///
/// If none of these values fits, the question stays open. If an automatic answer could not be decoded and the run asks again, the question stays open
/// too. Use this answerer in tests, and for runs without people.
#[derive(Clone, Copy, Debug, Default)]
pub struct AutomaticAnswerer;

#[async_trait]
impl Answerer for AutomaticAnswerer {
    async fn answer(&self, asking: &AnswererQuestion) -> Option<Answer> {
        let question = &asking.question;
        if question.problem.is_some() {
            // Its answer would not change.
            return None;
        }
        let expects = question.expects.as_ref()?;
        let default = question.default.as_deref().map(str::to_owned);
        let first = expects.options().first().and_then(|choice| serde_json::to_string(choice).ok());
        let fitting = [default, first, Some("true".to_owned()), Some("null".to_owned())];
        let text = fitting.into_iter().flatten().find(|text| expects.check(text).is_ok())?;
        RawValue::from_string(text).ok().map(Answer::Accept)
    }

    fn name(&self) -> String {
        AUTOMATIC.into()
    }
}

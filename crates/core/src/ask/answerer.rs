//! Who answers questions without a person.

use std::fmt;

use async_trait::async_trait;
use serde_json::value::RawValue;

use super::{Answer, Question};
use crate::id::RunKey;

/// Answers the questions of the runs that go on in this process: see
/// [`RuntimeBuilder::answerer`](crate::runtime::RuntimeBuilder::answerer).
///
/// A question goes to the answerer when it is asked, when it is asked again because its answer could not be read, and once more whenever
/// its run is taken up while it is open. As long as the answerer has not decided, the run stays in memory. Questions about
/// activations in doubt are for people and never go to it.
#[async_trait]
pub trait Answerer: fmt::Debug + Send + Sync + 'static {
    /// Answers, or leaves the question open for other signallers with `None`. An answer that does not fit leaves it open as well.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when another signaller answers first, when the question has expired or is asked again, or when the run is
    /// left.
    async fn answer(&self, question: &AnswererQuestion) -> Option<Answer>;

    /// Returns what is recorded as the author of the answers.
    fn name(&self) -> String;

    /// Returns what is recorded as the author of the answer to a question; [`name`](Self::name) by default. An answerer that decides some
    /// questions by itself and asks people others says so here, with [`AUTOMATIC`].
    fn author(&self, question: &AnswererQuestion) -> String {
        let _ = question;
        self.name()
    }
}

/// The author of answers that no person gave.
pub const AUTOMATIC: &str = "automatic";

/// A question and the run that asks it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AnswererQuestion {
    /// The run.
    pub run: RunKey,
    /// The question.
    pub question: Question,
}

/// Answers by itself: with the default of the question, with its first choice, or with `true`, whichever fits first; leaves
/// other questions open, and those that are asked again because such an answer was no use. For tests, and for unattended runs.
///
/// <!-- held by: answerers::the_automatic_answerer_leaves_a_question_open_that_is_asked_again -->
#[derive(Clone, Copy, Debug, Default)]
pub struct Automatic;

#[async_trait]
impl Answerer for Automatic {
    async fn answer(&self, asking: &AnswererQuestion) -> Option<Answer> {
        let question = &asking.question;
        if question.problem.is_some() {
            // Its answer would be the same again.
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

//! Questions in the form in which a node asks them, with the text, the expected answer and the deadline.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{AnswerShape, Shape};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::state::strict;

/// A question with the type of its answer, and an optional deadline and default.
///
/// The answer type `A` implements [`AnswerShape`], which describes the shape of valid answers. The record of the question contains the shape, so any
/// process can reject an invalid answer, even without the code of the type. [`Ask::choices`] and [`Ask::expects`] replace the shape. For answer types
/// that do not implement [`AnswerShape`], use [`Ask::shaped`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use ferrata_core::ask::Ask;
///
/// let approve = Ask::<bool>::new("Pay 120 EUR to ACME?").deadline(Duration::from_secs(3 * 86_400)).or_default(false);
/// let pick = Ask::<String>::new("Which colour?").choices(["red", "green"]);
/// assert_eq!(pick.shape().to_string(), "one of: red, green");
/// # let _ = approve;
/// ```
#[must_use = "a question does nothing until it is asked"]
pub struct Ask<A> {
    question: Result<Box<RawValue>>,
    expects: Shape,
    deadline: Option<Duration>,
    default: Result<Option<Box<RawValue>>>,
    answer: PhantomData<fn() -> A>,
}

impl<A: DeserializeOwned> Ask<A> {
    /// Creates a question. `question` is a text or any other value that can be expressed in JSON, and is shown to the person who answers.
    pub fn new(question: impl Serialize) -> Self
    where
        A: AnswerShape,
    {
        Self::shaped(question, Shape::of::<A>())
    }

    /// Creates a question like [`new`](Self::new), for an answer type that does not implement [`AnswerShape`], such as a type of another crate.
    ///
    /// If an answer has the shape but cannot be decoded as the answer type, the run asks again and describes the problem.
    ///
    /// ```
    /// use ferrata_core::ask::{Ask, Shape};
    ///
    /// let bytes = Ask::<std::ffi::CString>::shaped("Which bytes?", Shape::list(Shape::of::<u8>()));
    /// assert_eq!(bytes.shape().to_string(), "a list, each an integer from 0 to 255");
    /// ```
    pub fn shaped(question: impl Serialize, shape: Shape) -> Self {
        Self {
            question: strict::to_raw_value(&question),
            expects: shape,
            deadline: None,
            default: Ok(None),
            answer: PhantomData,
        }
    }

    /// Restricts answers to one of these texts.
    pub fn choices(self, choices: impl IntoIterator<Item: Into<String>>) -> Self {
        self.expects(Shape::choices(choices))
    }

    /// Sets the shape that answers must have, instead of the shape of the answer type.
    pub fn expects(mut self, shape: Shape) -> Self {
        self.expects = shape;
        self
    }

    /// Sets how long the question waits for an answer after it is first asked. By default the question waits forever.
    ///
    /// After the deadline, the node receives [`AskError::Expired`](super::AskError::Expired), unless there is a default.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Sets the answer that is used if the deadline passes. If the default cannot be decoded as the answer type, the question fails.
    #[expect(clippy::needless_pass_by_value, reason = "an answer as it would be given")]
    pub fn or_default(mut self, answer: A) -> Self
    where
        A: Serialize,
    {
        self.default = strict::to_raw_value(&answer).and_then(|text| {
            // Check the default now, because after the deadline no other answer is accepted.
            serde_json::from_str::<A>(text.get()).map_err(|source| {
                let message = format!("cannot read the default back as {}", std::any::type_name::<A>());
                Error::new(ErrorKind::Invalid, message).with_source(source)
            })?;
            Ok(Some(text))
        });
        self
    }

    /// Returns the expected shape of the answer.
    pub fn shape(&self) -> &Shape {
        &self.expects
    }

    /// Returns the recorded form of a question that is asked at `now`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the question or the default cannot be expressed in JSON.
    #[doc(hidden)]
    pub fn into_request(self, now: Timestamp) -> Result<QuestionRequest> {
        let default = self.default?;
        let deadline = self.deadline.map(|after| now.plus(after));
        Ok(QuestionRequest {
            question: self.question?.into(),
            expects: self.expects,
            deadline,
            on_deadline: default.map_or(OnDeadline::Tell, |default| OnDeadline::Default(default.into())),
            problem: None,
        })
    }
}

impl<A> fmt::Debug for Ask<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("expects", &self.expects)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// The recorded form of a question.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[doc(hidden)]
pub struct QuestionRequest {
    pub question: Arc<RawValue>,
    pub expects: Shape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "OnDeadline::is_tell")]
    pub on_deadline: OnDeadline,
    /// The reason why the earlier answer could not be used, if the question is asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl QuestionRequest {
    /// A question without text that accepts any value.
    pub fn plain() -> Self {
        let question = RawValue::NULL.to_owned().into();
        Self { question, expects: Shape::any(), deadline: None, on_deadline: OnDeadline::Tell, problem: None }
    }
}

impl PartialEq for QuestionRequest {
    fn eq(&self, other: &Self) -> bool {
        self.question.get() == other.question.get()
            && self.expects == other.expects
            && self.deadline == other.deadline
            && self.on_deadline == other.on_deadline
            && self.problem == other.problem
    }
}

/// The action that follows if the deadline of a question passes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[doc(hidden)]
pub enum OnDeadline {
    /// The node is notified that no answer arrived.
    #[default]
    Tell,
    /// The node receives this value as the answer.
    Default(Arc<RawValue>),
}

impl OnDeadline {
    fn is_tell(&self) -> bool {
        matches!(self, Self::Tell)
    }
}

impl PartialEq for OnDeadline {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tell, Self::Tell) => true,
            (Self::Default(one), Self::Default(other)) => one.get() == other.get(),
            _ => false,
        }
    }
}

//! What is asked, what is expected, and what happens without an answer in time.

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

/// A question: what is asked, of which type the answer is, and what happens without an answer in time.
///
/// What an answer must look like is said by its type `A`, which is [`AnswerShape`], and stored with the question, so that any process can
/// refuse a wrong one without having the type. [`Ask::choices`] and [`Ask::expects`] say it otherwise, and [`Ask::shaped`] for a type that does not
/// say it.
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
    /// Asks this, which is shown to those who may answer: text, or anything that JSON can hold.
    pub fn new(question: impl Serialize) -> Self
    where
        A: AnswerShape,
    {
        Self::shaped(question, Shape::of::<A>())
    }

    /// Asks like [`new`](Self::new) for an answer of a type that does not say its shape, such as one of another crate.
    ///
    /// An answer of this shape that the type does not read is asked for again, with what was wrong.
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

    /// Accepts only one of these texts.
    pub fn choices(self, choices: impl IntoIterator<Item: Into<String>>) -> Self {
        self.expects(Shape::choices(choices))
    }

    /// Says what an answer must look like, instead of what its type says.
    pub fn expects(mut self, shape: Shape) -> Self {
        self.expects = shape;
        self
    }

    /// Sets how long an answer is waited for, from when it is asked first; for ever unless set.
    ///
    /// When it is over, the node is told with [`AskError::Expired`](super::AskError::Expired), unless there is a default.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Takes this as the answer when the deadline is over. Asking fails if its type does not read it back.
    #[expect(clippy::needless_pass_by_value, reason = "an answer as it would be given")]
    pub fn or_default(mut self, answer: A) -> Self
    where
        A: Serialize,
    {
        self.default = strict::to_raw_value(&answer).and_then(|text| {
            // Found now, and not when the deadline is over and no answer is taken any more.
            serde_json::from_str::<A>(text.get()).map_err(|source| {
                let message = format!("the default is not read back as {}", std::any::type_name::<A>());
                Error::new(ErrorKind::Invalid, message).with_source(source)
            })?;
            Ok(Some(text))
        });
        self
    }

    /// Returns what an answer must look like.
    pub fn shape(&self) -> &Shape {
        &self.expects
    }

    /// Returns the question as it is recorded when it is asked at `now`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if question or default cannot be expressed in JSON.
    pub(crate) fn into_request(self, now: Timestamp) -> Result<Request> {
        let default = self.default?;
        let deadline = self.deadline.map(|after| now.plus(after));
        Ok(Request {
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

/// A question as it is recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) question: Arc<RawValue>,
    pub(crate) expects: Shape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "OnDeadline::is_tell")]
    pub(crate) on_deadline: OnDeadline,
    /// What was wrong with the answer that it had before, if it is asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

impl Request {
    /// A question without words, to which any value is an answer.
    pub(crate) fn plain() -> Self {
        let question = RawValue::NULL.to_owned().into();
        Self { question, expects: Shape::any(), deadline: None, on_deadline: OnDeadline::Tell, problem: None }
    }
}

impl PartialEq for Request {
    fn eq(&self, other: &Self) -> bool {
        self.question.get() == other.question.get()
            && self.expects == other.expects
            && self.deadline == other.deadline
            && self.on_deadline == other.on_deadline
            && self.problem == other.problem
    }
}

/// What happens to a question whose deadline is over.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnDeadline {
    /// The node is told that there was no answer.
    #[default]
    Tell,
    /// This is the answer.
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

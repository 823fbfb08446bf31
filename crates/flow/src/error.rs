//! Errors of flows and of their operations.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use ferrata_core::ask::AskError;
use ferrata_core::runtime::ChildError;
use serde::{Deserialize, Serialize};

/// The kind of a [`FlowError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FlowErrorKind {
    /// The function or the work of a step returned an error.
    Failed,
    /// A step took longer than its timeout.
    TimedOut,
    /// A question was rejected.
    Rejected,
    /// A question was not answered before its deadline.
    Expired,
    /// A child run failed.
    ChildFailed,
    /// A child run was cancelled.
    ChildCancelled,
    /// A child run was purged before its result was recorded.
    ChildGone,
}

/// The error of a flow or of one of its operations.
///
/// The operator `?` creates it from any error, and `"no such order".into()` creates it from text. Like [`NodeError`](ferrata_core::node::NodeError),
/// it does not implement [`std::error::Error`]; [`failure`](Self::failure) returns a value that does.
///
/// The error of an operation is recorded before any later operation of the function. So after a crash the function sees the same error, with the same
/// message and causes. The original error value is not recorded. To branch on a value, return the value in `Ok` (see
/// [`step`](crate::FlowContext::step)).
///
/// # Examples
///
/// ```
/// use ferrata_flow::FlowError;
///
/// fn parse(text: &str) -> Result<u32, FlowError> {
///     text.parse::<u32>().map_err(FlowError::fatal) // a retry would not help
/// }
/// let error = parse("seven").unwrap_err();
/// assert!(error.is_fatal());
/// assert_eq!(error.to_string(), "invalid digit found in string");
/// ```
pub struct FlowError {
    failure: Box<FlowFailure>,
    is_fatal: bool,
    is_not_done: bool,
    retry_after: Option<Duration>,
}

impl FlowError {
    /// Creates an error after which a retry may succeed.
    pub fn new(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of_kind(FlowErrorKind::Failed, FlowFailure::of(&*source.into()))
    }

    /// Creates an error after which a retry cannot succeed. A step that fails with it is not tried again, and a flow that fails with it is not run
    /// again.
    pub fn fatal(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(source).as_fatal()
    }

    pub(crate) fn of_error(error: &dyn StdError) -> Self {
        Self::of_kind(FlowErrorKind::Failed, FlowFailure::of(error))
    }

    pub(crate) fn of_kind(kind: FlowErrorKind, failure: FlowFailure) -> Self {
        let failure = Box::new(FlowFailure { kind, ..failure });
        Self { failure, is_fatal: false, is_not_done: false, retry_after: None }
    }

    /// Marks the error as fatal: a retry cannot succeed.
    #[must_use]
    pub fn as_fatal(mut self) -> Self {
        self.is_fatal = true;
        self
    }

    /// Marks that the work had no effect, so an [external](crate::StepRequest::external) step may be tried again.
    #[must_use]
    pub fn not_done(mut self) -> Self {
        self.is_not_done = true;
        self
    }

    /// Sets the delay before the next try. It replaces the delay of the retry policy.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Adds a message before the current message. The current message becomes the first cause.
    ///
    /// ```
    /// use ferrata_flow::FlowError;
    ///
    /// let error = FlowError::new("connection refused").context("cannot reach the bank");
    /// assert_eq!(error.to_string(), "cannot reach the bank");
    /// assert_eq!(error.failure().causes(), ["connection refused"]);
    /// ```
    #[must_use]
    pub fn context(mut self, message: impl Into<String>) -> Self {
        let mut texts = vec![std::mem::take(&mut self.failure.message)];
        texts.extend(self.failure.causes().iter().cloned());
        *self.failure = FlowFailure::from_texts(self.failure.kind, message.into(), texts);
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> FlowErrorKind {
        self.failure.kind
    }

    /// Returns whether the error is fatal, so that a retry cannot succeed.
    pub fn is_fatal(&self) -> bool {
        self.is_fatal
    }

    /// Returns whether the work is known to have had no effect.
    pub fn is_not_done(&self) -> bool {
        self.is_not_done
    }

    /// Returns the delay before the next try, if the error sets it.
    pub fn delay(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the message and the causes as a standard error.
    pub fn failure(&self) -> &FlowFailure {
        &self.failure
    }

    pub(crate) fn into_failure(self) -> FlowFailure {
        *self.failure
    }

    pub(crate) fn record(&self) -> FailureRecord {
        FailureRecord {
            kind: self.failure.kind,
            message: self.failure.message.clone(),
            causes: self.failure.texts.clone(),
            fatal: self.is_fatal,
        }
    }

    pub(crate) fn of_record(record: FailureRecord) -> Self {
        let FailureRecord { kind, message, causes, fatal } = record;
        let failure = FlowFailure::from_texts(kind, message, causes);
        Self { is_fatal: fatal, ..Self::of_kind(kind, failure) }
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for FlowError {
    fn from(source: E) -> Self {
        Self::new(source)
    }
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.failure, f)
    }
}

impl fmt::Debug for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowError")
            .field("kind", &self.failure.kind)
            .field("message", &self.failure.message)
            .field("causes", &self.failure.texts)
            .field("fatal", &self.is_fatal)
            .finish_non_exhaustive()
    }
}

/// Converts the error of a question. Returns `None` for an error that the function must not see.
pub(crate) fn of_question(error: &AskError) -> Option<FlowError> {
    let kind = match error {
        AskError::Rejected { .. } => FlowErrorKind::Rejected,
        AskError::Expired { .. } => FlowErrorKind::Expired,
        _ => return None,
    };
    Some(FlowError::of_kind(kind, FlowFailure::of(error)).as_fatal())
}

/// Converts the error of a child. Returns `None` for an error that the function must not see.
pub(crate) fn of_child(error: &ChildError) -> Option<FlowError> {
    let kind = match error {
        ChildError::Failed { .. } => FlowErrorKind::ChildFailed,
        ChildError::Cancelled { .. } => FlowErrorKind::ChildCancelled,
        ChildError::Gone { .. } => FlowErrorKind::ChildGone,
        _ => return None,
    };
    Some(FlowError::of_kind(kind, FlowFailure::of(error)))
}

/// The recorded form of an error.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FailureRecord {
    kind: FlowErrorKind,
    message: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    causes: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    fatal: bool,
}

/// The maximum number of causes of an error.
const MAX_CAUSES: usize = 20;
const MAX_CAUSE_BYTES: usize = 500;
const MAX_MESSAGE_BYTES: usize = 2_000;

/// The message of a [`FlowError`] with the chain of its causes.
///
/// It stores at most 2,000 bytes of the message and at most 20 causes of 500 bytes each. Longer texts are cut and end in `…`.
#[derive(Clone)]
pub struct FlowFailure {
    kind: FlowErrorKind,
    message: String,
    texts: Vec<String>,
    /// The same causes, as a chain of error sources.
    cause: Option<Box<FailureCause>>,
}

#[derive(Clone, Debug)]
struct FailureCause {
    text: String,
    next: Option<Box<Self>>,
}

impl FlowFailure {
    pub(crate) fn of(error: &dyn StdError) -> Self {
        let mut texts = Vec::new();
        let mut cause = error.source();
        while let Some(error) = cause.filter(|_| texts.len() < MAX_CAUSES) {
            texts.push(error.to_string());
            cause = error.source();
        }
        Self::from_texts(FlowErrorKind::Failed, error.to_string(), texts)
    }

    pub(crate) fn from_texts(kind: FlowErrorKind, message: String, mut texts: Vec<String>) -> Self {
        texts.truncate(MAX_CAUSES);
        texts.iter_mut().for_each(|text| clip(text, MAX_CAUSE_BYTES));
        let chain = |next, text: &String| Some(Box::new(FailureCause { text: text.clone(), next }));
        let cause = texts.iter().rev().fold(None, chain);
        let mut failure = Self { kind, message, texts, cause };
        clip(&mut failure.message, MAX_MESSAGE_BYTES);
        failure
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> FlowErrorKind {
        self.kind
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the causes, outermost first.
    pub fn causes(&self) -> &[String] {
        &self.texts
    }
}

fn clip(text: &mut String, max_bytes: usize) {
    if text.len() > max_bytes {
        let end = (0..=max_bytes).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

impl fmt::Display for FlowFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for FlowFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowFailure")
            .field("kind", &self.kind)
            .field("message", &self.message)
            .field("causes", &self.texts)
            .finish_non_exhaustive()
    }
}

impl StdError for FlowFailure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for FailureCause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.next.as_deref().map(|cause| cause as _)
    }
}

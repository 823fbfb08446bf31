//! The error type of the library. Its kind tells the caller what to do, and it names the run, record or node.

use std::fmt;
use std::sync::Arc;

use crate::id::{HeadRef, NodeName, RunKey, Seq};

/// The result of every fallible operation of the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an [`Error`], which tells the caller what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The target does not exist. The call changed nothing.
    NotFound,
    /// The target already exists and differs. The call changed nothing.
    AlreadyExists,
    /// Another writer was first. The call wrote nothing: load the run, check the other writer's records, and decide again.
    Conflict,
    /// Another executor has claimed the run, or may do so because this process missed its heartbeat. The call wrote nothing. Stop: the run
    /// continues in the process that claims it.
    Fenced,
    /// The store is unreachable, or the store or the run is too busy. The call wrote nothing: retry with a growing delay.
    Unavailable,
    /// The reply was lost, so the call may or may not have written. Retry the same call with the same records: their ids make the retry safe.
    Indeterminate,
    /// This store or this version does not support the operation. The call changed nothing.
    Unsupported,
    /// The call is wrong. It changed nothing: fix the call.
    Invalid,
    /// A value exceeds a limit. The call changed nothing: make the value smaller, or raise the limit.
    TooLarge,
    /// Stored data is damaged. The call changed nothing: an operator must investigate.
    Corrupt,
    /// The graph differs from the graph of the recorded run in a way that matters. The call changed nothing.
    GraphChanged,
    /// The status of the run does not allow the operation. The call changed nothing.
    WrongStatus,
    /// The runtime has been shut down, or no executor continues the run. The call changed nothing.
    Closed,
}

impl ErrorKind {
    /// All kinds, in the order of declaration.
    pub const ALL: [Self; 13] = [
        Self::NotFound,
        Self::AlreadyExists,
        Self::Conflict,
        Self::Fenced,
        Self::Unavailable,
        Self::Indeterminate,
        Self::Unsupported,
        Self::Invalid,
        Self::TooLarge,
        Self::Corrupt,
        Self::GraphChanged,
        Self::WrongStatus,
        Self::Closed,
    ];

    /// Returns the stable code of the kind. It is also the name of the kind's page in `docs/reference/errors/`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::Conflict => "CONFLICT",
            Self::Fenced => "FENCED",
            Self::Unavailable => "UNAVAILABLE",
            Self::Indeterminate => "INDETERMINATE",
            Self::Unsupported => "UNSUPPORTED",
            Self::Invalid => "INVALID",
            Self::TooLarge => "TOO_LARGE",
            Self::Corrupt => "CORRUPT",
            Self::GraphChanged => "GRAPH_CHANGED",
            Self::WrongStatus => "WRONG_STATUS",
            Self::Closed => "CLOSED",
        }
    }

    /// Returns whether the same call may succeed if the caller repeats it unchanged.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::Indeterminate)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// An error: its kind, its message, and the operation, run, record and node that it is about.
///
/// `Display` prints only this error. Use [`std::error::Error::source`] to get its causes.
#[derive(Clone)]
pub struct Error {
    // Boxed to keep every `Result` of the hot path small.
    inner: Box<ErrorInner>,
}

#[derive(Clone)]
struct ErrorInner {
    kind: ErrorKind,
    message: String,
    operation: Option<&'static str>,
    run: Option<RunKey>,
    seq: Option<Seq>,
    node: Option<NodeName>,
    actual: Option<Option<HeadRef>>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Creates an error. `message` says what is wrong and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let inner = ErrorInner {
            kind,
            message: message.into(),
            operation: None,
            run: None,
            seq: None,
            node: None,
            actual: None,
            source: None,
        };
        Self { inner: Box::new(inner) }
    }

    /// Sets the name of the operation that failed, such as `store.append`.
    #[must_use]
    pub fn with_operation(mut self, operation: &'static str) -> Self {
        self.inner.operation = Some(operation);
        self
    }

    /// Sets the run that the error is about.
    #[must_use]
    pub fn with_run(mut self, run: &RunKey) -> Self {
        self.inner.run = Some(run.clone());
        self
    }

    /// Sets the record that the error is about.
    #[must_use]
    pub fn with_seq(mut self, seq: Seq) -> Self {
        self.inner.seq = Some(seq);
        self
    }

    /// Sets the node that the error is about.
    #[must_use]
    pub fn with_node(mut self, node: &NodeName) -> Self {
        self.inner.node = Some(node.clone());
        self
    }

    /// Attaches the actual head of the run, which is not the expected head; `None` means that the run does not exist.
    #[must_use]
    pub fn with_actual_head(mut self, actual: Option<HeadRef>) -> Self {
        self.inner.actual = Some(actual);
        self
    }

    /// Attaches the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.inner.source = Some(Arc::from(source.into()));
        self
    }

    /// Puts `place` before the message, such as the part of a store with several parts.
    #[must_use]
    #[doc(hidden)]
    pub fn with_place(mut self, place: impl fmt::Display) -> Self {
        self.inner.message = format!("{place}: {}", self.inner.message);
        self
    }

    /// Returns the kind, which tells the caller what to do.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Returns the name of the operation that failed.
    pub fn operation(&self) -> Option<&'static str> {
        self.inner.operation
    }

    /// Returns the run that the error is about.
    pub fn run(&self) -> Option<&RunKey> {
        self.inner.run.as_ref()
    }

    /// Returns the position of the record that the error is about.
    pub fn seq(&self) -> Option<Seq> {
        self.inner.seq
    }

    /// Returns the node that the error is about.
    pub fn node(&self) -> Option<&NodeName> {
        self.inner.node.as_ref()
    }

    /// Returns the actual head of the run, for a [`ErrorKind::Conflict`] of a store. `Some(None)` means that the run does not exist.
    pub fn actual_head(&self) -> Option<Option<HeadRef>> {
        self.inner.actual
    }

    /// Returns the message without the operation and the ids.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Returns whether the same call may succeed if the caller repeats it unchanged.
    pub fn is_retryable(&self) -> bool {
        self.inner.kind.is_retryable()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.inner;
        if let Some(operation) = inner.operation {
            write!(f, "{operation}: ")?;
        }
        if let Some(run) = &inner.run {
            write!(f, "run {run}")?;
            if let Some(seq) = inner.seq {
                write!(f, ", record {seq}")?;
            }
            if let Some(node) = &inner.node {
                write!(f, ", node {node}")?;
            }
            f.write_str(": ")?;
        } else if let Some(node) = &inner.node {
            write!(f, "node {node}: ")?;
        }
        f.write_str(&inner.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Error");
        shown.field("kind", &self.inner.kind).field("message", &self.to_string());
        if let Some(source) = &self.inner.source {
            shown.field("source", source);
        }
        shown.finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let source: &(dyn std::error::Error + 'static) = &**self.inner.source.as_ref()?;
        Some(source)
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

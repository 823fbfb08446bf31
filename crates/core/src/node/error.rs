//! Why an attempt failed, and whether another makes sense.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// Why an attempt of a node failed.
///
/// Made by `?` from any error, or from text: `return Err("no such order".into())`. It is no [`std::error::Error`] itself,
/// so that it can be made from all of them.
///
/// # Examples
///
/// ```
/// use ferrata_core::node::{Fatal, NodeError};
///
/// fn parse(text: &str) -> Result<u32, NodeError> {
///     Ok(text.parse::<u32>().fatal()?) // trying again would not help
/// }
/// assert!(parse("seven").unwrap_err().is_fatal());
/// ```
pub struct NodeError {
    source: Box<dyn StdError + Send + Sync>,
    fatal: bool,
    retry_after: Option<Duration>,
    unfinished: bool,
    not_done: bool,
}

impl NodeError {
    /// Wraps an error or a text.
    pub fn new(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: source.into(), fatal: false, retry_after: None, unfinished: false, not_done: false }
    }

    /// Says that no further attempt makes sense.
    #[must_use]
    pub fn fatal(mut self) -> Self {
        self.fatal = true;
        self
    }

    /// Asks for the next attempt, if there is one, after this time instead of the retry policy's.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Says that nothing was done, so that beginning again is safe: the one error after which an
    /// [`External`](crate::graph::Effect::External) node is tried again.
    ///
    /// Without it, it is unknown how far an `External` node came before its error, and the run asks what became of it. Say it
    /// only where it is certain: the request was refused, or never left. Nodes of other effects need not say it.
    ///
    /// It says nothing about whether another attempt makes sense. Alone, the node's retry policy decides, and the activation
    /// fails when the attempts are used up; with [`fatal`](Self::fatal), it fails at once; with
    /// [`unfinished`](Self::unfinished), the claimer of the run begins the node again without a question.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::node::NodeError;
    ///
    /// fn judged(status: u16) -> Result<(), NodeError> {
    ///     match status {
    ///         200 => Ok(()),
    ///         429 => Err(NodeError::new("too many requests").not_done()), // refused before anything was done: tried again
    ///         402 => Err(NodeError::new("no money on the account").not_done().fatal()), // fails at once
    ///         other => Err(NodeError::new(format!("status {other}"))), // unknown: the run asks
    ///     }
    /// }
    /// assert!(judged(429).unwrap_err().is_not_done());
    /// assert!(!judged(504).unwrap_err().is_not_done());
    /// ```
    #[must_use]
    pub fn not_done(mut self) -> Self {
        self.not_done = true;
        self
    }

    /// Says that the node stopped in the middle of its work because [the run is cancelled or left](super::NodeContext::cancelled).
    ///
    /// Then it has not failed: nothing of this attempt is recorded, and the claimer of a run that was left runs the node
    /// again. What must not be repeated is asked about, unless it is [not done](Self::not_done). If the run is neither cancelled nor left, it is a failure like any other.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::node::{NodeContext, NodeError};
    ///
    /// async fn poll(cx: NodeContext) -> Result<(), NodeError> {
    ///     tokio::select! {
    ///         () = cx.cancelled() => Err(NodeError::new("stopped between two pages").unfinished()),
    ///         () = std::future::ready(()) => Ok(()),
    ///     }
    /// }
    /// # let _ = poll;
    /// ```
    #[must_use]
    pub fn unfinished(mut self) -> Self {
        self.unfinished = true;
        self
    }

    /// Tells whether the node stopped because the run is cancelled or left.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Tells whether the node said that nothing was done.
    pub fn is_not_done(&self) -> bool {
        self.not_done
    }

    /// Tells whether no further attempt makes sense.
    pub fn is_fatal(&self) -> bool {
        self.fatal
    }

    /// Returns the delay asked for.
    pub fn delay(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the error that was wrapped.
    pub fn source(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.source
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for NodeError {
    fn from(source: E) -> Self {
        Self::new(source)
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.source, f)
    }
}

impl fmt::Debug for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.source, f)
    }
}

/// Marks errors after which no further attempt makes sense.
pub trait Fatal<T> {
    /// Turns an error into a fatal [`NodeError`].
    ///
    /// # Errors
    ///
    /// The error that was there, marked.
    ///
    /// <!-- held by: runs::a_failure_is_retried_then_fails_the_run_then_can_be_retried_by_an_operator -->
    fn fatal(self) -> Result<T, NodeError>;
}

impl<T, E: Into<NodeError>> Fatal<T> for Result<T, E> {
    fn fatal(self) -> Result<T, NodeError> {
        self.map_err(|error| error.into().fatal())
    }
}

//! The error of an attempt, with marks that decide whether another attempt follows.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// The error of a failed attempt of a node.
///
/// The operator `?` and `into()` convert any error or text into this type: `return Err("no such order".into())`. The type does not implement
/// [`std::error::Error`], because the compiler would then reject this conversion.
///
/// # Examples
///
/// ```
/// use ferrata_core::node::{FatalExt, NodeError};
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

    /// Marks the error as fatal. The activation then fails without another attempt.
    #[must_use]
    pub fn fatal(mut self) -> Self {
        self.fatal = true;
        self
    }

    /// Sets the delay before the next attempt, instead of the delay of the retry policy.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Marks the attempt as one that changed nothing outside of the run, so that the node can safely run again. An
    /// [`External`](crate::graph::Effect::External) node is tried again only after an error with this mark.
    ///
    /// Without this mark, the runtime does not know what an `External` node did before its error, and the run asks a person for the outcome. Set the
    /// mark only if you are certain that the request was rejected or was never sent. Nodes with other effects do not need the mark.
    ///
    /// The mark alone does not decide whether another attempt follows. The retry policy of the node decides, and the activation fails after the last
    /// attempt. If the error is also [`fatal`](Self::fatal), the activation fails at once. If it is also [`unfinished`](Self::unfinished), the
    /// process that next claims the run starts the node again without a question.
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

    /// Marks the attempt as stopped midway because [the run is cancelled or released](super::NodeContext::cancelled).
    ///
    /// Such an attempt does not count as failed. It records nothing, and the process that next claims a released run starts the node again. For an
    /// [`External`](crate::graph::Effect::External) node, the run asks for the outcome, unless the error is also marked [not done](Self::not_done).
    /// If the run is neither cancelled nor released, the mark has no effect and the attempt fails.
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
    #[doc(hidden)]
    pub fn unfinished(mut self) -> Self {
        self.unfinished = true;
        self
    }

    /// Returns whether the error is marked [`unfinished`](Self::unfinished).
    #[doc(hidden)]
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Returns whether the error is marked [`not_done`](Self::not_done).
    pub fn is_not_done(&self) -> bool {
        self.not_done
    }

    /// Returns whether the error is marked [`fatal`](Self::fatal).
    pub fn is_fatal(&self) -> bool {
        self.fatal
    }

    /// Returns the delay that [`retry_after`](Self::retry_after) set.
    pub fn delay(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the wrapped error.
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

mod sealed {
    pub trait SealedResult {}
}

/// Extends `Result` with a method that marks its error as fatal, so that no further attempt follows.
pub trait FatalExt<T>: sealed::SealedResult {
    /// Turns an error into a fatal [`NodeError`].
    ///
    /// # Errors
    ///
    /// Returns the original error, marked as fatal.
    fn fatal(self) -> Result<T, NodeError>;
}

impl<T, E> sealed::SealedResult for Result<T, E> {}

impl<T, E: Into<NodeError>> FatalExt<T> for Result<T, E> {
    fn fatal(self) -> Result<T, NodeError> {
        self.map_err(|error| error.into().fatal())
    }
}

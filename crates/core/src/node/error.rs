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
}

impl NodeError {
    /// Wraps an error or a text.
    pub fn new(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: source.into(), fatal: false, retry_after: None, unfinished: false }
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

    /// Says that the node stopped in the middle of its work because [the run is cancelled or left](super::NodeContext::cancelled).
    ///
    /// Then it has not failed: nothing of this attempt is recorded, and whoever goes on with a run that was left runs the node
    /// again. What must not be repeated is asked about. If the run is neither cancelled nor left, it is a failure like any other.
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
    fn fatal(self) -> Result<T, NodeError>;
}

impl<T, E: Into<NodeError>> Fatal<T> for Result<T, E> {
    fn fatal(self) -> Result<T, NodeError> {
        self.map_err(|error| error.into().fatal())
    }
}

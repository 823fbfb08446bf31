//! Joins the spans of a run into one trace, even if several processes drive the run.

use std::fmt;

use tracing::Span;

use crate::error::{Error, ErrorKind, Result};

/// The trace of a run, in the format `traceparent` of the W3C's [Trace Context](https://www.w3.org/TR/trace-context/#traceparent-header). The text
/// contains the version 00, the id of the trace, the id of the span that started the run, and flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent(String);

impl TraceParent {
    /// Parses a text in the format `traceparent`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the text is not a `traceparent` of version 00.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::runtime::TraceParent;
    ///
    /// let parent = TraceParent::new("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")?;
    /// assert_eq!((parent.trace(), parent.span(), parent.flags()), ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", 1));
    /// assert!(TraceParent::new("00-0-0-0").is_err());
    /// # Ok::<(), ferrata_core::Error>(())
    /// ```
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let is_hex =
            |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let is_id = |part: &str, len| part.len() == len && is_hex(part) && part.bytes().any(|b| b != b'0');
        let parts: Vec<&str> = text.split('-').collect();
        match parts[..] {
            ["00", trace, span, flags]
                if is_id(trace, 32) && is_id(span, 16) && flags.len() == 2 && is_hex(flags) =>
            {
                Ok(Self(text))
            }
            _ => {
                let message =
                    "the text is not a `traceparent`; use the form `00-<32 hex digits>-<16 hex digits>-01`";
                Err(Error::new(ErrorKind::Invalid, message))
            }
        }
    }

    /// Returns the text of the `traceparent`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id of the trace, which has 32 hexadecimal digits.
    pub fn trace(&self) -> &str {
        self.0.get(3..35).unwrap_or_default()
    }

    /// Returns the id of the span, which has 16 hexadecimal digits.
    pub fn span(&self) -> &str {
        self.0.get(36..52).unwrap_or_default()
    }

    /// Returns the flags. The lowest bit means that the trace is sampled.
    pub fn flags(&self) -> u8 {
        self.0.get(53..).and_then(|flags| u8::from_str_radix(flags, 16).ok()).unwrap_or_default()
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The interface between `tracing` spans and distributed traces. The facade crate has an implementation for OpenTelemetry.
///
/// Pass it to [`RuntimeBuilder::trace_context`](crate::runtime::RuntimeBuilder::trace_context).
pub trait TraceContext: fmt::Debug + Send + Sync + 'static {
    /// Returns the trace parent of a span, or `None` if the span belongs to no trace.
    fn trace_parent(&self, span: &Span) -> Option<TraceParent>;

    /// Sets the parent of a span that was not entered yet. The parent may belong to another process.
    fn set_parent(&self, span: &Span, parent: &TraceParent);

    /// Links a span to an earlier span.
    fn add_link(&self, span: &Span, to: &TraceParent);
}

//! Parses bytes to a document: the exact grammar of the dialect.

mod cursor;
mod error;
mod names;
mod parser;

pub use error::{ParseError, ParseErrorKind};

use crate::syntax::Document;
use crate::tolerance::Tolerance;

/// Maximum size of a source: far more than an author draws, and small enough that positions and copies are harmless.
pub(crate) const MAX_SOURCE: usize = 64 << 20;

/// Maximum nesting of subgraphs. Each level nests the parser once more, and gives its nodes another class.
pub(crate) const MAX_DEPTH: usize = 32;

/// Maximum number of attributes per statement, node or edge. A chain of edges repeats its attributes for each edge, so without a limit a small file
/// could be a large graph.
pub(crate) const MAX_ATTRIBUTES: usize = 256;

/// Maximum length of a string in bytes. A default is repeated for each node below it, so code that visits nodes reads it often.
pub(crate) const MAX_STRING: usize = 1 << 20;

impl Document {
    /// Parses a source.
    ///
    /// Takes time and memory proportional to the source, whatever its content, and never panics.
    ///
    /// # Errors
    ///
    /// Returns [`ParseError`] for the first mistake, with its location and, where possible, a replacement.
    pub fn parse(source: &[u8]) -> Result<Self, ParseError> {
        parser::document(source).map(|(document, _)| document)
    }

    /// As [`parse`](Self::parse), with the tolerated constructs outside of the dialect.
    pub(crate) fn parse_tolerant(source: &[u8]) -> Result<(Self, Vec<Tolerance>), ParseError> {
        parser::document(source)
    }
}

//! Bytes to a document: the grammar of the dialect, exactly.

mod cursor;
mod error;
mod names;
mod parser;

pub use error::{ParseError, ParseErrorKind};

use crate::syntax::Document;
use crate::tolerance::Tolerance;

/// The largest source that is read: far more than an author draws, and small enough that positions and copies are harmless.
pub(crate) const MAX_SOURCE: usize = 64 << 20;

/// How deep subgraphs may nest. Each nests the parser once more, and gives its nodes one more class.
pub(crate) const MAX_DEPTH: usize = 32;

/// How many attributes one statement, node or edge may have. A chain of edges repeats its attributes for each edge, so
/// without a bound a small file could be a large graph.
pub(crate) const MAX_ATTRIBUTES: usize = 256;

/// How many bytes a string may have. A default is repeated for each node below it, so what looks at nodes looks at it often.
pub(crate) const MAX_STRING: usize = 1 << 20;

impl Document {
    /// Reads a source.
    ///
    /// Takes time and memory proportional to the source, whatever it holds, and never panics.
    ///
    /// # Errors
    ///
    /// [`ParseError`] about the first mistake, with its place and, where that can be said, what to write instead.
    pub fn parse(source: &[u8]) -> Result<Self, ParseError> {
        parser::document(source).map(|(document, _)| document)
    }

    /// As [`parse`](Self::parse), with what was read although the dialect has it not.
    pub(crate) fn parse_tolerant(source: &[u8]) -> Result<(Self, Vec<Tolerance>), ParseError> {
        parser::document(source)
    }
}

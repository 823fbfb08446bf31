//! Parses the bytes of a source to a document, by the exact grammar of the dialect.

mod cursor;
mod error;
mod names;
mod parser;

pub use error::{ParseError, ParseErrorKind};

use crate::syntax::Document;
use crate::tolerance::Tolerance;

/// Maximum size of a source in bytes. No author draws as much, and copies of such a source do no harm.
pub(crate) const MAX_SOURCE: usize = 64 << 20;

/// Maximum nesting of subgraphs. The parser recurses once for each level, and each level may give its nodes another class.
pub(crate) const MAX_DEPTH: usize = 32;

/// Maximum number of attributes of a statement, a node or an edge. All edges of a chain have the attributes of the chain, so without this limit a
/// small file could become a large graph.
pub(crate) const MAX_ATTRIBUTES: usize = 256;

/// Maximum length of a string in bytes. A default applies to many nodes, so code that visits nodes reads the same string often.
pub(crate) const MAX_STRING: usize = 1 << 20;

impl Document {
    /// Parses a source to a document.
    ///
    /// The parser takes time and memory proportional to the size of the source, whatever its content is, and never panics.
    ///
    /// # Errors
    ///
    /// Returns [`ParseError`] for the first mistake, with its location and, where possible, with a suggested replacement.
    pub fn parse(source: &[u8]) -> Result<Self, ParseError> {
        parser::document(source).map(|(document, _)| document)
    }

    /// Parses a source like [`parse`](Self::parse), and also returns the tolerated constructs outside of the dialect.
    pub(crate) fn parse_tolerant(source: &[u8]) -> Result<(Self, Vec<Tolerance>), ParseError> {
        parser::document(source)
    }
}

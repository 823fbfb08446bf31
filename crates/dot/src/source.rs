//! Locations in a source, and how they are displayed.

use std::fmt;

/// Maximum number of bytes of a long line that a snippet shows on each side of its position. A single line may be as long as the file.
const WINDOW: usize = 60;

/// A range of bytes in a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The position of the first byte.
    pub start: usize,
    /// The position after the last byte.
    pub end: usize,
}

impl Span {
    /// Creates the range from `start` to `end`, without the byte at `end`.
    pub const fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// Returns the smallest span that contains both spans.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// A value with its location in the source.
///
/// Equality ignores the location.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpannedValue<T> {
    /// The value.
    pub value: T,
    /// The location of the value. The span is empty if the value is not from a source, for example if a transform added it.
    pub span: Span,
}

impl<T> SpannedValue<T> {
    /// Creates a value at a span.
    pub const fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }
}

impl<T: PartialEq> PartialEq for SpannedValue<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for SpannedValue<T> {}

/// A position in a source, as line and column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourcePosition {
    /// The number of the line, from 1.
    pub line: usize,
    /// The number of the character in the line, from 1.
    pub column: usize,
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A location in a source with a label, as a message shows it.
///
/// A snippet shows one line of the source, or a part of a long line. Bytes that are not UTF-8 appear as `U+FFFD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snippet {
    /// The line and column where the location begins.
    pub position: SourcePosition,
    /// The location in the bytes of the source.
    pub span: Span,
    /// The line where the location begins. Of a long line, the part around the location.
    pub text: String,
    /// The range of characters in `text` to underline. The range has at least one character, unless the location is at the end of the line.
    pub marked: std::ops::Range<usize>,
    /// The label of the location: what the message says about it.
    pub label: String,
}

impl Snippet {
    /// Creates the snippet of a span. A span beyond the end of the source is shown at the end.
    pub fn of(source: &[u8], span: Span, label: impl Into<String>) -> Self {
        let start = span.start.min(source.len());
        let line_start = source[..start].iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        let line_end = source[start..].iter().position(|&b| b == b'\n').map_or(source.len(), |at| start + at);
        let line = source[..start].iter().filter(|&&b| b == b'\n').count() + 1;
        let end = span.end.clamp(start, line_end.max(start));
        let from = boundary(source, start.saturating_sub(WINDOW).max(line_start), line_start);
        let to = boundary(source, (end.min(start + WINDOW) + WINDOW).min(line_end), start);
        let before = clean(&source[from..start]);
        let meant = clean(&source[start..end.min(to)]);
        let after = clean(&source[end.min(to)..to]);
        let first = before.chars().count();
        let marked = first..first + meant.chars().count();
        let column = chars(&source[line_start..start]) + 1;
        let position = SourcePosition { line, column };
        Self { position, span, text: before + &meant + &after, marked, label: label.into() }
    }
}

impl fmt::Display for Snippet {
    /// Writes three lines. The three lines contain the line of the source with its number, and the label below the underlined part.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.position.line.to_string();
        let gutter = " ".repeat(number.len());
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{number} | {}", self.text)?;
        let carets = "^".repeat(self.marked.len().max(1));
        write!(f, "{gutter} | {}{carets} {}", " ".repeat(self.marked.start), self.label)
    }
}

/// Moves a position back to the beginning of a character, but not before `least`.
fn boundary(source: &[u8], mut at: usize, least: usize) -> usize {
    while at > least && source.get(at).is_some_and(|b| b & 0xC0 == 0x80) {
        at -= 1;
    }
    at
}

/// Counts the characters without a copy, because a line may be long.
fn chars(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&b| b & 0xC0 != 0x80).count()
}

/// Returns the text on one line for a terminal. A tab becomes one space, so that underlines stay aligned.
fn clean(bytes: &[u8]) -> String {
    let shown = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    String::from_utf8_lossy(bytes).chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_below_its_line() {
        let source = b"digraph G {\n\ta -- b\n}";
        let start = 15;
        let snippet = Snippet::of(source, Span::new(start, start + 2), "undirected");
        assert_eq!(snippet.position.to_string(), "line 2, column 4");
        assert_eq!(snippet.to_string(), "  |\n2 |  a -- b\n  |    ^^ undirected");
    }

    #[test]
    fn a_long_line_is_shown_around_the_place() {
        let mut source = vec![b'x'; 100_000];
        source[50_000] = b'!';
        let snippet = Snippet::of(&source, Span::new(50_000, 50_001), "here");
        assert_eq!(snippet.text.chars().count(), 2 * WINDOW + 1);
        assert_eq!(&snippet.text[snippet.marked.clone()], "!");
        assert_eq!(snippet.position, SourcePosition { line: 1, column: 50_001 });
    }

    #[test]
    fn any_span_of_any_bytes_can_be_shown() {
        let source = "ä\u{1F600}\nü".as_bytes();
        for start in 0..source.len() + 2 {
            for end in start..source.len() + 3 {
                let snippet = Snippet::of(source, Span::new(start, end), "x");
                assert!(snippet.marked.end <= snippet.text.chars().count(), "{start}..{end}");
            }
        }
        assert_eq!(Snippet::of(b"\xFF\x00", Span::new(0, 2), "x").text, "\u{FFFD}\u{FFFD}");
    }
}

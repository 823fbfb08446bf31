//! Locations in a source, and how they are displayed.

use std::fmt;

/// How much of a long line a snippet shows on either side of its position: a line of garbage may be the whole file.
const WINDOW: usize = 60;

/// A range of bytes of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
}

impl Span {
    /// Creates the range from `start` up to, but without, `end`.
    pub const fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// Returns the smallest span with both.
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
    /// The location; empty for values without a source, such as a transform's additions.
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

/// A position in lines and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourcePosition {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// One location of a source with a label: the part that a terminal underlines.
///
/// A snippet is one line of the source, or a part of it if the line is long; bytes that are not text appear as `U+FFFD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snippet {
    /// The position where the location begins.
    pub position: SourcePosition,
    /// The location in bytes of the source.
    pub span: Span,
    /// The line where the location begins, or the part of it around the location.
    pub text: String,
    /// The underlined characters of `text`: at least one, unless the location is at its end.
    pub marked: std::ops::Range<usize>,
    /// The label of the location.
    pub label: String,
}

impl Snippet {
    /// Returns the snippet of a span; a span beyond the end of the source is shown at its end.
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
    /// Prints three lines: the line of the source with its number, and the label below the underlined part.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.position.line.to_string();
        let gutter = " ".repeat(number.len());
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{number} | {}", self.text)?;
        let carets = "^".repeat(self.marked.len().max(1));
        write!(f, "{gutter} | {}{carets} {}", " ".repeat(self.marked.start), self.label)
    }
}

/// Moves a cut back to the beginning of a character, but not before `least`.
fn boundary(source: &[u8], mut at: usize, least: usize) -> usize {
    while at > least && source.get(at).is_some_and(|b| b & 0xC0 == 0x80) {
        at -= 1;
    }
    at
}

/// Counts the characters without copying a possibly long line.
fn chars(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&b| b & 0xC0 != 0x80).count()
}

/// Returns text on one line for a terminal: a tab is one space, so that carets align.
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

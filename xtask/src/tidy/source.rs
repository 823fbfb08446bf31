//! Splits a Rust file, line by line, into code and comments, and marks the lines that belong to tests.
//!
//! The scanner recognizes strings, characters, lifetimes and comments, so it can tell a word in a comment from a word in a string. The scanner is not
//! a parser: for a file that the compiler rejects, the result is undefined.

/// One line of a Rust file.
#[derive(Debug, Default)]
pub(super) struct Line<'a> {
    /// The line as it is in the file.
    pub(super) raw: &'a str,
    /// The code of the line. Characters of comments and in strings are replaced by spaces.
    pub(super) code: String,
    /// The comments of the line, with their marks.
    pub(super) comment: String,
    /// Whether the line ends inside a string that continues in the next line.
    pub(super) open_string: bool,
    /// Whether the line belongs to an item under `#[cfg(test)]`.
    pub(super) test: bool,
}

impl Line<'_> {
    /// Returns whether the line counts as code: it is not blank and contains more than a comment.
    pub(super) fn is_code(&self) -> bool {
        !self.code.trim().is_empty() || (self.comment.is_empty() && !self.raw.trim().is_empty())
    }
}

/// A Rust file that is split into lines of code and comments.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) lines: Vec<Line<'a>>,
}

impl<'a> Source<'a> {
    /// Splits `text`.
    pub(super) fn new(text: &'a str) -> Self {
        let mut state = State::Code;
        let mut lines: Vec<Line<'a>> = text
            .lines()
            .map(|raw| {
                let mut line = Line { raw, ..Line::default() };
                state = scan(state, &mut line);
                line.open_string = matches!(state, State::Str | State::RawStr { .. });
                line
            })
            .collect();
        mark_tests(&mut lines);
        Self { lines }
    }
}

/// The state of the scanner between two characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Code,
    BlockComment { depth: usize },
    Str,
    RawStr { hashes: usize },
}

/// Separates the characters of `line` into code and comment. Returns the state at the end of the line.
fn scan(mut state: State, line: &mut Line<'_>) -> State {
    let chars: Vec<char> = line.raw.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let (length, next, class) = match state {
            State::Code => in_code(rest, at.checked_sub(1).map(|before| chars[before])),
            State::BlockComment { depth } => in_block_comment(rest, depth),
            State::Str => match rest {
                ['\\', _, ..] => (2, State::Str, Class::Text),
                ['"', ..] => (1, State::Code, Class::Code),
                _ => (1, State::Str, Class::Text),
            },
            State::RawStr { hashes } => {
                let closes = rest[0] == '"' && rest[1..].iter().take_while(|c| **c == '#').count() >= hashes;
                if closes { (1 + hashes, State::Code, Class::Code) } else { (1, state, Class::Text) }
            }
        };
        for c in &rest[..length] {
            line.code.push(if class == Class::Code { *c } else { ' ' });
            if class == Class::Comment {
                line.comment.push(*c);
            }
        }
        at += length;
        state = next;
    }
    state
}

/// The kind of text that a character belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Code,
    Comment,
    Text,
}

/// Reads the next piece of code. Returns its length in characters, the state after it, and its class.
fn in_code(rest: &[char], before: Option<char>) -> (usize, State, Class) {
    match rest {
        ['/', '/', ..] => (rest.len(), State::Code, Class::Comment),
        ['/', '*', ..] => (2, State::BlockComment { depth: 1 }, Class::Comment),
        ['"', ..] => (1, State::Str, Class::Code),
        ['r', ..] if !before.is_some_and(is_word) || matches!(before, Some('b' | 'c')) => {
            let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
            match rest.get(1 + hashes) {
                Some('"') => (2 + hashes, State::RawStr { hashes }, Class::Code),
                _ => (1, State::Code, Class::Code),
            }
        }
        // For `'\''` or `'\u{2026}'`, read up to the quote after the escaped character.
        ['\'', '\\', _, more @ ..] => {
            let length = more.iter().position(|c| *c == '\'').map_or(rest.len(), |end| end + 4);
            (length, State::Code, Class::Text)
        }
        ['\'', _, '\'', ..] => (3, State::Code, Class::Text),
        _ => (1, State::Code, Class::Code),
    }
}

fn in_block_comment(rest: &[char], depth: usize) -> (usize, State, Class) {
    match rest {
        ['/', '*', ..] => (2, State::BlockComment { depth: depth + 1 }, Class::Comment),
        ['*', '/', ..] if depth == 1 => (2, State::Code, Class::Comment),
        ['*', '/', ..] => (2, State::BlockComment { depth: depth - 1 }, Class::Comment),
        _ => (1, State::BlockComment { depth }, Class::Comment),
    }
}

/// Returns whether `c` may be part of a word.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Marks the lines of every item under `#[cfg(test)]`, and all lines under `#![cfg(test)]`.
fn mark_tests(lines: &mut [Line<'_>]) {
    let mut index = 0;
    while index < lines.len() {
        let code = lines[index].code.trim_start();
        if code.starts_with("#![cfg(test)]") {
            lines.iter_mut().for_each(|line| line.test = true);
            return;
        }
        if code.starts_with("#[cfg(test)]") || code.starts_with("#[cfg(all(test") {
            let end = end_of_item(lines, index);
            lines[index..=end].iter_mut().for_each(|line| line.test = true);
            index = end;
        }
        index += 1;
    }
}

/// Returns the line at which the item that starts at line `start` ends, with its closing brace or its semicolon.
fn end_of_item(lines: &[Line<'_>], start: usize) -> usize {
    let mut depth = 0_usize;
    for (index, line) in lines.iter().enumerate().skip(start) {
        for c in line.code.chars() {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' => depth = depth.saturating_sub(1),
                '}' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return index;
                    }
                }
                ';' if depth == 0 => return index,
                _ => {}
            }
        }
    }
    lines.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new(text).lines.iter().map(|line| line.code.trim_end()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        assert_eq!(code("let a = 1; // one"), "let a = 1;");
        assert_eq!(code("let a = \"// two\";"), "let a = \"      \";");
        assert_eq!(code("a /* b /* c */ d */ e"), "a                   e");
        assert_eq!(code("/* a\nb */ c"), "\n     c");
        assert_eq!(code(r#"f("a\"b", c)"#), r#"f("    ", c)"#);
        assert_eq!(code("f(r#\"a\"b\"#, c)"), "f(r#\"   \"#, c)");
        assert_eq!(code("f(br\"\\\", c)"), "f(br\" \", c)");
    }

    #[test]
    fn characters_and_lifetimes_are_told_apart() {
        assert_eq!(code("f('\"', g)"), "f(   , g)");
        assert_eq!(code(r"f('\'', '\u{2026}', g)"), "f(    ,           , g)");
        assert_eq!(code("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
        assert_eq!(code("let r#for = for_r;"), "let r#for = for_r;");
    }

    #[test]
    fn a_string_over_several_lines_counts_as_code() {
        let source = Source::new("let a = \"x\n// y\n\nz\";\n// note\n");
        let counted: Vec<bool> = source.lines.iter().map(Line::is_code).collect();
        assert_eq!(counted, [true, true, false, true, false]);
        let open: Vec<bool> = source.lines.iter().map(|line| line.open_string).collect();
        assert_eq!(open, [true, true, true, false, false]);
    }

    #[test]
    fn items_under_cfg_test_are_marked_entirely() {
        let text = "fn a() {}\n#[cfg(test)]\n#[path = \"b.rs\"]\nmod b;\nfn c() {}\n#[cfg(all(test, unix))]\nmod d {\n    fn e() { \"}\"; }\n}\nfn f() {}\n";
        let source = Source::new(text);
        let marked: Vec<usize> =
            source.lines.iter().enumerate().filter_map(|(index, line)| line.test.then_some(index)).collect();
        assert_eq!(marked, [1, 2, 3, 5, 6, 7, 8]);
        assert!(Source::new("#![cfg(test)]\nfn a() {}").lines.iter().all(|line| line.test));
    }
}

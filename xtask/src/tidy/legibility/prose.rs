//! Splits Markdown and Rust comments into sentences, and counts them by kind.

use std::sync::LazyLock;

use regex_lite::Regex;

/// Openings of sentences that make the reader wait for the subject.
static RIDDLE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(What|Whatever|Whoever|Who|Whichever|Whose|Those|Such|Nothing|Nobody|Somebody|Of what|Of which|So many|So much)\b",
    )
});

/// Passive verbs that name neither the actor nor the operation.
static PASSIVE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"\b(is|are|was|were|be|been)\s+(\w+ly\s+|not\s+|also\s+)?",
        r"(said|told|kept|made|done|taken|given|held|noted|read|written|asked|let|heard|looked|gone|come)\b"
    ))
});

/// Phrases with a word order that the reader must rearrange.
static TURNED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\b(of which|of whom|of what|whose turn|for which it|to which it|came of|comes of|come of|came to|comes to|",
        r"become of|became of|as it is|as it was|beside (it|them|that)|behind (it|them|that)|somebody|nobody|anybody|",
        r"by then|anew|lest|thereby|whereupon)\b"
    ))
});

/// Maximum number of words of a sentence that is easy to follow.
const MAX_WORDS: usize = 30;

/// Minimum number of words of a sentence. Shorter fragments are labels.
const MIN_WORDS: usize = 4;

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a constant that a test compiles")
}

/// The line on which a paragraph begins, counted from 0, and a sentence of the paragraph.
pub(super) type Sentence = (usize, String);

/// Sentence counts of one text or group of texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProseCounts {
    pub(super) sentences: usize,
    /// Sentences that begin with `what`, `who`, `those` and the like.
    pub(super) riddles: usize,
    /// Sentences with a passive verb such as `is said`.
    pub(super) passives: usize,
    /// Sentences with a phrase such as `of which` or `came of`.
    pub(super) turned: usize,
    /// Sentences of more than 30 words.
    pub(super) long: usize,
}

impl ProseCounts {
    /// Adds one sentence.
    pub(super) fn add(&mut self, sentence: &str) {
        self.sentences += 1;
        self.riddles += usize::from(RIDDLE.is_match(sentence));
        self.passives += usize::from(PASSIVE.is_match(sentence));
        self.turned += usize::from(TURNED.is_match(sentence));
        self.long += usize::from(sentence.split_whitespace().count() > MAX_WORDS);
    }
}

/// Returns the sentences of a Markdown text, without comments, code blocks, tables, headings and quotes.
pub(super) fn markdown(text: &str) -> Vec<Sentence> {
    let mut paragraphs = Paragraphs::default();
    let (mut is_comment, mut is_code) = (false, false);
    for (index, raw) in text.lines().enumerate() {
        let line = without_comments(raw, &mut is_comment);
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
            paragraphs.end();
            continue;
        }
        if is_code {
            continue;
        }
        let item = list_item(line);
        if line.is_empty() || line.starts_with(['|', '#', '>']) || item.is_some() {
            paragraphs.end();
        }
        let prose = if line.starts_with(['|', '#', '>']) { "" } else { item.unwrap_or(line) };
        paragraphs.push(index, prose);
    }
    paragraphs.sentences(&['.', '!', '?', ':', ';'])
}

/// Returns the sentences in the comments of a Rust file, without code blocks, headings and tables.
pub(super) fn comments(text: &str) -> Vec<Sentence> {
    let mut paragraphs = Paragraphs::default();
    let mut is_code = false;
    for (index, raw) in text.lines().enumerate() {
        let comment =
            raw.trim_start().strip_prefix("//").map(|rest| rest.strip_prefix(['/', '!']).unwrap_or(rest));
        let Some(line) = comment.map(str::trim) else {
            is_code = false;
            paragraphs.end();
            continue;
        };
        if line.starts_with("```") {
            is_code = !is_code;
            paragraphs.end();
        } else if is_code {
        } else if line.is_empty() || line.starts_with(['#', '|']) || line.starts_with("<!--") {
            paragraphs.end();
        } else if let Some(item) = line.strip_prefix("- ") {
            paragraphs.end();
            paragraphs.push(index, item);
        } else {
            paragraphs.push(index, line);
        }
    }
    paragraphs.sentences(&['.', '!', '?'])
}

/// Removes HTML comments from a line. `is_open` is whether a comment is open before the line, and is updated to the state after it.
fn without_comments(mut line: &str, is_open: &mut bool) -> String {
    let mut kept = String::new();
    loop {
        let mark = if *is_open { "-->" } else { "<!--" };
        let Some((before, after)) = line.split_once(mark) else {
            if !*is_open {
                kept.push_str(line);
            }
            return kept;
        };
        if !*is_open {
            kept.push_str(before);
        }
        *is_open = !*is_open;
        line = after;
    }
}

/// Returns the text after the mark of a list item.
fn list_item(line: &str) -> Option<&str> {
    let rest = match line.strip_prefix(['-', '*']) {
        Some(rest) => rest,
        None => line
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .strip_prefix('.')
            .filter(|_| line.starts_with(|c: char| c.is_ascii_digit()))?,
    };
    rest.starts_with(' ').then(|| rest.trim_start())
}

/// Joins lines to paragraphs.
#[derive(Default)]
struct Paragraphs {
    ended: Vec<Sentence>,
    open: Option<Sentence>,
}

impl Paragraphs {
    fn push(&mut self, index: usize, line: &str) {
        if line.is_empty() {
            return;
        }
        match &mut self.open {
            Some((_, text)) => {
                text.push(' ');
                text.push_str(line);
            }
            None => self.open = Some((index, line.to_owned())),
        }
    }

    fn end(&mut self) {
        self.ended.extend(self.open.take());
    }

    /// Splits the paragraphs after each character of `ends` that is followed by a space and the beginning of a sentence.
    fn sentences(mut self, ends: &[char]) -> Vec<Sentence> {
        self.end();
        let mut sentences = Vec::new();
        for (index, text) in &self.ended {
            let mut from = 0;
            let mut push = |part: &str| {
                if part.split_whitespace().count() >= MIN_WORDS {
                    sentences.push((*index, part.trim().to_owned()));
                }
            };
            for (at, end) in text.match_indices(ends) {
                let after = &text[at + end.len()..];
                let next = after.trim_start();
                let begins = next.starts_with(|c: char| c.is_ascii_uppercase() || "`*[".contains(c));
                if next.len() < after.len() && begins {
                    push(&text[from..at + end.len()]);
                    from = at + end.len();
                }
            }
            push(&text[from..]);
        }
        sentences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(sentences: Vec<Sentence>) -> Vec<String> {
        sentences.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn markdown_prose_is_split_into_sentences() {
        let page = "# A heading of four words\n\nOne is a sentence. Two goes on\nin a second line: `Code` begins the third one.\n\n\
                    - An item is one, too.\n12. A numbered item as well.\n\n| a | table | is | none |\n> Nor is a quote.\n\n\
                    ```rust\nlet code = is_no(\"prose at all\");\n```\nSeen <!-- held by: a\n b --> by every reader.\n";
        assert_eq!(
            texts(markdown(page)),
            [
                "One is a sentence.",
                "Two goes on in a second line:",
                "`Code` begins the third one.",
                "An item is one, too.",
                "A numbered item as well.",
                "Seen by every reader.",
            ]
        );
    }

    #[test]
    fn comments_are_split_into_sentences() {
        let code = "//! The file holds one idea.\n\n/// Appends the records. Returns\n/// the head of the run.\n///\n/// # Errors\n///\n\
                    /// - [`A`]: it was refused twice.\n///\n/// ```\n/// let a = some_code(b, c, d);\n/// ```\nfn f() {} // No comment of its own\n    // A reason stands here.\n";
        assert_eq!(
            texts(comments(code)),
            [
                "The file holds one idea.",
                "Appends the records.",
                "Returns the head of the run.",
                "[`A`]: it was refused twice.",
                "A reason stands here.",
            ]
            .into_iter()
            .filter(|text| text.split_whitespace().count() >= MIN_WORDS)
            .collect::<Vec<_>>()
        );
    }

    #[test]
    fn each_pattern_counts_its_sentences() {
        let mut counts = ProseCounts::default();
        for sentence in [
            "What came of it is kept.",
            "The record is quickly written here.",
            "Of which somebody was told.",
            "The store appends the record.",
            &"word ".repeat(MAX_WORDS + 1),
        ] {
            counts.add(sentence);
        }
        assert_eq!(counts, ProseCounts { sentences: 5, riddles: 2, passives: 3, turned: 2, long: 1 });
    }
}

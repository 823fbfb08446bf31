//! Reads the tokens of a source: blanks, comments, words, strings and numbers. The parser interprets them.

use std::sync::Arc;

use super::MAX_STRING;
use super::error::{ParseError, ParseErrorKind as Kind};
use crate::source::{Span, SpannedValue};
use crate::tolerance::{Tolerance, note};
use crate::value::{Length, Unit, Value};

/// A position in a source that moves forward.
#[derive(Debug)]
pub(super) struct SourceCursor<'a> {
    pub(super) source: &'a [u8],
    pub(super) at: usize,
    /// Constructs outside of the dialect that the cursor tolerated.
    pub(super) tolerated: Vec<Tolerance>,
}

impl<'a> SourceCursor<'a> {
    pub(super) fn new(source: &'a [u8]) -> Self {
        // Some editors begin a file with a byte order mark.
        let at = if source.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
        Self { source, at, tolerated: Vec::new() }
    }

    /// Returns the byte at this position; `None` at the end.
    pub(super) fn peek(&self) -> Option<u8> {
        self.source.get(self.at).copied()
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.source[self.at..]
    }

    pub(super) fn error(&self, kind: Kind, span: Span, message: &str, label: &str) -> ParseError {
        ParseError::new(kind, self.source, span, message, label)
    }

    /// Skips blanks and comments.
    pub(super) fn skip_blank(&mut self) -> Result<(), ParseError> {
        loop {
            match self.rest() {
                [b' ' | b'\t' | b'\r' | b'\n', ..] => self.at += 1,
                [b'/', b'/', rest @ ..] => {
                    self.at += 2 + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                }
                [b'/', b'*', rest @ ..] => {
                    let Some(end) = rest.windows(2).position(|pair| pair == b"*/") else {
                        let span = Span::new(self.at, self.at + 2);
                        return Err(self
                            .error(Kind::Unclosed, span, "the comment is not closed", "begins here")
                            .suggest("close it with `*/`"));
                    };
                    self.at += end + 4;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Consumes a byte if it is next.
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let here = self.peek() == Some(byte);
        self.at += usize::from(here);
        here
    }

    /// Returns the span of the next token for an error: a word, a single character, or nothing at the end.
    pub(super) fn here(&self) -> Span {
        let word = self.rest().iter().take(128).take_while(|b| is_word(**b)).count();
        let character = || {
            let rest = self.rest();
            let more = rest.iter().skip(1).take(3).take_while(|b| **b & 0xC0 == 0x80).count();
            rest.len().min(1 + more)
        };
        Span::new(self.at, self.at + if word > 0 { word } else { character() })
    }

    /// Describes the next token for an error.
    pub(super) fn found(&self) -> String {
        let span = self.here();
        match self.peek() {
            None => "the end of the file".to_owned(),
            Some(b'"') => "a string".to_owned(),
            Some(b) if b.is_ascii_control() => format!("the byte 0x{b:02X}"),
            Some(b) => match std::str::from_utf8(&self.source[span.start..span.end]) {
                Ok(text) => format!("`{text}`"),
                Err(_) => format!("the byte 0x{b:02X}, which is not text"),
            },
        }
    }

    /// Consumes an identifier: `[A-Za-z_][A-Za-z0-9_]*`.
    pub(super) fn identifier(&mut self) -> Option<SpannedValue<&'a str>> {
        let first = self.peek().filter(|b| b.is_ascii_alphabetic() || *b == b'_')?;
        let _ = first;
        let length = self.rest().iter().take_while(|b| is_word(**b)).count();
        self.take_text(length)
    }

    /// Consumes a value.
    pub(super) fn value(&mut self) -> Result<SpannedValue<Value>, ParseError> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'0'..=b'9' | b'-' | b'.') => self.number(),
            Some(b) if b.is_ascii_alphabetic() || b == b'_' => Ok(self.bare()),
            Some(b'<') => {
                let span = Span::new(self.at, self.at + 1);
                Err(self
                    .error(Kind::HtmlLabel, span, "the dialect has no HTML labels", "HTML begins here")
                    .suggest("write the text in quotes"))
            }
            _ => {
                let message = format!("expected a value, found {}", self.found());
                Err(self
                    .error(Kind::Unexpected, self.here(), &message, "a value belongs here")
                    .suggest("put text in quotes; `\"\"` is empty text"))
            }
        }
    }

    /// Consumes a string in quotes.
    fn string(&mut self) -> Result<SpannedValue<Value>, ParseError> {
        let start = self.at;
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let length = self.rest().iter().position(|b| matches!(b, b'"' | b'\\'));
            let Some(length) = length else {
                let span = Span::new(start, start + 1);
                return Err(self
                    .error(Kind::Unclosed, span, "the string is not closed", "begins here")
                    .suggest("close it with `\"`; inside of a string, write `\\\"` for a quote"));
            };
            text.extend_from_slice(&self.rest()[..length]);
            self.at += length;
            if self.eat(b'"') {
                break;
            }
            let escaped = match self.source.get(self.at + 1) {
                Some(b'"') => b'"',
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'\\') => b'\\',
                Some(_) => {
                    // Commands and patterns often contain such pairs of characters, so both characters are taken literally.
                    let span = Span::new(self.at, self.at + 2);
                    note(&mut self.tolerated, || {
                        let message = "the escape is unknown; the backslash is read as a literal backslash";
                        Tolerance::new("unknown_escape", span, message, "write `\\\\` for a backslash")
                    });
                    text.push(b'\\');
                    self.at += 1;
                    continue;
                }
                None => {
                    self.at += 1;
                    continue;
                }
            };
            text.push(escaped);
            self.at += 2;
        }
        let span = Span::new(start, self.at);
        if text.len() > MAX_STRING {
            let message = format!("a string has {} bytes; the maximum is {MAX_STRING}", text.len());
            let error = self.error(Kind::TooLarge, Span::new(start, start + 1), &message, "begins here");
            return Err(error.suggest("put the text into a file, and refer to the file"));
        }
        match String::from_utf8(text) {
            Ok(text) => Ok(SpannedValue::new(Value::string(text), span)),
            Err(_) => {
                let raw = &self.source[start..self.at];
                let good = std::str::from_utf8(raw).map_or_else(|e| e.valid_up_to(), str::len);
                let span = Span::new(start + good, start + good + 1);
                Err(self
                    .error(Kind::NotText, span, "the string is not UTF-8", "this byte is not text")
                    .suggest("save the file as UTF-8"))
            }
        }
    }

    /// Consumes `true`, `false` or a word without quotes: `[A-Za-z_][A-Za-z0-9_.:-]*`.
    fn bare(&mut self) -> SpannedValue<Value> {
        let start = self.at;
        let in_word = |b: &&u8| is_word(**b) || matches!(b, b'.' | b':' | b'-');
        let length = self.rest().iter().take_while(in_word).count();
        let word = self.take_text(length).map_or("", |word| word.value);
        let value = match word {
            "true" => Value::Boolean(true),
            "false" => Value::Boolean(false),
            word => Value::Bare(Arc::from(word)),
        };
        SpannedValue::new(value, Span::new(start, self.at))
    }

    /// Consumes a whole number, a number with a point, or a duration.
    fn number(&mut self) -> Result<SpannedValue<Value>, ParseError> {
        let start = self.at;
        // Consume the whole token, so that `12abc` and `1.2.3` are mistakes and not two tokens each.
        let sticks = |b: &&u8| is_word(**b) || matches!(b, b'.' | b':' | b'-');
        let length = self.rest().iter().take_while(sticks).count();
        let text = self.take_text(length).map_or("", |text| text.value);
        let span = Span::new(start, self.at);
        let wrong = |message: &str, suggestion: &str| {
            Err(self.error(Kind::BadNumber, span, message, "not a number").suggest(suggestion))
        };
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(digits);
        if rest.is_empty() && !whole.is_empty() {
            return match text.parse() {
                Ok(number) => Ok(SpannedValue::new(Value::Integer(number), span)),
                Err(_) => wrong("the number does not fit into 64 bits", "put it in quotes if it is text"),
            };
        }
        if let Some(fraction) = rest.strip_prefix('.')
            && !fraction.is_empty()
            && fraction.bytes().all(|b| b.is_ascii_digit())
        {
            return match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(SpannedValue::new(Value::Float(number), span)),
                _ => wrong("the number is out of range", "put it in quotes if it is text"),
            };
        }
        if !whole.is_empty() && Unit::from_suffix(rest).is_some() {
            if text.starts_with('-') {
                return wrong("a duration cannot be negative", "remove the sign");
            }
            return match Length::from_text(text) {
                Some(length) => Ok(SpannedValue::new(Value::Duration(length), span)),
                None => {
                    wrong("the duration does not fit into 64 bits of milliseconds", "choose a shorter one")
                }
            };
        }
        wrong(
            "this is neither a number nor a duration",
            "put text in quotes; numbers look like `3` and `0.5`, durations like `250ms`, `30s`, `15m`, `2h` and `1d`",
        )
    }

    /// Consumes this many bytes. The caller knows that they are ASCII.
    fn take_text(&mut self, length: usize) -> Option<SpannedValue<&'a str>> {
        let span = Span::new(self.at, self.at + length);
        let text = std::str::from_utf8(&self.source[span.start..span.end]).ok()?;
        self.at = span.end;
        Some(SpannedValue::new(text, span))
    }
}

/// Returns whether a byte may be part of an identifier.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

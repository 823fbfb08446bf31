//! The placeholders of texts and names.

use std::collections::BTreeMap;

use uuid::Uuid;

/// The maximum length of a name that stays.
const MAX_NAME: usize = 64;

/// The texts and names of a log, each with the number of its placeholder.
#[derive(Debug, Default)]
pub(super) struct PlaceholderTable {
    texts: BTreeMap<String, usize>,
    names: BTreeMap<String, usize>,
}

impl PlaceholderTable {
    /// Returns the placeholder of a text.
    pub(super) fn text(&mut self, text: &str) -> String {
        if text.is_empty() || is_number_like(text) {
            return without_digits(text);
        }
        let next = self.texts.len() + 1;
        let number = *self.texts.entry(text.to_owned()).or_insert(next);
        if is_uuid(text) {
            return numbered_uuid(number);
        }
        // Round the length down to a power of two, so that the length reveals little.
        let class = 1_usize << text.len().ilog2();
        let short = format!("r{number}");
        let long = format!("redacted-{number}");
        let placeholder = if long.len() <= class { long } else { short };
        format!("{placeholder:x<class$}")
    }

    /// Returns the name of a channel or field if it looks like an identifier, and a placeholder for it otherwise. Different names have different
    /// placeholders.
    pub(super) fn name(&mut self, name: &str) -> String {
        let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
        let is_next = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        if name.len() <= MAX_NAME && name.starts_with(is_first) && name.chars().all(is_next) && !is_uuid(name)
        {
            return name.to_owned();
        }
        let next = self.names.len() + 1;
        let number = *self.names.entry(name.to_owned()).or_insert(next);
        if is_uuid(name) {
            numbered_uuid(number)
        } else if name.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() {
            // The key of a map with numbers as keys.
            number.to_string()
        } else {
            // No name that stays has a blank.
            format!("key {number}")
        }
    }
}

pub(super) fn is_uuid(text: &str) -> bool {
    text.len() == 36 && Uuid::try_parse(text).is_ok()
}

fn numbered_uuid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

/// Returns whether a text is a number, a date or the like, which the application may parse.
fn is_number_like(text: &str) -> bool {
    let is_part = |c: char| {
        c.is_ascii_digit()
            || matches!(c, ' ' | '-' | '+' | ':' | '.' | ',')
            || matches!(c, 'T' | 'Z') && is_date(text)
    };
    text.contains(|c: char| c.is_ascii_digit()) && text.chars().all(is_part)
}

/// Returns whether a text begins with a date such as `2026-01-31`.
fn is_date(text: &str) -> bool {
    let is_digit_or_hyphen = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() >= 10 && text.bytes().take(10).enumerate().all(is_digit_or_hyphen)
}

/// Replaces each digit by 0, and a date at the beginning by the first of 1970.
fn without_digits(text: &str) -> String {
    let (date, rest) = if is_date(text) { ("1970-01-01", &text[10..]) } else { ("", text) };
    let zeros = rest.chars().map(|c| if c.is_ascii_digit() { '0' } else { c });
    date.chars().chain(zeros).collect()
}

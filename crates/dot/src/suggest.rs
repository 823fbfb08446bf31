//! Suggestions for unknown names ("did you mean"), and shortened texts for messages.

use std::borrow::Cow;

use ferrata_core::wording::count;

/// Maximum number of characters of a value in a message. A default may be long, and a message about it may be repeated for very many nodes.
const SHOWN: usize = 80;

/// Returns the beginning of a text in a length that suits a message. Control characters are escaped, because a message is one line.
pub(crate) fn beginning_for_message(text: &str) -> Cow<'_, str> {
    let text = shortened(text, SHOWN);
    match text.contains(char::is_control) {
        true => {
            let escaped =
                |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
            text.chars().map(escaped).collect::<String>().into()
        }
        false => text,
    }
}

/// Returns at most `most` characters of a text. If the text has more, the result ends in an ellipsis.
pub(crate) fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}..", &text[..at]).into(),
        None => text.into(),
    }
}

/// Returns at most `most` characters from the beginning of a text for a task, followed by the number of missing characters.
pub(crate) fn beginning(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((at, _)) => {
            format!("{} [.. {}]", &text[..at], count(text[at..].chars().count(), "more character")).into()
        }
        None => text.into(),
    }
}

/// Returns at most `most` characters from the end of a text, after the number of missing characters.
pub(crate) fn ending(text: &str, most: usize) -> Cow<'_, str> {
    let before = text.chars().count().saturating_sub(most);
    match text.char_indices().nth(before) {
        Some((at, _)) if before > 0 => {
            format!("[{} before ..] {}", count(before, "character"), &text[at..]).into()
        }
        _ => text.into(),
    }
}

/// Returns a text on one line.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Maximum number of names that are searched, so that a mistake in a huge file does not take quadratic time.
const MAX_NAMES: usize = 200;

/// Returns the name that is most similar to `unknown`. At most a third of its characters, or one character, may differ.
pub(crate) fn closest_name<'a>(unknown: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if unknown.len() > 64 {
        return None;
    }
    let limit = (unknown.chars().count() / 3).max(1);
    let near = names.into_iter().take(MAX_NAMES).filter(|name| name.len().abs_diff(unknown.len()) <= limit);
    let lower = unknown.to_lowercase();
    let edits = |name: &str| strsim::osa_distance(&lower, &name.to_lowercase());
    let best = near.map(|name| (edits(name), name)).min_by_key(|(edits, _)| *edits);
    best.filter(|(edits, _)| *edits <= limit && *edits < unknown.len()).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_what_is_close() {
        let names = ["implement", "review", "a"];
        assert_eq!(closest_name("implment", names), Some("implement"));
        assert_eq!(closest_name("Reveiw", names), Some("review"));
        assert_eq!(closest_name("publish", names), None);
        assert_eq!(closest_name("b", names), None);
        assert_eq!(closest_name("", names), None);
    }
}

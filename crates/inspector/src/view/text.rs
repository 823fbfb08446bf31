//! Untrusted texts, shortened for the page.

/// Maximum number of characters of a text that is shown among other texts.
pub(crate) const SHORT: usize = 300;

/// Maximum number of characters of a text that is shown alone.
pub(crate) const LONG: usize = 4_000;

/// Returns the beginning of a text. If the text is longer, the result ends in `…`.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöü", 2), "äö…");
        assert_eq!(cut("", 0), "");
    }
}

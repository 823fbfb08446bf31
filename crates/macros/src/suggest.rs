//! "Did you mean": the known word nearest to a misspelled one.

/// Returns the word with the fewest edits, if they are few.
pub(crate) fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let best = known.iter().map(|word| (strsim::osa_distance(given, word), *word)).min()?;
    // A third of the word may be wrong, and at least one letter.
    (best.0 <= (given.len() / 3).max(1)).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_misspelt_word_finds_its_neighbour() {
        let known = ["append", "merge", "max", "min", "sum"];
        assert_eq!(nearest("apend", &known), Some("append"));
        assert_eq!(nearest("marge", &known), Some("merge"));
        assert_eq!(nearest("mx", &known), Some("max"));
        assert_eq!(nearest("overwrite", &known), None);
    }
}

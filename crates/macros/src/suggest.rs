//! "Did you mean": finds the known word that is nearest to a misspelled word.

/// Returns the known word with the fewest edits, if these are few.
pub(crate) fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let best = known.iter().map(|word| (strsim::osa_distance(given, word), *word)).min()?;
    // At most a third of the letters may be wrong, but at least one.
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

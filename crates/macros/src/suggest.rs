//! "Did you mean": the known word nearest to one that was misspelt.

/// Returns the word that takes the fewest edits, if they are few.
pub(crate) fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let best = known.iter().map(|word| (distance(given, word), *word)).min()?;
    // A third of the word may be wrong, and one letter always.
    (best.0 <= (given.len() / 3).max(1)).then_some(best.1)
}

/// Counts insertions, deletions and replacements (Levenshtein).
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[right.len()]
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

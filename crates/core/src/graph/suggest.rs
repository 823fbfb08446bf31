//! "Did you mean": the known name that is closest to an unknown one.

/// Returns the name closest to `unknown`, if one is close enough to be a slip of the pen; of equals, the first.
pub(crate) fn closest<'a>(unknown: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let unknown: Vec<char> = unknown.to_lowercase().chars().collect();
    // A third of the letters may be wrong, and always one: more, and short names would all resemble each other.
    let limit = (unknown.len() / 3).max(1);
    let mut best = None;
    for name in names {
        let letters: Vec<char> = name.to_lowercase().chars().collect();
        if letters.len().abs_diff(unknown.len()) > limit {
            continue;
        }
        let found = distance(&unknown, &letters);
        // A name of one or two letters that shares none with the unknown one is no better than any other.
        if found <= limit && found < unknown.len() && best.is_none_or(|(least, _)| found < least) {
            best = Some((found, name));
        }
    }
    best.map(|(_, name)| name)
}

/// Says that a graph has no such node, and which one was meant if one is close.
pub(crate) fn no_node<'a>(unknown: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let near = closest(unknown, names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    format!("the graph has no node `{}`{near}", unknown.escape_debug())
}

/// Counts the letters to insert, remove, replace or swap with their neighbour to make one text of the other.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(text: &str) -> Vec<char> {
        text.chars().collect()
    }

    #[test]
    fn counts_insertions_removals_replacements_and_swaps() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "ab", 2),
            ("abc", "abc", 0),
            ("implment", "implement", 1),
            ("wirte", "write", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(&letters(a), &letters(b)), expected, "{a} {b}");
            assert_eq!(distance(&letters(b), &letters(a)), expected, "{b} {a}");
        }
    }

    #[test]
    fn suggests_only_what_is_close() {
        let names = ["publish", "approve", "write", "a", "b1"];
        assert_eq!(closest("publsh", names), Some("publish"));
        assert_eq!(closest("Approve", names), Some("approve"));
        assert_eq!(closest("wirte", names), Some("write"));
        assert_eq!(closest("review", names), None);
        assert_eq!(closest("z", names), None);
        assert_eq!(closest("b2", names), Some("b1"));
        assert_eq!(closest("", names), None);
        assert_eq!(closest("write", []), None);
    }
}

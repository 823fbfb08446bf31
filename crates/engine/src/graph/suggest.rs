//! "Did you mean" suggestions: the known name that is closest to an unknown one.

/// Returns the name that is most similar to `unknown`, if the difference can be a typing error. If several names are equally similar, returns the
/// first.
pub fn closest<'a>(unknown: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let unknown = unknown.to_lowercase();
    let count = unknown.chars().count();
    // Allow a third of the letters to be wrong, and at least one. With a higher limit, all short names would match each other.
    let limit = (count / 3).max(1);
    let mut best = None;
    for name in names {
        let lower = name.to_lowercase();
        if lower.chars().count().abs_diff(count) > limit {
            continue;
        }
        let found = strsim::osa_distance(&unknown, &lower);
        // A name of one or two letters without a common letter is no better than any other.
        if found <= limit && found < count && best.is_none_or(|(least, _)| found < least) {
            best = Some((found, name));
        }
    }
    best.map(|(_, name)| name)
}

/// Returns the message about a node that does not exist. The message suggests the most similar name, if there is one.
pub fn no_node<'a>(unknown: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let near = closest(unknown, names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    format!("the graph has no node `{}`{near}", unknown.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! Names of operations.

/// How long a name may be, in bytes: the names of children, with a number after them, have 64.
pub(crate) const MAX_NAME_BYTES: usize = 50;

/// Returns the stored form of a name.
pub(crate) fn slug(name: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ');
    let is_name = !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(fits);
    (is_name && !matches!(name, "before" | "after")).then(|| name.replace(' ', "_"))
}

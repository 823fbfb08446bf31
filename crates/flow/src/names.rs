//! Names of operations.

use std::borrow::Cow;

/// The maximum length of a name in bytes. The key of a child is its name and a number, and a key of a child has at most 64 bytes.
pub(crate) const MAX_NAME_BYTES: usize = 50;

/// Returns the stored form of a name: `_` replaces each space. Returns `None` if the name is invalid.
pub(crate) fn slug(name: &str) -> Option<Cow<'_, str>> {
    let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b' ');
    let is_name = !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(fits);
    if !is_name || matches!(name, "before" | "after") {
        return None;
    }
    Some(match name.contains(' ') {
        true => name.replace(' ', "_").into(),
        false => name.into(),
    })
}

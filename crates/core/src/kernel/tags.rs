//! Tags, which restrict runs to processes.

use std::collections::BTreeSet;

use crate::error::{Error, ErrorKind, Result};
use crate::record::RunFacts;
use crate::record::parent_link::TAGS;

/// The maximum length of a tag.
const LONGEST: usize = 64;

/// The tags of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessTags(BTreeSet<String>);

impl ProcessTags {
    pub(crate) fn extend(&mut self, tags: impl IntoIterator<Item = impl Into<String>>) {
        self.0.extend(tags.into_iter().map(Into::into));
    }

    pub(crate) fn has_all<'a>(&self, tags: impl IntoIterator<Item = &'a str>) -> bool {
        tags.into_iter().all(|tag| self.0.contains(tag))
    }

    /// Returns the required tags of a run, in the form of its label, if this process lacks one.
    pub(crate) fn lacking<'a>(&self, facts: &'a RunFacts) -> Option<&'a str> {
        facts.labels.get(TAGS).filter(|tags| !self.has_all(tags.split(',')))
    }
}

/// Returns the label of a run that requires tags.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`] if a tag is invalid.
pub(crate) fn label(tags: &BTreeSet<String>) -> Result<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match tags.iter().find(|tag| !(1..=LONGEST).contains(&tag.len()) || !tag.chars().all(fits)) {
        None => Ok(tags.iter().map(String::as_str).collect::<Vec<_>>().join(",")),
        Some(tag) => {
            let message =
                format!("`{}` cannot be a tag; use 1 to {LONGEST} of A-Z a-z 0-9 . _ -", tag.escape_debug());
            Err(Error::new(ErrorKind::Invalid, message))
        }
    }
}

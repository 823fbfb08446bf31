//! Checks the names and ids of children, and computes their defaults.

use crate::error::{Error, ErrorKind, Result};
use crate::id::{RunId, WorkflowName};

/// The maximum length of a child's name. Run ids and labels contain the name.
const LONGEST_NAME: usize = 64;

/// The maximum length of a run id that the application gives to a child. If the child is started again, `-` and a number are appended to the id.
const LONGEST_ID: usize = 128 - "-".len() - "4294967295".len();

/// The name of a child, or of a group of children.
pub(super) struct ChildName {
    pub(super) text: String,
    /// Whether the name is the default, which is the name of the workflow.
    is_default: bool,
}

impl ChildName {
    pub(super) fn of(name: Option<&str>, workflow: &WorkflowName) -> Self {
        match name {
            Some(name) => Self { text: name.to_owned(), is_default: false },
            None => Self { text: workflow.as_str().replace(':', "-"), is_default: true },
        }
    }

    /// Returns the name of the child for an item of a group.
    pub(super) fn of_item(&self, index: usize) -> String {
        format!("{}-{index}", self.text)
    }

    /// Checks the name of a child.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] with a message that describes the valid form.
    pub(super) fn check(&self) -> Result<()> {
        self.check_with(0)
    }

    /// Checks the name of a group of `items` children. Each child appends its index to the name.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] with a message that describes the valid form.
    pub(super) fn check_group(&self, items: usize) -> Result<()> {
        self.check_with(self.of_item(items.saturating_sub(1)).len() - self.text.len())
    }

    fn check_with(&self, suffix: usize) -> Result<()> {
        let (text, longest) = (&self.text, LONGEST_NAME - suffix);
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !text.is_empty() && text.len() <= longest && !text.starts_with('.') && text.chars().all(fits) {
            return Ok(());
        }
        let what = if suffix > 0 { "children with a number each" } else { "a child" };
        let remedy = if self.is_default {
            "; it is the name of the child's workflow, so set another with `.name(..)`"
        } else {
            ""
        };
        let message = format!(
            "`{}` cannot name {what}; use 1 to {longest} of A-Z a-z 0-9 . _ - and do not start with a dot{remedy}",
            text.escape_debug()
        );
        Err(Error::new(ErrorKind::Invalid, message))
    }
}

/// Returns the run id for a start (round) of a child whose id the application has chosen.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`] if the id is too long for an appended number. This error occurs already at the first start, so that no later start
/// can fail for this reason.
pub(super) fn id_of_round(id: &RunId, round: u32) -> Result<RunId> {
    let bytes = id.as_str().len();
    if bytes > LONGEST_ID {
        let message = format!(
            "the id `{id}` of a child has {bytes} bytes; use at most {LONGEST_ID}, because a restarted child has a number after its id"
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    if round == 1 { Ok(id.clone()) } else { RunId::new(format!("{id}-{round}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ChildName {
        ChildName::of(Some(text), &WorkflowName::new("w").unwrap())
    }

    /// Guarantees: CHILD-19.
    #[test]
    fn longest_id_fits_any_round() {
        let id = RunId::new("x".repeat(LONGEST_ID)).unwrap();
        id_of_round(&id, 1).unwrap();
        assert_eq!(id_of_round(&id, u32::MAX).unwrap().as_str().len(), 128);
        let error = id_of_round(&RunId::new("x".repeat(LONGEST_ID + 1)).unwrap(), 1).unwrap_err();
        assert!(error.to_string().contains("use at most 117"), "{error}");
    }

    /// Guarantees: CHILD-19.
    #[test]
    fn name_check_says_what_fits() {
        name(&"x".repeat(64)).check().unwrap();
        for bad in ["", ".x", "a b", &"x".repeat(65)] {
            let error = name(bad).check().unwrap_err();
            assert!(error.to_string().contains("use 1 to 64 of"), "{error}");
        }
        name(&"x".repeat(62)).check_group(10).unwrap();
        let error = name(&"x".repeat(62)).check_group(11).unwrap_err();
        assert!(error.to_string().contains("use 1 to 61 of"), "{error}");
        let long = WorkflowName::new("w".repeat(65)).unwrap();
        let error = ChildName::of(None, &long).check().unwrap_err();
        assert!(error.to_string().ends_with("so set another with `.name(..)`"), "{error}");
    }
}

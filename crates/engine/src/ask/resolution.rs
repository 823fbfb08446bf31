//! The decision of an operator about work that must not be repeated and has an unknown outcome.

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, FailureKind};
use crate::state::Patch;

/// The decision of an operator about an activation that must not be repeated and has an unknown outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Resolution {
    /// The work did not happen. The node runs again.
    ///
    /// First make sure that the process that did the work has ended. Otherwise the process may only be suspended or have no network. It may then
    /// still do the work after your decision, and the work happens twice.
    Retry,
    /// The work happened. This patch is applied to the state as its result.
    Supply(Patch),
    /// The run continues as if the work had succeeded without changing the state.
    Skip,
    /// The work counts as failed, for this reason.
    Fail(String),
}

impl Resolution {
    /// Returns the change of the state that the decision contains, if there is one.
    ///
    /// # Errors
    ///
    /// Returns the failure if the decision is [`Fail`](Self::Fail).
    #[doc(hidden)]
    pub fn into_change(self) -> Result<Option<Patch>, Failure> {
        match self {
            Self::Skip | Self::Retry => Ok(None),
            Self::Fail(reason) => Err(Failure::new(FailureKind::Operator, reason)),
            Self::Supply(patch) => Ok(Some(patch)),
        }
    }
}

/// Formats the decision for reports, without the values of a patch.
impl std::fmt::Display for Resolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Retry => f.write_str("it did not happen; run it again"),
            Self::Supply(_) => f.write_str("it happened; its change of the state is supplied"),
            Self::Skip => f.write_str("it happened, or does not matter; keep the state"),
            Self::Fail(reason) => write!(f, "fail: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Resolution;
    use crate::ask::QuestionKind;
    use crate::failure::FailureKind;

    #[test]
    fn displayed_kinds_are_words_and_hide_values() {
        assert_eq!(QuestionKind::Before.to_string(), "before");
        assert_eq!(FailureKind::MaxVisits.to_string(), "max_visits");
        assert_eq!(Resolution::Fail("lost".into()).to_string(), "fail: lost");
        let patch = crate::state::Patch::from_json(r#"[{"set":["pin","1234"]}]"#).unwrap();
        assert!(!Resolution::Supply(patch).to_string().contains("1234"));
    }
}

//! What an operator says of work that must not be repeated.

use serde::{Deserialize, Serialize};

use crate::state::Patch;

/// What became of an activation that must not be repeated, where the log does not tell whether it was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Resolution {
    /// It did not happen: run it again.
    ///
    /// Make sure first that the process that was at work has ended. A process that was not seen to end may only be suspended or cut off. It may still do
    /// the work after you have looked; then the work is done twice.
    Retry,
    /// It happened: this is the change of the state it made.
    Supply(Patch),
    /// Go on as if it had succeeded without changing anything.
    Skip,
    /// Treat it as failed, for this reason.
    Fail(String),
}

/// What was decided, as every report shows it. The values of a patch are left out.
impl std::fmt::Display for Resolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Retry => f.write_str("it did not happen; run it again"),
            Self::Supply(_) => f.write_str("it happened; its change of the state is supplied"),
            Self::Skip => f.write_str("it happened, or does not matter; leave the state as it is"),
            Self::Fail(reason) => write!(f, "let it fail: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Resolution;
    use crate::ask::QuestionKind;
    use crate::failure::FailureKind;

    #[test]
    fn what_people_print_is_a_word_and_shows_no_values() {
        assert_eq!(QuestionKind::Before.to_string(), "before");
        assert_eq!(FailureKind::MaxVisits.to_string(), "max_visits");
        assert_eq!(Resolution::Fail("lost".into()).to_string(), "let it fail: lost");
        let patch = crate::state::Patch::from_json(r#"[{"set":["pin","1234"]}]"#).unwrap();
        assert!(!Resolution::Supply(patch).to_string().contains("1234"));
    }
}

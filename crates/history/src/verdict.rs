//! The verdicts of activations on their own work.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The outcome word that means success and is not shown.
const SUCCESS: &str = "success";

/// The verdict of a node on its own work. The node gives it in its output; see [`Update::with_output`](crate::state::Update::with_output).
///
/// An activation with a verdict counts as successful in the graph, and the run continues. Its work may still have failed, such as a command whose
/// failure an edge handles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Verdict {
    /// The outcome, which is a word such as `fail` or `skipped`. It is never `success`.
    pub outcome: String,
    /// The reason of the outcome, or an empty string.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The fields of an output that form a verdict.
#[derive(Deserialize)]
struct VerdictFields {
    outcome: String,
    #[serde(default)]
    failure_reason: String,
}

impl Verdict {
    /// Reads the verdict of an output. Returns `None` for success, or if there is no verdict.
    #[doc(hidden)]
    pub fn of(output: &RawValue) -> Option<Self> {
        // Most outputs are not objects and need no parser.
        if !output.get().starts_with('{') {
            return None;
        }
        let said: VerdictFields = serde_json::from_str(output.get()).ok()?;
        (said.outcome != SUCCESS).then_some(Self { outcome: said.outcome, reason: said.failure_reason })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.outcome)?;
        match &*self.reason {
            "" => Ok(()),
            reason => write!(f, ": {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_says_how_the_work_came_out() {
        let of = |text: &str| Verdict::of(&RawValue::from_string(text.into()).unwrap());
        let shown = |text: &str| of(text).map(|verdict| verdict.to_string());
        assert_eq!(shown(r#"{"outcome":"fail","failure_reason":"no","x":1}"#).as_deref(), Some("fail: no"));
        assert_eq!(shown(r#"{"\u006futcome":"skipped"}"#).as_deref(), Some("skipped"));
        for silent in [r#"{"outcome":"success"}"#, r#"{"outcome":3}"#, r#"["outcome"]"#, "{}", "7", "null"] {
            assert_eq!(of(silent), None, "{silent}");
        }
    }
}

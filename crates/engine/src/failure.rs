//! The reason why an activation or a run failed.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::NodeName;

fn is_false(value: &bool) -> bool {
    !value
}

/// The reason why an activation or a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The kind of a failure.
    pub kind: FailureKind,
    /// A description of the failure in one line.
    pub message: String,
    /// The chain of causes, with the outermost cause first. There are at most 20 causes of at most 500 bytes each. If the chain is longer, the first
    /// 10 and the last 9 causes are retained, and a line between them has the number of omitted causes. If the kind is [`FailureKind::Replan`], the
    /// list contains the replans instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// The activation that failed, if the failure concerns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Whether the node marked its error with `NodeError::not_done`, which says that its work had no effect.
    #[serde(default, skip_serializing_if = "is_false")]
    pub not_done: bool,
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The node returned an error.
    Node,
    /// The node panicked.
    Panic,
    /// An attempt took longer than the node's timeout.
    Timeout,
    /// The node's update could not be applied or stored.
    Update,
    /// The node's route chose a target that it may not choose.
    Route,
    /// Two concurrent activations overwrote one channel.
    ConcurrentWrite,
    /// The run would visit a node more often than its limit allows.
    MaxVisits,
    /// The run would have more activations than its limit allows.
    MaxSteps,
    /// The run took longer than its deadline.
    Deadline,
    /// The goal of a goal gate is not met, and there is no retry target to which the run can still return.
    GoalGate,
    /// The branches that lead to a join ended with fewer fired edges than the join needs.
    JoinUnmet,
    /// An operator decided that the activation failed.
    Operator,
    /// The run would return to a node by a replan (a deliberate return) more often than its limit allows.
    ///
    /// The causes list the replans, oldest first, with the rejected replan last. Each has the form `from@visit -> to: reason` and at most 800 bytes.
    /// Only the latest 100 replans are listed. If there were more, a first line has the number of earlier replans.
    Replan,
    /// A function of the graph (a route, a condition, a goal) panicked.
    Graph,
    /// A question of the node was rejected.
    Rejected,
    /// No answer to a question of the node arrived before its deadline.
    Expired,
}

/// Formats the kind as the word under which it is stored, such as `max_visits`.
impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FailureKind {
    /// Returns the name of the kind, as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Panic => "panic",
            Self::Timeout => "timeout",
            Self::Update => "update",
            Self::Route => "route",
            Self::ConcurrentWrite => "concurrent_write",
            Self::MaxVisits => "max_visits",
            Self::MaxSteps => "max_steps",
            Self::Deadline => "deadline",
            Self::GoalGate => "goal_gate",
            Self::JoinUnmet => "join_unmet",
            Self::Operator => "operator",
            Self::Replan => "replan",
            Self::Graph => "graph",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
        }
    }
}

impl Failure {
    /// The number of causes that are retained from each end of a long chain. They are enough to name each run in a run tree of the greatest depth,
    /// and limit the size of a failure in the log.
    const FIRST_CAUSES: usize = 10;
    const LAST_CAUSES: usize = 9;
    const CAUSE_BYTES: usize = 500;

    /// Creates a failure with a message.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: clip(message.into(), 2_000), causes: Vec::new(), node: None, not_done: false }
    }

    /// Creates a failure from an error and the chain of its causes.
    pub fn from_error(kind: FailureKind, error: &(dyn std::error::Error + 'static)) -> Self {
        let causes = std::iter::successors(error.source(), |cause| cause.source());
        let causes = keep_ends(causes.map(|cause| clip(cause.to_string(), Self::CAUSE_BYTES)));
        Self { causes, ..Self::new(kind, error.to_string()) }
    }

    /// Sets the node that failed.
    #[must_use]
    pub fn with_node(mut self, node: &NodeName) -> Self {
        self.node = Some(node.clone());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = &self.node {
            write!(f, "node {node}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// The end of the line that stands between the two ends of a shortened chain of causes.
const LEFT_OUT: &str = " causes are left out";

/// Keeps the first and the last causes of a chain.
fn keep_ends(causes: impl Iterator<Item = String>) -> Vec<String> {
    // The chain of a child's failure may have such a line already.
    let count =
        |cause: &str| cause.strip_suffix(LEFT_OUT).and_then(|count| count.parse().ok()).unwrap_or(1_u64);
    let (mut kept, mut last, mut left_out) = (Vec::new(), VecDeque::new(), 0);
    for cause in causes {
        if kept.len() < Failure::FIRST_CAUSES {
            kept.push(cause);
            continue;
        }
        last.push_back(cause);
        // Keep one more cause than fits: without a line about omitted causes, it takes the line's position.
        if last.len() > Failure::LAST_CAUSES + 1 {
            left_out += last.pop_front().map_or(0, |cause| count(&cause));
        }
    }
    if left_out > 0 {
        left_out += last.pop_front().map_or(0, |cause| count(&cause));
        kept.push(format!("{left_out}{LEFT_OUT}"));
    }
    kept.extend(last);
    kept
}

/// Shortens a text to at most `most` bytes without splitting a character.
pub(crate) fn clip(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{FailureKind, keep_ends};

    fn chain(causes: std::ops::RangeInclusive<u32>) -> Vec<String> {
        causes.map(|cause| cause.to_string()).collect()
    }

    /// A long chain of causes keeps its outermost and innermost causes.
    ///
    /// Guarantees: CHILD-4.
    #[test]
    fn long_chain_keeps_both_ends() {
        for short in [0, 1, 10, 11, 20] {
            assert_eq!(keep_ends(chain(1..=short).into_iter()), chain(1..=short));
        }
        for long in [21, 22, 1_000] {
            let kept = keep_ends(chain(1..=long).into_iter());
            assert_eq!(kept[..10], chain(1..=10));
            assert_eq!(kept[10], format!("{} causes are left out", long - 19));
            assert_eq!(kept[11..], chain(long - 8..=long));
        }
    }

    /// Guarantees: CHILD-4.
    #[test]
    fn chain_of_chains_counts_what_is_left_out() {
        let mut kept = keep_ends(chain(1..=25).into_iter());
        for level in 0..5 {
            kept.insert(0, format!("level {level}"));
            kept = keep_ends(kept.into_iter());
        }
        assert_eq!(kept.len(), 20);
        assert_eq!(kept[10], "11 causes are left out");
        assert_eq!(kept[19], "25");
    }

    #[test]
    fn a_kind_is_shown_as_it_is_stored() {
        use FailureKind::*;
        let all = [
            Node,
            Panic,
            Timeout,
            Update,
            Route,
            ConcurrentWrite,
            MaxVisits,
            MaxSteps,
            Deadline,
            GoalGate,
            JoinUnmet,
            Operator,
            Replan,
            Graph,
            Rejected,
            Expired,
        ];
        for kind in all {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{}\"", kind.as_str()));
        }
    }
}

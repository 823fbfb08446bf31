//! What a checkpoint says of an activation that ended, and of one that failed.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::graph::Effect;
use crate::id::{NodeName, Seq, Visit};
use crate::record::Failure;
use crate::verdict::Verdict;

/// An ended activation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PastActivation {
    /// The node.
    pub node: NodeName,
    /// The visit number.
    pub visit: Visit,
    /// Whether the activation succeeded.
    pub ok: bool,
    /// Number of attempts. Absent, like the fields below, after its record was pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Duration of the last attempt in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// Time of its record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Number of its record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<Seq>,
    /// The node's effect, if the graph declared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// The nodes that its edges started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub led_to: Vec<NodeName>,
    /// Its notes for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// The reason of its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The verdict of the activation on its own work, if that was not success. The run may continue after work that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Time of its record.
    pub at: Timestamp,
    /// The node.
    pub node: NodeName,
    /// The visit number.
    pub visit: Visit,
    /// The attempt number.
    pub attempt: u32,
    /// The reason of the failure.
    pub failure: Failure,
    /// Time of the next attempt, if one was to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

impl PastActivation {
    pub(crate) fn of(node: NodeName, visit: Visit, ok: bool) -> Self {
        Self {
            node,
            visit,
            ok,
            attempts: None,
            took_ms: None,
            at: None,
            index: None,
            effect: None,
            led_to: Vec::new(),
            notes: None,
            failure: None,
            verdict: None,
        }
    }
}

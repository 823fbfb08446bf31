//! Ended activations and failed attempts, as a checkpoint lists them.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::graph::Effect;
use crate::id::{NodeName, Seq, Visit};
use crate::record::Failure;
use crate::verdict::Verdict;

/// An activation that has ended, as a checkpoint lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PastActivation {
    /// The name of the node.
    pub node: NodeName,
    /// The number of the node's visit in the run.
    pub visit: Visit,
    /// Whether the activation succeeded.
    pub ok: bool,
    /// The number of attempts. This field and the fields below are absent if the record of the activation's end was pruned.
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
    /// The nodes to which the edges of this activation led.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub led_to: Vec<NodeName>,
    /// The notes that the node wrote for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// The reason for the failure of the activation, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The activation's verdict on its own work, if the verdict was not success. The run may continue after such a verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// An attempt that failed, as a checkpoint lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Time of its record.
    pub at: Timestamp,
    /// The name of the node.
    pub node: NodeName,
    /// The number of the node's visit in the run.
    pub visit: Visit,
    /// The number of the attempt.
    pub attempt: u32,
    /// The reason for the failure.
    pub failure: Failure,
    /// The time of the next attempt, if a retry was planned.
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

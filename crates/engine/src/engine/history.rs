//! The compact history of a run. It contains the node, visit and outcome of each ended activation, in the order in which they ended.

use serde::{Deserialize, Serialize};

use super::frontier::Local;
use crate::id::Visit;

/// The outcome of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationOutcome {
    Succeeded,
    Failed,
}

/// An ended activation. Stored as `[node, visit]`, or `[node, visit, 1]` if it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedActivation {
    pub node: Local,
    pub visit: Visit,
    pub outcome: ActivationOutcome,
}

impl Serialize for EndedActivation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.outcome {
            ActivationOutcome::Succeeded => (self.node, self.visit).serialize(serializer),
            ActivationOutcome::Failed => (self.node, self.visit, 1u8).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for EndedActivation {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let numbers = Vec::<u32>::deserialize(deserializer)?;
        let (node, visit, outcome) = match *numbers {
            [node, visit] => (node, visit, ActivationOutcome::Succeeded),
            [node, visit, 1] => (node, visit, ActivationOutcome::Failed),
            _ => {
                return Err(serde::de::Error::custom(
                    "an activation in the history is [node, visit] or [node, visit, 1]",
                ));
            }
        };
        Ok(Self { node, visit: Visit::new(visit), outcome })
    }
}

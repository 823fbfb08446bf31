//! Checkpoint policies of a run and of one node.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The frequency of checkpoints in an active run.
///
/// If the process dies, unwritten work is done again, with the same idempotency keys. A lower frequency trades repeated work for fewer writes. The
/// log stays consistent, because the run writes delayed records as one complete record. The run writes the intent of an
/// [`External`](crate::graph::Effect::External) node, and all delayed records, before the node starts. The node is therefore never repeated without a
/// confirmation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckpointFrequency {
    /// After every node. A crash repeats the active activations, and nodes that compute or read and have unfinished records. It repeats no finished
    /// write.
    #[default]
    EveryNode,
    /// After every `n` nodes. A crash repeats the active activations and up to `n - 1` finished ones.
    EveryNth(NonZeroU32),
    /// At the end of the first node after this time since the last checkpoint. A crash repeats the active activations and the work finished during
    /// that time. An interval shorter than a write acts like `EveryNode`.
    Interval(Duration),
    /// When the run's status changes. A crash repeats everything since the last change. A run that never pauses repeats all its work.
    StatusChangeOnly,
    /// Only on request: by a node, by a node's records, or when the run becomes idle. A crash repeats everything since the last checkpoint. Without a
    /// checkpoint, the log has no trace of the run, even if it completed or failed.
    Disabled,
}

impl CheckpointFrequency {
    /// Returns whether a checkpoint follows so many ends without one, `since` so long after the last checkpoint.
    #[doc(hidden)]
    pub fn is_due_after(self, ends: usize, since: impl FnOnce() -> Duration) -> bool {
        match self {
            Self::EveryNode => true,
            Self::EveryNth(n) => u32::try_from(ends).map_or(true, |ends| ends >= n.get()),
            Self::Interval(interval) => since() >= interval,
            Self::StatusChangeOnly | Self::Disabled => false,
        }
    }
}

/// The checkpoint policy of a run.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU32;
/// use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy};
///
/// let policy = CheckpointPolicy::default().with_frequency(CheckpointFrequency::EveryNth(NonZeroU32::MIN));
/// assert_eq!(policy.frequency, CheckpointFrequency::EveryNth(NonZeroU32::MIN));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CheckpointPolicy {
    /// The frequency while the run is active. By default after every node.
    pub frequency: CheckpointFrequency,
}

impl CheckpointPolicy {
    /// Sets the frequency of checkpoints while the run is active.
    #[must_use]
    pub const fn with_frequency(mut self, frequency: CheckpointFrequency) -> Self {
        self.frequency = frequency;
        self
    }
}

/// The checkpoints around one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeCheckpoint {
    /// As the run's frequency decides.
    #[default]
    Default,
    /// Before the node starts, whatever the frequency is. All delayed records are then durable. A crash in the node repeats only the node.
    Before,
    /// After the node finishes, whatever the frequency is. Neither the node nor earlier work is repeated.
    After,
    /// Before and after.
    Both,
    /// None because of the node, even if the frequency asks for one. A crash may repeat this node and earlier ones. The next checkpoint contains its
    /// result.
    None,
}

/// The points where a signaller must confirm before a run continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub struct Interrupt {
    /// Before the node starts.
    pub before: bool,
    /// After the node: its work is recorded, and its targets wait.
    pub after: bool,
}

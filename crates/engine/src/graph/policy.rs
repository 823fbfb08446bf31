//! Checkpoint policies of a run and of one node.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Decides how often an active run writes a checkpoint, which makes the results so far durable.
///
/// If the process dies, the run repeats all work without a stored result, with the same idempotency keys. With fewer checkpoints, the run needs fewer
/// writes, but a crash repeats more work. The log is always consistent, because the run writes delayed results together as one record. The run writes
/// the intent of an [`External`](crate::graph::Effect::External) node (the record that the node is about to start), and all delayed records, before
/// the node starts. The node is therefore never repeated without a confirmation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckpointFrequency {
    /// The run writes a checkpoint after every node. A crash repeats running activations, and finished activations whose records are not durable yet.
    #[default]
    EveryNode,
    /// The run writes a checkpoint after every `n` nodes. A crash repeats running activations and at most `n - 1` finished ones.
    EveryNth(NonZeroU32),
    /// The run writes a checkpoint when a node ends and this time has passed since the last checkpoint. A crash repeats running activations and the
    /// work that finished since the last checkpoint. If the interval is shorter than the duration of a write, it has the effect of `EveryNode`.
    Interval(Duration),
    /// The run writes a checkpoint when its status changes. A crash repeats everything since the last change. If the status of a run does not change
    /// until its end, a crash repeats all its work.
    StatusChangeOnly,
    /// The run writes a checkpoint only if a node requests it, if a node records something (such as a step), or if the run becomes idle. A crash
    /// repeats everything since the last checkpoint. If there was no checkpoint, the store contains no record of the run, even if the run completed
    /// or failed.
    Disabled,
}

impl CheckpointFrequency {
    /// Returns whether a checkpoint is due after `ends` activations have ended since the last checkpoint. `since` returns the time since the last
    /// checkpoint.
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
    /// The frequency of checkpoints while the run is active. The default is a checkpoint after every node.
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

/// Decides whether the run writes a checkpoint before or after one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeCheckpoint {
    /// The checkpoint policy of the run decides.
    #[default]
    Default,
    /// The run writes a checkpoint before the node starts, whatever its policy is. All delayed records are then durable, so a crash during the node
    /// repeats only the node.
    Before,
    /// The run writes a checkpoint after the node ends, whatever its policy is. A later crash repeats neither the node nor earlier work.
    After,
    /// The run writes a checkpoint before and after the node.
    Both,
    /// The end of this node causes no checkpoint, even if the policy of the run asks for one. A crash may repeat this node and earlier nodes. The
    /// next checkpoint contains the result of the node.
    None,
}

/// The points at which a run asks for confirmation before it continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub struct Interrupt {
    /// Whether the run asks before the node starts.
    pub before: bool,
    /// Whether the run asks after the node. The work of the node is then recorded, and the next nodes wait for the answer.
    pub after: bool,
}

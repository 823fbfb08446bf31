//! When checkpoints are written: for a whole run, and for one node of it.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How often a run that goes on writes a checkpoint.
///
/// What was not written when the process dies is done again, with the same idempotency keys. So a coarser frequency trades
/// repeated work for fewer writes; it never leaves a log that does not fit together, since records that were held back are
/// written as one that stands alone. The intent of an [`External`](crate::graph::Effect::External) node is written before
/// the node starts, with all that was held back, so that it is not repeated unasked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckpointFrequency {
    /// After every node. A crash costs the activations in flight, and nodes that compute or read and whose records were on
    /// their way: no finished write is done again.
    #[default]
    EveryNode,
    /// After every so many nodes. A crash costs the activations in flight and up to so many finished ones, less one.
    EveryNth(NonZeroU32),
    /// When this long has passed since the last checkpoint, at the end of the next node. A crash costs the activations in
    /// flight and what was finished during that time. Shorter than a write takes is the same as after every node.
    Interval(Duration),
    /// When the run's status changes. A crash costs everything since the last change: for a run that never pauses, all its
    /// work, from the start.
    StatusChangeOnly,
    /// Never, unless something asks for one: a node, what a node notes, or a run that comes to rest. A crash costs everything since
    /// the last checkpoint; if there was none, nothing tells that there was a run, and one that completed or failed is on no record.
    Disabled,
}

/// When a run writes checkpoints.
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
    /// How often while the run goes on; after every node unless set.
    pub frequency: CheckpointFrequency,
}

impl CheckpointPolicy {
    /// Sets how often checkpoints are written while the run goes on.
    #[must_use]
    pub const fn with_frequency(mut self, frequency: CheckpointFrequency) -> Self {
        self.frequency = frequency;
        self
    }
}

/// When a checkpoint is written around one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeCheckpoint {
    /// As the run's frequency says.
    #[default]
    Default,
    /// Before it starts, whatever the frequency: all that was held back is durable by then. A crash in the node costs the
    /// node alone.
    Before,
    /// After it finished, whatever the frequency: it is never done again, and nothing before it is.
    After,
    /// Before and after.
    Both,
    /// Not on its account, even if the frequency says so: a crash may cost this node and go back to before it. The next
    /// checkpoint holds its result.
    None,
}

/// Where a signaller must agree before a run goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interrupt {
    /// Before the node starts.
    pub(crate) before: bool,
    /// Behind the node: its work is recorded, and what it leads to waits.
    pub(crate) after: bool,
}

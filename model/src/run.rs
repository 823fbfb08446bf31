//! A run: the state that follows from its log.

use crate::executor::Id;

/// The status of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// A process drives the run, or may claim it.
    InProgress,
    /// The run waits for an answer.
    Waiting,
    /// An operator paused the run.
    Paused,
    /// The run has completed.
    Completed,
    /// The run was cancelled.
    Cancelled,
    /// A node failed, or the deadline passed.
    Failed,
}

impl Status {
    /// Returns whether the run has ended.
    #[must_use]
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled | Self::Failed)
    }
}

/// The position of the run in its graph. The graph has the `External` node `pay`, and then the node `ask`, which waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// `pay` is in flight, and no intent is recorded.
    Pay,
    /// The intent of `pay` is recorded.
    Intended,
    /// `ask` is in flight.
    Ask,
    /// The end of `ask` is recorded, and the end of the run is not.
    Ended,
}

/// The state that follows from the records of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The generation of the run: the number of the start that created it.
    pub generation: u8,
    /// The number of claims in this generation.
    pub epoch: u8,
    /// The process that drives the run.
    pub owner: Option<Id>,
    /// The status of the run.
    pub status: Status,
    /// The position in the graph.
    pub place: Place,
    /// Whether the question of `ask` was answered.
    pub answered: bool,
    /// Whether a cancellation is recorded.
    pub cancel: bool,
    /// Whether a pause is recorded.
    pub paused: bool,
    /// Whether the deadline wakes the idle run.
    pub wakes: bool,
    /// Whether the run failed because of a node. A run that failed because of a node can be retried.
    pub node_failed: bool,
}

impl Run {
    /// Returns the run after its first record.
    #[must_use]
    pub fn started(generation: u8, owner: Id) -> Self {
        Self {
            generation,
            epoch: 1,
            owner: Some(owner),
            status: Status::InProgress,
            place: Place::Pay,
            answered: false,
            cancel: false,
            paused: false,
            wakes: false,
            node_failed: false,
        }
    }

    /// Ends the run.
    pub fn end(&mut self, status: Status) {
        self.status = status;
        self.owner = None;
        self.wakes = false;
    }

    /// Makes the run idle.
    pub fn rest(&mut self, status: Status) {
        self.status = status;
        self.owner = None;
        // During a pause, the deadline does not wake the run.
        self.wakes = status == Status::Waiting;
    }

    /// Releases the run, so that any process may claim it.
    pub fn free(&mut self) {
        self.status = Status::InProgress;
        self.owner = None;
        self.wakes = false;
    }
}

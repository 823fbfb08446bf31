//! A run, as folded from its log.

use crate::executor::Id;

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// An executor has it, or may take it.
    InProgress,
    /// It waits for an answer.
    Waiting,
    /// An operator paused it.
    Paused,
    /// It has ended.
    Completed,
    /// It was cancelled.
    Cancelled,
    /// A node failed, or the deadline is over.
    Failed,
}

impl Status {
    /// Tells whether the run has ended.
    #[must_use]
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled | Self::Failed)
    }
}

/// Where the run is in its graph: `pay`, an `External` node, and then `ask`, which waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// `pay` is in flight, and no intent is on record.
    Pay,
    /// The intent of `pay` is on record.
    Intended,
    /// `ask` is in flight.
    Ask,
    /// The end of `ask` is on record, and the run's end is not.
    Ended,
}

/// What the records of a run amount to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// Which start of the name made it.
    pub life: u8,
    /// How often it was claimed in this life.
    pub epoch: u8,
    /// Who drives it.
    pub owner: Option<Id>,
    /// How it stands.
    pub status: Status,
    /// Where it is.
    pub place: Place,
    /// Whether the question of `ask` was answered.
    pub answered: bool,
    /// Whether a cancellation is on record.
    pub cancel: bool,
    /// Whether a pause is on record.
    pub paused: bool,
    /// Whether it rests until its deadline at most.
    pub wakes: bool,
    /// Whether a node failed it: such a run can be retried.
    pub node_failed: bool,
}

impl Run {
    /// Returns the run after its first record.
    #[must_use]
    pub fn started(life: u8, owner: Id) -> Self {
        Self {
            life,
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

    /// Ends it.
    pub fn end(&mut self, status: Status) {
        self.status = status;
        self.owner = None;
        self.wakes = false;
    }

    /// Brings it to rest.
    pub fn rest(&mut self, status: Status) {
        self.status = status;
        self.owner = None;
        // A pause holds the deadline off.
        self.wakes = status == Status::Waiting;
    }

    /// Lets whoever is there take it.
    pub fn free(&mut self) {
        self.status = Status::InProgress;
        self.owner = None;
        self.wakes = false;
    }
}

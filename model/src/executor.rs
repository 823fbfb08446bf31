//! A process that drives runs: its knowledge of itself and of the run.

use crate::run::Run;

/// The identity of an executor: never used again after its process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// Which of the machines it runs on.
    pub machine: u8,
    /// Which process of that machine it is.
    pub process: u8,
}

/// How far the work of the activation in flight has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// No attempt runs.
    Idle,
    /// The node is at work.
    Working,
    /// The node has returned, and its end is not on record.
    Done,
    /// The node has failed, and its end is not on record.
    Failed,
}

/// The driver of the run in one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Driver {
    /// Whether it drives: until then the start or claim has been appended, and its caller waits for the reply.
    pub begun: bool,
    /// The run as this driver last saw it; its life and epoch are what the driver was made for.
    pub seen: Run,
    /// Whether no record was appended since: an append after an older head is refused.
    pub fresh: bool,
    /// How far the work has come.
    pub work: Work,
    /// In which life the work was begun.
    pub work_of: u8,
    /// Whether it recorded the intent, so that it knows that no attempt ran before.
    pub intent_is_mine: bool,
    /// Whether a heartbeat came late since it last looked who owns the run.
    pub lapsed: bool,
    /// Whether it claimed a run at rest, and nothing has been recorded since.
    pub woke_it: bool,
}

impl Driver {
    /// Returns the driver of a start or claim that has just been appended.
    #[must_use]
    pub fn of(run: &Run, woke_it: bool) -> Self {
        Self {
            begun: false,
            seen: run.clone(),
            fresh: true,
            work: Work::Idle,
            work_of: run.life,
            intent_is_mine: false,
            lapsed: false,
            woke_it,
        }
    }
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Executor {
    /// Who it is.
    pub id: Id,
    /// Whether its heartbeat counts in the store.
    pub counts_as_alive: bool,
    /// Whether it has found that its heartbeats are lost.
    pub knows_loss: bool,
    /// What it drives.
    pub driver: Option<Driver>,
    /// The run, by life and epoch, that it still has to release because its driver stopped.
    pub lets_go: Option<(u8, u8)>,
}

impl Executor {
    /// Returns a process that has just been started.
    #[must_use]
    pub fn new(id: Id) -> Self {
        Self { id, counts_as_alive: true, knows_loss: false, driver: None, lets_go: None }
    }

    /// Tells whether it may take runs and begin what must not be repeated.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.counts_as_alive && !self.knows_loss
    }
}

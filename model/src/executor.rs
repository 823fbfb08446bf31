//! A process that drives runs: what it knows about itself and about the run.

use crate::run::Run;

/// The id of a process. The id is never used again after the process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// The machine on which the process runs.
    pub machine: u8,
    /// The number of the process on its machine.
    pub process: u8,
}

/// The progress of the work of the activation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// No attempt runs.
    Idle,
    /// An attempt is running.
    Working,
    /// The attempt has succeeded, and its end is not recorded yet.
    Done,
    /// The attempt has failed, and its end is not recorded yet.
    Failed,
}

/// The driver of the run in one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Driver {
    /// Whether the driver has begun. Before that, the start or claim is already appended, but the reply to its caller has not arrived.
    pub begun: bool,
    /// The run as this driver last saw it. The generation and epoch in it are those for which the driver was created.
    pub seen: Run,
    /// Whether no record was appended since the driver last read the run. If one was, the store refuses the driver's next append.
    pub fresh: bool,
    /// The progress of the work.
    pub work: Work,
    /// The generation of the run in which the work was started.
    pub work_of: u8,
    /// Whether this driver itself recorded the intent, so that it knows that no earlier attempt has run.
    pub intent_is_mine: bool,
    /// Whether a heartbeat was late since the driver last checked the owner of the run.
    pub lapsed: bool,
    /// Whether this driver claimed an idle run, and nothing has been recorded since.
    pub woke_it: bool,
}

impl Driver {
    /// Returns the driver for a start or claim that has just been appended.
    #[must_use]
    pub fn of(run: &Run, woke_it: bool) -> Self {
        Self {
            begun: false,
            seen: run.clone(),
            fresh: true,
            work: Work::Idle,
            work_of: run.generation,
            intent_is_mine: false,
            lapsed: false,
            woke_it,
        }
    }
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Executor {
    /// The id of the process.
    pub id: Id,
    /// Whether the process counts as alive in the store.
    pub counts_as_alive: bool,
    /// Whether the process has noticed that its heartbeats are lost.
    pub knows_loss: bool,
    /// The driver of the run in this process; `None` if the process does not drive the run.
    pub driver: Option<Driver>,
    /// The generation and epoch of a run that the process still has to release, because its driver has stopped.
    pub lets_go: Option<(u8, u8)>,
}

impl Executor {
    /// Returns a process that has just started.
    #[must_use]
    pub fn new(id: Id) -> Self {
        Self { id, counts_as_alive: true, knows_loss: false, driver: None, lets_go: None }
    }

    /// Returns whether the process may claim runs and start work that must not be repeated.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.counts_as_alive && !self.knows_loss
    }
}

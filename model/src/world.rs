//! The whole state at one moment: the store, the processes, the failures that may still happen, and flags for events that must never happen.

use crate::executor::{Driver, Executor, Id};
use crate::run::{Place, Run, Status};

/// A signal to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// The signal `cancel`.
    Cancel,
    /// The signal `pause`.
    Pause,
    /// The signal `unpause`.
    Unpause,
    /// An answer to the question of `ask`.
    Answer,
    /// An answer to the question about the unknown outcome of `pay`: try it again.
    TryAgain,
    /// The signal `retry`.
    Retry,
}

impl Signal {
    /// All signals.
    pub const ALL: [Self; 6] =
        [Self::Cancel, Self::Pause, Self::Unpause, Self::Answer, Self::TryAgain, Self::Retry];
}

/// One atomic action of a process, a signaller or the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A process starts the run: it appends the first record.
    Start(usize),
    /// A process claims the run: it appends the claim.
    Claim(usize),
    /// The reply to a start or claim arrives, and the driver begins.
    Drive(usize),
    /// The caller of a start or claim is dropped before the reply arrives.
    DropCaller(usize),
    /// A driver performs its next step: it reads the records of other writers, or appends.
    Step(usize),
    /// A driver starts an attempt.
    Begin(usize),
    /// A node returns.
    Return(usize),
    /// A node fails and reports that nothing was done.
    Fail(usize),
    /// The grace period after a cancellation ends, and the running node is dropped.
    Abort(usize),
    /// A process that shuts down releases its run.
    Release(usize),
    /// A process dies, and another process starts on its machine.
    Crash(usize),
    /// The heartbeat of a process expires while the process continues.
    Lapse(usize),
    /// A process notices that its heartbeats are lost, and stops its drivers.
    FindLoss(usize),
    /// The heartbeats succeed again.
    Recover(usize),
    /// A process releases a run whose driver has stopped.
    LetGo(usize),
    /// A signaller sends a signal to the run.
    Say(Signal),
    /// The deadline of the run passes.
    ComeDue,
    /// Retention reads the run.
    LookToPurge,
    /// Retention purges the run that it has read.
    Purge,
    /// An operator purges the run, whatever its status is.
    PurgeAnyway,
}

/// The remaining number of signals, failures and other events. This budget bounds the exploration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Signals that may still be sent.
    pub signals: u8,
    /// Processes that may still die.
    pub crashes: u8,
    /// Heartbeats that may still expire while their process continues.
    pub lapses: u8,
    /// Releases by shutdown that may still happen.
    pub releases: u8,
    /// Nodes that may still fail.
    pub failures: u8,
    /// Purges by operators that may still happen.
    pub purges: u8,
    /// Starts of the run id that may still happen.
    pub generations: u8,
}

/// The whole state at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The run in the store.
    pub run: Option<Run>,
    /// The processes.
    pub executors: [Executor; 2],
    /// The read of retention: whether no record was appended since. `None` if retention has read nothing.
    pub looked: Option<bool>,
    /// Whether the deadline of the current generation has passed.
    pub due: bool,
    /// The number of generations so far.
    pub generations: u8,
    /// The number of times that the effect of `pay` started in this generation.
    pub effects: u8,
    /// The number of times that the effect was allowed to start: once, and once more for each permission to repeat it.
    pub leave: u8,
    /// Whether a result was recorded in another generation than the one in which its work was started.
    pub crossed: bool,
    /// Whether an effect started in a process after another process had claimed the run.
    pub begun_by_a_stranger: bool,
    /// Whether an idle run was claimed and became idle again without any other record.
    pub woken_in_vain: bool,
    /// Whether retention removed a run that had not ended.
    pub purged_too_much: bool,
    /// The events that may still happen.
    pub left: Budget,
}

impl World {
    /// Returns the state before the first start.
    #[must_use]
    pub fn new(left: Budget) -> Self {
        let executor = |machine| Executor::new(Id { machine, process: 0 });
        Self {
            run: None,
            executors: [executor(0), executor(1)],
            looked: None,
            due: false,
            generations: 0,
            effects: 0,
            leave: 1,
            crossed: false,
            begun_by_a_stranger: false,
            woken_in_vain: false,
            purged_too_much: false,
            left,
        }
    }

    /// Returns whether an owner counts as alive.
    #[must_use]
    pub fn is_alive(&self, owner: Id) -> bool {
        self.executors.iter().any(|executor| executor.id == owner && executor.counts_as_alive)
    }

    /// Returns whether a process may claim the run: it has no live driver, and something can be done in it.
    #[must_use]
    pub fn is_claimable(&self) -> bool {
        self.run.as_ref().is_some_and(|run| match run.status {
            Status::InProgress => run.owner.is_none_or(|owner| !self.is_alive(owner)),
            Status::Waiting => run.wakes && self.due,
            _ => false,
        })
    }

    /// Changes the run by a record that `writer` appends. Every other driver's head is outdated then.
    pub(crate) fn append(&mut self, writer: Option<usize>, change: impl FnOnce(&mut Run)) {
        let Some(run) = &mut self.run else { return };
        change(run);
        let run = run.clone();
        self.grow_old(writer);
        if let Some(driver) = writer.and_then(|writer| self.executors[writer].driver.as_mut()) {
            driver.seen = run;
            driver.fresh = true;
        }
    }

    /// Marks what every process except `writer` knows about the store as outdated.
    pub(crate) fn grow_old(&mut self, writer: Option<usize>) {
        for (index, executor) in self.executors.iter_mut().enumerate() {
            if let (false, Some(driver)) = (Some(index) == writer, &mut executor.driver) {
                driver.fresh = false;
                driver.woke_it = false;
            }
        }
        self.looked = self.looked.map(|_| false);
    }

    /// Creates the driver for a start or claim.
    pub(crate) fn enter(&mut self, executor: usize, woke_it: bool) {
        self.grow_old(None);
        if let Some(run) = &self.run {
            self.executors[executor].driver = Some(Driver::of(run, woke_it));
        }
    }

    /// Records a signal, if the run accepts it. Returns whether it was recorded.
    pub(crate) fn say(&mut self, signal: Signal) -> bool {
        let Some(run) = &self.run else { return false };
        let at_rest = run.owner.is_none();
        let takes = match signal {
            Signal::Cancel => !run.status.is_finished() && !run.cancel,
            Signal::Pause => !run.status.is_finished() && !run.cancel && !run.paused,
            Signal::Unpause => !run.status.is_finished() && !run.cancel && run.paused,
            Signal::Answer => {
                !run.status.is_finished() && !run.cancel && run.place == Place::Ask && !run.answered
            }
            // The question about the outcome is asked if the run is idle at a recorded intent that no live process is working on.
            Signal::TryAgain => {
                matches!(run.status, Status::Waiting | Status::Paused)
                    && !run.cancel
                    && run.place == Place::Intended
            }
            Signal::Retry => run.status == Status::Failed && run.node_failed,
        };
        if !takes {
            return false;
        }
        let leave = matches!(signal, Signal::TryAgain | Signal::Retry);
        self.append(None, |run| match signal {
            Signal::Cancel => {
                run.cancel = true;
                if at_rest {
                    run.end(Status::Cancelled);
                }
            }
            Signal::Pause => {
                run.paused = true;
                if at_rest {
                    run.rest(Status::Paused);
                }
            }
            Signal::Unpause => {
                run.paused = false;
                if at_rest {
                    run.free();
                }
            }
            Signal::Answer => {
                run.answered = true;
                if run.status == Status::Waiting {
                    run.free();
                }
            }
            Signal::TryAgain => {
                run.place = Place::Pay;
                if run.status == Status::Waiting {
                    run.free();
                }
            }
            Signal::Retry => {
                run.node_failed = false;
                run.place = Place::Pay;
                run.free();
            }
        });
        self.leave += u8::from(leave);
        true
    }

    /// Stops a driver. Its running work is dropped.
    pub(crate) fn stop(&mut self, executor: usize) {
        self.executors[executor].driver = None;
    }
}

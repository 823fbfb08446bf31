//! The whole state at one moment: the store, the processes, the remaining faults, and the invariants.

use crate::executor::{Driver, Executor, Id};
use crate::run::{Place, Run, Status};

/// A signal to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// `cancel`
    Cancel,
    /// `pause`
    Pause,
    /// `unpause`
    Unpause,
    /// `respond` to the question of `ask`.
    Answer,
    /// `respond` to the doubt about `pay`: try it again.
    TryAgain,
    /// `retry`
    Retry,
}

impl Signal {
    /// Every one.
    pub const ALL: [Self; 6] =
        [Self::Cancel, Self::Pause, Self::Unpause, Self::Answer, Self::TryAgain, Self::Retry];
}

/// One atomic step of an executor, a signaller or the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A process starts the name: the first record is appended.
    Start(usize),
    /// A process claims the run: the claim is appended.
    Claim(usize),
    /// The reply to a start or claim arrives, and the driver begins.
    Drive(usize),
    /// The caller of a start or claim is dropped before the reply arrives.
    DropCaller(usize),
    /// A driver does what is next: meets what others wrote, or appends.
    Step(usize),
    /// A driver begins an attempt.
    Begin(usize),
    /// A node returns.
    Return(usize),
    /// A node fails and says that nothing was done.
    Fail(usize),
    /// The grace of a cancellation is over: the node at work is dropped.
    Abort(usize),
    /// A process that ends in order releases its run.
    Release(usize),
    /// A process dies, and another is started on its machine.
    Crash(usize),
    /// A heartbeat expires while its process goes on.
    Lapse(usize),
    /// A process finds that its heartbeats are lost, and stops its drivers.
    FindLoss(usize),
    /// Heartbeats succeed again.
    Recover(usize),
    /// A process releases a run whose driver stopped.
    LetGo(usize),
    /// A signaller writes to the run.
    Say(Signal),
    /// The deadline of the run comes due.
    ComeDue,
    /// Retention looks at the run.
    LookToPurge,
    /// Retention purges what it looked at.
    Purge,
    /// An operator purges the run, whatever it does.
    PurgeAnyway,
}

/// How often what goes wrong or is said may still do so. It bounds the exploration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Signals, whoever sends them.
    pub signals: u8,
    /// Deaths of processes.
    pub crashes: u8,
    /// Heartbeats that expire while their process goes on.
    pub lapses: u8,
    /// Releases in order.
    pub releases: u8,
    /// Failures of nodes.
    pub failures: u8,
    /// Purges by operators.
    pub purges: u8,
    /// Starts of the name.
    pub lives: u8,
}

/// The world at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// What the store holds.
    pub run: Option<Run>,
    /// The processes.
    pub executors: [Executor; 2],
    /// What retention looked at: whether no record was appended since.
    pub looked: Option<bool>,
    /// Whether the deadline of the life there is has come.
    pub due: bool,
    /// How many lives there were.
    pub lives: u8,
    /// How often the effect of `pay` began in this life.
    pub effects: u8,
    /// How often it may have: once, and again for each leave that was given.
    pub leave: u8,
    /// Whether a result was recorded in another life than that in which the work was begun.
    pub crossed: bool,
    /// Whether an effect began in a process that another had taken the run from.
    pub begun_by_a_stranger: bool,
    /// Whether a claim of a run at rest was followed by a rest and nothing else.
    pub woken_in_vain: bool,
    /// Whether retention removed a run that had not ended.
    pub purged_too_much: bool,
    /// What may still happen.
    pub left: Budget,
}

impl World {
    /// Returns the world before the first start.
    #[must_use]
    pub fn new(left: Budget) -> Self {
        let executor = |machine| Executor::new(Id { machine, process: 0 });
        Self {
            run: None,
            executors: [executor(0), executor(1)],
            looked: None,
            due: false,
            lives: 0,
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

    /// Returns whether the run may be claimed: it has no driver, and it can be moved.
    #[must_use]
    pub fn is_claimable(&self) -> bool {
        self.run.as_ref().is_some_and(|run| match run.status {
            Status::InProgress => run.owner.is_none_or(|owner| !self.is_alive(owner)),
            Status::Waiting => run.wakes && self.due,
            _ => false,
        })
    }

    /// Changes the run as a record of another than `writer` does: every other driver's head is old from now on.
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

    /// Makes what every executor but `writer` knows of the store old.
    pub(crate) fn grow_old(&mut self, writer: Option<usize>) {
        for (index, executor) in self.executors.iter_mut().enumerate() {
            if let (false, Some(driver)) = (Some(index) == writer, &mut executor.driver) {
                driver.fresh = false;
                driver.woke_it = false;
            }
        }
        self.looked = self.looked.map(|_| false);
    }

    /// Puts the driver of a start or claim in its place.
    pub(crate) fn enter(&mut self, executor: usize, woke_it: bool) {
        self.grow_old(None);
        if let Some(run) = &self.run {
            self.executors[executor].driver = Some(Driver::of(run, woke_it));
        }
    }

    /// Records a signal, if the run takes it. Returns whether it was recorded.
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
            // The doubt is asked where the run rests at an intent that no executor at work answers for.
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

    /// Stops a driver: what it had at work is dropped.
    pub(crate) fn stop(&mut self, executor: usize) {
        self.executors[executor].driver = None;
    }
}

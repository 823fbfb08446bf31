//! The rules: which actions are possible, and their effects. A [`Mistake`] leaves out one of the rules.

use stateright::{Model, Property};

use crate::executor::{Driver, Executor, Id, Work};
use crate::run::{Place, Run, Status};
use crate::world::{Action, Budget, Signal, World};

/// A mistake that once existed in the library, and that the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mistake {
    /// A start or claim is dropped together with its caller's future, so the run that it has claimed gets no driver.
    CallerOwnsTheStart,
    /// A claimed run whose deadline has passed becomes idle again before the deadline is checked.
    RestBeforeDeadline,
    /// A driver that finds another head compares epoch and owner, but not the generation.
    EpochWithoutGeneration,
    /// A driver records the end of the last node as the end of the run, even if an earlier record cancels or pauses the run.
    LastNodeEndsTheRun,
    /// Retention purges the run that it has read, even if records were appended since.
    PurgeWithoutHead,
    /// A process starts an attempt whose intent another process recorded, without asking a question about its outcome.
    DoubtIsNotAsked,
    /// A driver that missed heartbeats starts an effect without checking the owner of the run.
    NoLookAfterLapse,
}

/// The protocol, with at most one mistake.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// The rule that is left out.
    pub mistake: Option<Mistake>,
    /// The number of failures and other events that may happen.
    pub budget: Budget,
}

/// More claims than any exploration within a budget needs. If the number is reached, processes claim the run in an endless loop.
const CLAIMS: u8 = 8;

impl Protocol {
    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Performs an action. Returns false if the action is impossible in this state.
    fn apply(&self, world: &mut World, action: Action) -> bool {
        match action {
            Action::Start(e) => start(world, e),
            Action::Claim(e) => claim(world, e),
            Action::Drive(e) => drive(world, e),
            Action::DropCaller(e) => self.drop_caller(world, e),
            Action::Step(e) => self.step(world, e),
            Action::Begin(e) => self.begin(world, e),
            Action::Return(e) => finish(world, e, Work::Done),
            Action::Fail(e) => spend(&mut world.left.failures) && finish(world, e, Work::Failed),
            Action::Abort(e) => abort(world, e),
            Action::Release(e) => spend(&mut world.left.releases) && release(world, e),
            Action::Crash(e) => spend(&mut world.left.crashes) && crash(world, e),
            Action::Lapse(e) => spend(&mut world.left.lapses) && lapse(world, e),
            Action::FindLoss(e) => find_loss(world, e),
            Action::Recover(e) => recover(world, e),
            Action::LetGo(e) => let_go(world, e),
            Action::Say(signal) => spend(&mut world.left.signals) && world.say(signal),
            Action::ComeDue => come_due(world),
            Action::LookToPurge => look_to_purge(world),
            Action::Purge => self.purge(world),
            Action::PurgeAnyway => spend(&mut world.left.purges) && remove(world),
        }
    }

    /// Drops the caller of a start or claim. The library continues in its own task, so nothing changes.
    fn drop_caller(&self, world: &mut World, e: usize) -> bool {
        let waits = world.executors[e].driver.as_ref().is_some_and(|driver| !driver.begun);
        if !(waits && self.has(Mistake::CallerOwnsTheStart)) {
            return false;
        }
        world.stop(e);
        true
    }

    /// Performs the next step of a driver.
    fn step(&self, world: &mut World, e: usize) -> bool {
        let Some(driver) = world.executors[e].driver.clone().filter(|driver| driver.begun) else {
            return false;
        };
        if !driver.fresh {
            return self.rebase(world, e, driver);
        }
        let run = &driver.seen;
        let last = run.place == Place::Ask && driver.work == Work::Done;
        if run.status.is_finished() {
            return driver.work != Work::Working && stopped(world, e);
        }
        if self.has(Mistake::LastNodeEndsTheRun) && last {
            return append(world, e, |run| run.end(Status::Completed));
        }
        if run.cancel {
            return driver.work != Work::Working && append(world, e, |run| run.end(Status::Cancelled));
        }
        let asks = run.place == Place::Ask && !run.answered && driver.work == Work::Idle;
        let overdue = world.due && !run.paused;
        if overdue && !(asks && self.has(Mistake::RestBeforeDeadline)) {
            return append(world, e, |run| run.end(Status::Failed));
        }
        match (run.place, driver.work) {
            (_, Work::Working) => false,
            (Place::Pay | Place::Intended, Work::Done) => {
                world.crossed |= driver.work_of != run.generation;
                end_work(world, e, |run| run.place = Place::Ask)
            }
            (Place::Ask, Work::Done) => {
                world.crossed |= driver.work_of != run.generation;
                let paused = run.paused;
                end_work(world, e, |run| {
                    run.place = Place::Ended;
                    if !paused {
                        run.end(Status::Completed);
                    }
                })
            }
            (_, Work::Failed) => end_work(world, e, |run| {
                run.node_failed = true;
                run.end(Status::Failed);
            }),
            (_, Work::Idle) if run.paused => rest(world, e, Status::Paused),
            (Place::Pay, Work::Idle) => {
                let written = append(world, e, |run| run.place = Place::Intended);
                if let Some(driver) = &mut world.executors[e].driver {
                    driver.intent_is_mine = true;
                }
                written
            }
            (Place::Intended, Work::Idle) => !self.may_begin(&driver) && rest(world, e, Status::Waiting),
            (Place::Ask, Work::Idle) => !run.answered && rest(world, e, Status::Waiting),
            (Place::Ended, _) => append(world, e, |run| run.end(Status::Completed)),
        }
    }

    /// Handles a head that the driver does not know: it loads the log, and then stops or continues.
    fn rebase(&self, world: &mut World, e: usize, mut driver: Driver) -> bool {
        let id = world.executors[e].id;
        let Some(run) = world.run.clone() else { return stopped(world, e) };
        let same_generation =
            run.generation == driver.seen.generation || self.has(Mistake::EpochWithoutGeneration);
        let ours =
            same_generation && run.epoch == driver.seen.epoch && run.owner.is_none_or(|owner| owner == id);
        if !ours {
            return stopped(world, e);
        }
        driver.seen = run;
        driver.fresh = true;
        world.executors[e].driver = Some(driver);
        true
    }

    /// Returns whether the driver knows that no attempt of `pay` has run for the recorded intent.
    fn may_begin(&self, driver: &Driver) -> bool {
        driver.intent_is_mine || self.has(Mistake::DoubtIsNotAsked)
    }

    fn begin(&self, world: &mut World, e: usize) -> bool {
        let (store, executor) = (world.run.clone(), &mut world.executors[e]);
        if !executor.is_certain() {
            return false;
        }
        let id = executor.id;
        let Some(driver) = executor.driver.as_mut().filter(|driver| driver.begun) else { return false };
        let run = &driver.seen;
        let held = run.cancel || run.paused || run.status != Status::InProgress;
        if driver.work != Work::Idle || held {
            return false;
        }
        match run.place {
            Place::Intended => {}
            Place::Ask if run.answered => {
                (driver.work, driver.work_of) = (Work::Working, run.generation);
                return true;
            }
            _ => return false,
        }
        if !self.may_begin(driver) {
            return false;
        }
        if driver.lapsed && !self.has(Mistake::NoLookAfterLapse) {
            let ours = |found: &Run| {
                (found.generation, found.epoch, found.owner) == (run.generation, run.epoch, Some(id))
            };
            if !store.as_ref().is_some_and(ours) {
                return false;
            }
        }
        (driver.work, driver.work_of) = (Work::Working, driver.seen.generation);
        (driver.intent_is_mine, driver.lapsed) = (false, false);
        if let Some(found) = store.filter(|found| found.generation == driver.seen.generation) {
            world.effects += 1;
            world.begun_by_a_stranger |= found.epoch != driver.seen.epoch;
        }
        true
    }

    fn purge(&self, world: &mut World) -> bool {
        let Some(unchanged) = world.looked.take() else { return false };
        let finished = world.run.as_ref().is_none_or(|run| run.status.is_finished());
        if unchanged || self.has(Mistake::PurgeWithoutHead) {
            world.purged_too_much |= !finished;
            remove(world);
        }
        true
    }

    /// Returns whether an actor has something to do without a trigger from outside.
    fn goes_on(&self, world: &World) -> bool {
        (0..world.executors.len()).any(|e| {
            [
                Action::Claim(e),
                Action::Drive(e),
                Action::Step(e),
                Action::Begin(e),
                Action::Return(e),
                Action::FindLoss(e),
                Action::Recover(e),
                Action::LetGo(e),
            ]
            .into_iter()
            .any(|action| self.apply(&mut world.clone(), action))
        })
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.budget.clone())]
    }

    fn actions(&self, _world: &World, actions: &mut Vec<Action>) {
        for e in 0..2 {
            actions.extend([
                Action::Start(e),
                Action::Claim(e),
                Action::Drive(e),
                Action::DropCaller(e),
                Action::Step(e),
                Action::Begin(e),
                Action::Return(e),
                Action::Fail(e),
                Action::Abort(e),
                Action::Release(e),
                Action::Crash(e),
                Action::Lapse(e),
                Action::FindLoss(e),
                Action::Recover(e),
                Action::LetGo(e),
            ]);
        }
        actions.extend(Signal::ALL.map(Action::Say));
        actions.extend([Action::ComeDue, Action::LookToPurge, Action::Purge, Action::PurgeAnyway]);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        self.apply(&mut next, action).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("an effect begins once, and once more for each leave", |_, world: &World| {
                world.effects <= world.leave
            }),
            Property::always("an effect begins in the process that has the run", |_, world: &World| {
                !world.begun_by_a_stranger
            }),
            Property::always("no result enters another generation", |_, world: &World| !world.crossed),
            Property::always("a recorded cancellation is carried out", |_, world: &World| {
                world.run.as_ref().is_none_or(|run| {
                    !run.cancel || matches!(run.status, Status::InProgress | Status::Cancelled)
                })
            }),
            Property::always("a recorded pause holds the run", |_, world: &World| {
                world.run.as_ref().is_none_or(|run| !(run.paused && run.status == Status::Completed))
            }),
            Property::always("a run that a living process owns is driven by it", |_, world: &World| {
                let owner = world.run.as_ref().filter(|run| run.status == Status::InProgress);
                let owner = owner.and_then(|run| run.owner);
                let strands = |executor: &Executor| {
                    owner == Some(executor.id)
                        && executor.is_certain()
                        && executor.driver.is_none()
                        && executor.lets_go.is_none()
                };
                !world.executors.iter().any(strands)
            }),
            Property::always("a run at rest is claimed for more than a rest", |_, world: &World| {
                !world.woken_in_vain
            }),
            Property::always("retention removes only what has ended", |_, world: &World| {
                !world.purged_too_much
            }),
            Property::always(
                "when no actor goes on, nothing is left to do",
                |model: &Self, world: &World| {
                    let settled = world.run.as_ref().is_none_or(|run| match run.status {
                        Status::InProgress => false,
                        Status::Waiting => !world.due,
                        _ => true,
                    });
                    settled || model.goes_on(world)
                },
            ),
            Property::sometimes("a second generation completes", |_, world: &World| {
                world.generations == 2
                    && world.run.as_ref().is_some_and(|run| run.status == Status::Completed)
            }),
            Property::sometimes("a deadline ends a run at rest", |_, world: &World| {
                let failed =
                    |run: &Run| run.status == Status::Failed && run.place == Place::Ask && run.epoch > 1;
                world.run.as_ref().is_some_and(failed)
            }),
            Property::sometimes("an effect begins again with leave", |_, world: &World| world.effects == 2),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.run.as_ref().is_none_or(|run| run.epoch <= CLAIMS)
    }
}

/// Takes one from a budget. Returns false if nothing is left.
fn spend(left: &mut u8) -> bool {
    let some = *left > 0;
    *left = left.saturating_sub(1);
    some
}

fn is_free(executor: &Executor) -> bool {
    executor.is_certain() && executor.driver.is_none() && executor.lets_go.is_none()
}

fn start(world: &mut World, e: usize) -> bool {
    if world.run.is_some() || !is_free(&world.executors[e]) || !spend(&mut world.left.generations) {
        return false;
    }
    world.generations += 1;
    (world.due, world.effects, world.leave) = (false, 0, 1);
    world.run = Some(Run::started(world.generations, world.executors[e].id));
    world.enter(e, false);
    true
}

fn claim(world: &mut World, e: usize) -> bool {
    if !(is_free(&world.executors[e]) && world.is_claimable()) {
        return false;
    }
    let id = world.executors[e].id;
    let Some(run) = &mut world.run else { return false };
    let at_rest = run.status == Status::Waiting;
    run.free();
    run.owner = Some(id);
    run.epoch += 1;
    world.enter(e, at_rest);
    true
}

fn drive(world: &mut World, e: usize) -> bool {
    match &mut world.executors[e].driver {
        Some(driver) if !driver.begun => {
            driver.begun = true;
            true
        }
        _ => false,
    }
}

/// Appends a record of a driver that knows the head. While the run is active, the header names the writer as owner.
fn append(world: &mut World, e: usize, change: impl FnOnce(&mut Run)) -> bool {
    let executor = &mut world.executors[e];
    let id = executor.id;
    if let Some(driver) = &mut executor.driver {
        driver.woke_it = false;
    }
    world.append(Some(e), |run| {
        change(run);
        if run.status == Status::InProgress {
            run.owner = Some(id);
        }
    });
    true
}

/// Appends the end of the node that was running.
fn end_work(world: &mut World, e: usize, change: impl FnOnce(&mut Run)) -> bool {
    if let Some(driver) = &mut world.executors[e].driver {
        driver.work = Work::Idle;
    }
    append(world, e, change)
}

/// Makes the run idle and stops its driver.
fn rest(world: &mut World, e: usize, status: Status) -> bool {
    world.woken_in_vain |= world.executors[e].driver.as_ref().is_some_and(|driver| driver.woke_it);
    append(world, e, |run| run.rest(status)) && stopped(world, e)
}

fn stopped(world: &mut World, e: usize) -> bool {
    world.stop(e);
    true
}

fn finish(world: &mut World, e: usize, work: Work) -> bool {
    let Some(driver) = world.executors[e].driver.as_mut().filter(|driver| driver.work == Work::Working)
    else {
        return false;
    };
    if work == Work::Failed && driver.seen.place != Place::Intended {
        return false;
    }
    driver.work = work;
    true
}

fn abort(world: &mut World, e: usize) -> bool {
    let working = |driver: &&mut Driver| driver.work == Work::Working && driver.fresh && driver.seen.cancel;
    let Some(driver) = world.executors[e].driver.as_mut().filter(working) else { return false };
    driver.work = Work::Idle;
    true
}

fn release(world: &mut World, e: usize) -> bool {
    let can = |driver: &Driver| driver.begun && driver.fresh && driver.seen.status == Status::InProgress;
    let can = world.executors[e].driver.as_ref().is_some_and(can);
    if can {
        world.append(Some(e), Run::free);
        world.stop(e);
    }
    can
}

fn crash(world: &mut World, e: usize) -> bool {
    let Id { machine, process } = world.executors[e].id;
    world.executors[e] = Executor::new(Id { machine, process: process + 1 });
    true
}

fn lapse(world: &mut World, e: usize) -> bool {
    let executor = &mut world.executors[e];
    if !executor.counts_as_alive {
        return false;
    }
    executor.counts_as_alive = false;
    if let Some(driver) = &mut executor.driver {
        driver.lapsed = true;
    }
    true
}

fn find_loss(world: &mut World, e: usize) -> bool {
    let executor = &mut world.executors[e];
    if executor.counts_as_alive || executor.knows_loss {
        return false;
    }
    executor.knows_loss = true;
    if let Some(driver) = executor.driver.take() {
        executor.lets_go = Some((driver.seen.generation, driver.seen.epoch));
    }
    true
}

fn recover(world: &mut World, e: usize) -> bool {
    let executor = &mut world.executors[e];
    let lost = !executor.counts_as_alive;
    (executor.counts_as_alive, executor.knows_loss) = (true, false);
    lost
}

fn let_go(world: &mut World, e: usize) -> bool {
    let executor = &mut world.executors[e];
    let Some(taken) = executor.lets_go.filter(|_| executor.is_certain()) else { return false };
    let id = executor.id;
    executor.lets_go = None;
    let ours = |run: &Run| {
        (run.generation, run.epoch) == taken && run.owner == Some(id) && run.status == Status::InProgress
    };
    if world.run.as_ref().is_some_and(ours) {
        world.append(None, Run::free);
    }
    true
}

fn come_due(world: &mut World) -> bool {
    let runs = world.run.as_ref().is_some_and(|run| !run.status.is_finished());
    let comes = runs && !world.due;
    world.due |= comes;
    comes
}

fn look_to_purge(world: &mut World) -> bool {
    let ended = world.run.as_ref().is_some_and(|run| run.status.is_finished());
    let looks = ended && world.looked.is_none();
    if looks {
        world.looked = Some(true);
    }
    looks
}

fn remove(world: &mut World) -> bool {
    let there = world.run.take().is_some();
    world.grow_old(None);
    there
}

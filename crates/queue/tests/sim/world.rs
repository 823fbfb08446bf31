//! One simulation: processes on a store, what happens to them in an order drawn from a seed, and what must hold throughout.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore as _, MemoryStore};
use ferrata_core::testing::ManualClock;
use ferrata_core::{Clock as _, RunKey};
use ferrata_queue::{Enqueue as _, Overview};

use super::clock::SkewedClock;
use super::net::{Net, now};
use super::nodes::{Inside, Seat};
use super::process::{GPUS, Process, TTL};
use super::rules::Rules;
use crate::support::dice::Dice;

/// How many processes there are at most, those that are stopped included.
const PROCESSES: usize = 4;

/// How many runs are started.
const RUNS: u64 = 14;

/// By this key one run is started, whichever comes first.
const ONCE: &str = "the-one";

/// How long everything may take once nothing goes wrong any more, by the clock of the simulation.
const CALM: Duration = Duration::from_secs(7_200);

/// How long to wait for what does not stir by itself.
const PATIENCE: Duration = Duration::from_millis(100);

/// How far a wall clock is off at most.
const SKEW_MS: u64 = 300_000;

/// What became of simulations.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) trace: u64,
    pub(crate) steps: u64,
    pub(crate) records: u64,
    conflicts: u64,
    kills: u64,
    freezes: u64,
    steps_of_clocks: u64,
    /// How many times a run came to its place once more, and how often more were inside than there are places: one of them suspended.
    repeated: u64,
    excepted: u64,
    /// Starts that were told of another by their key.
    before: u64,
    given: BTreeMap<String, u64>,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.records += other.records;
        self.conflicts += other.conflicts;
        self.kills += other.kills;
        self.freezes += other.freezes;
        self.steps_of_clocks += other.steps_of_clocks;
        self.repeated += other.repeated;
        self.excepted += other.excepted;
        self.before += other.before;
        other.given.iter().for_each(|(queue, times)| *self.given.entry(queue.clone()).or_default() += times);
    }

    /// Checks that the simulations were not tame.
    pub(crate) fn check_coverage(&self) {
        let Self { conflicts, kills, freezes, steps_of_clocks, repeated, before, given, .. } = self;
        let all = [conflicts, kills, freezes, steps_of_clocks, repeated, before];
        assert!(all.iter().all(|times| **times > 0) && given.len() == 3, "{self:?}");
    }
}

pub(crate) struct World {
    dice: Arc<Dice>,
    clock: ManualClock,
    store: MemoryStore,
    net: Arc<Net>,
    rules: Arc<Rules>,
    inside: Arc<Mutex<Inside>>,
    are_right: bool,
    processes: Vec<Process>,
    started: u64,
    /// What starts were told, by the number of the run.
    told: Arc<Mutex<BTreeMap<u64, Told>>>,
    next: u64,
    stirred: u64,
    /// Until when a process that was stopped may not know that it counts as dead.
    doubts: BTreeMap<u64, Duration>,
    report: Report,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    /// Nothing yet, or that nothing is known.
    Nothing,
    Started,
    Before(RunKey),
}

fn id(number: u64) -> RunKey {
    RunKey::try_from(format!("run-{number:02}").as_str()).unwrap()
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let (clock, dice) = (ManualClock::default(), Arc::new(Dice::new(seed)));
        let store = MemoryStore::with_clock(Arc::new(clock.clone()));
        let are_right = dice.below(3) == 0;
        let rules = Arc::new(Rules::new(clock.clone(), are_right));
        let net = Arc::new(Net::new(store.clone(), Arc::clone(&rules), clock.clone(), Arc::clone(&dice)));
        let mut world = Self {
            dice,
            clock,
            store,
            net,
            rules,
            inside: Arc::default(),
            are_right,
            processes: Vec::new(),
            started: 0,
            told: Arc::default(),
            next: 0,
            stirred: 0,
            doubts: BTreeMap::new(),
            report: Report::default(),
        };
        (0..3).for_each(|_| world.start_process());
        world
    }

    fn skew(&self) -> i64 {
        match self.are_right {
            true => 0,
            false => i64::try_from(self.dice.below(2 * SKEW_MS)).unwrap() - i64::try_from(SKEW_MS).unwrap(),
        }
    }

    fn start_process(&mut self) {
        let number = self.started;
        self.started += 1;
        let began = Duration::from_secs(number * 1_000);
        let clock = Arc::new(SkewedClock::new(self.clock.clone(), self.skew(), began));
        let seat = Seat::new(number, Arc::clone(&self.inside), Arc::clone(&self.rules));
        self.processes.push(Process::start(number, clock, &self.net, seat));
        self.rules.note(&format!("process {number} starts"));
    }

    /// Runs one simulation to its end.
    pub(crate) fn run(mut self) -> Report {
        for _ in 0..900 + self.dice.below(900) {
            self.disturb();
            // Time passes in larger steps where all flows: places are given and given back while things go wrong.
            if self.dice.below(3) == 0 { self.flow() } else { self.step() }
        }
        self.net.calm();
        self.finish();
        self.judge();
        self.report.trace = self.rules.trace();
        let seen = self.rules.seen();
        (self.report.records, self.report.conflicts) = (seen.records, seen.conflicts);
        self.report.given = seen.given.clone();
        drop(seen);
        self.report
    }

    /// Lets something happen: a process moves, a message arrives, or, when nothing else can, time passes.
    fn step(&mut self) {
        self.report.steps += 1;
        let stirred = self.stirred;
        let up: Vec<usize> = (0..self.processes.len())
            .filter(|&at| self.processes[at].frozen_until.is_none())
            .filter(|&at| self.processes[at].idle_at != Some(self.stirred))
            .collect();
        match self.dice.below(4) {
            0 if self.net.deliver() => self.stirred += 1,
            _ if up.is_empty() => match self.net.deliver() {
                true => self.stirred += 1,
                false => self.pass_time(),
            },
            _ => {
                let process = &mut self.processes[*self.dice.pick(&up)];
                if self.dice.below(3) > 0 {
                    process.tasks.slice(1 + u32::try_from(self.dice.below(12)).unwrap());
                } else {
                    process.tasks.settle();
                    process.idle_at = Some(self.stirred);
                }
            }
        }
        self.look(stirred);
    }

    /// Lets everything happen that can at this moment, then time pass: faster, for when the order has been varied enough.
    fn flow(&mut self) {
        let stirred = self.stirred;
        while self.net.deliver() {}
        self.stirred += 1;
        let up = self.processes.iter().filter(|process| process.frozen_until.is_none());
        up.for_each(|process| process.tasks.settle());
        if self.net.next() != Some(Duration::ZERO) {
            self.pass_time();
        }
        self.look(stirred);
    }

    fn look(&mut self, stirred: u64) {
        let now = self.clock.monotonic();
        for process in &mut self.processes {
            if process.frozen_until.is_some_and(|until| until <= now) {
                process.frozen_until = None;
                process.idle_at = None;
                // It learns that it counts as dead from its heart, at the latest when that beats again.
                self.doubts.insert(process.number, now + TTL);
                self.rules.note(&format!("process {} goes on", process.number));
            }
        }
        if self.stirred == stirred {
            return;
        }
        self.rules.check();
        let inside = self.inside.lock().unwrap();
        let is_in_doubt = |process: &u64| {
            let is_frozen =
                self.processes.iter().any(|one| one.number == *process && one.frozen_until.is_some());
            is_frozen || self.doubts.get(process).is_some_and(|until| now <= *until)
        };
        let sure: Vec<_> = inside.now.keys().filter(|(_, process)| !is_in_doubt(process)).collect();
        assert!(sure.len() <= GPUS as usize, "{sure:?} are in {GPUS} places");
        self.report.excepted += u64::from(inside.now.len() > GPUS as usize);
    }

    /// Lets time pass until something can happen.
    fn pass_time(&mut self) {
        let now = self.clock.monotonic();
        let thaws = self.processes.iter().filter_map(|process| process.frozen_until);
        let next = thaws.map(|until| until.saturating_sub(now)).chain(self.net.next()).min();
        match next {
            Some(next) if next <= PATIENCE => self.clock.advance(next),
            // A sleeper of a stopped process whose time has come does not stir.
            _ if self.processes.iter().any(|process| process.frozen_until.is_some()) => {
                self.clock.advance(PATIENCE);
            }
            _ if self.clock.advance_to_next_sleeper().is_none_or(|by| by.is_zero()) => {
                self.clock.advance(PATIENCE);
            }
            _ => {}
        }
        self.stirred += 1;
    }

    fn kill(&mut self, at: usize) {
        let process = self.processes.remove(at);
        self.net.forget(process.number);
        self.rules.note(&format!("process {} is killed", process.number));
        self.report.kills += 1;
        // Dropped with it, its nodes leave their places.
        drop(process);
        self.stirred += 1;
    }

    /// Does what makes the life of processes hard.
    fn disturb(&mut self) {
        match self.dice.below(240) {
            0 => {
                let at = usize::try_from(self.dice.below(self.processes.len() as u64)).unwrap();
                self.kill(at);
                self.start_process();
            }
            1 | 2 => {
                let up = self.processes.iter_mut().filter(|process| process.frozen_until.is_none());
                if let Some(process) = up.min_by_key(|process| process.number) {
                    let time = TTL / 10 * [2, 9, 11, 30][usize::try_from(self.dice.below(4)).unwrap()];
                    process.frozen_until = Some(self.clock.monotonic() + time);
                    self.rules.note(&format!("process {} is stopped for {time:?}", process.number));
                    self.report.freezes += 1;
                }
            }
            3 if !self.are_right => {
                let off = self.skew();
                let process = self.dice.pick(&self.processes);
                process.clock.step(off);
                self.report.steps_of_clocks += 1;
                self.rules.note(&format!("the clock of process {} is off by {off} ms", process.number));
            }
            4 if self.processes.len() < PROCESSES => self.start_process(),
            5..15 if self.next < RUNS => {
                let number = self.next;
                if self.start(number) {
                    self.next += 1;
                }
            }
            _ => {}
        }
    }

    /// Starts a run in a process that is up; `false` if none is.
    fn start(&mut self, number: u64) -> bool {
        let up: Vec<_> = self.processes.iter().filter(|process| process.is_up()).collect();
        if up.is_empty() {
            return false;
        }
        let process = *self.dice.pick(&up);
        let (runtime, graph) = process.runtime().unwrap();
        let start = runtime.start(graph, Context::new()).id(id(number).run.as_str()).queue("mail");
        let start = start.key(format!("key-{}", number % 3)).priority(i32::try_from(number % 2).unwrap());
        // Each third is one of which there is to be one, for longer than any clock is off.
        let start =
            if number.is_multiple_of(3) { start.once(ONCE, Duration::from_secs(360_000)) } else { start };
        let (told, rules) = (Arc::clone(&self.told), Arc::clone(&self.rules));
        told.lock().unwrap().entry(number).or_insert(Told::Nothing);
        process.tasks.spawn(async move {
            let said = start.await.map(|queued| (queued.is_new(), queued.run().clone()));
            rules.note(&format!("the start of {}: {said:?}", id(number)));
            match said {
                Ok((true, _)) => drop(told.lock().unwrap().insert(number, Told::Started)),
                Ok((false, run)) => drop(told.lock().unwrap().insert(number, Told::Before(run))),
                // It is in doubt, or was refused: it is made again.
                Err(_) => {}
            }
        });
        true
    }

    /// Starts anew what is in doubt, until every run has ended and no queue has anybody in it.
    fn finish(&mut self) {
        let deadline = self.clock.monotonic() + CALM;
        let mut asked = BTreeMap::<u64, Duration>::new();
        loop {
            let time = self.clock.monotonic();
            while self.next < RUNS && self.start(self.next) {
                self.next += 1;
            }
            let mut is_over = self.next == RUNS;
            for number in 0..self.next {
                let told = self.told.lock().unwrap()[&number].clone();
                let status = now(self.store.head(&id(number))).unwrap().map(|head| head.status);
                let is_done = match told {
                    Told::Before(_) => true,
                    Told::Started => status == Some(RunStatus::Completed),
                    Told::Nothing => false,
                };
                is_over &= is_done;
                if told == Told::Nothing
                    && asked.get(&number).is_none_or(|last| *last + Duration::from_secs(30) <= time)
                    && self.start(number)
                {
                    asked.insert(number, time);
                }
            }
            if is_over && self.are_empty() {
                return;
            }
            assert!(time <= deadline, "not all runs end: {:#?}", self.told.lock().unwrap());
            if self.dice.below(4) > 0 { self.flow() } else { self.step() }
        }
    }

    /// Tells whether nobody holds a place or waits, as a process reads it that has no part in the simulation.
    fn are_empty(&self) -> bool {
        let read = async {
            let runtime = Runtime::builder(self.store.clone()).operator();
            let mut overview = Overview::new();
            overview.look(&runtime).await.unwrap();
            let statuses = overview.statuses(self.clock.now());
            statuses.len() == 3 && statuses.iter().all(|one| one.held.is_empty() && one.waiting == 0)
        };
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(read)
    }

    /// Judges what the runs came to.
    fn judge(&mut self) {
        self.rules.check();
        self.rules.check_rate();
        let told = self.told.lock().unwrap();
        let mut by_key = BTreeSet::new();
        for (number, told) in &*told {
            let run = id(*number);
            let head = now(self.store.head(&run)).unwrap();
            match told {
                Told::Before(other) => {
                    self.report.before += 1;
                    assert_eq!(head, None, "{run} was started, and {other} in its place");
                    by_key.insert(other.clone());
                }
                _ => {
                    assert_eq!(head.map(|head| head.status), Some(RunStatus::Completed), "{run}");
                    if number.is_multiple_of(3) {
                        by_key.insert(run.clone());
                    }
                }
            }
            let came = self.inside.lock().unwrap().came.get(&run).copied().unwrap_or(0);
            assert!((came > 0) == !matches!(told, Told::Before(_)), "{run} was {came} times in its place");
            self.report.repeated += came.saturating_sub(1);
        }
        assert_eq!(by_key.len(), 1, "one was to be started by its key: {by_key:?}");
    }
}

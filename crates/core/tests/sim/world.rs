//! One simulation: processes on a store, events in an order from a seed, and the properties that always hold.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::store::{At, CheckpointStore, MemoryStore, RunHead};
use ferrata_core::{Clock, ErrorKind, RunKey};
use ferrata_testing::ManualClock;

use super::clock::SkewedClock;
use super::hands::{Deed, Hands};
use super::net::{Net, now};
use super::nodes::{Ledger, Seat};
use super::process::{Process, TTL};
use super::rules::Rules;
use super::workload::{Mix, Workload};
use crate::support::dice::Dice;

/// Maximum number of processes, including suspended ones.
const PROCESSES: usize = 4;

/// Maximum time until all runs end after the faults stop, by the clock of the simulation.
const CALM: Duration = Duration::from_secs(7_200);

/// Step of the clock when no timer is known.
const PATIENCE: Duration = Duration::from_millis(100);

/// Maximum error of a wall clock.
const SKEW_MS: u64 = 300_000;

/// Results of simulations.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) trace: u64,
    pub(crate) steps: u64,
    pub(crate) records: u64,
    pub(crate) conflicts: u64,
    pub(crate) claims: u64,
    pub(crate) kills: u64,
    pub(crate) freezes: u64,
    pub(crate) leaves: u64,
    pub(crate) children: u64,
    /// Number of children that were started again.
    pub(crate) anew: u64,
    /// Number of notifications of idle parents.
    pub(crate) told: u64,
    /// Number of received outbox messages.
    pub(crate) letters: u64,
    pub(crate) ends: BTreeMap<&'static str, u64>,
    pub(crate) deeds: BTreeMap<Deed, u64>,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.records += other.records;
        self.conflicts += other.conflicts;
        self.claims += other.claims;
        self.kills += other.kills;
        self.freezes += other.freezes;
        self.leaves += other.leaves;
        self.children += other.children;
        self.anew += other.anew;
        self.told += other.told;
        self.letters += other.letters;
        other.ends.iter().for_each(|(end, times)| *self.ends.entry(end).or_default() += times);
        other.deeds.iter().for_each(|(deed, times)| *self.deeds.entry(*deed).or_default() += times);
    }

    /// Checks that the simulations were demanding enough.
    pub(crate) fn check_coverage(&self, mix: Mix) {
        let Self { conflicts, claims, kills, freezes, leaves, children, told, letters, ends, deeds, .. } =
            self;
        assert!(
            [conflicts, claims, kills, freezes, leaves, children, told, letters]
                .iter()
                .all(|times| **times > 0),
            "{self:?}"
        );
        assert!(mix == Mix::Works || self.anew > 0, "{self:?}");
        let all = if mix == Mix::Pruned { 13 } else { 10 };
        assert!(ends.len() >= 3 && deeds.len() == all, "{self:?}");
    }
}

pub(crate) struct World {
    dice: Arc<Dice>,
    clock: ManualClock,
    store: MemoryStore,
    net: Arc<Net>,
    rules: Arc<Rules>,
    ledger: Arc<Mutex<Ledger>>,
    hands: Arc<Hands>,
    workload: Arc<Workload>,
    /// Whether no wall clock steps.
    are_steady: bool,
    /// Whether nodes send outbox messages.
    sends: bool,
    processes: Vec<Process>,
    started: u64,
    runs: Vec<RunKey>,
    /// Number of events that may have given processes something to do.
    stirred: u64,
    report: Report,
}

impl World {
    pub(crate) fn new(seed: u64, mix: Mix) -> Self {
        let (clock, dice) = (ManualClock::default(), Arc::new(Dice::new(seed)));
        let store = MemoryStore::with_clock(Arc::new(clock.clone()));
        let are_steady = dice.below(2) == 0;
        let workload = Arc::new(Workload::draw(&dice, mix, are_steady));
        let sends = dice.below(10) == 0;
        let rules = Arc::new(Rules::new(store.clone(), clock.clone(), Arc::clone(&workload), are_steady));
        let net = Arc::new(Net::new(store.clone(), Arc::clone(&rules), clock.clone(), Arc::clone(&dice)));
        let ledger = Arc::default();
        let hands = Arc::new(Hands {
            dice: Arc::clone(&dice),
            rules: Arc::clone(&rules),
            ledger: Arc::clone(&ledger),
            workload: Arc::clone(&workload),
            told: Mutex::default(),
        });
        let runs = Workload::runs(&dice);
        let mut world = Self {
            runs,
            dice,
            clock,
            store,
            net,
            rules,
            ledger,
            hands,
            workload,
            are_steady,
            sends,
            processes: Vec::new(),
            started: 0,
            stirred: 0,
            report: Report::default(),
        };
        (0..2 + world.dice.below(2)).for_each(|_| world.start_process());
        world
    }

    fn start_process(&mut self) {
        let number = self.started;
        self.started += 1;
        let clock = SkewedClock::new(self.clock.clone(), self.skew(), Duration::from_secs(number * 1_000));
        let clock = Arc::new(clock);
        let seat = Seat::new(
            number,
            Arc::clone(&clock),
            Arc::clone(&self.dice),
            Arc::clone(&self.rules),
            Arc::clone(&self.ledger),
            self.workload.kid.clone(),
            self.sends,
        );
        let process = Process::start(number, clock, &self.net, Arc::new(seat), &self.workload);
        self.processes.push(process);
        self.rules.note(&format!("process {number} starts"));
    }

    fn skew(&self) -> i64 {
        i64::try_from(self.dice.below(2 * SKEW_MS)).unwrap() - i64::try_from(SKEW_MS).unwrap()
    }

    /// Runs one simulation to its end.
    pub(crate) fn run(mut self) -> Report {
        for _ in 0..300 + self.dice.below(500) {
            self.disturb();
            self.step();
        }
        self.net.calm();
        self.finish();
        self.judge();
        self.report.trace = self.rules.trace();
        let seen = self.rules.seen();
        self.report.records = seen.logs.values().map(|log| log.records.len() as u64).sum();
        (self.report.conflicts, self.report.claims) = (seen.conflicts, seen.claims);
        (self.report.children, self.report.told) = (seen.children.len() as u64, seen.told);
        self.report.anew = seen.anew;
        drop(seen);
        self.report
    }

    /// Executes everything that is possible at this time, and then advances the clock. This is faster than single steps, for phases that need no
    /// random order.
    fn flow(&mut self) {
        while self.net.deliver() {}
        self.stirred += 1;
        let up = self.processes.iter_mut().filter(|process| process.frozen_until.is_none());
        up.for_each(|process| process.settle());
        if self.net.next() != Some(Duration::ZERO) {
            self.pass_time();
        }
        self.tidy();
        self.rules.check();
        self.rules.hold();
    }

    /// Executes one event: a process runs a task, or a message arrives. If neither is possible, the clock advances.
    fn step(&mut self) {
        self.report.steps += 1;
        let stirred = self.stirred;
        let up: Vec<usize> = (0..self.processes.len())
            .filter(|&at| self.processes[at].frozen_until.is_none())
            .filter(|&at| self.processes[at].idle_at != Some(self.stirred))
            .collect();
        match self.dice.below(4) {
            0 if self.net.deliver() => self.stirred += 1,
            _ if up.is_empty() => {
                if self.net.deliver() {
                    self.stirred += 1
                } else {
                    self.pass_time()
                }
            }
            _ => {
                let process = &mut self.processes[*self.dice.pick(&up)];
                if self.dice.below(3) > 0 {
                    process.slice(1 + u32::try_from(self.dice.below(12)).unwrap());
                } else {
                    process.settle();
                    process.idle_at = Some(self.stirred);
                }
            }
        }
        self.tidy();
        if self.stirred != stirred {
            self.rules.check();
        }
        self.rules.hold();
    }

    /// Resumes suspended processes that are due, and removes processes that have ended.
    fn tidy(&mut self) {
        let now = self.clock.monotonic();
        for process in &mut self.processes {
            if process.frozen_until.is_some_and(|until| until <= now) {
                process.frozen_until = None;
                process.idle_at = None;
                self.rules.note(&format!("process {} goes on", process.number));
            }
        }
        let left = self.processes.iter().position(|process| process.is_leaving && process.has_left());
        if let Some(at) = left {
            self.processes.remove(at);
            self.report.leaves += 1;
        }
    }

    /// Advances the clock until an event is possible.
    fn pass_time(&mut self) {
        let now = self.clock.monotonic();
        let thaws = self.processes.iter().filter_map(|process| process.frozen_until);
        let next = thaws.map(|until| until.saturating_sub(now)).chain(self.net.next()).min();
        match next {
            Some(next) if next <= PATIENCE => self.clock.advance(next),
            // A timer of a suspended process that is due does not fire.
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

    /// Causes random disturbances: crashes, suspensions and operations.
    fn disturb(&mut self) {
        match self.dice.below(240) {
            0 => {
                let at = usize::try_from(self.dice.below(self.processes.len() as u64)).unwrap();
                let process = self.processes.remove(at);
                self.net.forget(process.number);
                self.rules.note(&format!("process {} is killed", process.number));
                self.report.kills += 1;
                self.stirred += 1;
            }
            1 | 2 => {
                let up = self.processes.iter_mut().filter(|process| process.frozen_until.is_none());
                if let Some(process) = up.min_by_key(|process| (process.is_leaving, process.number)) {
                    let time = TTL / 10 * [2, 9, 11, 30][usize::try_from(self.dice.below(4)).unwrap()];
                    process.frozen_until = Some(self.clock.monotonic() + time);
                    self.rules.note(&format!("process {} is stopped for {time:?}", process.number));
                    self.report.freezes += 1;
                }
            }
            3 if !self.are_steady => {
                let off = self.skew();
                let process = self.dice.pick(&self.processes);
                process.clock.step(off);
                self.rules.note(&format!("the clock of process {} is off by {off} ms", process.number));
            }
            4 => {
                let grace = Duration::from_millis(self.dice.below(4_000));
                if let Some(process) = self.processes.iter_mut().find(|process| process.is_up()) {
                    process.leave(grace);
                    self.rules.note(&format!("process {} is to end in {grace:?}", process.number));
                }
            }
            5 => self.clock.advance(Duration::from_millis(self.dice.below(2_000))),
            6..30 => {
                let (run, deed) =
                    (self.dice.pick(&self.runs).clone(), Deed::draw(&self.dice, self.workload.mix));
                self.act(&run, deed);
            }
            _ => {}
        }
        let alive = self.processes.iter().filter(|process| !process.is_leaving).count();
        if alive == 0 || (self.processes.len() < PROCESSES && self.dice.below(60) == 0) {
            self.start_process();
        }
    }

    fn act(&mut self, run: &RunKey, deed: Deed) {
        let up: Vec<_> = self.processes.iter().filter(|process| process.is_up()).collect();
        if up.is_empty() {
            return;
        }
        let process = *self.dice.pick(&up);
        process.spawn(Arc::clone(&self.hands).act(process.runtime().unwrap().clone(), run.clone(), deed));
        *self.report.deeds.entry(deed).or_default() += 1;
        self.stirred += 1;
    }

    /// Brings every run to its end after the faults stop.
    fn finish(&mut self) {
        let deadline = self.clock.monotonic() + CALM;
        let mut asked: BTreeMap<RunKey, Duration> = BTreeMap::new();
        loop {
            let mut is_over = self.processes.iter().all(|process| process.frozen_until.is_none());
            let time = self.clock.monotonic();
            for run in self.runs.clone() {
                let head = now(self.store.head(&run)).unwrap();
                let status = head.as_ref().map(|head| head.status);
                let is_overdue = || self.rules.seen().logs.get(&run).is_some_and(|log| log.bounds.is_overdue);
                match status {
                    _ if head.as_ref().is_some_and(RunHead::is_delivering) => {}
                    Some(RunStatus::Completed | RunStatus::Cancelled) => continue,
                    // A retry would fail at once.
                    Some(RunStatus::Failed) if is_overdue() => continue,
                    _ => {}
                }
                is_over = false;
                let needed = match status {
                    Some(RunStatus::Failed) if is_overdue() => Some(Deed::RetryLetters),
                    _ => Deed::needed(head.as_ref()),
                };
                // Outbox messages without a process need some time of the clocks.
                let pause = if needed == Some(Deed::RetryLetters) { 30 } else { 1 };
                // Perform at most one operation per second on each run.
                if asked.get(&run).is_none_or(|last| *last + Duration::from_secs(pause) <= time)
                    && let Some(deed) = needed
                {
                    asked.insert(run.clone(), time);
                    self.act(&run, deed);
                }
            }
            // Children end, too, by themselves or because they were abandoned.
            let mut children: Vec<_> = self.rules.seen().logs.keys().cloned().collect();
            children.retain(|run| !self.runs.contains(run));
            let is_open = |run: &RunKey| {
                let head = now(self.store.head(run)).unwrap();
                head.is_some_and(|head| !head.status.is_finished() || head.is_delivering())
            };
            is_over &= !children.iter().any(is_open);
            // A parent that failed while it was paused leaves its children paused. Without a retry of the parent, they need an unpause.
            for child in &children {
                let head = now(self.store.head(child)).unwrap();
                let needed = head.and_then(|head| match head.status {
                    RunStatus::Interrupted => Some(Deed::Unpause),
                    _ => head.is_delivering().then_some(Deed::RetryLetters),
                });
                let pause = if needed == Some(Deed::RetryLetters) { 30 } else { 1 };
                if let Some(deed) = needed
                    && asked.get(child).is_none_or(|last| *last + Duration::from_secs(pause) <= time)
                {
                    asked.insert(child.clone(), time);
                    self.act(child, deed);
                }
            }
            if is_over {
                return;
            }
            if self.processes.iter().all(|process| process.is_leaving) {
                self.start_process();
            }
            if time > deadline {
                let heads: Vec<_> =
                    self.runs.iter().chain(&children).map(|run| now(self.store.head(run)).unwrap()).collect();
                self.rules.seen().broken.push(format!("a run does not end: {heads:#?}"));
            }
            if self.dice.below(4) > 0 { self.flow() } else { self.step() }
        }
    }

    /// Checks the results of the runs.
    fn judge(&mut self) {
        self.rules.compare();
        for told in &*self.hands.told.lock().unwrap() {
            let is_signed =
                !matches!(told.deed, Deed::Start | Deed::TakeOver | Deed::Purge | Deed::Prune | Deed::Sweep);
            let ((times, now), by) = (self.rules.times(&told.run, &told.by), &told.by);
            match &told.result {
                Some(Ok(())) => {
                    assert!(!is_signed || times == 1, "{by} was acknowledged and is recorded {times} times");
                }
                Some(Err(error)) if error.kind() != ErrorKind::Indeterminate => {
                    // The reply may have been lost and then the run purged, so the restarted run refuses the repetition.
                    assert_eq!(now, 0, "{by} was refused but is recorded: {error:?}");
                }
                _ => assert!(times <= 1, "{by} is recorded {times} times"),
            }
        }
        self.judge_states();
        let (seen, ledger) = (self.rules.seen(), self.ledger.lock().unwrap());
        for (run, log) in &seen.logs {
            let missing = ledger.received.missing(run, &log.life, &log.letters);
            if missing.is_some() {
                log.show().iter().for_each(|line| println!("{run} {line}"));
            }
            assert_eq!(missing, None, "{run}: lost outbox messages");
        }
        self.report.letters = ledger.received.count();
        for run in &self.runs {
            let (log, head) = (&seen.logs[run], now(self.store.head(run)).unwrap().unwrap());
            assert_eq!((head.owner, head.wake_at), (None, None), "{run} has ended");
            let end = match head.status {
                RunStatus::Completed => "completed",
                RunStatus::Failed => "overdue",
                _ => "cancelled",
            };
            *self.report.ends.entry(end).or_default() += 1;
            let last = now(self.store.load(run, At::Latest)).unwrap().unwrap();
            assert_eq!(last.last().unwrap().header.status, head.status);
            let mut order = log.messages.iter().filter(|message| log.taken.contains(message));
            assert!(
                log.taken.iter().all(|taken| order.next() == Some(taken)),
                "{run}: messages out of order"
            );
        }
    }
    /// Compares the state of each run with the fold of its records, including records that were pruned.
    fn judge_states(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let states = runtime.block_on(async {
            let reader = Runtime::builder(self.store.clone()).build().await.unwrap();
            let mut states = Vec::new();
            for run in &self.runs {
                let graph = self.workload.graph_of(run);
                states.push(reader.state_at(graph, run, At::Latest).await.unwrap());
            }
            states
        });
        let seen = self.rules.seen();
        for (run, state) in self.runs.iter().zip(states) {
            let log = &seen.logs[run];
            let texts = |channel: &str| state.get::<Vec<String>>(channel).unwrap().unwrap_or_default();
            assert_eq!(texts("trace"), log.trace, "{run}: the trace differs");
            assert_eq!(texts("edits"), log.edits, "{run}: the edits differ");
        }
    }
}

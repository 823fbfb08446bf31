//! One simulation: processes on a store, events in an order from a seed, and the properties that always hold.

mod verbs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, MemoryStore, RunHead};
use ferrata_core::{Clock as _, Result, RunKey};
use ferrata_queue::{QueueOverview, StartQueueExt as _};
use ferrata_testing::{ManualClock, SeqIds};

use super::clock::SkewedClock;
use super::mix::{Mix, ROUNDS, Report};
use super::net::Net;
use super::nodes::{Inside, Seat};
use super::process::{Edition, GPUS, Process, TTL, sharded};
use super::rules::Rules;
use crate::support::dice::Dice;

/// Maximum number of processes, including suspended ones.
const PROCESSES: usize = 4;

/// The `once` key of several starts, only one of which may run.
const ONCE: &str = "the-one";

/// Maximum time until all runs end after the faults stop, by the clock of the simulation.
const CALM: Duration = Duration::from_secs(7_200);

/// Step of the clock when no timer is known.
const PATIENCE: Duration = Duration::from_millis(100);

/// Maximum error of a wall clock.
const SKEW_MS: u64 = 300_000;

pub(crate) struct World {
    mix: Mix,
    dice: Arc<Dice>,
    clock: ManualClock,
    /// The store itself, without the network of a process.
    store: Arc<dyn CheckpointStore>,
    nets: Vec<Arc<Net>>,
    rules: Arc<Rules>,
    inside: Arc<Mutex<Inside>>,
    are_right: bool,
    processes: Vec<Process>,
    started: u64,
    /// The results of starts, by run number.
    told: Arc<Mutex<BTreeMap<u64, Told>>>,
    /// The requested forks and imported copies, and the number of uses of each verb.
    forks: BTreeSet<RunKey>,
    revived: Arc<Mutex<BTreeMap<&'static str, u64>>>,
    next: u64,
    stirred: u64,
    /// The time until which a suspended process may not know that it counts as dead.
    doubts: BTreeMap<u64, Duration>,
    report: Report,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    /// No result yet, or an unknown outcome.
    Nothing,
    Started,
    Before(RunKey),
}

/// Returns the result of a call that waits for no other task.
fn now<T>(call: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(call)
}

/// Purges a run if it has ended, so that its id can be used again.
async fn clear(runtime: &Runtime, run: &RunKey) -> Result<()> {
    if let Some(head) = runtime.head(run).await?.filter(|head| head.status.is_finished()) {
        runtime.purge_at(run, head.head()).await?;
    }
    Ok(())
}

impl World {
    pub(crate) fn new(seed: u64, mix: Mix) -> Self {
        let (clock, dice) = (ManualClock::default(), Arc::new(Dice::new(seed)));
        let shards = if mix == Mix::AnewInShards { 3 } else { 1 };
        let stores: Vec<_> = (0..shards).map(|_| MemoryStore::with_clock(Arc::new(clock.clone()))).collect();
        let are_right = dice.below(3) == 0;
        let may_fail = mix == Mix::Revivals;
        let are_purged = mix.is_anew() || may_fail;
        let rules = Arc::new(Rules::new(clock.clone(), are_right, are_purged, may_fail));
        let net = |store: &MemoryStore| {
            Arc::new(Net::new(store.clone(), Arc::clone(&rules), clock.clone(), Arc::clone(&dice)))
        };
        let nets = stores.iter().map(net).collect();
        let store: Arc<dyn CheckpointStore> = match &stores[..] {
            [store] => Arc::new(store.clone()),
            _ => Arc::new(sharded(stores, Arc::new(clock.clone()))),
        };
        let mut world = Self {
            mix,
            dice,
            clock,
            store,
            nets,
            rules,
            inside: Arc::default(),
            are_right,
            processes: Vec::new(),
            started: 0,
            told: Arc::default(),
            forks: BTreeSet::new(),
            revived: Arc::default(),
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
        let edition = match self.mix == Mix::Editions && number % 2 == 1 {
            true => Edition::Next,
            false => Edition::This,
        };
        let seat = Seat::new(number, edition, Arc::clone(&self.inside), Arc::clone(&self.rules));
        self.processes.push(Process::start(number, clock, &self.nets, seat, edition));
        self.rules.note(&format!("process {number} starts"));
    }

    /// Runs one simulation to its end.
    pub(crate) fn run(mut self) -> Report {
        for _ in 0..900 + self.dice.below(900) {
            self.disturb();
            // Advance time in larger steps when everything is executed, so that slots are granted and released while faults happen.
            if self.dice.below(3) == 0 { self.flow() } else { self.step() }
        }
        self.nets.iter().for_each(|net| net.calm());
        self.finish();
        self.judge();
        self.report.trace = self.rules.trace();
        let seen = self.rules.seen();
        (self.report.records, self.report.conflicts) = (seen.records, seen.conflicts);
        self.report.given = seen.given.clone();
        self.report.purged = seen.purged;
        self.report.revived = self.revived.lock().unwrap().clone();
        drop(seen);
        self.report
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
            0 if self.deliver() => self.stirred += 1,
            _ if up.is_empty() => match self.deliver() {
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

    /// Delivers a message of one of the networks. Returns whether there was one.
    fn deliver(&self) -> bool {
        let first = match self.nets.len() {
            1 => 0,
            all => usize::try_from(self.dice.below(all as u64)).unwrap(),
        };
        let (before, from) = self.nets.split_at(first);
        from.iter().chain(before).any(|net| net.deliver())
    }

    /// Executes everything that is possible at this time, and then advances the clock. This is faster than single steps, for phases that need no
    /// random order.
    fn flow(&mut self) {
        let stirred = self.stirred;
        while self.deliver() {}
        self.stirred += 1;
        let up = self.processes.iter().filter(|process| process.frozen_until.is_none());
        up.for_each(|process| process.tasks.settle());
        if self.nets.iter().all(|net| net.next() != Some(Duration::ZERO)) {
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
                // It learns from its heartbeat that it counts as dead, at the latest at the next one.
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
        assert!(sure.len() <= GPUS as usize, "{sure:?} hold {GPUS} slots");
        let runs: BTreeSet<_> = sure.iter().map(|(run, _)| run).collect();
        assert_eq!(runs.len(), sure.len(), "one run is active twice: {sure:?}");
        self.report.excepted += u64::from(inside.now.len() > GPUS as usize);
    }

    /// Advances the clock until an event is possible.
    fn pass_time(&mut self) {
        let now = self.clock.monotonic();
        let thaws = self.processes.iter().filter_map(|process| process.frozen_until);
        let next =
            thaws.map(|until| until.saturating_sub(now)).chain(self.nets.iter().filter_map(|net| net.next()));
        let next = next.min();
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

    fn kill(&mut self, at: usize) {
        let process = self.processes.remove(at);
        self.nets.iter().for_each(|net| net.forget(process.number));
        self.rules.note(&format!("process {} is killed", process.number));
        self.report.kills += 1;
        // Dropping the process drops its nodes, which release their slots.
        drop(process);
        self.stirred += 1;
    }

    /// Causes random disturbances of processes.
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
            it if (5..5 + self.mix.haste()).contains(&it) && self.next < self.mix.starts() => {
                let number = self.next;
                if self.start(number) {
                    self.next += 1;
                }
            }
            40..70 if self.mix == Mix::Revivals && self.next > 0 => {
                let number = self.dice.below(self.next);
                self.revive(number);
            }
            _ => {}
        }
    }

    /// Starts a run in a process that is up. Returns `false` if there is none.
    fn start(&mut self, number: u64) -> bool {
        // Every second start uses the workflow that only the next version has.
        let graph = usize::from(self.mix == Mix::Editions && number % 2 == 1);
        let knows = |process: &&Process| graph == 0 || process.edition == Edition::Next;
        let up: Vec<_> = self.processes.iter().filter(|process| process.is_up()).filter(knows).collect();
        if up.is_empty() {
            return false;
        }
        let process = *self.dice.pick(&up);
        let (runtime, graphs) = process.runtime().unwrap().clone();
        let (mix, run) = (self.mix, self.mix.run(number));
        let (told, rules) = (Arc::clone(&self.told), Arc::clone(&self.rules));
        told.lock().unwrap().entry(number).or_insert(Told::Nothing);
        if mix == Mix::Revivals {
            let mut inside = self.inside.lock().unwrap();
            inside.failures.entry(run.clone()).or_insert(number % 3);
        }
        process.tasks.spawn(async move {
            for round in 0..if mix.is_anew() { ROUNDS } else { 1 } {
                if mix.is_anew()
                    && let Err(error) = clear(&runtime, &run).await
                {
                    // Another caller has purged it, or the outcome is unknown. The start is made in both cases.
                    rules.note(&format!("the purge of {run}: {:?}", error.kind()));
                }
                let start = runtime.start(&graphs[graph], Context::new()).id(run.run.as_str()).queue("mail");
                let key = format!("key-{}", (number + round) % 3);
                let start = start.key(key).priority(i32::try_from(number % 2).unwrap());
                // Every third start shares the `once` key, with a window longer than any clock error.
                let start = match mix == Mix::Names && number.is_multiple_of(3) {
                    true => start.once(ONCE, Duration::from_secs(360_000)),
                    false => start,
                };
                let said = start.await;
                let shown = said.as_ref().map(|queued| (queued.is_new(), queued.run()));
                rules.note(&format!("start {number} of {run}: {shown:?}"));
                // A start with an unknown outcome or a refusal is repeated.
                let Ok(queued) = said else { return };
                let came_to = match queued.is_new() {
                    true => Told::Started,
                    false => Told::Before(queued.run().clone()),
                };
                told.lock().unwrap().insert(number, came_to);
                if mix.is_anew() {
                    // Another caller may purge it before its end is known.
                    let waited = queued.wait().await.map(drop);
                    rules.note(&format!("start {number} of {run} waited: {waited:?}"));
                }
            }
        });
        true
    }

    /// Restarts work with unknown outcome, until every run has ended and every queue is empty.
    fn finish(&mut self) {
        let deadline = self.clock.monotonic() + CALM;
        // Finally, a process with every workflow and tag must be up.
        while self.mix == Mix::Editions
            && self.processes.iter().all(|process| process.edition == Edition::This)
        {
            self.start_process();
        }
        let mut asked = BTreeMap::<u64, Duration>::new();
        loop {
            let time = self.clock.monotonic();
            while self.next < self.mix.starts() && self.start(self.next) {
                self.next += 1;
            }
            let mut is_over = self.next == self.mix.starts();
            for number in 0..self.next {
                let told = self.told.lock().unwrap()[&number].clone();
                let status = self.head(&self.mix.run(number)).map(|head| head.status);
                let is_done = match told {
                    Told::Before(_) => true,
                    Told::Started => status == Some(RunStatus::Completed),
                    Told::Nothing => false,
                };
                is_over &= is_done;
                // A caller may have died after its purge.
                let is_lost = told == Told::Nothing || told == Told::Started && status.is_none();
                if is_lost
                    && asked.get(&number).is_none_or(|last| *last + Duration::from_secs(30) <= time)
                    && self.start(number)
                {
                    asked.insert(number, time);
                }
                if status == Some(RunStatus::Failed) && self.dice.below(50) == 0 {
                    self.revive(number);
                }
            }
            let forks: Vec<_> = self.forks.iter().filter_map(|fork| self.head(fork)).collect();
            for fork in forks {
                is_over &= fork.status == RunStatus::Completed;
                if fork.status == RunStatus::Failed && self.dice.below(50) == 0 {
                    let operator =
                        Runtime::builder_with(Arc::clone(&self.store)).clock(Arc::new(self.clock.clone()));
                    let ids = Arc::new(SeqIds::new(1_000_000 + self.stirred));
                    let _ = now(operator.ids(ids).operator().retry(&fork.run).into_future());
                    self.stirred += 1;
                }
            }
            if is_over && self.are_empty() {
                return;
            }
            assert!(
                time <= deadline,
                "not all runs end: {:#?}, {:#?}",
                self.told.lock().unwrap(),
                self.unended()
            );
            if self.dice.below(4) > 0 { self.flow() } else { self.step() }
        }
    }

    /// Returns the runs that have not completed.
    fn unended(&self) -> Vec<RunHead> {
        let runs = (0..self.next).map(|number| self.mix.run(number)).chain(self.forks.iter().cloned());
        let heads = runs.filter_map(|run| self.head(&run));
        heads.filter(|head| head.status != RunStatus::Completed).collect()
    }

    fn head(&self, run: &RunKey) -> Option<RunHead> {
        now(self.store.head(run)).unwrap()
    }

    /// Returns whether no slot is held and no waiter remains, as a process outside the simulation reads it.
    fn are_empty(&self) -> bool {
        let read = async {
            let runtime = Runtime::builder_with(Arc::clone(&self.store)).operator();
            let mut overview = QueueOverview::new();
            overview.refresh(&runtime).await.unwrap();
            let statuses = overview.statuses(self.clock.now());
            statuses.len() == 3 && statuses.iter().all(|one| one.held.is_empty() && one.waiting == 0)
        };
        now(read)
    }

    /// Checks the results of the runs.
    fn judge(&mut self) {
        self.rules.check();
        self.rules.check_rate();
        let told = self.told.lock().unwrap();
        let mut by_key = BTreeSet::new();
        for (number, told) in &*told {
            let run = self.mix.run(*number);
            let head = self.head(&run);
            match told {
                Told::Before(other) => {
                    self.report.before += 1;
                    assert_eq!(head, None, "{run} was started, and got the run {other}");
                    by_key.insert(other.clone());
                }
                _ => {
                    assert_eq!(head.map(|head| head.status), Some(RunStatus::Completed), "{run}");
                    if self.mix == Mix::Names && number.is_multiple_of(3) {
                        by_key.insert(run.clone());
                    }
                }
            }
            let came = self.inside.lock().unwrap().came.get(&run).copied().unwrap_or(0);
            assert!((came == 0) == matches!(told, Told::Before(_)), "{run} entered its slot {came} times");
            self.report.repeated += came.saturating_sub(1);
        }
        assert_eq!(
            by_key.len(),
            usize::from(self.mix == Mix::Names),
            "only one start with the key may run: {by_key:?}"
        );
    }
}

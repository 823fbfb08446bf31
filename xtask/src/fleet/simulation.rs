//! A fleet, event by event: executors that beat, look, claim, drive and die, over a modelled store.
//!
//! Each executor is the sweeper of `runtime/fleet/sweep.rs` without the runs themselves: a run is a number, a wake-up time and who has it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::rules::Rules;
use super::store::{Costs, Filter, Store, Traffic};

const SECOND: u64 = 1_000_000;

/// What is simulated; times in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet {
    pub(crate) executors: u32,
    pub(crate) runs: u32,
    /// How long a run sleeps between two times that it is driven.
    pub(crate) sleeps: u64,
    /// How long it is driven, and how many records it appends then.
    pub(crate) works: u64,
    pub(crate) records: u64,
    /// One executor in so many dies in the middle, with what it drives.
    pub(crate) one_dies_in: u32,
    /// How long it is watched.
    pub(crate) span: u64,
    pub(crate) seed: u64,
}

/// What was seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) fleet: Fleet,
    pub(crate) traffic: Traffic,
    /// How long runs waited from due to claimed: half of them at most so long, and 99 of 100.
    pub(crate) half: u64,
    pub(crate) most: u64,
    /// How many needed an executor and had none at the end.
    pub(crate) left: usize,
    pub(crate) orphans: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake(u32),
    Beat(u32),
    Look(u32),
    /// A page is there.
    Listed(u32),
    /// A claim is decided.
    Decided(u32, u64, u32),
    /// A run is at rest again.
    Rests(u32, u32),
    Dies(u32),
    /// Its heartbeat has expired.
    Expired(u32),
}

/// An executor in the middle of its look, or between two.
#[derive(Debug, Default)]
struct Executor {
    dead: bool,
    turn: u32,
    wide: bool,
    found: bool,
    driven: Vec<u32>,
    /// The filters that are still to be asked for.
    filters: Vec<Filter>,
    filter: Option<Filter>,
    pages: u32,
    heads: Vec<(u64, u32)>,
    more: Option<(u64, u32)>,
    is_full: bool,
    under_way: usize,
    late: u32,
    won: u32,
    /// Which part of a last page it tries: halved when most of one went to others, doubled when most of it came here.
    share: f64,
    /// How many pages ahead it goes at the most, how many are still to be passed over, and whether this one is, or others were.
    reach: u64,
    ahead: u64,
    passes: bool,
    passed: bool,
}

struct Simulation {
    fleet: Fleet,
    rules: Rules,
    store: Store,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Numbers events, so that what happens at the same time keeps its order.
    count: u64,
    executors: Vec<Executor>,
    waits: Vec<u32>,
    orphans: u64,
    dice: u64,
}

/// Simulates a fleet.
pub(crate) fn simulate(fleet: Fleet, rules: Rules, costs: Costs) -> Seen {
    let executors = (0..fleet.executors).map(|_| Executor {
        wide: true,
        share: 1.0,
        reach: rules.reach.0,
        ..Executor::default()
    });
    let mut simulation = Simulation {
        fleet,
        rules,
        store: Store::new(costs),
        events: BinaryHeap::new(),
        count: 0,
        executors: executors.collect(),
        waits: Vec::new(),
        orphans: 0,
        dice: fleet.seed | 1,
    };
    simulation.begin();
    while let Some(Reverse((now, _, event))) = simulation.events.pop() {
        if now > fleet.span {
            break;
        }
        simulation.happen(now, event);
    }
    simulation.end()
}

impl Simulation {
    fn begin(&mut self) {
        for run in 0..self.fleet.runs {
            let first = self.below(self.fleet.sleeps);
            // Runs that sleep beyond the end cost nothing: they are rows that no listing touches.
            if first <= self.fleet.span {
                self.at(first, Event::Wake(run));
            }
        }
        for one in 0..self.fleet.executors {
            let (beat, look) = (self.below(self.rules.beat()), self.below(self.rules.sweep));
            self.at(beat, Event::Beat(one));
            self.at(look, Event::Look(one));
            if self.fleet.one_dies_in > 0 && one % self.fleet.one_dies_in == 0 {
                let when = self.fleet.span / 2 + self.below(SECOND);
                self.at(when, Event::Dies(one));
            }
        }
    }

    fn end(mut self) -> Seen {
        self.waits.sort_unstable();
        let at = |part: usize| self.waits.get(self.waits.len() * part / 100).copied().unwrap_or(0);
        Seen {
            fleet: self.fleet,
            traffic: self.store.traffic,
            half: u64::from(at(50)),
            most: u64::from(at(99)),
            left: self.store.waiting(),
            orphans: self.orphans,
        }
    }

    fn at(&mut self, when: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((when, self.count, event)));
    }

    /// The next number of a sequence (xorshift64*, Vigna 2014), below a limit.
    fn below(&mut self, limit: u64) -> u64 {
        self.dice ^= self.dice >> 12;
        self.dice ^= self.dice << 25;
        self.dice ^= self.dice >> 27;
        (self.dice.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit.max(1)
    }

    fn happen(&mut self, now: u64, event: Event) {
        match event {
            Event::Wake(run) => self.store.add(Filter::Due, now, run),
            Event::Beat(one) => {
                if !self.executors[one as usize].dead {
                    self.store.heartbeat(now);
                    self.at(now + self.rules.beat(), event);
                }
            }
            Event::Look(one) => self.look(now, one),
            Event::Listed(one) => self.go_on(now, one),
            Event::Decided(one, since, run) => self.decided(now, one, (since, run)),
            Event::Rests(one, run) => self.rests(now, one, run),
            Event::Dies(one) => {
                self.executors[one as usize].dead = true;
                self.at(now + self.rules.ttl, Event::Expired(one));
            }
            Event::Expired(one) => {
                for run in std::mem::take(&mut self.executors[one as usize].driven) {
                    self.orphans += 1;
                    self.store.add(Filter::Orphaned, now, run);
                }
            }
        }
    }

    fn look(&mut self, now: u64, one: u32) {
        let executor = &mut self.executors[one as usize];
        if executor.dead {
            return;
        }
        executor.turn += 1;
        executor.filters = match (executor.wide, executor.turn % 2) {
            (true, _) => vec![Filter::Due, Filter::Orphaned],
            (false, 0) => vec![Filter::Orphaned],
            (false, _) => vec![Filter::Due],
        };
        executor.found = false;
        self.next_filter(now, one);
    }

    fn next_filter(&mut self, now: u64, one: u32) {
        let executor = &mut self.executors[one as usize];
        executor.filter = executor.filters.pop();
        (executor.pages, executor.more) = (0, None);
        (executor.ahead, executor.passed) = (0, false);
        if executor.filter.is_some() {
            return self.list(now, one);
        }
        executor.wide = executor.found;
        let (least, most) = self.rules.jitter;
        let chance = self.below(1 << 20) as f64 / f64::from(1 << 20);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole microseconds")]
        let pause = (self.rules.sweep as f64 * (least + (most - least) * chance)) as u64;
        self.at(now + pause, Event::Look(one));
    }

    fn list(&mut self, now: u64, one: u32) {
        let Some(filter) = self.executors[one as usize].filter else { return };
        let from = self.executors[one as usize].more.take();
        let (mut there, mut heads, more) = self.store.list(now, filter, from, self.rules.page);
        for _ in 1..self.rules.listings {
            there = self.store.list(now, filter, from, self.rules.page).0;
        }
        for last in (1..heads.len()).rev() {
            let other = self.below(last as u64 + 1);
            heads.swap(last, usize::try_from(other).unwrap_or(last));
        }
        let executor = &mut self.executors[one as usize];
        executor.is_full = more;
        executor.more = heads.iter().max().copied().filter(|_| more);
        executor.passes = executor.ahead > 0;
        if executor.passes {
            executor.ahead = if more { executor.ahead - 1 } else { 0 };
            heads.clear();
        }
        executor.found |= !heads.is_empty();
        if !more {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a page")]
            let tried = (heads.len() as f64 * executor.share).ceil() as usize;
            heads.truncate(tried);
        }
        (executor.heads, executor.late, executor.won) = (heads, 0, 0);
        executor.pages += 1;
        self.at(there, Event::Listed(one));
    }

    /// Sends claims while there is room, and ends the page when all are decided.
    fn go_on(&mut self, now: u64, one: u32) {
        loop {
            let executor = &mut self.executors[one as usize];
            let full = executor.driven.len() + executor.under_way >= self.rules.max_recovered;
            if executor.dead || full || executor.late >= self.rules.late {
                executor.heads.clear();
            }
            if executor.under_way >= self.rules.at_once {
                return;
            }
            let Some((since, run)) = executor.heads.pop() else { break };
            executor.under_way += 1;
            let decided = self.store.claim(now);
            self.at(decided, Event::Decided(one, since, run));
        }
        let executor = &mut self.executors[one as usize];
        if executor.under_way > 0 || executor.dead {
            return;
        }
        let (least, most) = self.rules.reach;
        let mut jumps = 0;
        match (executor.passes, executor.is_full) {
            (true, _) => {}
            (false, true) if executor.late >= self.rules.late => {
                executor.reach = (executor.reach * 2).min(most);
                (executor.passed, jumps) = (true, executor.reach);
            }
            (false, true) => executor.reach = (executor.reach / 2).max(least),
            (false, false) if executor.late > executor.won => {
                executor.share = (executor.share / 2.0).max(self.rules.least_share);
            }
            (false, false) if executor.won > 0 => executor.share = (executor.share * 2.0).min(1.0),
            (false, false) => {}
        }
        // What was passed over comes when there is no further page.
        let again = !executor.is_full && executor.passed;
        if again && !executor.passes {
            executor.passed = false;
        }
        let goes_on = (executor.is_full || again) && executor.pages < self.rules.pages;
        if jumps > 0 {
            let ahead = self.below(jumps);
            self.executors[one as usize].ahead = ahead;
        }
        if goes_on {
            return self.list(now, one);
        }
        self.next_filter(now, one);
    }

    fn decided(&mut self, now: u64, one: u32, run: (u64, u32)) {
        let executor = &mut self.executors[one as usize];
        executor.under_way -= 1;
        // A claim of one that died meanwhile counts: the run is its, until its heartbeat expires.
        let won = executor.filter.is_some_and(|filter| self.store.decide(filter, run));
        if won {
            self.waits.push(u32::try_from(now - run.0).unwrap_or(u32::MAX));
            executor.won += 1;
            executor.driven.push(run.1);
            if !executor.dead {
                self.at(now + self.fleet.works, Event::Rests(one, run.1));
            }
        } else {
            executor.late += 1;
        }
        self.go_on(now, one);
    }

    /// A run has done its work, if whoever drove it is alive, and sleeps again.
    fn rests(&mut self, now: u64, one: u32, run: u32) {
        let executor = &mut self.executors[one as usize];
        if executor.dead {
            return;
        }
        let Some(at) = executor.driven.iter().position(|driven| *driven == run) else { return };
        executor.driven.swap_remove(at);
        self.store.drive(now, self.fleet.records, self.fleet.works / self.rules.poll.max(1));
        let again = now + self.fleet.sleeps;
        if again <= self.fleet.span {
            self.at(again, Event::Wake(run));
        }
    }
}

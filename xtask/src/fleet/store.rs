//! A store as the simulation knows it: what each call takes of it, how long a call is under way, and who has which run.

use std::collections::BTreeSet;
use std::ops::Bound;

/// What calls cost a store, in microseconds of one of its cores, and how long one takes without a queue.
///
/// The costs are those of Postgres in docs/performance.md and docs/scaling.md; other stores differ by a factor, not in how they grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub(crate) cores: f64,
    pub(crate) listing: f64,
    pub(crate) row: f64,
    pub(crate) load: f64,
    pub(crate) append: f64,
    pub(crate) heartbeat: f64,
    pub(crate) read: f64,
    /// How long a call takes beside its work: the network and the disk.
    pub(crate) way: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            cores: 16.0,
            listing: 150.0,
            row: 4.0,
            load: 150.0,
            append: 60.0,
            heartbeat: 100.0,
            read: 60.0,
            way: 1_500,
        }
    }
}

/// How often what was asked of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Traffic {
    /// Pages of orphans and of due runs that were listed.
    pub(crate) listings: u64,
    /// Runs in those pages.
    pub(crate) rows: u64,
    pub(crate) heartbeats: u64,
    /// Runs that an executor tried to claim: a load and an append each.
    pub(crate) tries: u64,
    /// Tries that came too late.
    pub(crate) lost: u64,
    /// Runs that were claimed.
    pub(crate) claimed: u64,
    /// Records of work, the release among them.
    pub(crate) records: u64,
    /// Looks at runs whose node takes long.
    pub(crate) polls: u64,
    /// Core-seconds that all of it takes, in microseconds.
    pub(crate) work: f64,
}

/// The store.
#[derive(Debug)]
pub(crate) struct Store {
    costs: Costs,
    pub(crate) traffic: Traffic,
    /// When it has done all that was asked of it so far.
    free: f64,
    /// Due runs that no executor has claimed, by the time since which they are.
    due: BTreeSet<(u64, u32)>,
    orphans: BTreeSet<(u64, u32)>,
}

/// Why an executor is to take a run up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Orphaned,
    Due,
}

impl Store {
    pub(crate) fn new(costs: Costs) -> Self {
        let (due, orphans) = (BTreeSet::new(), BTreeSet::new());
        Self { costs, traffic: Traffic::default(), free: 0.0, due, orphans }
    }

    fn set(&mut self, filter: Filter) -> &mut BTreeSet<(u64, u32)> {
        match filter {
            Filter::Orphaned => &mut self.orphans,
            Filter::Due => &mut self.due,
        }
    }

    /// Says that a run needs an executor from now on.
    pub(crate) fn add(&mut self, filter: Filter, since: u64, run: u32) {
        self.set(filter).insert((since, run));
    }

    /// How many runs need an executor.
    pub(crate) fn waiting(&self) -> usize {
        self.due.len() + self.orphans.len()
    }

    /// Takes in a call that costs so much; returns when its answer is back.
    fn call(&mut self, now: u64, cost: f64) -> u64 {
        self.traffic.work += cost;
        // One queue for all cores: what is asked for waits until everything before it is done.
        self.free = self.free.max(now as f64) + cost / self.costs.cores;
        #[expect(clippy::cast_possible_truncation, reason = "whole microseconds")]
        #[expect(clippy::cast_sign_loss, reason = "times are not negative")]
        let done = (self.free + cost) as u64;
        done.max(now) + self.costs.way
    }

    pub(crate) fn heartbeat(&mut self, now: u64) {
        self.traffic.heartbeats += 1;
        self.call(now, self.costs.heartbeat);
    }

    /// Lists a page, the oldest first. Returns when the answer is back, the runs, and whether there are more.
    pub(crate) fn list(
        &mut self,
        now: u64,
        filter: Filter,
        from: Option<(u64, u32)>,
        page: usize,
    ) -> (u64, Vec<(u64, u32)>, bool) {
        let start = from.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rows: Vec<_> =
            self.set(filter).range((start, Bound::Unbounded)).take(page + 1).copied().collect();
        let more = rows.len() > page;
        rows.truncate(page);
        self.traffic.listings += 1;
        self.traffic.rows += rows.len() as u64;
        let cost = self.costs.listing + self.costs.row * rows.len() as f64;
        (self.call(now, cost), rows, more)
    }

    /// Takes in a load and the append of a claim; returns when the claim is decided.
    pub(crate) fn claim(&mut self, now: u64) -> u64 {
        // Both stand in the queue from now on: a queue has no place for what will come.
        self.call(now, self.costs.load + self.costs.append) + self.costs.way
    }

    /// Decides a claim: whoever comes first has the run.
    pub(crate) fn decide(&mut self, filter: Filter, run: (u64, u32)) -> bool {
        let won = self.set(filter).remove(&run);
        self.traffic.tries += 1;
        self.traffic.claimed += u64::from(won);
        self.traffic.lost += u64::from(!won);
        won
    }

    /// Takes in what a run writes and is looked at while it is driven.
    pub(crate) fn drive(&mut self, now: u64, records: u64, polls: u64) {
        self.traffic.records += records;
        self.traffic.polls += polls;
        self.call(now, self.costs.append * records as f64 + self.costs.read * polls as f64);
    }
}

//! The workload of a simulation, and its results.

use std::collections::BTreeMap;

use ferrata_core::RunKey;

/// The number of runs with ids of their own, or the number of callers that reuse shared ids.
pub(super) const RUNS: u64 = 14;
const CALLERS: u64 = 50;

/// How many names these callers have: more than there are places, so that some wait. Most want the first.
const NAMES: u64 = 5;

/// How often each of them reuses its run id after the run has ended.
pub(super) const ROUNDS: u64 = 4;

/// What the simulation is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Runs that each have a name of their own.
    Names,
    /// Runs of a few names: each caller purges the one that has ended, and starts the next.
    Anew,
    /// The same on a store of three shards.
    AnewInShards,
    /// Runs that each have a name of their own, in processes of two versions of the application.
    Editions,
    /// Runs that fail, and that operators retry, move, fork, import, and purge to start them again.
    Revivals,
}

impl Mix {
    /// Whether names are used again.
    pub(super) fn is_anew(self) -> bool {
        matches!(self, Self::Anew | Self::AnewInShards)
    }

    pub(super) fn starts(self) -> u64 {
        if self.is_anew() { CALLERS } else { RUNS }
    }

    /// In how many of 240 moments a caller starts something.
    pub(super) fn haste(self) -> u64 {
        if self.is_anew() { 60 } else { 10 }
    }

    /// Returns the run that a start is of.
    pub(super) fn run(self, number: u64) -> RunKey {
        let name = match self {
            Self::Names | Self::Editions | Self::Revivals => format!("run-{number:02}"),
            Self::Anew | Self::AnewInShards => {
                format!("again-{}", (number % (2 * NAMES)).saturating_sub(NAMES))
            }
        };
        RunKey::try_from(name.as_str()).unwrap()
    }
}

/// Results of simulations.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) trace: u64,
    pub(crate) steps: u64,
    pub(crate) records: u64,
    pub(super) conflicts: u64,
    pub(super) kills: u64,
    pub(super) freezes: u64,
    pub(super) steps_of_clocks: u64,
    /// The number of repeated entries of runs, and of times with more holders than slots, one of them suspended.
    pub(super) repeated: u64,
    pub(super) excepted: u64,
    /// Starts that were told of another by their key.
    pub(super) before: u64,
    pub(super) purged: u64,
    /// How often operators carried out each verb that makes a run active.
    pub(super) revived: BTreeMap<&'static str, u64>,
    pub(super) given: BTreeMap<String, u64>,
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
        self.purged += other.purged;
        other.revived.iter().for_each(|(verb, times)| *self.revived.entry(verb).or_default() += times);
        other.given.iter().for_each(|(queue, times)| *self.given.entry(queue.clone()).or_default() += times);
    }

    /// Checks that the simulations were not tame.
    pub(crate) fn check_coverage(&self, mix: Mix) {
        let Self {
            conflicts, kills, freezes, steps_of_clocks, repeated, before, purged, revived, given, ..
        } = self;
        let own = match mix {
            Mix::Names => before,
            Mix::Anew | Mix::AnewInShards => purged,
            Mix::Editions => repeated,
            Mix::Revivals => &revived.values().copied().min().unwrap_or(0),
        };
        let all = [conflicts, kills, freezes, steps_of_clocks, repeated, own];
        let verbs = if mix == Mix::Revivals { 6 } else { 0 };
        let is_covered = given.len() == 3 && revived.len() == verbs;
        assert!(all.iter().all(|times| **times > 0) && is_covered, "{self:?}");
    }
}

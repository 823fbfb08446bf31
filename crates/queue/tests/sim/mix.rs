//! The workload of a simulation, and its results.

use std::collections::BTreeMap;

use ferrata_core::RunKey;

/// The number of runs with ids of their own, or the number of callers that reuse shared ids.
pub(super) const RUNS: u64 = 14;
const CALLERS: u64 = 50;

/// Number of shared ids: more than there are slots, so that some callers wait. Most callers use the first.
const NAMES: u64 = 5;

/// How often each of them reuses its run id after the run has ended.
pub(super) const ROUNDS: u64 = 4;

/// The kind of simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Each run has its own id.
    Names,
    /// Runs share a few ids: each caller purges the ended run, and starts the next.
    Anew,
    /// The same on a store of three shards.
    AnewInShards,
    /// Each run has its own id, in processes of two versions of the application.
    Editions,
    /// Runs fail, and operators retry, move, fork and import them, or purge them to start them again.
    Revivals,
}

impl Mix {
    /// Whether ids are reused.
    pub(super) fn is_anew(self) -> bool {
        matches!(self, Self::Anew | Self::AnewInShards)
    }

    pub(super) fn starts(self) -> u64 {
        if self.is_anew() { CALLERS } else { RUNS }
    }

    /// Probability that a caller starts a run at a moment, in 240ths.
    pub(super) fn haste(self) -> u64 {
        if self.is_anew() { 60 } else { 10 }
    }

    /// The run of a start.
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
    /// Starts whose key belonged to another start.
    pub(super) before: u64,
    pub(super) purged: u64,
    /// Number of uses of each verb that makes a run active.
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

    /// Checks that the simulations were demanding enough.
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

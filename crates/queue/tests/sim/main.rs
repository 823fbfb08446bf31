//! Queues in a simulation of several processes on one store, in one thread. The clock advances only when nothing else can happen, and a seed chooses
//! every step. Processes die or are suspended, and have clocks that step and are minutes wrong. Store calls are late, reordered, refused, or
//! completed without a reply.
//!
//! The checks read only the records and a ledger that the nodes write, without the tested code. The network, the clocks and the tasks come from the
//! simulation of the core.
//!
//! `FERRATA_SIMS` sets the number of seeds, and `FERRATA_SIM_FIRST` the first seed. `FERRATA_SIM_SEED` runs only one seed and prints its events.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a simulation that fails shows its seed")]

#[path = "../../../core/tests/sim/clock.rs"]
mod clock;
mod mix;
#[path = "../../../core/tests/sim/net.rs"]
mod net;
mod nodes;
mod process;
mod rules;
mod support;
#[path = "../../../core/tests/sim/tasks.rs"]
mod tasks;
mod world;

use self::mix::{Mix, Report};
use self::world::World;

/// Number of seeds of a test. A simulation with fifty callers takes as long as two others.
fn seeds(mix: Mix) -> u64 {
    match mix {
        Mix::Anew | Mix::AnewInShards => 6,
        Mix::Names | Mix::Editions | Mix::Revivals => 10,
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
}

/// Whether the events are printed.
fn is_shown() -> bool {
    static SHOWN: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *SHOWN.get_or_init(|| number("FERRATA_SIM_SEED").is_some())
}

/// Runs a share of the seeds, because the tests of this file run concurrently.
fn simulate(mix: Mix, share: u64, of: u64) {
    let all_seeds = match number("FERRATA_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("FERRATA_SIM_FIRST").unwrap_or(0);
            first..first + number("FERRATA_SIMS").unwrap_or(seeds(mix) * of)
        }
    };
    let (mut all, mut tried) = (Report::default(), 0);
    for seed in all_seeds.filter(|seed| seed % of == share) {
        match std::panic::catch_unwind(|| World::new(seed, mix).run()) {
            Ok(report) => all.add(&report),
            Err(panic) => {
                let test = match mix {
                    Mix::Names => "promise",
                    Mix::Anew => "anew_is",
                    Mix::AnewInShards => "anew_in_shards",
                    Mix::Editions => "versions",
                    Mix::Revivals => "revived",
                };
                eprintln!(
                    "replay with: FERRATA_SIM_SEED={seed} cargo test -p ferrata-queue --test sim {test}"
                );
                std::panic::resume_unwind(panic);
            }
        }
        tried += 1;
    }
    println!("{tried} seeds: {all:?}");
    if tried >= seeds(mix) {
        all.check_coverage(mix);
    }
}

/// Guarantees: QUEUE-1.
#[test]
fn queues_keep_what_they_promise() {
    simulate(Mix::Names, 0, 2);
}

#[test]
fn queues_keep_what_they_promise_with_other_seeds() {
    simulate(Mix::Names, 1, 2);
}

/// Guarantees: QUEUE-6.
#[test]
fn fifty_concurrent_restarts_run_one_at_once() {
    simulate(Mix::Anew, 0, 1);
}

/// Guarantees: QUEUE-6.
#[test]
fn fifty_sharded_restarts_run_one_at_once() {
    simulate(Mix::AnewInShards, 0, 1);
}

#[test]
fn mixed_versions_follow_newer_settings() {
    simulate(Mix::Editions, 0, 1);
}

/// Runs fail, and operators retry, move and fork them, also with tools without queues. At no time is a run active without a slot.
///
/// Guarantees: QUEUE-1, QUEUE-10.
#[test]
fn revived_runs_wait_for_slots() {
    simulate(Mix::Revivals, 0, 1);
}

/// A seed gives the same events in each new process. A second world in the same thread may differ in the order of some events.
#[test]
fn worlds_of_other_seeds_take_another_course() {
    let reports: Vec<_> = (0..3).map(|seed| World::new(seed, Mix::Names).run()).collect();
    assert!(reports.iter().all(|report| report.records > 0 && report.steps > 0));
    assert!(
        reports.windows(2).all(|pair| pair[0].trace != pair[1].trace),
        "different seeds must give different events"
    );
}

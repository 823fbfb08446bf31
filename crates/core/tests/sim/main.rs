//! A simulation of many processes on one store, in one thread. The clock advances only when nothing else can happen. A seed chooses every step, and
//! the rules of a log are checked after every step.
//!
//! `FERRATA_SIMS` sets the number of seeds, and `FERRATA_SIM_FIRST` the first seed. `FERRATA_SIM_SEED` runs only one seed and prints its events.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a simulation that fails shows its seed")]

mod clock;
mod hands;
mod net;
mod nodes;
mod process;
mod rules;
#[path = "../support/mod.rs"]
mod support;
mod tasks;
mod workload;
mod world;

use self::workload::Mix;
use self::world::{Report, World};

/// Number of seeds of each test.
const SEEDS: u64 = 65;

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
    let seeds = match number("FERRATA_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("FERRATA_SIM_FIRST").unwrap_or(0);
            first..first + number("FERRATA_SIMS").unwrap_or(SEEDS * of)
        }
    };
    let mut all = Report::default();
    let mut tried = 0;
    for seed in seeds.filter(|seed| seed % of == share) {
        let caught = std::panic::catch_unwind(|| World::new(seed, mix).run());
        match caught {
            Ok(report) => all.add(&report),
            Err(panic) => {
                let test = match mix {
                    Mix::Works => format!("share_{share}"),
                    Mix::Families => "families".to_owned(),
                    Mix::Pruned => "pruned".to_owned(),
                };
                eprintln!(
                    "replay with: FERRATA_SIM_SEED={seed} cargo test -p ferrata-core --test sim {test}"
                );
                std::panic::resume_unwind(panic);
            }
        }
        tried += 1;
    }
    println!("{tried} seeds: {all:?}");
    if tried >= SEEDS {
        all.check_coverage(mix);
    }
}

#[test]
fn share_0() {
    simulate(Mix::Works, 0, 4);
}

#[test]
fn share_1() {
    simulate(Mix::Works, 1, 4);
}

#[test]
fn share_2() {
    simulate(Mix::Works, 2, 4);
}

#[test]
fn share_3() {
    simulate(Mix::Works, 3, 4);
}

#[test]
fn families() {
    simulate(Mix::Families, 0, 1);
}

/// Guarantees: DURABLE-9.
#[test]
fn pruned() {
    simulate(Mix::Pruned, 0, 1);
}

/// Seeds that once found faults, in addition to the usual seeds.
#[test]
fn seeds_that_found_faults_find_none() {
    for seed in [1_311, 5_828, 8_129, 12_120] {
        World::new(seed, Mix::Works).run();
    }
    for seed in [1_513, 2_608, 5_916, 7_045] {
        World::new(seed, Mix::Pruned).run();
    }
}

#[test]
fn same_seed_gives_same_event_sequence() {
    let first = number("FERRATA_SIM_FIRST").unwrap_or(0);
    for seed in first..first + number("FERRATA_SIMS").map_or(40, |all| (all / 20).clamp(40, 1_000)) {
        let mix = match seed % 4 {
            0 => Mix::Families,
            1 => Mix::Pruned,
            _ => Mix::Works,
        };
        let (one, other) = (World::new(seed, mix).run(), World::new(seed, mix).run());
        assert_eq!((one.trace, one.steps), (other.trace, other.steps), "seed {seed}");
        assert!(one.records > 0);
    }
}

//! Races: all operations on a run, made by several concurrent callers in two processes, in an order from a seed.
//!
//! `FERRATA_RACES` sets the number of seeds, and `FERRATA_RACE_FIRST` the first seed. `FERRATA_RACE_SEED` runs only one seed and prints its events.
//! Everything runs in one thread, and every store call yields a random number of times from the seed, so a seed always gives the same log.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a race that fails shows its seed and its log")]

mod dropped;
mod graphs;
mod hands;
mod store;
#[path = "../support/mod.rs"]
mod support;
mod world;

use self::world::{Race, Report, World};

/// The seeds of each kind of race.
fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| {
        std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap_or_else(|_| panic!("{name}: {text}")))
    };
    match number("FERRATA_RACE_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("FERRATA_RACE_FIRST").unwrap_or(0);
            first..first + number("FERRATA_RACES").unwrap_or(450)
        }
    }
}

/// Runs one race to its end, in its own Tokio runtime.
fn run(race: Race, seed: u64) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(World::race(race, seed))
}

fn races(race: Race) {
    let mut all = Report::default();
    for seed in seeds() {
        let caught = std::panic::catch_unwind(|| run(race, seed));
        match caught {
            Ok(report) => all.add(&report),
            Err(panic) => {
                eprintln!(
                    "replay with: FERRATA_RACE_SEED={seed} cargo test -p ferrata-core --test races {race:?}"
                );
                std::panic::resume_unwind(panic);
            }
        }
    }
    if seeds().count() >= 200 {
        all.check_coverage(race);
    }
}

/// Two processes on a store without faults.
#[test]
#[allow(non_snake_case, reason = "named as the race is, so that a seed is replayed by its name")]
fn Calm() {
    races(Race::Calm);
}

/// The same with lost replies and failed appends.
#[test]
#[allow(non_snake_case, reason = "named as the race is, so that a seed is replayed by its name")]
fn Lossy() {
    races(Race::Lossy);
}

#[test]
fn a_seed_always_gives_the_same_log() {
    for race in [Race::Calm, Race::Lossy] {
        for seed in 0..20 {
            let (one, other) = (run(race, seed), run(race, seed));
            assert_eq!(one.log, other.log, "{race:?} {seed}");
            assert!(!one.log.is_empty());
        }
    }
}

//! Runs the long forms of the tests with many processes. The long forms are larger explorations of the model, new seeds of the simulation, more of
//! the race tests, and then rounds in which processes and servers are killed, stopped and cut off.
#![expect(clippy::print_stdout, reason = "how far it has come is what a person watches")]

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::args::{ChaosOptions, Services};
use crate::cargo::Cargo;
use crate::servers::{self, Servers};
use crate::testing::{Programs, Report};

/// The simulations of runs and of queues, which use only the memory of this process.
const SIMULATION: &str = "test --package ferrata-core --package ferrata-queue --test sim --locked";

/// Tests with several concurrent writers to one run.
const RACES: &str = "test --package ferrata-core --test races --locked";

/// The model of the protocol, with explorations that take minutes.
const MODEL: &str = "test --package ferrata-model --locked";

/// Tests with real processes on real servers.
const PROCESSES: &str = "test --package ferrata-tests --test bank --test fleet --test kill --no-run --locked";

/// Simulates the given number of seeds, and then plays rounds until the time is over. Stops at the first failure, and prints its seed.
pub(crate) fn run(root: &Path, options: &ChaosOptions) -> Result<()> {
    Cargo::new(MODEL).args(&["--", "--ignored", "--nocapture"].map(str::to_owned)).run(root)?;
    if options.seeds > 0 {
        // Begin far from the seeds that every test run simulates.
        let first = RandomState::new().build_hasher().finish() >> 8;
        let call = Cargo::new(SIMULATION).env("FERRATA_SIM_FIRST", first.to_string());
        call.env("FERRATA_SIMS", options.seeds.to_string())
            .args(&["--", "--nocapture"].map(str::to_owned))
            .run(root)?;
        Cargo::new(RACES).env("FERRATA_RACES", options.seeds.to_string()).run(root)?;
    }
    if options.minutes == 0 {
        return Ok(());
    }
    servers::prepare(Services::Native)?;
    let programs = Programs::build(root, PROCESSES)?;
    let servers = Servers::start(Services::Native)?;
    #[expect(clippy::disallowed_methods, reason = "a person's minutes are those of this machine")]
    let begun = Instant::now();
    for round in 1_u64.. {
        let mut report = Report::begin();
        let all = ["--nocapture", "--include-ignored"].map(str::to_owned);
        programs.clone().run(&servers.variables(), &all, &mut report)?;
        report.end()?;
        println!("==> chaos: round {round}, {:.0} s", begun.elapsed().as_secs_f64());
        if begun.elapsed() >= Duration::from_secs(60 * options.minutes) {
            break;
        }
    }
    Ok(())
}

//! How the workspace's tests are run: cargo builds them in one call, and several of them run at once.

mod programs;
mod report;
mod usage;

use std::path::Path;

use anyhow::Result;

use crate::args::{Services, TestOptions};
use crate::cargo::Cargo;
use crate::servers::{self, Servers};
pub(crate) use crate::testing::programs::Programs;
pub(crate) use crate::testing::report::Report;

/// The call that builds every test and every program that a test runs.
///
/// Without a selection of targets, `cargo test` builds the example programs, too.
pub(crate) const BUILD: &str = "test --workspace --all-features --no-run --locked";

/// What builds and runs the examples in the documentation.
const EXAMPLES: &str = "test --workspace --all-features --doc --no-fail-fast --locked";

/// What they are called among the test programs.
const DOCUMENTATION: &str = "documentation";

/// Needs no server and no driver of one.
const QUICK: &str = "test --no-run --locked --package ferrata --package ferrata-core --package ferrata-engine --package ferrata-history --package ferrata-store \
                     --package ferrata-testing --package ferrata-dot --package ferrata-store-conformance --package ferrata-store-fs";

/// What a quick run leaves out unless tests are named: explorations and long histories, which take two thirds of the processor time of
/// what needs no server. The rest takes less than two minutes on two cores, once it is built.
const LONG: [&str; 7] = [
    "crates/core/tests/crash",
    "crates/core/tests/history",
    "crates/core/tests/model",
    "crates/core/tests/races",
    "crates/core/tests/sim",
    "crates/dot/tests/fuzz",
    "crates/store-fs/tests/past",
];

/// What needs an S3 server, and no other, with the tests that do: the store's own, and the kills.
const S3: [(&str, &[&str]); 2] = [
    ("test --package ferrata-store-s3 --all-features --no-run --locked", &[]),
    ("test --package ferrata-tests --test kill --no-run --locked", &["s3::"]),
];

/// Builds the tests, then runs them with their servers.
///
/// They are built first: a mistake costs no server, and no server waits through a long build.
pub(crate) fn run(root: &Path, options: &TestOptions) -> Result<()> {
    match options.services {
        Services::RealS3 => return run_on_real_s3(root, options),
        Services::None => return run_quickly(root, options),
        Services::Native | Services::Env => servers::prepare(options.services)?,
    }
    let mut report = Report::begin();
    let mut programs = Programs::build(root, BUILD)?;
    report.built();
    programs.add(DOCUMENTATION, root, &Cargo::new(EXAMPLES));
    let servers = Servers::start(options.services)?;
    programs.run(&servers.variables(), &options.filter, &mut report)?;
    // The servers stop when this value ends; if this process is killed, their watchdogs see to it.
    drop(servers);
    report.end()
}

/// Runs what concerns no server and does not take long.
fn run_quickly(root: &Path, options: &TestOptions) -> Result<()> {
    let mut report = Report::begin();
    let mut programs = Programs::build(root, QUICK)?;
    report.built();
    if options.filter.is_empty() {
        programs.leave_out(&LONG);
        Report::left_out(&LONG);
    }
    programs.run(&[], &options.filter, &mut report)?;
    report.end()
}

/// Runs what concerns S3 on a distributed server.
fn run_on_real_s3(root: &Path, options: &TestOptions) -> Result<()> {
    servers::prepare(options.services)?;
    let mut report = Report::begin();
    let programs = S3.map(|(build, own)| Ok((Programs::build(root, build)?, own)));
    let programs = programs.into_iter().collect::<Result<Vec<_>>>()?;
    report.built();
    let servers = Servers::start(options.services)?;
    for (programs, own) in programs {
        let own = own.iter().map(|&word| word.to_owned());
        let filter: Vec<String> = own.chain(options.filter.iter().cloned()).collect();
        programs.run(&servers.variables(), &filter, &mut report)?;
    }
    drop(servers);
    report.end()
}

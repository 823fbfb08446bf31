//! Runs the tests of the workspace. Cargo builds them in one call, and several test programs run concurrently.

mod programs;
mod report;
mod usage;

use std::path::Path;

use anyhow::Result;

use crate::args::{Services, TestOptions};
use crate::cargo::Cargo;
use crate::servers::{self, Servers};
pub(crate) use crate::testing::programs::Programs;
use crate::testing::report::Report;
pub(crate) use crate::testing::report::Row;

/// The call that builds every test, and every program that a test runs.
///
/// Without a selection of targets, `cargo test` builds the example programs too.
pub(crate) const BUILD: &str = "test --workspace --all-features --no-run --locked";

/// The call that builds and runs the examples in the documentation.
const EXAMPLES: &str = "test --workspace --all-features --doc --no-fail-fast --locked";

/// The name of these examples among the test programs.
const DOCUMENTATION: &str = "documentation";

/// The call that builds the tests that need no server and no driver of one.
const QUICK: &str = "test --no-run --locked --package ferrata --package ferrata-core --package ferrata-engine --package ferrata-history --package ferrata-store \
                     --package ferrata-testing --package ferrata-dot --package ferrata-store-conformance --package ferrata-store-fs";

/// The test programs that a quick run skips, unless tests are named. These programs are explorations and long histories, and take two thirds of the
/// processor time of all tests that need no server. The other tests take less than two minutes on two cores, once they are built.
const LONG: [&str; 7] = [
    "crates/core/tests/crash",
    "crates/core/tests/history",
    "crates/core/tests/model",
    "crates/core/tests/races",
    "crates/core/tests/sim",
    "crates/dot/tests/fuzz",
    "crates/store-fs/tests/past",
];

/// The tests that need an S3 server and no other server: those of the store, and the tests that kill processes.
const S3: [(&str, &[&str]); 2] = [
    ("test --package ferrata-store-s3 --all-features --no-run --locked", &[]),
    ("test --package ferrata-tests --test kill --no-run --locked", &["s3::"]),
];

/// Builds the tests, and then runs them with their servers.
///
/// The build comes first. So a mistake in the code starts no server, and no server waits during a long build.
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
    // Dropping this value stops the servers. If this process is killed, their watchdogs stop them.
    drop(servers);
    report.end()
}

/// Runs the tests that need no server and do not take long.
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

/// Runs the tests of S3 on a distributed server.
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

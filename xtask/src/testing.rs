//! How the workspace's tests are run: one call of cargo, made here and nowhere else.

use std::num::NonZero;
use std::path::Path;

use anyhow::Result;

use crate::args::{Services, TestOptions};
use crate::cargo::Cargo;
use crate::servers::{self, Servers};

/// The call that builds every test and every program that a test runs.
pub(crate) const BUILD: &str = "test --workspace --all-features --no-run --locked";

/// How many tests of a program run at once.
const THREADS: &str = "RUST_TEST_THREADS";

/// Returns the call that builds and runs every test, with `filter` handed on to the test programs.
///
/// Without a selection of targets, `cargo test` builds the example programs, too, and runs the examples in the documentation.
/// A test that wants a server finds its address in the environment of this call.
fn command(filter: &[String]) -> Cargo {
    let call = Cargo::new("test --workspace --all-features --no-fail-fast --locked");
    if filter.is_empty() { call } else { call.args(&["--".to_owned()]).args(filter) }
}

/// Has each test program run twice as many tests at once as there are cores, unless the caller says how many: most of their time
/// tests wait for a server or a clock.
fn in_threads(call: Cargo) -> Cargo {
    if std::env::var_os(THREADS).is_some() {
        return call;
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    call.env(THREADS, (2 * cores).to_string())
}

/// What needs an S3 server, and no other: the store's own tests, and the kills.
const S3: [&str; 2] = [
    "test --package ferrata-store-s3 --all-features --no-fail-fast --locked",
    "test --package ferrata-tests --test kill --no-fail-fast --locked -- s3::",
];

/// Builds the tests, then runs them with their servers.
///
/// They are built first: a mistake costs no server, and no server waits through a long build.
pub(crate) fn run(root: &Path, options: &TestOptions) -> Result<()> {
    servers::prepare(options.services)?;
    if options.services == Services::RealS3 {
        return run_on_real_s3(root, options);
    }
    Cargo::new(BUILD).run(root)?;
    let servers = Servers::start(options.services)?;
    let mut call = in_threads(command(&options.filter));
    for (variable, url) in servers.variables() {
        call = call.hidden_env(variable, url);
    }
    // The servers stop when this value ends; if this process is killed, their watchdogs see to it.
    let outcome = call.run(root);
    drop(servers);
    outcome
}

/// Runs what concerns S3 on a distributed server.
fn run_on_real_s3(root: &Path, options: &TestOptions) -> Result<()> {
    let servers = Servers::start(options.services)?;
    for line in S3 {
        let mut call = Cargo::new(line);
        if !options.filter.is_empty() {
            let separator: &[String] = if line.contains(" -- ") { &[] } else { &["--".to_owned()] };
            call = call.args(separator).args(&options.filter);
        }
        for (variable, value) in servers.variables() {
            call = call.hidden_env(variable, value);
        }
        call.run(root)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_reaches_the_test_programs() {
        assert!(command(&["resume".to_owned()]).to_string().ends_with(" -- resume"));
        assert!(!command(&[]).to_string().contains(" -- "));
    }
}

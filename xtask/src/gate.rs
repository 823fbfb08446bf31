//! The gate that every change must pass. Its steps only read the repository and never change it.

use std::path::Path;

use anyhow::Result;

use crate::args::{TestOptions, Tests};
use crate::cargo::Cargo;
use crate::steps::{self, Step};
use crate::{testing, tidy, ui};

/// Runs the gate.
///
/// The quick steps come first, so that a mistake is found within seconds. Every call uses the lock file as it is committed.
pub(crate) fn run(root: &Path, tests: Tests) -> Result<()> {
    steps::run(root, &plan(root, tests))
}

fn plan(root: &Path, tests: Tests) -> Vec<Step> {
    let clippy = Cargo::new("clippy --workspace --all-targets --all-features --locked -- -D warnings");
    let docs = Cargo::new("doc --workspace --no-deps --all-features --document-private-items --locked")
        .env("RUSTDOCFLAGS", "-Dwarnings");
    vec![
        Step::cargo("format", Cargo::new("fmt --all --check")),
        Step::inside("tidy", "cargo xtask tidy", tidy::run),
        deny(root),
        ui::step(),
        Step::cargo("clippy", clippy),
        match tests {
            Tests::Run => {
                Step::inside("tests", "cargo xtask test", |root| testing::run(root, &TestOptions::default()))
            }
            Tests::Skip => Step::skipped("tests", "asked for by --skip-tests"),
        },
        Step::cargo("docs", docs),
        package(),
    ]
}

/// The packages that are not published.
const UNPUBLISHED: [&str; 9] = [
    "ferrata-benches",
    "ferrata-example-redb-store",
    "ferrata-example-service",
    "ferrata-examples",
    "ferrata-mistakes",
    "ferrata-model",
    "ferrata-test-servers",
    "ferrata-tests",
    "xtask",
];

/// Returns the arguments that select the published crates.
pub(crate) fn published() -> String {
    UNPUBLISHED.iter().fold("--workspace".to_owned(), |line, name| format!("{line} --exclude {name}"))
}

/// Assembles the packages that would be published, in the form for the registry, without any request to the registry.
///
/// The crates are not built from their packages, because that takes as long as a build of the whole workspace. Such a build would only find files
/// that a package leaves out. `cargo xtask release` does it.
fn package() -> Step {
    let call = format!("package {} --no-verify --allow-dirty --locked --offline --quiet", published());
    Step::cargo("package", Cargo::new(&call))
}

/// Checks licenses, sources and banned crates.
///
/// A daily job checks advisories. An advisory that is published overnight must not stop a change that has nothing to do with it.
fn deny(root: &Path) -> Step {
    if Cargo::new("deny --version").succeeds_quietly(root) {
        Step::cargo(
            "deny",
            Cargo::new("deny --workspace --all-features --locked check bans licenses sources"),
        )
    } else {
        Step::skipped("deny", "not installed (`cargo install --locked cargo-deny` adds it)")
    }
}

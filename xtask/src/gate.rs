//! The gate every change passes: a row of steps that read and never write.

use std::path::Path;

use anyhow::Result;

use crate::args::{TestOptions, Tests};
use crate::cargo::Cargo;
use crate::steps::{self, Step};
use crate::{testing, tidy, ui};

/// Runs the gate.
///
/// The quick steps come first, so that a slip costs seconds. Every call takes the lock file as it is committed.
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

/// What would be published, put together as the registry gets it, without asking the registry for anything.
///
/// The crates are not built from their packages: that takes as long as the whole workspace, and what it could find beside the other steps is a
/// file that a package leaves out. The release does it, by `cargo publish --workspace --dry-run`.
fn package() -> Step {
    const INNER: [&str; 8] = [
        "ferrata-benches",
        "ferrata-example-service",
        "ferrata-examples",
        "ferrata-mistakes",
        "ferrata-model",
        "ferrata-test-servers",
        "ferrata-tests",
        "xtask",
    ];
    let inner: String = INNER.iter().map(|name| format!(" --exclude {name}")).collect();
    let call = format!("package --workspace{inner} --no-verify --allow-dirty --locked --offline --quiet");
    Step::cargo("package", Cargo::new(&call))
}

/// Licences, sources and banned crates.
///
/// Advisories are left to a daily job: one published overnight must not stop a change that has nothing to do with it.
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

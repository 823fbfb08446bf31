//! All automation of Ferrata, as `cargo xtask`. This file reads the command line, and the modules do the work.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "talking to a person at a terminal is its purpose"
)]

mod args;
mod bench;
mod cargo;
mod fix;
mod gate;
mod prove;
mod release;
mod servers;
mod shell;
mod steps;
mod testing;
mod tidy;
mod ui;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::args::Command;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let command = args::parse(std::env::args().skip(1))?;
    let root = root()?;
    match command {
        Command::Help => {
            print!("{}", args::USAGE);
            Ok(())
        }
        Command::Test(options) => testing::run(root, &options),
        Command::Bench(options) => bench::run(root, &options),
        Command::Prove(options) => prove::run(root, &options),
        Command::Release(options) => release::run(root, &options),
        Command::Ci { tests } => gate::run(root, tests),
        Command::Fix => fix::run(root),
        Command::Tidy => tidy::run(root),
        Command::TidyWrite => tidy::write(root),
        Command::TidySizes => tidy::list_sizes(root),
        Command::Ui { check: false } => ui::build(root),
        Command::Ui { check: true } => ui::check(root),
        Command::LargeUi { release } => ui::large(root, release),
    }
}

/// Returns the root of the repository: the folder that contains the folder of this crate.
fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask lies in no folder; restore it to `xtask/` of the repository")
}

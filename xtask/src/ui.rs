//! Builds the page of the inspector from its sources, and compares it with the committed page. So users of the crate do not need Node.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

use anyhow::{Context, Result, bail};

use crate::args::Services;
use crate::cargo::Cargo;
use crate::servers::{self, Servers};
use crate::steps::Step;

/// The folder of the sources, and of the page that was built from them.
const SOURCES: &str = "crates/inspector/ui";
const ASSETS: &str = "crates/inspector/assets";

/// Maximum total size of the page's files in bytes, each compressed with gzip. Users may open the page at night over a slow line, through a proxy
/// that compresses.
const MAX_COMPRESSED: usize = 100_000;

/// A script that prints the total size in bytes of the files in its arguments, each compressed with gzip. The script needs Node, which has just built
/// the page.
const COMPRESSED_SIZE: &str = "\
const { gzipSync } = require('node:zlib');
const { readFileSync } = require('node:fs');
console.log(process.argv.slice(1).reduce((bytes, path) => bytes + gzipSync(readFileSync(path)).length, 0));";

/// Builds the page into the crate.
pub(crate) fn build(root: &Path) -> Result<()> {
    install(root)?;
    bundle(root, &root.join(ASSETS))
}

/// Builds the page in another folder, and fails if it differs from the page in the crate.
pub(crate) fn check(root: &Path) -> Result<()> {
    let built = root.join("target/inspector-ui");
    install(root)?;
    bundle(root, &built)?;
    let (built, committed) = (files(&built)?, files(&root.join(ASSETS))?);
    let names = built.keys().chain(committed.keys());
    if let Some(name) = names.into_iter().find(|name| built.get(*name) != committed.get(*name)) {
        bail!("{ASSETS}/{name} is not what {SOURCES} builds: run `cargo xtask ui`, and commit it");
    }
    let paths = committed.keys().map(|name| root.join(ASSETS).join(name));
    let output = Command::new("node")
        .args(["--eval", COMPRESSED_SIZE, "--"])
        .args(paths)
        .output()
        .context("run node")?;
    let bytes: usize =
        String::from_utf8_lossy(&output.stdout).trim().parse().context("node printed no size of the page")?;
    if bytes > MAX_COMPRESSED {
        bail!(
            "the page has {bytes} bytes when compressed, and {MAX_COMPRESSED} are allowed: make it smaller"
        );
    }
    println!("the page has {bytes} bytes when compressed, and {MAX_COMPRESSED} are allowed");
    Ok(())
}

/// Runs the long forms of the inspector's tests: its answers for a store that contains much data, and then its page, on files and on Postgres. Prints
/// the measured figures.
pub(crate) fn large(root: &Path, release: bool) -> Result<()> {
    let profile = if release { "--release" } else { "" };
    let call = |package: &str, program: &str, filter: &[&str]| {
        let line = format!("test {profile} --package {package} --test {program} --locked --");
        Cargo::new(&line).args(
            &[filter, &["--nocapture"]].concat().iter().map(|&word| word.to_owned()).collect::<Vec<_>>(),
        )
    };
    let answers = call("ferrata-inspector", "inspector", &["scale", "hidden"])
        .env("FERRATA_INSPECTOR_RUNS", "100000")
        .env("FERRATA_INSPECTOR_RECORDS", "10000")
        .env("FERRATA_INSPECTOR_ROWS", "50000")
        .env("FERRATA_INSPECTOR_HIDDEN", "200");
    answers.run(root)?;
    servers::prepare(Services::Native)?;
    let servers = Servers::start(Services::Native)?;
    let page = call("ferrata-cli", "cli", &["browser"])
        .env("FERRATA_BROWSER", "required")
        .env("FERRATA_BROWSER_RUNS", "100000")
        .env("FERRATA_BROWSER_RECORDS", "10000")
        .env("FERRATA_BROWSER_CHILDREN", "1000");
    servers.variables().into_iter().fold(page, |page, (name, url)| page.env(name, url)).run(root)
}

/// Returns the step of the gate. Without Node, the step reports that it was skipped.
pub(crate) fn step() -> Step {
    let has_node = Command::new("npm").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if has_node.is_ok_and(|status| status.success()) {
        Step::inside("page", "cargo xtask ui --check", check)
    } else {
        Step::skipped(
            "page",
            "Node is not installed: whether the inspector's page is what its sources build is not known",
        )
    }
}

fn install(root: &Path) -> Result<()> {
    npm(root, &["ci", "--ignore-scripts", "--no-audit", "--no-fund"], None)
}

fn bundle(root: &Path, out: &Path) -> Result<()> {
    npm(root, &["run", "build"], Some(out))
}

fn npm(root: &Path, arguments: &[&str], out: Option<&Path>) -> Result<()> {
    let mut command = Command::new("npm");
    command.args(arguments).current_dir(root.join(SOURCES)).stdin(Stdio::null());
    if let Some(out) = out {
        command.env("FERRATA_UI_OUT", out);
    }
    let status = match command.status() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("npm is not installed: the page is built with Node 20 or later")
        }
        status => status.context("npm cannot be started")?,
    };
    if !status.success() {
        bail!("`npm {}` failed ({status})", arguments.join(" "));
    }
    Ok(())
}

fn files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let entries = fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    entries
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?))
        })
        .collect()
}

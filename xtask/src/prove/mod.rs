//! Runs the long form of each proof for a share of the time, and writes one page with what was run and found.
//!
//! The seeds are new each time. A failed proof does not stop the others.
#![expect(clippy::print_stdout, reason = "how far it has come is what a person watches")]

mod machine;
mod pace;
mod page;
mod proofs;
mod report;

use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::page::{Circumstances, ProofResult, grouped};
use self::proofs::{LONG, Length, PROOFS, Proof};
use crate::args::{ProveOptions, Services};
use crate::servers::{self, Servers};
use crate::shell;
use crate::testing::{self, Programs, Row};

/// Runs the selected proofs and writes the page.
///
/// # Errors
///
/// Fails if a proof fails, after the page is written.
pub(crate) fn run(root: &Path, options: &ProveOptions) -> Result<()> {
    let proofs = select(&options.parts)?;
    let needs_servers = proofs.iter().any(|proof| proof.needs_servers);
    if needs_servers {
        servers::prepare(Services::Native)?;
    }
    let git = |arguments: &[&str]| shell::read(root, "git", arguments);
    let commit = git(&["rev-parse", "HEAD"])?;
    let is_dirty = !git(&["status", "--porcelain"])?.is_empty();
    let programs = Programs::build(root, &build_line(&proofs, options.parts.is_empty()))?;
    let servers = if needs_servers { Some(Servers::start(Services::Native)?) } else { None };
    let variables = servers.as_ref().map(Servers::variables).unwrap_or_default();
    let machine = machine::describe();
    let date = shell::read(root, "date", &["-u", "+%Y-%m-%d %H:%M UTC"])?;
    let begun = now();
    let mut results = Vec::new();
    for (at, proof) in proofs.iter().enumerate() {
        let weights: Vec<u32> = proofs[at..].iter().map(|proof| proof.weight).collect();
        let share = pace::share(options.time.saturating_sub(begun.elapsed()), &weights);
        println!("\n==> {}: {}, for about {:.0} s", proof.name, proof.checks, share.as_secs_f64());
        let programs = programs.select(proof.programs.iter().map(|program| program.source))?;
        let is_long = options.time.as_secs() >= LONG;
        let mut call =
            ProofCall { proof, programs, variables: &variables, is_long, state: CallState::default() };
        call.fill(share)?;
        results.push(call.result());
    }
    // Dropping this value stops the servers. If this process is killed, their watchdogs stop them.
    drop(servers);
    let circumstances = Circumstances {
        date,
        commit,
        is_dirty,
        requested: options.time,
        took: begun.elapsed(),
        machine,
        compiler: shell::read(root, "rustc", &["--version"])?,
    };
    let text = sealed(&circumstances, &results)?;
    match &options.write {
        Some(file) => {
            fs::write(root.join(file), &text).with_context(|| format!("cannot write {file}"))?;
            println!("\nwrote {file}");
        }
        None => println!("\n{text}"),
    }
    let failed: Vec<&str> =
        results.iter().filter(|result| !result.failures.is_empty()).map(|result| result.name).collect();
    if !failed.is_empty() {
        bail!("these proofs failed; the page names the tests: {}", failed.join(", "));
    }
    Ok(())
}

/// Returns the proofs with these names, or all.
fn select(parts: &[String]) -> Result<Vec<&'static Proof>> {
    let names: Vec<&str> = PROOFS.iter().map(|proof| proof.name).collect();
    if let Some(unknown) = parts.iter().find(|part| !names.contains(&part.as_str())) {
        bail!("there is no proof `{unknown}`; choose from {}", names.join(", "));
    }
    let is_selected = |proof: &&Proof| parts.is_empty() || parts.iter().any(|part| part == proof.name);
    Ok(PROOFS.iter().filter(is_selected).collect())
}

/// Returns the call of cargo that builds the proofs. All of them share the build of the tests.
fn build_line(proofs: &[&Proof], is_all: bool) -> String {
    if is_all {
        return testing::BUILD.to_owned();
    }
    let selected = proofs::selection(proofs.iter().flat_map(|proof| proof.programs));
    format!("test {selected} --all-features --no-run --locked")
}

/// One proof, while it runs.
struct ProofCall<'a> {
    proof: &'a Proof,
    programs: Programs,
    /// The variables that name the servers.
    variables: &'a [(&'static str, String)],
    is_long: bool,
    state: CallState,
}

/// What the calls of a proof have done.
#[derive(Debug, Default)]
struct CallState {
    took: Duration,
    /// The number of seeds, cases or rounds.
    count: u64,
    /// The number of cases that the tests counted, or of passed tests.
    counted: u64,
    /// The seeds for the page.
    seeds: Vec<String>,
    /// The variables of the call that repeats the proof.
    repeat: Vec<(&'static str, String)>,
    failures: Vec<String>,
}

impl ProofCall<'_> {
    /// Runs the proof until its share of the time is over, or until a test fails.
    fn fill(&mut self, share: Duration) -> Result<()> {
        let base = new_seed();
        match self.proof.length {
            Length::Exhaustive => self.call(&[])?,
            Length::Seconds { seed, seconds } => {
                let time = share.as_secs().max(1).to_string();
                self.state.seeds.push(base.to_string());
                self.call(&[(seed, base.to_string()), (seconds, time)])?;
            }
            Length::Seeds { first, count, batch } => {
                let mut next = Some(batch);
                while let Some(size) = next {
                    let from = base + self.state.count;
                    self.call(&[(first, from.to_string()), (count, size.to_string())])?;
                    self.state.count += size;
                    self.state.repeat =
                        vec![(first, base.to_string()), (count, self.state.count.to_string())];
                    next = self.next_batch(share, batch);
                }
                self.state.seeds.push(format!("{base} to {}", base + self.state.count - 1));
            }
            Length::Cases { seed, count, batch } => {
                let mut next = Some(batch);
                while let Some(size) = next {
                    let own = (base + u64::try_from(self.state.seeds.len())?).to_string();
                    self.state.seeds.push(own.clone());
                    self.call(&[(seed, own), (count, size.to_string())])?;
                    self.state.count += size;
                    next = self.next_batch(share, batch);
                }
            }
            Length::Rounds { seeds } => {
                loop {
                    let own = (base + self.state.count).to_string();
                    let set: Vec<_> = seeds.iter().map(|name| (*name, own.clone())).collect();
                    self.call(&set)?;
                    self.state.count += 1;
                    // A round that has begun is completed, so begin none that would take twice as long as is left.
                    let round = self.state.took / u32::try_from(self.state.count)?;
                    if !self.state.failures.is_empty() || self.state.took + round / 2 >= share {
                        break;
                    }
                }
                self.state.seeds.push(format!("{base} to {}", base + self.state.count - 1));
            }
        }
        Ok(())
    }

    fn next_batch(&self, share: Duration, batch: u64) -> Option<u64> {
        let has_passed = self.state.failures.is_empty();
        has_passed.then(|| pace::next_batch(share, self.state.took, self.state.count, batch)).flatten()
    }

    /// Runs the tests of the proof once, with `set` in addition to the variables of the servers.
    fn call(&mut self, set: &[(&'static str, String)]) -> Result<()> {
        let shown: String = set.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        println!("==> {}:{shown}", self.proof.name);
        if self.state.repeat.is_empty() {
            self.state.repeat = set.to_vec();
        }
        let variables = [self.variables, set].concat();
        let begun = now();
        let rows = self.programs.run_in_turn(&variables, &self.proof.arguments(self.is_long))?;
        self.state.took += begun.elapsed();
        for row in rows {
            self.state.counted += report::cases(self.proof.length, &row);
            self.record_failures(&row);
        }
        Ok(())
    }

    fn record_failures(&mut self, row: &Row) {
        let failures = report::failures(row);
        if !failures.is_empty() {
            println!("\n---- {}\n{}", row.name, row.output.trim_end());
        }
        self.state.failures.extend(failures);
    }

    fn result(self) -> ProofResult {
        let CallState { took, count, counted, seeds, repeat, failures } = self.state;
        let cases = match self.proof.length {
            Length::Exhaustive => format!("{} states", grouped(counted)),
            Length::Seconds { .. } => format!("{} inputs", grouped(counted)),
            Length::Seeds { .. } => format!("{} seeds", grouped(count)),
            Length::Cases { .. } => format!("{} sequences", grouped(count)),
            Length::Rounds { .. } => format!("{count} rounds, {} tests passed", grouped(counted)),
        };
        ProofResult {
            name: self.proof.name,
            checks: self.proof.checks,
            cases,
            seeds: seeds.join(", "),
            took,
            command: self.proof.command(&repeat, self.is_long),
            failures,
        }
    }
}

/// Returns the page with its last line.
fn sealed(circumstances: &Circumstances, results: &[ProofResult]) -> Result<String> {
    let text = page::page(circumstances, results);
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), &text)?;
    let seal = page::seal(&circumstances.commit, &shell::sha256(file.path())?);
    Ok(text + &seal)
}

/// Returns a seed far from those that every test run uses.
fn new_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 8
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a person's hours are those of this machine")]
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_are_selected_by_name() {
        assert_eq!(select(&[]).unwrap().len(), PROOFS.len());
        let selected = select(&["races".to_owned(), "runs".to_owned()]).unwrap();
        let names: Vec<&str> = selected.iter().map(|proof| proof.name).collect();
        assert_eq!(names, ["runs", "races"]);
        assert_eq!(
            build_line(&selected, false),
            "test -p ferrata-core --test races --test sim --all-features --no-run --locked"
        );
        assert_eq!(build_line(&selected, true), testing::BUILD);
        let error = select(&["sim".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`sim`") && error.contains("model, runs"), "{error}");
    }

    #[test]
    fn seal_is_hash_of_lines_above() {
        let circumstances = Circumstances {
            date: String::new(),
            commit: "abc".to_owned(),
            is_dirty: false,
            requested: Duration::ZERO,
            took: Duration::ZERO,
            machine: String::new(),
            compiler: String::new(),
        };
        let text = sealed(&circumstances, &[]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("PAGE"), &text).unwrap();
        // The command of the page.
        let sum = shell::read(folder.path(), "sh", &["-c", "head -n -1 PAGE | sha256sum"]).unwrap();
        let digest = sum.split_whitespace().next().unwrap();
        assert!(text.ends_with(&page::seal("abc", digest)), "{text}");
    }
}

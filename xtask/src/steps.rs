//! Named steps. Each prints its name and its time. The first failure ends the sequence, and prints the line that repeats the step.
#![expect(clippy::print_stdout, reason = "progress is what a person watches the gate for")]

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::cargo::Cargo;

/// A step of the gate.
#[derive(Debug)]
pub(crate) struct Step {
    name: &'static str,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Cargo(Cargo),
    Inside { repeat: &'static str, work: fn(&Path) -> Result<()> },
    Skipped { why: &'static str },
}

impl Step {
    /// Creates a step that is a call of cargo.
    pub(crate) fn cargo(name: &'static str, call: Cargo) -> Self {
        Self { name, action: Action::Cargo(call) }
    }

    /// Creates a step that this process performs. `repeat` is the line that performs the step again.
    pub(crate) fn inside(name: &'static str, repeat: &'static str, work: fn(&Path) -> Result<()>) -> Self {
        Self { name, action: Action::Inside { repeat, work } }
    }

    /// Creates a step that is skipped. The step prints its name, so that a step that did not run never looks as if it had passed.
    pub(crate) fn skipped(name: &'static str, why: &'static str) -> Self {
        Self { name, action: Action::Skipped { why } }
    }

    fn run(&self, root: &Path) -> Result<Outcome> {
        let (repeat, result) = match &self.action {
            Action::Skipped { why } => return Ok(Outcome::Skipped(why)),
            Action::Cargo(call) => {
                println!("\n==> {}: {call}", self.name);
                (call.to_string(), time(|| call.run(root)))
            }
            Action::Inside { repeat, work } => {
                println!("\n==> {}: {repeat}", self.name);
                ((*repeat).to_owned(), time(|| work(root)))
            }
        };
        let took = result
            .map_err(|error| anyhow!("step `{}`: {error:#}\nRepeat it with:\n    {repeat}", self.name))?;
        println!("==> {}: ok in {:.1} s", self.name, took.as_secs_f64());
        Ok(Outcome::Passed(took))
    }
}

enum Outcome {
    Passed(Duration),
    Skipped(&'static str),
}

/// Runs `steps` in order, and then prints a summary of all of them.
pub(crate) fn run(root: &Path, steps: &[Step]) -> Result<()> {
    let mut summary = Vec::new();
    for step in steps {
        summary.push(match step.run(root)? {
            Outcome::Passed(took) => format!("{:<10} ok in {:.1} s", step.name, took.as_secs_f64()),
            Outcome::Skipped(why) => format!("{:<10} skipped: {why}", step.name),
        });
    }
    println!("\n{}", summary.join("\n"));
    Ok(())
}

/// Does `work`, and returns its duration.
fn time(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    #[expect(clippy::disallowed_methods, reason = "the gate times itself for a person; no run depends on it")]
    let start = Instant::now();
    work().map(|()| start.elapsed())
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn first_failed_step_ends_run_with_command() {
        let steps = [
            Step::skipped("absent", "not installed"),
            Step::inside("good", "cargo good", |_| Ok(())),
            Step::inside("bad", "cargo bad", |_| bail!("this one is broken")),
            Step::inside("never", "cargo never", |_| bail!("a step after a failure was run")),
        ];
        let failure = run(Path::new("."), &steps).unwrap_err();
        assert_eq!(failure.to_string(), "step `bad`: this one is broken\nRepeat it with:\n    cargo bad");
    }
}

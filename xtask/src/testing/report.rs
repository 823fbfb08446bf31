//! What a person sees of the tests: a line for each program when it ends, what failed, and at the end what took how long.
#![expect(clippy::print_stdout, reason = "progress and results are what a person watches")]

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::usage;

/// Programs that took less are one line together.
const WORTH_A_LINE: Duration = Duration::from_secs(1);

/// How one program of tests ended.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    /// By the clock.
    pub(super) took: Duration,
    /// By the processors: its own, and that of the processes that it started and waited for.
    pub(super) processor: Duration,
    pub(super) status: ExitStatus,
    pub(super) output: String,
}

/// What is known of one run of the tests.
#[derive(Debug)]
pub(crate) struct Report {
    begun: Instant,
    before: Duration,
    build: Duration,
    expected: usize,
    running: Vec<String>,
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn begin() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "a person is told how long it took; no run depends on it"
        )]
        let begun = Instant::now();
        let before = usage::of_children();
        Self { begun, before, build: Duration::ZERO, expected: 0, running: Vec::new(), rows: Vec::new() }
    }

    /// Notes that everything is built.
    pub(crate) fn built(&mut self) {
        self.build = usage::of_children().saturating_sub(self.before);
        println!(
            "==> built in {:.0} s, {:.0} s of processor time",
            self.begun.elapsed().as_secs_f64(),
            self.build.as_secs_f64()
        );
    }

    pub(super) fn expect(&mut self, programs: usize) {
        self.expected += programs;
    }

    pub(super) fn begun(&mut self, name: &str) {
        self.running.push(name.to_owned());
    }

    /// Says how a program ended, with what it printed if it failed or if that was asked for.
    pub(super) fn ended(&mut self, row: Row, show: bool) {
        self.running.retain(|name| *name != row.name);
        let tests = passed(&row.output);
        if !row.status.success() || (show && tests > 0) {
            println!("\n---- {}\n{}", row.name, row.output.trim_end());
        }
        // With the signal, where one killed it: what it printed does not say so.
        let end = if row.status.success() { "ok".to_owned() } else { format!("FAILED ({})", row.status) };
        let (took, processor) = (row.took.as_secs_f64(), row.processor.as_secs_f64());
        let number = self.rows.len() + 1;
        let others = if self.running.is_empty() {
            String::new()
        } else {
            format!("; {} at work", self.running.join(", "))
        };
        println!(
            "[{number}/{}] {end} {}: {tests} tests, {took:.1} s ({processor:.1} s of processor time){others}",
            self.expected, row.name
        );
        self.rows.push(row);
    }

    /// Says what took how long, and fails if a program did.
    pub(crate) fn end(mut self) -> Result<()> {
        self.rows.sort_by_key(|row| std::cmp::Reverse(row.processor));
        println!("\nprocessor time  by the clock  tests");
        let (long, short): (Vec<_>, Vec<_>) = self.rows.iter().partition(|row| row.processor >= WORTH_A_LINE);
        for row in long {
            let (took, processor) = (row.took.as_secs_f64(), row.processor.as_secs_f64());
            println!("{processor:>12.1} s  {took:>10.1} s  {:>5}  {}", passed(&row.output), row.name);
        }
        let sum = |rows: &[&Row]| rows.iter().map(|row| row.processor).sum::<Duration>().as_secs_f64();
        println!("{:>12.1} s  {:>27} others", sum(&short), short.len());
        let all: Vec<&Row> = self.rows.iter().collect();
        let whole = usage::of_children().saturating_sub(self.before).as_secs_f64();
        let (build, tests) = (self.build.as_secs_f64(), sum(&all));
        println!(
            "{} tests in {:.0} s; processor time: {whole:.0} s, of which {build:.0} s the build, {tests:.0} s the tests, {:.0} s \
             their servers",
            all.iter().map(|row| passed(&row.output)).sum::<usize>(),
            self.begun.elapsed().as_secs_f64(),
            (whole - build - tests).max(0.0)
        );
        let failed: Vec<&str> =
            self.rows.iter().filter(|row| !row.status.success()).map(|row| row.name.as_str()).collect();
        if !failed.is_empty() {
            bail!("tests failed; what they printed is above: {}", failed.join(", "));
        }
        Ok(())
    }
}

/// Counts the tests that passed, in each summary of a program's output.
fn passed(output: &str) -> usize {
    let summaries = output.lines().filter_map(|line| line.strip_prefix("test result: ")?.split_once(". "));
    let counts = summaries.filter_map(|(_, counts)| counts.split_once(" passed")?.0.parse::<usize>().ok());
    counts.sum()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn row(name: &str, code: i32) -> Row {
        let output = "running 2 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored\n".to_owned();
        let time = Duration::from_secs(2);
        Row { name: name.to_owned(), took: time, processor: time, status: ExitStatus::from_raw(code), output }
    }

    #[test]
    fn the_tests_of_each_summary_are_counted() {
        assert_eq!(passed(&row("a", 0).output.repeat(2)), 4);
        assert_eq!(passed("test result: FAILED. 5 passed; 1 failed; 0 ignored"), 5);
        assert_eq!(passed("thread panicked"), 0);
    }

    #[test]
    fn whatever_failed_is_named_at_the_end() {
        let mut report = Report::begin();
        report.expect(3);
        for (name, code) in [("good", 0), ("bad", 256), ("killed", 9)] {
            report.begun(name);
            report.ended(row(name, code), false);
        }
        assert!(report.running.is_empty());
        let error = report.end().unwrap_err().to_string();
        assert!(error.ends_with("above: bad, killed"), "{error}");
        let mut report = Report::begin();
        report.ended(row("good", 0), true);
        report.end().unwrap();
    }
}

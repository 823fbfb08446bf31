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
        let tests = Counts::read(&row.output).passed;
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
            println!(
                "{processor:>12.1} s  {took:>10.1} s  {:>5}  {}",
                Counts::read(&row.output).passed,
                row.name
            );
        }
        let sum = |rows: &[&Row]| rows.iter().map(|row| row.processor).sum::<Duration>().as_secs_f64();
        println!("{:>12.1} s  {:>27} others", sum(&short), short.len());
        let all: Vec<&Row> = self.rows.iter().collect();
        let whole = usage::of_children().saturating_sub(self.before).as_secs_f64();
        let (build, tests) = (self.build.as_secs_f64(), sum(&all));
        println!(
            "{} tests in {:.0} s; processor time: {whole:.0} s, of which {build:.0} s the build, {tests:.0} s the tests, {:.0} s \
             their servers",
            Counts::of(&all).passed,
            self.begun.elapsed().as_secs_f64(),
            (whole - build - tests).max(0.0)
        );
        println!("{}", Counts::of(&all).line(self.begun.elapsed()));
        let failed: Vec<&str> =
            self.rows.iter().filter(|row| !row.status.success()).map(|row| row.name.as_str()).collect();
        if !failed.is_empty() {
            bail!("tests failed; what they printed is above: {}", failed.join(", "));
        }
        Ok(())
    }
}

/// How many tests ended how, as the summaries of test programs count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    ignored: usize,
}

impl Counts {
    /// Adds up each summary in the output of one program.
    fn read(output: &str) -> Self {
        let mut counts = Self::default();
        for summary in output.lines().filter_map(|line| line.strip_prefix("test result: ")) {
            let count = |word: &str| {
                let counts = summary.split(['.', ';']).filter_map(|part| part.trim().split_once(' '));
                let mut numbers = counts.filter(|(_, what)| *what == word).map(|(number, _)| number);
                numbers.next().and_then(|number| number.parse::<usize>().ok()).unwrap_or_default()
            };
            counts.passed += count("passed");
            counts.failed += count("failed");
            counts.ignored += count("ignored");
        }
        counts
    }

    /// A program that failed without a summary, killed perhaps, counts as one test that failed.
    fn of(rows: &[&Row]) -> Self {
        rows.iter().fold(Self::default(), |sum, row| {
            let counts = Self::read(&row.output);
            let failed = counts.failed.max(usize::from(!row.status.success()));
            Self {
                passed: sum.passed + counts.passed,
                failed: sum.failed + failed,
                ignored: sum.ignored + counts.ignored,
            }
        })
    }

    /// The line that `cargo test` ends a program with, for tools that read it.
    fn line(self, took: Duration) -> String {
        let end = if self.failed == 0 { "ok" } else { "FAILED" };
        format!(
            "test result: {end}. {} passed; {} failed; {} ignored; 0 measured; 0 filtered out; finished in {:.2}s",
            self.passed,
            self.failed,
            self.ignored,
            took.as_secs_f64()
        )
    }
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
        let counts = |passed, failed, ignored| Counts { passed, failed, ignored };
        assert_eq!(Counts::read(&row("a", 0).output.repeat(2)), counts(4, 0, 2));
        assert_eq!(Counts::read("test result: FAILED. 5 passed; 1 failed; 0 ignored"), counts(5, 1, 0));
        assert_eq!(Counts::read("thread panicked"), counts(0, 0, 0));
    }

    #[test]
    fn all_programs_together_have_a_summary_that_reads_like_one_of_theirs() {
        let (good, killed) =
            (row("good", 0), Row { output: "thread panicked".to_owned(), ..row("killed", 9) });
        let whole = Counts::of(&[&good, &good]);
        assert_eq!(Counts::read(&whole.line(Duration::from_secs(3))), whole);
        assert!(whole.line(Duration::ZERO).starts_with("test result: ok. 4 passed; 0 failed; 2 ignored;"));
        let line = Counts::of(&[&good, &killed]).line(Duration::ZERO);
        assert!(line.starts_with("test result: FAILED. 2 passed; 1 failed; 1 ignored;"), "{line}");
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

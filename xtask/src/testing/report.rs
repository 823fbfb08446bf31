//! The report of a test run for a person: a line for each program when it ends, the failures, and at the end the durations.
#![expect(clippy::print_stdout, reason = "progress and results are what a person watches")]

use std::collections::HashMap;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::usage;

/// Programs that took less time share one line.
const WORTH_A_LINE: Duration = Duration::from_secs(1);

/// The end of one test program.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// The duration by the clock.
    pub(crate) took: Duration,
    /// The processor time of the program, and of the processes that it started and waited for.
    pub(crate) processor: Duration,
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
}

impl Row {
    /// Returns the number of passed tests.
    pub(crate) fn passed(&self) -> u64 {
        u64::try_from(Counts::read(&self.output).passed).unwrap_or(u64::MAX)
    }
}

/// The state of one test run.
#[derive(Debug)]
pub(crate) struct Report {
    begun: Instant,
    before: Duration,
    build: Duration,
    /// The expected duration of each program, by its name.
    expected: HashMap<String, Duration>,
    /// The time at which the first program was started.
    from: Duration,
    /// The programs that are running, each with the time of its start.
    running: Vec<(String, Duration)>,
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
        Self {
            begun,
            before,
            build: Duration::ZERO,
            expected: HashMap::new(),
            from: Duration::ZERO,
            running: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Records that the build has ended.
    pub(crate) fn built(&mut self) {
        self.build = usage::of_children().saturating_sub(self.before);
        println!(
            "==> built in {:.0} s, {:.0} s of processor time",
            self.begun.elapsed().as_secs_f64(),
            self.build.as_secs_f64()
        );
    }

    /// Prints which programs are skipped.
    pub(super) fn left_out(names: &[&str]) {
        println!("==> left out, as they take long: {}; `cargo xtask test` runs them", names.join(", "));
    }

    /// Records the programs of the run, and the expected duration of each.
    pub(super) fn expect<'a>(&mut self, programs: impl Iterator<Item = (&'a str, Duration)>) {
        if self.expected.is_empty() {
            self.from = self.begun.elapsed();
        }
        self.expected.extend(programs.map(|(name, takes)| (name.to_owned(), takes)));
    }

    pub(super) fn begun(&mut self, name: &str) {
        self.running.push((name.to_owned(), self.begun.elapsed()));
    }

    /// Returns the expected remaining time at the current pace. A running program counts as done in proportion to its expected duration.
    fn to_go(&self, now: Duration) -> Duration {
        let takes = |name: &str| self.expected.get(name).copied().unwrap_or_default();
        let ended: Duration = self.rows.iter().map(|row| takes(&row.name)).sum();
        let begun = |(name, begun): &(String, Duration)| takes(name).min(now.saturating_sub(*begun));
        let done = ended + self.running.iter().map(begun).sum::<Duration>();
        let left = self.expected.values().sum::<Duration>().saturating_sub(done);
        let took = now.saturating_sub(self.from);
        let ms = took.as_millis() * left.as_millis() / done.as_millis().max(1);
        Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// Prints the end of a program. If the program failed, or if `show` is set, also prints its output.
    pub(super) fn ended(&mut self, row: Row, show: bool) {
        self.running.retain(|(name, _)| *name != row.name);
        let tests = Counts::read(&row.output).passed;
        if show && tests > 0 {
            println!("\n---- {}\n{}", row.name, row.output.trim_end());
        } else if !row.status.success() {
            println!("\n---- {}\n{}", row.name, without_passed(&row.output));
        }
        // If a signal killed the program, show it, because the output does not.
        let end = if row.status.success() { "ok".to_owned() } else { format!("FAILED ({})", row.status) };
        let (took, processor) = (row.took.as_secs_f64(), row.processor.as_secs_f64());
        let number = self.rows.len() + 1;
        let line =
            format!("{end} {}: {tests} tests, {took:.1} s ({processor:.1} s of processor time)", row.name);
        self.rows.push(row);
        let running: Vec<&str> = self.running.iter().map(|(name, _)| name.as_str()).collect();
        let others = match running.is_empty() {
            true => String::new(),
            // If only some tests were selected, their duration is unknown.
            false if show => format!("; {} at work", running.join(", ")),
            false => {
                let to_go = self.to_go(self.begun.elapsed()).as_secs_f64();
                format!("; {} at work; about {to_go:.0} s to go", running.join(", "))
            }
        };
        println!("[{number}/{}] {line}{others}", self.expected.len());
    }

    /// Prints the durations, and fails if a program has failed.
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
        for row in all.iter().filter(|row| !row.status.success()) {
            println!("\n---- {}\n{}", row.name, in_short(&row.output));
        }
        println!("{}", Counts::of(&all).line(self.begun.elapsed()));
        let failed: Vec<&str> =
            self.rows.iter().filter(|row| !row.status.success()).map(|row| row.name.as_str()).collect();
        if !failed.is_empty() {
            bail!("tests failed; what they printed is above: {}", failed.join(", "));
        }
        Ok(())
    }
}

/// Returns the output of a program without the lines that only say that a test passed or was ignored.
fn without_passed(output: &str) -> String {
    let says_more = |line: &&str| !(line.starts_with("test ") && PASSED.iter().any(|end| line.contains(end)));
    output.trim_end().lines().filter(says_more).collect::<Vec<_>>().join("\n")
}

const PASSED: [&str; 2] = [" ... ok", " ... ignored"];

/// Returns the beginning of the output of each failed test. If the program printed no failed test, returns the end of its output. This output is
/// enough to identify the failure if only the end of a long log is kept.
fn in_short(output: &str) -> String {
    const LINES: usize = 12;
    let is_header = |line: &str| line.starts_with("---- ") && line.ends_with(" stdout ----");
    let mut left = 0;
    let mut told = Vec::new();
    for line in output.lines().filter(|line| !line.is_empty()) {
        match line {
            header if is_header(header) => left = LINES,
            "stack backtrace:" | "failures:" => left = 0,
            _ => {}
        }
        if left > 0 {
            left -= 1;
            told.push(line);
        }
    }
    if told.is_empty() {
        let lines: Vec<&str> = output.lines().collect();
        told = lines[lines.len().saturating_sub(LINES)..].to_vec();
    }
    told.join("\n")
}

/// The number of tests by their result, as the summaries of test programs count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    ignored: usize,
}

impl Counts {
    /// Adds the numbers in each summary of a program's output.
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

    /// Counts a program that failed without a summary, for example because it was killed, as one failed test.
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

    /// Returns a summary line in the form of `cargo test`, for tools that parse it.
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
    fn overall_summary_has_format_of_one_program() {
        let (good, killed) =
            (row("good", 0), Row { output: "thread panicked".to_owned(), ..row("killed", 9) });
        let whole = Counts::of(&[&good, &good]);
        assert_eq!(Counts::read(&whole.line(Duration::from_secs(3))), whole);
        assert!(whole.line(Duration::ZERO).starts_with("test result: ok. 4 passed; 0 failed; 2 ignored;"));
        let line = Counts::of(&[&good, &killed]).line(Duration::ZERO);
        assert!(line.starts_with("test result: FAILED. 2 passed; 1 failed; 1 ignored;"), "{line}");
    }

    /// A CI system keeps only the end of a long output, so the message of the failed test comes last.
    #[test]
    fn failure_summary_ends_with_test_message() {
        let output = "\nrunning 3 tests\ntest a ... ok\ntest b ... ignored, set A_URL\ntest c ... FAILED\n\nfailures:\n\n\
            ---- c stdout ----\n\nthread 'c' panicked at c.rs:1:2:\nleft: 1\nstack backtrace:\n   0: far\n   1: away\n\n\nfailures:\n    c\n\n\
            test result: FAILED. 1 passed; 1 failed\n";
        let whole = without_passed(output);
        assert!(whole.contains("test c ... FAILED") && whole.contains("0: far"), "{whole}");
        assert!(!whole.contains("test a") && !whole.contains("test b"), "{whole}");
        assert_eq!(in_short(output), "---- c stdout ----\nthread 'c' panicked at c.rs:1:2:\nleft: 1");
        assert_eq!(in_short("error: a segmentation fault"), "error: a segmentation fault");
        assert_eq!(in_short(&"a line\n".repeat(50)).lines().count(), 12);
    }

    /// The report shows whether a minute or a quarter of an hour is left.
    #[test]
    fn remaining_time_follows_progress_and_ends_at_zero() {
        let mut report = Report::begin();
        let seconds = Duration::from_secs;
        report.expect(
            [("long", 300), ("short", 60), ("last", 40)].map(|(name, s)| (name, seconds(s))).into_iter(),
        );
        report.from = seconds(100);
        report.running = vec![("long".to_owned(), seconds(100)), ("short".to_owned(), seconds(100))];
        // Both programs run as fast as expected: 100 of 400 seconds of work are done after 50 seconds.
        assert_eq!(report.to_go(seconds(150)), seconds(150));
        report.ended(row("short", 0), false);
        // A program that takes longer than expected never counts as done while it runs.
        assert_eq!(report.to_go(seconds(100 + 400)), Duration::from_millis(400 * 1_000 * 40 / 360));
        report.ended(row("long", 0), false);
        report.ended(row("last", 0), false);
        assert_eq!(report.to_go(seconds(600)), Duration::ZERO);
    }

    #[test]
    fn whatever_failed_is_named_at_the_end() {
        let mut report = Report::begin();
        report.expect(
            [("good", 2), ("bad", 2), ("killed", 2)]
                .map(|(name, s)| (name, Duration::from_secs(s)))
                .into_iter(),
        );
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

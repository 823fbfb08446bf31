//! Reads the output of test programs: how much they checked, and which tests failed.

use super::proofs::Length;
use crate::testing::Row;

/// Returns the number of cases that the output counts: states, inputs or passed tests.
pub(super) fn cases(length: Length, row: &Row) -> u64 {
    let numbers = |word: &str| -> u64 {
        let counts = row.output.lines().filter_map(|line| {
            let (number, rest) = line.split_once(' ')?;
            rest.starts_with(word).then(|| number.parse::<u64>().ok()).flatten()
        });
        counts.sum()
    };
    match length {
        Length::Exhaustive => numbers("states"),
        Length::Seconds { .. } => numbers("inputs in"),
        Length::Seeds { .. } | Length::Cases { .. } | Length::Rounds { .. } => row.passed(),
    }
}

/// Returns the failed tests, each with the line that repeats it, if there is one.
pub(super) fn failures(row: &Row) -> Vec<String> {
    if row.status.success() {
        return Vec::new();
    }
    let mut names: Vec<&str> = Vec::new();
    if let Some((_, list)) = row.output.rsplit_once("\nfailures:\n") {
        names.extend(list.lines().map_while(|line| line.strip_prefix("    ")).map(str::trim));
    }
    if names.is_empty() {
        return vec![format!("`{}` ended with {}", row.name, row.status)];
    }
    let replays: Vec<&str> =
        row.output.lines().filter_map(|line| line.find("replay with: ").map(|at| &line[at..])).collect();
    let line = |name: &str| {
        // The line ends with a part of the test's name.
        let own = replays
            .iter()
            .find(|replay| replay.split_whitespace().last().is_some_and(|part| name.contains(part)));
        match own {
            Some(replay) => format!("`{name}` in `{}`; {replay}", row.name),
            None => format!("`{name}` in `{}`", row.name),
        }
    };
    names.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    use super::*;

    fn row(output: &str, code: i32) -> Row {
        let time = Duration::ZERO;
        let status = ExitStatus::from_raw(code);
        Row { name: "sim".to_owned(), took: time, processor: time, status, output: output.to_owned() }
    }

    #[test]
    fn cases_are_read_from_output() {
        let output = "12 states\n30 states\nLast: []\n70 inputs in 2s, 3 of them\ntest result: ok. 4 passed; 0 failed\n";
        assert_eq!(cases(Length::Exhaustive, &row(output, 0)), 42);
        assert_eq!(cases(Length::Seconds { seed: "A", seconds: "B" }, &row(output, 0)), 70);
        assert_eq!(cases(Length::Rounds { seeds: &[] }, &row(output, 0)), 4);
    }

    #[test]
    fn failed_tests_are_named_with_replay_line() {
        let output = "replay with: FERRATA_SIM_SEED=7 cargo test --test sim share_1\n\nfailures:\n\nfailures:\n    share_1\n    other\n\n\
            test result: FAILED. 1 passed; 2 failed\n";
        assert_eq!(
            failures(&row(output, 256)),
            [
                "`share_1` in `sim`; replay with: FERRATA_SIM_SEED=7 cargo test --test sim share_1",
                "`other` in `sim`"
            ]
        );
        assert_eq!(failures(&row("gone", 9)), ["`sim` ended with signal: 9 (SIGKILL)"]);
        assert!(failures(&row(output, 0)).is_empty());
    }
}

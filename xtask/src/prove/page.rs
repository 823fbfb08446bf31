//! The page with the results of all proofs.

use std::fmt::Write as _;
use std::time::Duration;

/// The result of one proof.
#[derive(Debug)]
pub(super) struct ProofResult {
    pub(super) name: &'static str,
    pub(super) checks: &'static str,
    /// The number of cases and what they are, such as `2,600 seeds`.
    pub(super) cases: String,
    /// The seeds; empty if there are none.
    pub(super) seeds: String,
    pub(super) took: Duration,
    /// The call that repeats the proof.
    pub(super) command: String,
    /// The tests that failed, each with the line that repeats it, if it printed one.
    pub(super) failures: Vec<String>,
}

/// The facts that hold for all proofs.
#[derive(Debug)]
pub(super) struct Circumstances {
    /// The date and time of the start.
    pub(super) date: String,
    pub(super) commit: String,
    /// Whether the tree had changes that the commit does not have.
    pub(super) is_dirty: bool,
    pub(super) requested: Duration,
    pub(super) took: Duration,
    pub(super) machine: String,
    pub(super) compiler: String,
}

/// Returns the page without its last line, which seals the text above it.
pub(super) fn page(circumstances: &Circumstances, results: &[ProofResult]) -> String {
    let Circumstances { date, commit, is_dirty, requested, took, machine, compiler } = circumstances;
    let failed = results.iter().filter(|result| !result.failures.is_empty()).count();
    let outcome = match failed {
        0 => format!("all {} proofs held", results.len()),
        _ => format!("{failed} of {} proofs failed", results.len()),
    };
    let changes = if *is_dirty { ", with uncommitted changes" } else { "" };
    let mut text = format!(
        "# Proof\n\nThis page reports one run of the long tests. `cargo xtask prove` wrote it.\n\n\
         | Fact | Value |\n|---|---|\n\
         | Result | {outcome} |\n\
         | Date | {date} |\n\
         | Commit | `{commit}`{changes} |\n\
         | Time | {:.2} h requested, {:.2} h taken |\n\
         | Machine | {machine} |\n\
         | Compiler | {compiler} |\n\n\
         ## Results\n\n\
         | Proof | Checks | Cases | Seeds | Time | Failures |\n|---|---|---|---|---|---|\n",
        hours(*requested),
        hours(*took),
    );
    for result in results {
        let ProofResult { name, checks, cases, seeds, took, failures, .. } = result;
        let seconds = took.as_secs_f64();
        let failures = if failures.is_empty() { "none".to_owned() } else { failures.len().to_string() };
        // Writing to a string never fails.
        let _ = writeln!(text, "| {name} | {checks} | {cases} | {seeds} | {seconds:.0} s | {failures} |");
    }
    text.push_str(
        "\n## Commands\n\nEach command repeats its proof, or the first round of it. For `stores` and `kills`, \
         start the servers with\n`cargo run -p ferrata-test-servers`, and set the variables that it prints.\n\n```text\n",
    );
    for result in results {
        let _ = writeln!(text, "{}", result.command);
    }
    text.push_str("```\n");
    if failed > 0 {
        text.push_str("\n## Failures\n\n");
        for (result, failure) in
            results.iter().flat_map(|result| result.failures.iter().map(move |text| (result, text)))
        {
            let _ = writeln!(text, "- {}: {failure}", result.name);
        }
    }
    text.push_str(
        "\n## Seal\n\nThe last line has the commit and the SHA-256 of all lines above it. It shows a change of this page, and no author:\n\
         `head -n -1 PAGE | sha256sum`. For an author, sign the commit of this page.\n\n",
    );
    text
}

/// Returns the last line of the page.
pub(super) fn seal(commit: &str, digest: &str) -> String {
    format!("Commit `{commit}`, SHA-256 `{digest}`\n")
}

fn hours(time: Duration) -> f64 {
    time.as_secs_f64() / 3_600.0
}

/// Writes a number with commas between groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(failures: &[&str]) -> ProofResult {
        ProofResult {
            name: "runs",
            checks: "simulations",
            cases: format!("{} seeds", grouped(2_600)),
            seeds: "7 to 2606".to_owned(),
            took: Duration::from_secs(90),
            command: "FERRATA_SIMS=2600 cargo test".to_owned(),
            failures: failures.iter().map(|&text| text.to_owned()).collect(),
        }
    }

    fn circumstances() -> Circumstances {
        Circumstances {
            date: "2026-02-03 04:05 UTC".to_owned(),
            commit: "abc".to_owned(),
            is_dirty: false,
            requested: Duration::from_secs(180),
            took: Duration::from_secs(360),
            machine: "2 cores".to_owned(),
            compiler: "rustc 1.95.0".to_owned(),
        }
    }

    #[test]
    fn page_shows_circumstances_and_each_result() {
        let text = page(&circumstances(), &[result(&[])]);
        for part in [
            "| Result | all 1 proofs held |",
            "| Commit | `abc` |",
            "| Time | 0.05 h requested, 0.10 h taken |",
            "| runs | simulations | 2,600 seeds | 7 to 2606 | 90 s | none |",
            "\nFERRATA_SIMS=2600 cargo test\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("## Failures") && text.ends_with("\n\n"), "{text}");
        assert_eq!(seal("abc", "123"), "Commit `abc`, SHA-256 `123`\n");
    }

    #[test]
    fn page_names_failures_and_uncommitted_changes() {
        let dirty = Circumstances { is_dirty: true, ..circumstances() };
        let text = page(&dirty, &[result(&[]), result(&["`share_0`: replay with: A=1"])]);
        for part in [
            "| Result | 1 of 2 proofs failed |",
            "`abc`, with uncommitted changes",
            "| 90 s | 1 |",
            "## Failures\n\n- runs: `share_0`: replay with: A=1\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}

//! Each verb has help with an example, and the manual has each verb and each exit code.

use crate::support::{Place, expect};

/// Returns the verbs that the help lists.
pub(crate) fn verbs(help: &str) -> Vec<String> {
    let listed = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let named = |line: &str| line.split_whitespace().next().map(str::to_owned);
    listed
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(named)
        .collect()
}

#[test]
fn each_verb_has_help_with_an_example() {
    let place = Place::new();
    let verbs = verbs(&place.ok(&["--help"]));
    assert!(verbs.len() >= 26, "{verbs:?}");
    for verb in &verbs {
        let said = place.call(&[verb, "--help"]);
        assert_eq!(said.code, 0, "{verb}");
        let (_, after) = said.out.split_once("Example").unwrap_or_else(|| panic!("{verb} has no example"));
        assert!(
            after.contains(&format!("ferrata {verb}")),
            "the example of {verb} is of another verb: {after}"
        );
        assert!(said.err.is_empty());
    }
}

#[test]
fn the_manual_has_each_verb_and_each_exit_code() {
    let place = Place::new();
    let help = place.ok(&["--help"]);
    let manual = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md")).unwrap();
    for verb in verbs(&help) {
        assert!(manual.contains(&format!("`{verb}")), "docs/cli.md does not have `{verb}`");
    }
    let codes = help.split("Exit codes:\n").nth(1).unwrap();
    for line in codes.lines().filter(|line| !line.trim().is_empty()) {
        let (code, meaning) = line.trim().split_once("  ").unwrap();
        let row = format!("| {code} | {meaning} |");
        assert!(manual.contains(&row), "docs/cli.md does not have the row {row}");
    }
    expect("exit-codes.txt", codes);
}

#[test]
fn every_shell_has_its_completions() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = place.ok(&["completions", shell]);
        assert!(script.contains("questions"), "{shell}: {script}");
    }
    assert_eq!(place.call(&["completions", "cmd"]).code, 2);
}

//! Each verb has help with an example. The manual lists each verb and each exit code.

use crate::support::{Place, expect};

/// The groups of verbs in the help.
const GROUPS: [&str; 5] = ["Inspect:", "Control:", "Maintain:", "Pipelines:", "Set up:"];

/// Returns the verbs that the help lists.
pub(crate) fn verbs(help: &str) -> Vec<String> {
    let group = |name: &str| help.split(&format!("\n{name}\n")).nth(1).unwrap().split("\n\n").next().unwrap();
    let named = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let listed = GROUPS.into_iter().flat_map(|name| group(name).lines());
    listed.filter(|line| line.starts_with("  ") && !line.starts_with("   ")).filter_map(named).collect()
}

/// The help lists the verbs in groups.
///
/// Guarantees: CLI-1.
#[test]
fn the_help_lists_the_verbs_in_groups() {
    let place = Place::new();
    let help = place.ok(&["--help"]);
    let at = |part: &str| help.find(part).unwrap_or_else(|| panic!("{part} is not in {help}"));
    for pair in GROUPS.windows(2) {
        assert!(at(pair[0]) < at(pair[1]), "{help}");
    }
    assert!(
        at("\nInspect:\n  ls ") < at("\nControl:\n  answer ") && at("Set up:") < at("\nOptions:\n"),
        "{help}"
    );
    assert!(at("--store <URL>") < at("Exit codes:"), "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    assert_eq!(place.ok(&["-h"]).matches("Control:").count(), 1);
}

/// A unique prefix of a verb works.
///
/// Guarantees: CLI-1.
#[test]
fn verb_prefix_and_alias_select_verb() {
    let place = Place::new();
    let about = |verb: &str| place.ok(&[verb, "--help"]);
    for (said, meant) in [
        ("hist", "history"),
        ("ver", "verify"),
        ("comp", "completions"),
        ("get", "show"),
        ("describe", "show"),
        ("list", "ls"),
        ("ps", "ls"),
    ] {
        assert_eq!(about(said), about(meant), "{said}");
    }
    assert_eq!(place.ok(&["help", "history"]), about("history"));
    assert_eq!(place.ok(&["help", "store", "check"]), place.ok(&["store", "check", "--help"]));
    // An ambiguous prefix selects no verb.
    for said in ["re", "s", "p"] {
        let said = place.call(&[said, "a"]);
        assert_eq!(said.code, 2, "{said:?}");
    }
}

/// Guarantees: CLI-1.
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
            "the example of {verb} shows another verb: {after}"
        );
        assert!(said.err.is_empty());
    }
}

/// Guarantees: CLI-1.
#[test]
fn manual_lists_every_verb_and_exit_code() {
    let place = Place::new();
    let help = place.ok(&["--help"]);
    let manual =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md")).unwrap();
    for verb in verbs(&help) {
        assert!(manual.contains(&format!("`{verb}")), "docs/reference/cli.md does not have `{verb}`");
    }
    let codes = help.split("Exit codes:\n").nth(1).unwrap();
    for line in codes.lines().filter(|line| !line.trim().is_empty()) {
        let (code, meaning) = line.trim().split_once("  ").unwrap();
        let row = format!("| {code} | {meaning} |");
        assert!(manual.contains(&row), "docs/reference/cli.md does not have the row {row}");
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

/// Guarantees: CLI-1.
#[test]
fn each_verb_has_its_manual_page() {
    let place = Place::new();
    let folder = place.folder.path().join("man/man1");
    let said = place.call(&["man", "--to", folder.to_str().unwrap()]);
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
    for verb in verbs(&place.ok(&["--help"])) {
        let page = std::fs::read_to_string(folder.join(format!("ferrata-{verb}.1"))).unwrap();
        assert!(page.contains(&format!("ferrata {verb}")), "the page of {verb} has no example: {page}");
        // A hyphen of a name is escaped, so that it is searched and copied as it is.
        assert!(page.contains(r"\-\-store"), "the page of {verb} lacks the global options: {page}");
    }
    let main = std::fs::read_to_string(folder.join("ferrata.1")).unwrap();
    assert_eq!(place.ok(&["man"]), main);
    assert!(folder.join("ferrata-store-check.1").is_file());
    for part in [".TH ferrata 1", "SYNOPSIS", "FERRATA_STORE", "ferrata\\-store(1)", "Exit codes:"] {
        assert!(main.contains(part), "{part}: {main}");
    }
    // Its directory is a file.
    let file = place.write("taken", "");
    let said = place.call(&["man", "--to", file.join("man1").to_str().unwrap()]);
    assert_eq!(said.code, 70, "{said:?}");
    assert!(said.err.contains("cannot write the manual pages"), "{said:?}");
}

//! The table in `tests/rules.md` names existing tests.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Returns every Rust file below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Returns the function names and the quoted texts of a source.
fn said(source: &str) -> BTreeSet<String> {
    let functions = source.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
    let quoted = source.split('"').skip(1);
    functions.chain(quoted).map(str::to_owned).collect()
}

#[test]
fn every_rule_names_tests_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("tests/rules.md")).unwrap();
    let core: BTreeSet<String> = ["../core/src", "../engine/src"]
        .iter()
        .flat_map(|folder| sources(&root.join(folder)))
        .flat_map(|path| said(&std::fs::read_to_string(path).unwrap()))
        .collect();
    let table = said(&std::fs::read_to_string(root.join("tests/table/cases.rs")).unwrap());
    let (mut sections, mut rules, mut missing) = (BTreeSet::new(), 0, Vec::new());
    let mut section = String::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.split(' ').next().unwrap().to_owned();
            sections.insert(section.clone());
        }
        let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else { continue };
        let Some((rule, held)) = row.split_once(" | ").filter(|(rule, _)| *rule != "rule") else { continue };
        rules += 1;
        let named: Vec<&str> = held.split('`').skip(1).step_by(2).collect();
        let elsewhere = ["not ", "the run's own"].iter().any(|words| held.starts_with(words));
        assert!(!named.is_empty() || elsewhere, "{section}: no test checks `{rule}`");
        for name in named.into_iter().filter(|name| name.contains("::") || name.starts_with("table ")) {
            let there = match (name.strip_prefix("table "), name.split_once("::")) {
                (Some(row), _) => table.contains(row.trim_matches('"')),
                (None, Some(("core", test))) => core.contains(test),
                (None, Some((file, test))) => {
                    let source = std::fs::read_to_string(root.join(format!("tests/dialect/{file}.rs")));
                    source.is_ok_and(|source| said(&source).contains(test))
                }
                (None, None) => false,
            };
            if !there {
                missing.push(format!("{section}: {name}"));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
    let all: Vec<String> = (1..=8).map(|at| format!("1.{at}")).collect();
    assert_eq!(sections.into_iter().collect::<Vec<_>>(), all);
    assert!(rules >= 100, "{rules}");
}

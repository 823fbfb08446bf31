//! Checks for text that no file may contain: marks of unfinished work, trailing spaces, and paths of one machine.

use super::Fault;
use super::repo::{Repo, is_test};
use super::source::is_word;

/// Words that mark unfinished work.
const MARKERS: [&str; 3] = ["TODO", "FIXME", "XXX"];

/// Folders at the root of a file system that exist only on one machine, without their slash.
const MACHINE_FOLDERS: [&str; 4] = ["home", "root", "tmp", "work"];

/// Returns whether a file is neither Rust nor Markdown but was written by people.
fn is_config(path: &str) -> bool {
    path.starts_with(".ci/") || [".toml", ".yml", ".yaml", ".sh"].iter().any(|end| path.ends_with(end))
}

/// Checks that no line ends in a space, and that no Rust line contains a tab. Text in strings is not checked.
pub(super) fn space(repo: &Repo) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, source) in repo.rust() {
        for (index, line) in source.lines.iter().enumerate() {
            if !line.open_string && line.raw.ends_with(char::is_whitespace) {
                faults.push(Fault::line(path, index, "ends in a space; remove it"));
            }
            if line.code.contains('\t') || line.comment.contains('\t') {
                faults.push(Fault::line(path, index, "holds a tab; use spaces, or `\\t` in a string"));
            }
        }
    }
    for (path, text) in repo.under("").filter(|(path, _)| path.ends_with(".md") || is_config(path)) {
        for (index, _) in text.lines().enumerate().filter(|(_, line)| line.ends_with(char::is_whitespace)) {
            faults.push(Fault::line(path, index, "ends in a space; remove it"));
        }
    }
    faults
}

/// Checks that each mark of unfinished work names its issue. A mark in backquotes is only mentioned and allowed.
pub(super) fn markers(repo: &Repo) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, source) in repo.rust() {
        for (index, line) in source.lines.iter().enumerate() {
            faults.extend(bare_marker(&line.comment).map(|marker| marker_fault(path, index, marker)));
        }
    }
    for (path, text) in repo.under("").filter(|(path, _)| is_config(path)) {
        for (index, line) in text.lines().enumerate() {
            faults.extend(bare_marker(line).map(|marker| marker_fault(path, index, marker)));
        }
    }
    faults
}

fn marker_fault(path: &str, index: usize, marker: &str) -> Fault {
    Fault::line(path, index, format!("bare `{marker}`; name the issue, as in `{marker}(#12)`, or do it"))
}

fn bare_marker(text: &str) -> Option<&'static str> {
    MARKERS.into_iter().find(|marker| {
        text.match_indices(marker).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = &text[at + marker.len()..];
            let whole = !before.is_some_and(is_word) && !after.chars().next().is_some_and(is_word);
            whole && before != Some('`') && !after.starts_with("(#")
        })
    })
}

/// Checks that no file has the marks of an unsolved merge conflict.
pub(super) fn conflicts(repo: &Repo) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in repo.under("") {
        for (index, line) in text.lines().enumerate() {
            if line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ") {
                faults.push(Fault::line(path, index, "has the mark of a merge conflict; solve it"));
            }
        }
    }
    faults
}

/// Times to which code must not add or subtract with an operator, because the operator panics on overflow. Callers may give times of any size, such
/// as `Duration::MAX` for forever.
const TIMES: [&str; 4] = ["monotonic() +", "monotonic() -", " now + ", "(now + "];

/// Checks that no code outside of tests uses `+` or `-` with the time of the clock.
pub(super) fn bare_times(repo: &Repo) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, source) in repo.rust().filter(|(path, _)| path.starts_with("crates/") && !is_test(path)) {
        for (index, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.test) {
            if TIMES.iter().any(|bare| line.code.contains(bare)) {
                let message = "adds to a time by an operator, which panics at its end; use `saturating_add` or `saturating_sub`";
                faults.push(Fault::line(path, index, message));
            }
        }
    }
    faults
}

/// Checks that no code outside of tests contains a quoted path into a folder of one machine.
pub(super) fn machine_paths(repo: &Repo) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, source) in repo.rust().filter(|(path, _)| !is_test(path)) {
        for (index, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.test) {
            faults.extend(machine_folder(line.raw).map(|folder| machine_fault(path, index, folder)));
        }
    }
    for (path, text) in repo.under("").filter(|(path, _)| is_config(path)) {
        for (index, line) in text.lines().enumerate() {
            faults.extend(machine_folder(line).map(|folder| machine_fault(path, index, folder)));
        }
    }
    faults
}

fn machine_fault(path: &str, index: usize, folder: &str) -> Fault {
    Fault::line(path, index, format!("names a path in /{folder}; take it from the caller or the environment"))
}

fn machine_folder(line: &str) -> Option<&'static str> {
    MACHINE_FOLDERS.into_iter().find(|folder| {
        ["\"", "'"].into_iter().any(|quote| {
            let start = format!("{quote}/{folder}");
            line.match_indices(&start).any(|(at, _)| line[at + start.len()..].starts_with(['/', '"', '\'']))
        })
    })
}

/// Checks that the compiler sees every example in the documentation.
pub(super) fn ignored_examples(repo: &Repo) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, source) in repo.rust() {
        let comments = source.lines.iter().map(|line| line.comment.trim_start_matches(['/', '!', '*', ' ']));
        faults.extend(ignored(path, comments));
    }
    for (path, text) in repo.ending(".md") {
        faults.extend(ignored(path, text.lines().map(str::trim_start)));
    }
    faults
}

fn ignored<'a>(path: &str, lines: impl Iterator<Item = &'a str>) -> Vec<Fault> {
    let is_ignored = |line: &str| {
        line.strip_prefix("```")
            .is_some_and(|info| info.split([',', ' ']).any(|word| word.trim() == "ignore"))
    };
    let message = "the compiler never sees this example; use `no_run`, or `text` if it is not Rust";
    lines
        .enumerate()
        .filter(|(_, line)| is_ignored(line))
        .map(|(index, _)| Fault::line(path, index, message))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(faults: &[Fault]) -> Vec<(&str, usize)> {
        faults.iter().map(|fault| (fault.path.as_str(), fault.line.unwrap())).collect()
    }

    #[test]
    fn unsolved_conflict_is_found() {
        let repo = Repo::of([
            ("docs/a.md", "# A\n\n<<<<<<< HEAD\nold\n=======\nnew\n>>>>>>> other\n"),
            ("docs/b.md", "# B\n\nA `<<<<<<<` begins a conflict.\n"),
        ]);
        let found: Vec<String> = conflicts(&repo).iter().map(Fault::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("docs/a.md:3: "), "{found:?}");
    }

    #[test]
    fn stray_space_is_found_outside_strings() {
        let rust = "let a = 1; \n\tlet b;\n// c\td\nlet e = \"f \n g\";\nlet h = \"i\tj\";\n";
        let repo = Repo::of([
            ("a.rs", rust),
            ("b.md", "ends \nhere\n"),
            ("c.toml", "d = 1\t\n"),
            ("e.golden", "f \n"),
        ]);
        let found = space(&repo);
        assert_eq!(lines(&found), [("a.rs", 1), ("a.rs", 2), ("a.rs", 3), ("b.md", 1), ("c.toml", 1)]);
    }

    #[test]
    fn undone_work_without_an_issue_is_found() {
        let rust = "// TODO: later\n// TODO(#12): later\nlet a = \"TODO\";\n// a `FIXME` is banned\n/* XXX */\n// mktemp XXXXXX\n";
        let repo = Repo::of([("a.rs", rust), (".ci/run", "# FIXME\n"), ("b.md", "TODO\n")]);
        assert_eq!(lines(&markers(&repo)), [("a.rs", 1), ("a.rs", 5), (".ci/run", 1)]);
    }

    #[test]
    fn one_machines_paths_are_found_outside_tests() {
        let rust = "let a = \"/tmp/a\";\nlet b = \"/tmpl/a\";\n/// Open \"/root\".\n#[cfg(test)]\nmod t {\n    const C: &str = \"/tmp/c\";\n}\n";
        let repo =
            Repo::of([("a.rs", rust), ("tests/a.rs", "let a = \"/root/a\";\n"), ("b.yml", "c: '/home/d'\n")]);
        assert_eq!(lines(&machine_paths(&repo)), [("a.rs", 1), ("a.rs", 3), ("b.yml", 1)]);
    }

    #[test]
    fn an_ignored_example_is_found() {
        let rust = "/// ```rust,ignore\n/// a\n/// ```\n//! ```no_run\n//! ```\nlet ignore = 1;\n";
        let repo = Repo::of([("a.rs", rust), ("b.md", "``` ignore\n```\n```text\nignore\n```\n")]);
        assert_eq!(lines(&ignored_examples(&repo)), [("a.rs", 1), ("b.md", 1)]);
    }

    #[test]
    fn times_are_not_added_by_an_operator() {
        let text = "let a = clock.monotonic() + grace;\nlet b = now.saturating_add(c);\n// now + c\nlet d = (now + c);\n";
        let repo = Repo::of([("crates/a/src/a.rs", text), ("crates/a/tests/b.rs", text)]);
        assert_eq!(lines(&bare_times(&repo)), [("crates/a/src/a.rs", 1), ("crates/a/src/a.rs", 4)]);
    }
}

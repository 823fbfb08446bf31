//! Checks lists that exist twice, for the compiler and for people. Both must have the same entries.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::Fault;
use super::repo::Repo;

const ERRORS: &str = "crates/store/src/error.rs";
const ERROR_PAGES: &str = "docs/reference/errors/";
const DEPENDENCIES: &str = "docs/reference/dependencies.md";

/// The questions that a page about an error answers, in this order.
const QUESTIONS: [&str; 3] = ["## What happened", "## What state is left", "## What to try"];

/// Checks that every error code has its page and every page its code, and that every page answers the three questions.
pub(super) fn errors(repo: &Repo) -> Vec<Fault> {
    let codes = error_codes(repo.text(ERRORS).unwrap_or_default());
    if codes.is_empty() {
        return vec![Fault::file(
            ERRORS,
            "has no `fn code` that gives a text for each kind; tidy reads the codes there",
        )];
    }
    let mut faults = Vec::new();
    for code in &codes {
        let path = format!("{ERROR_PAGES}{code}.md");
        let Some(text) = repo.text(&path) else {
            faults.push(Fault::file(path, format!("is missing; write what `{code}` means and what to try")));
            continue;
        };
        if text.lines().next() != Some(&format!("# {code}")) {
            faults.push(Fault::line(path.as_str(), 0, format!("open the page with `# {code}`")));
        }
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        if headings != QUESTIONS {
            faults.push(Fault::file(path, format!("has other sections than `{}`", QUESTIONS.join("`, `"))));
        }
    }
    for (path, _) in repo.under(ERROR_PAGES) {
        let name = path[ERROR_PAGES.len()..].trim_end_matches(".md");
        if name != "README" && !codes.contains(name) {
            faults
                .push(Fault::file(path, format!("is about no code of {ERRORS}; remove it, or add the code")));
        }
    }
    faults
}

/// Returns the texts to which `fn code` maps the error kinds.
fn error_codes(text: &str) -> BTreeSet<&str> {
    let function = text.lines().skip_while(|line| !line.contains("fn code(")).skip(1);
    let body = function.take_while(|line| !line.contains("fn "));
    body.filter_map(|line| line.split_once("=> \"")?.1.split_once('"')).map(|(code, _)| code).collect()
}

/// Checks that every dependency on an external crate has a row in the list of reasons, and that every row has its dependency.
pub(super) fn dependencies(repo: &Repo) -> Vec<Fault> {
    let manifest = match repo.text("Cargo.toml").unwrap_or_default().parse::<Table>() {
        Ok(manifest) => manifest,
        Err(error) => return vec![Fault::file("Cargo.toml", format!("is not TOML: {}", error.message()))],
    };
    let declared = manifest.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let declared: BTreeSet<&str> = declared
        .and_then(Value::as_table)
        .into_iter()
        .flatten()
        .filter(|(_, value)| value.get("path").is_none())
        .map(|(name, _)| name.as_str())
        .collect();
    let rows: BTreeSet<&str> =
        repo.text(DEPENDENCIES).unwrap_or_default().lines().filter_map(row_name).collect();
    let missing = declared
        .difference(&rows)
        .map(|name| Fault::file(DEPENDENCIES, format!("has no row for `{name}`; say what it is for")));
    let stale = rows.difference(&declared).map(|name| {
        Fault::file(
            DEPENDENCIES,
            format!("has a row for `{name}`, which nothing depends on any more; remove it"),
        )
    });
    missing.chain(stale).collect()
}

/// Returns the name in the first cell of a table row, if the cell contains only a name in backquotes.
fn row_name(line: &str) -> Option<&str> {
    let name = line.strip_prefix('|')?.split('|').next()?.trim().strip_prefix('`')?.strip_suffix('`')?;
    (!name.contains('`')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODES: &str = "impl Kind {\n    pub const fn code(self) -> &'static str {\n        match self {\n            Self::Gone => \"GONE\",\n            Self::Late => \"LATE\",\n        }\n    }\n    fn other() { let _ = || => \"OTHER\"; }\n}\n";

    fn page(code: &str) -> String {
        format!("# {code}\n\n## What happened\n\n## What state is left\n\n## What to try\n")
    }

    fn messages(faults: &[Fault]) -> String {
        faults.iter().map(|fault| format!("{fault}\n")).collect()
    }

    #[test]
    fn codes_and_pages_must_agree() {
        let (gone, late) = (page("GONE"), page("LATE"));
        let good = [
            (ERRORS, CODES),
            ("docs/reference/errors/GONE.md", gone.as_str()),
            ("docs/reference/errors/LATE.md", late.as_str()),
            ("docs/reference/errors/README.md", "All of them."),
        ];
        assert_eq!(errors(&Repo::of(good)), []);

        let bad = [
            (ERRORS, CODES),
            ("docs/reference/errors/GONE.md", late.as_str()),
            ("docs/reference/errors/OTHER.md", gone.as_str()),
        ];
        let found = messages(&errors(&Repo::of(bad)));
        assert!(found.contains("docs/reference/errors/GONE.md:1: open the page with `# GONE`"), "{found}");
        assert!(found.contains("docs/reference/errors/LATE.md: is missing"), "{found}");
        assert!(found.contains("docs/reference/errors/OTHER.md: is about no code"), "{found}");
        assert_eq!(found.lines().count(), 3, "{found}");
    }

    #[test]
    fn error_page_with_missing_section_is_reported() {
        let gone = page("GONE").replace("## What to try\n", "");
        let late = page("LATE");
        let repo = Repo::of([
            (ERRORS, CODES),
            ("docs/reference/errors/GONE.md", &gone),
            ("docs/reference/errors/LATE.md", &late),
        ]);
        assert!(messages(&errors(&repo)).contains("docs/reference/errors/GONE.md: has other sections"));
    }

    #[test]
    fn missing_error_codes_are_fault_not_pass() {
        assert_eq!(errors(&Repo::of([(ERRORS, "enum Kind {}")])).len(), 1);
        assert_eq!(errors(&Repo::of([])).len(), 1);
    }

    #[test]
    fn dependencies_and_rows_must_agree() {
        let manifest = "[workspace.dependencies]\nferrata-core = { path = \"crates/core\" }\nserde = \"1\"\nuuid = { version = \"1\" }\n";
        let list = "| crate | reason |\n|---|---|\n| `serde` | encodes |\n| `rand` | draws |\n| `a` and `b` | prose |\n";
        let found = messages(&dependencies(&Repo::of([("Cargo.toml", manifest), (DEPENDENCIES, list)])));
        assert!(found.contains("has no row for `uuid`"), "{found}");
        assert!(found.contains("has a row for `rand`"), "{found}");
        assert_eq!(found.lines().count(), 2, "{found}");
    }
}

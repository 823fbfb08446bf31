//! Checks the layout of Rust files: their first line and their length.

use super::Fault;
use super::repo::{Repo, is_test};

/// Maximum number of code lines in a file of tests, examples or automation. A longer file contains two topics and must be split.
const CEILING: usize = 500;

/// Maximum number of code lines in a file of a library.
const LIBRARY: usize = 400;

/// A file that may be longer, with its own maximum and the reason.
struct Exception {
    path: &'static str,
    ceiling: usize,
    why: &'static str,
}

/// Every file that may be longer. The reason says why the file cannot be split. The fact that nobody has split the file is not a reason.
const EXCEPTIONS: &[Exception] = &[];

/// Checks that every Rust file begins with `//!` and a description of its content. Only inner attributes may come before it.
///
/// The mistakes in `tests/ui` are exceptions. The compiler sees them as a user would write them, and their file name describes them.
pub(super) fn headers(repo: &Repo) -> Vec<Fault> {
    repo.ending(".rs")
        .filter(|(path, _)| !path.contains("/tests/ui/"))
        .filter(|(_, text)| {
            let first = text.lines().find(|line| !line.starts_with("#!"));
            !first.is_some_and(|line| line.starts_with("//!"))
        })
        .map(|(path, _)| Fault::line(path, 0, "open the file with `//!` and what it holds"))
        .collect()
}

/// Checks that no file has more code lines than the maximum. Blank lines, comments and `#[cfg(test)]` items do not count.
pub(super) fn sizes(repo: &Repo) -> Vec<Fault> {
    sizes_except(repo, EXCEPTIONS)
}

fn sizes_except(repo: &Repo, exceptions: &[Exception]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, source) in repo.rust() {
        let count = source.lines.iter().filter(|line| line.is_code() && !line.test).count();
        let exception = exceptions.iter().find(|exception| exception.path == path);
        let is_library = path.starts_with("crates/") && path.contains("/src/") && !is_test(path);
        let usual = if is_library { LIBRARY } else { CEILING };
        let ceiling = exception.map_or(usual, |exception| exception.ceiling);
        if count > ceiling {
            faults.push(Fault::file(
                path,
                format!("{count} code lines, over the ceiling of {ceiling}; split it by type"),
            ));
        } else if let Some(exception) = exception
            && count <= usual
        {
            let why = exception.why;
            faults.push(Fault::file(
                path,
                format!("needs no exception any more ({why}); remove it from EXCEPTIONS"),
            ));
        }
    }
    let gone = exceptions.iter().filter(|exception| repo.text(exception.path).is_none());
    faults.extend(
        gone.map(|exception| Fault::file(exception.path, "does not exist; remove it from EXCEPTIONS")),
    );
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_header_is_found() {
        let good = "//! What it holds.\n";
        let attribute = "#![expect(clippy::print_stdout, reason = \"a tool\")]\n//! What it holds.\n";
        let repo = Repo::of([("good.rs", good), ("attribute.rs", attribute)]);
        assert_eq!(headers(&repo), []);
        let repo =
            Repo::of([("crates/a/tests/ui/mistake.rs", "struct A;\n"), ("crates/a/tests/not_ui.rs", good)]);
        assert_eq!(headers(&repo), []);
        let repo = Repo::of([
            ("late.rs", "use a;\n//! What it holds.\n"),
            ("none.rs", "// Not a header.\n"),
            ("void.rs", ""),
        ]);
        assert_eq!(headers(&repo).len(), 3);
    }

    #[test]
    fn a_file_over_the_ceiling_is_found() {
        let full = format!(
            "//! A.\n{}// note\n\n#[cfg(test)]\nmod tests {{\n    fn a() {{}}\n}}\n",
            "x();\n".repeat(CEILING)
        );
        assert_eq!(sizes(&Repo::of([("full.rs", full.as_str())])), []);
        let over = format!("{full}y();\n");
        let faults = sizes(&Repo::of([("over.rs", over.as_str())]));
        assert!(faults[0].message.contains("501 code lines"), "{faults:?}");
    }

    #[test]
    fn library_file_limit_is_lower_than_test_limit() {
        let found = |path: &str| sizes(&Repo::of([(path, "x();\n".repeat(LIBRARY + 1).as_str())]));
        assert!(found("crates/a/src/b.rs")[0].message.contains("over the ceiling of 400"));
        for path in ["crates/a/src/b/tests.rs", "crates/a/tests/b.rs", "xtask/src/b.rs"] {
            assert_eq!(found(path), [], "{path}");
        }
    }

    #[test]
    fn exception_raises_limit_and_must_be_needed() {
        let exceptions = [Exception { path: "long.rs", ceiling: 600, why: "one table" }];
        let found = |lines: usize| {
            let text = "x();\n".repeat(lines);
            sizes_except(&Repo::of([("long.rs", text.as_str())]), &exceptions)
        };
        assert_eq!(found(600), []);
        assert!(found(601)[0].message.contains("over the ceiling of 600"));
        assert!(found(500)[0].message.contains("needs no exception"));
        assert!(sizes_except(&Repo::of([]), &exceptions)[0].message.contains("does not exist"));
    }
}

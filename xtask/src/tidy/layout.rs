//! Checks the first line of Rust files.

use super::Fault;
use super::repo::Repo;

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
}

//! The files of the repository in memory. The checks read them, and a test builds such a repository with a fault.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::source::Source;

/// Folders that contain only generated files.
const SKIPPED: [&str; 3] = ["target", "node_modules", "dist"];

/// Hidden folders that belong to the repository.
const HIDDEN: [&str; 3] = [".cargo", ".ci", ".github"];

/// Every file by its path from the root, with `/` as the separator. The text of a file that is not UTF-8 is empty.
#[derive(Debug, Default)]
pub(super) struct Repo {
    files: BTreeMap<String, String>,
}

impl Repo {
    /// Reads the files under `root`.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut repo = Self::default();
        repo.read_folder(root, "")?;
        Ok(repo)
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        // Cargo marks its target folders with this file, wherever they are.
        if folder.join("CACHEDIR.TAG").exists() {
            return Ok(());
        }
        let cannot_read = || format!("cannot read {}", folder.display());
        for entry in fs::read_dir(folder).with_context(cannot_read)? {
            let entry = entry.with_context(cannot_read)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().with_context(cannot_read)?;
            if kind.is_dir() {
                let wanted = !name.starts_with('.') || HIDDEN.contains(&name.as_str());
                if wanted && !SKIPPED.contains(&name.as_str()) {
                    self.read_folder(&entry.path(), &format!("{path}/"))?;
                }
            // The licenses of the crates are links to those of the repository.
            } else if kind.is_file() || (kind.is_symlink() && entry.path().is_file()) {
                let bytes = fs::read(entry.path()).with_context(|| format!("cannot read {path}"))?;
                self.files.insert(path, String::from_utf8(bytes).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Creates a repository with these files.
    #[cfg(test)]
    pub(super) fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        Self { files: files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect() }
    }

    /// Returns the number of files.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns the text of a file.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Returns whether `path` is a file, or a folder that contains a file.
    pub(super) fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.range(folder.clone()..).next().is_some_and(|(next, _)| next.starts_with(&folder))
    }

    /// Returns the files under a folder. The name of the folder ends in `/`, and an empty text stands for the root.
    pub(super) fn under(&self, folder: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.starts_with(folder))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns the files whose name has this ending.
    pub(super) fn ending(&self, end: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.ends_with(end))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns the Rust files, each split into code and comments.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&str, Source<'_>)> {
        self.ending(".rs").map(|(path, text)| (path, Source::new(text)))
    }
}

/// Returns whether a Rust file contains only tests, according to its path.
pub(super) fn is_test(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "benches"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_exists_if_it_contains_file() {
        let repo = Repo::of([("docs/errors/A.md", ""), ("docs-old/a.md", "")]);
        assert!(repo.exists("docs"));
        assert!(repo.exists("docs/errors/"));
        assert!(repo.exists("docs/errors/A.md"));
        assert!(!repo.exists("docs/err"));
        assert!(!repo.exists("guide"));
    }

    #[test]
    fn tests_are_known_by_their_place() {
        assert!(is_test("tests/crash.rs"));
        assert!(is_test("crates/core/src/store/tests.rs"));
        assert!(!is_test("crates/core/src/testing.rs"));
    }

    #[test]
    fn this_repository_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let repo = Repo::read(root).unwrap();
        assert!(repo.text("xtask/src/tidy/repo.rs").unwrap().contains("this_repository_can_be_read"));
        assert!(repo.under("target/").next().is_none());
    }
}

//! Tidy: small named checks of project rules that no lint can check.
//!
//! A check reads the repository from memory and returns the faults. A check writes nothing and does not depend on other checks. For each check, a
//! test creates a fault that the check must find.
#![expect(clippy::print_stdout, reason = "faults are shown to a person")]

mod crates;
mod generated;
mod guarantees;
mod layers;
mod layout;
mod legibility;
mod markdown;
mod package;
mod pages;
mod repo;
mod sizes;
mod source;
mod text;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use self::repo::Repo;

/// A rule: its name, and the function that finds its violations.
struct Check {
    name: &'static str,
    find: fn(&Repo) -> Vec<Fault>,
}

const CHECKS: &[Check] = &[
    Check { name: "header", find: layout::headers },
    Check { name: "size", find: sizes::large },
    Check { name: "space", find: text::space },
    Check { name: "marker", find: text::markers },
    Check { name: "conflict", find: text::conflicts },
    Check { name: "machine-path", find: text::machine_paths },
    Check { name: "time", find: text::bare_times },
    Check { name: "ignored-example", find: text::ignored_examples },
    Check { name: "word", find: words::banned },
    Check { name: "manifest", find: crates::manifests },
    Check { name: "direction", find: crates::directions },
    Check { name: "package", find: package::complete },
    Check { name: "layer", find: layers::order },
    Check { name: "error-page", find: pages::errors },
    Check { name: "dependency-row", find: pages::dependencies },
    Check { name: "link", find: markdown::links },
    Check { name: "fragment", find: markdown::fragments },
    Check { name: "legibility", find: legibility::rises },
    Check { name: "guarantee", find: guarantees::ids },
    Check { name: "generated", find: generated::current },
];

/// A violation of a rule: what is wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    path: String,
    line: Option<usize>,
    message: String,
}

impl Fault {
    /// Creates a fault of a whole file.
    fn file(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), line: None, message: message.into() }
    }

    /// Creates a fault at a line. The index of the first line is 0.
    fn line(path: impl Into<String>, index: usize, message: impl Into<String>) -> Self {
        Self { path: path.into(), line: Some(index + 1), message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Runs every check on the repository at `root`, and prints the faults.
pub(crate) fn run(root: &Path) -> Result<()> {
    let repo = Repo::read(root)?;
    let mut count = 0;
    for check in CHECKS {
        for fault in (check.find)(&repo) {
            println!("{fault} [{}]", check.name);
            count += 1;
        }
    }
    if count > 0 {
        bail!("tidy found {count} fault{}, listed above", if count == 1 { "" } else { "s" });
    }
    println!("tidy: {} checks on {} files, no fault", CHECKS.len(), repo.len());
    Ok(())
}

/// Prints the large files and types, with the reasons that they give.
///
/// # Errors
///
/// Fails if a file cannot be read.
pub(crate) fn list_sizes(root: &Path) -> Result<()> {
    print!("{}", sizes::list(&Repo::read(root)?));
    Ok(())
}

/// Writes what is computed from the repository: lower counts of names and sentences, and generated texts.
///
/// # Errors
///
/// Fails if a file cannot be read or written.
pub(crate) fn write(root: &Path) -> Result<()> {
    let repo = Repo::read(root)?;
    legibility::lower(root, &repo)?;
    sizes::lower(root, &repo)?;
    generated::write(root, &repo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_prints_as_editor_jump_target() {
        assert_eq!(Fault::line("src/a.rs", 4, "is odd").to_string(), "src/a.rs:5: is odd");
        assert_eq!(Fault::file("src/a.rs", "is odd").to_string(), "src/a.rs: is odd");
    }

    #[test]
    fn each_check_has_its_own_name() {
        let mut names: Vec<_> = CHECKS.iter().map(|check| check.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
    }
}

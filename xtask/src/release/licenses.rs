//! The licenses of all dependencies as one text, for the archive. Most licenses require that a binary comes with their text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::sbom::Package;

/// How the names of license files begin.
const PREFIXES: [&str; 4] = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];

/// Returns the list of `packages` with their licenses, and after it each distinct text with the crates that have it.
pub(super) fn text(packages: &[Package<'_>]) -> Result<String> {
    let mut list = String::from("Ferrata contains or was built with these crates.\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages {
        let name = format!("{} {}", package.name(), package.version());
        let license = package.license();
        let license = if license.is_empty() { "see its text" } else { &license };
        // Writing to a string never fails.
        let _ = writeln!(list, "{name}: {license}");
        let folder = Path::new(package.manifest()).parent().context("a manifest lies in no folder")?;
        for text in read_texts(folder)? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for (text, names) in texts {
        let _ = write!(list, "\n{}\n{}\n\n{text}\n", "=".repeat(80), names.join(", "));
    }
    Ok(list)
}

/// Returns the license files in the folder of a crate.
fn read_texts(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder)
        .with_context(|| format!("cannot read {}; run `cargo fetch --locked`", folder.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && entry.file_type()?.is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let read = |path| Ok(String::from_utf8_lossy(&fs::read(path)?).trim().replace("\r\n", "\n"));
    paths.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn license_files_are_found_by_name() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("LICENSE-MIT", "mit\r\n"), ("license.md", "other"), ("README.md", "no")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        fs::create_dir(folder.path().join("licenses")).unwrap();
        assert_eq!(read_texts(folder.path()).unwrap(), ["mit", "other"]);
    }
}

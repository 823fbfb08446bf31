//! Moves the fragments of `changes/` into the section of a release in `CHANGELOG.md`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::version::ReleaseVersion;

/// The file of all releases.
pub(super) const CHANGELOG: &str = "CHANGELOG.md";
/// The folder of the fragments.
pub(super) const FRAGMENTS: &str = "changes";

/// The kinds of changes, in the order of Keep a Changelog.
const KINDS: [&str; 6] = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];

/// The date of a section that is not released yet.
const UNRELEASED: &str = "unreleased";

/// A change that users see, from one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) path: PathBuf,
    text: String,
}

impl Fragment {
    /// Reads the fragments of the repository in the order of their names.
    pub(super) fn read_all(root: &Path) -> Result<Vec<Self>> {
        let folder = root.join(FRAGMENTS);
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {FRAGMENTS}/"))?;
        let mut fragments = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") && !path.ends_with("README.md") {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                fragments.push(Self { path, text });
            }
        }
        fragments.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(fragments)
    }

    /// Returns the kind of the change, and its list item.
    fn entry(&self) -> Result<(&'static str, String)> {
        let parts = self.text.trim().split_once(':');
        let known = parts.and_then(|(kind, text)| Some((*KINDS.iter().find(|known| **known == kind)?, text)));
        let (kind, text) = known.with_context(|| {
            format!("{} does not open with one of `{}:`", self.path.display(), KINDS.join(":`, `"))
        })?;
        // The fragment is one folder deeper than the changelog.
        let lines: Vec<String> = text.trim().lines().map(|line| line.replace("](../", "](")).collect();
        Ok((kind, format!("- {}", lines.join("\n  "))))
    }
}

/// Returns the changelog with `fragments` in the section of `version`, dated `date`.
///
/// A section without a date gets it, and keeps its text above the fragments. If there is no section, it is added above all others.
pub(super) fn fold(
    changelog: &str,
    version: &ReleaseVersion,
    date: &str,
    fragments: &[Fragment],
) -> Result<String> {
    let dated = format!("## {version} - {date}");
    let prefix = format!("## {version} - ");
    let headings: Vec<&str> = changelog.lines().filter(|line| line.starts_with("## ")).collect();
    let (before, section, after) = match headings.iter().position(|line| line.starts_with(&prefix)) {
        Some(at) => {
            if headings[at] != format!("{prefix}{UNRELEASED}") {
                if fragments.is_empty() {
                    return Ok(changelog.to_owned());
                }
                bail!(
                    "{CHANGELOG} has the section `{}`, but {FRAGMENTS}/ has {} more changes; choose the next version",
                    headings[at],
                    fragments.len()
                );
            }
            let (before, rest) = changelog.split_once(headings[at]).context("the heading is gone")?;
            let end = headings.get(at + 1).and_then(|next| rest.find(next)).unwrap_or(rest.len());
            (before, rest[..end].trim().to_owned(), &rest[end..])
        }
        None => {
            let at = headings.first().and_then(|first| changelog.find(first)).unwrap_or(changelog.len());
            (&changelog[..at], String::new(), &changelog[at..])
        }
    };
    let mut entries = Vec::new();
    for fragment in fragments {
        entries.push(fragment.entry()?);
    }
    let mut text = format!("{}\n\n{dated}\n", before.trim_end());
    if !section.is_empty() {
        // Writing to a string never fails.
        let _ = write!(text, "\n{section}\n");
    }
    for kind in KINDS {
        let of_kind: Vec<&str> =
            entries.iter().filter(|(other, _)| *other == kind).map(|(_, text)| text.as_str()).collect();
        if !of_kind.is_empty() {
            let _ = write!(text, "\n### {kind}\n\n{}\n", of_kind.join("\n"));
        }
    }
    if !after.is_empty() {
        let _ = write!(text, "\n{after}");
    }
    Ok(text)
}

/// Returns the text of a release without its heading. Links into the repository become links to its tag at `repository`.
pub(super) fn notes(changelog: &str, version: &ReleaseVersion, repository: &str) -> Result<String> {
    let heading = format!("## {version} - ");
    let lines = changelog.lines().skip_while(|line| !line.starts_with(&heading)).skip(1);
    let section: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    if section.iter().all(|line| line.is_empty()) {
        bail!("{CHANGELOG} says nothing about {version}");
    }
    let text = section.join("\n");
    let mut parts = text.trim().split("](");
    let mut notes = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_outside =
            part.starts_with('#') || part.split(')').next().is_some_and(|link| link.contains("://"));
        let base = if is_outside { String::new() } else { format!("{repository}/blob/{}/", version.tag()) };
        let _ = write!(notes, "]({base}{part}");
    }
    Ok(notes + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(name: &str, text: &str) -> Fragment {
        Fragment { path: name.into(), text: text.to_owned() }
    }

    fn version(text: &str) -> ReleaseVersion {
        ReleaseVersion::parse(text).unwrap()
    }

    const OLD: &str = "# Changelog\n\nIntro.\n\n## 0.1.0 - 2026-01-01\n\nThe first release.\n";

    #[test]
    fn fragments_form_new_section_by_kind() {
        let fragments = [
            fragment("a.md", "Fixed: a fault\nof two lines.\n"),
            fragment("b.md", "Added: [page](../docs/a.md) and [web](https://example.org).\n"),
            fragment("c.md", "Fixed: another.\n"),
        ];
        let folded = fold(OLD, &version("0.2.0"), "2026-02-03", &fragments).unwrap();
        let expected = "# Changelog\n\nIntro.\n\n## 0.2.0 - 2026-02-03\n\n### Added\n\n\
            - [page](docs/a.md) and [web](https://example.org).\n\n### Fixed\n\n- a fault\n  of two lines.\n- another.\n\n\
            ## 0.1.0 - 2026-01-01\n\nThe first release.\n";
        assert_eq!(folded, expected);
    }

    #[test]
    fn unreleased_section_keeps_its_text() {
        let unreleased = OLD.replace("2026-01-01", UNRELEASED);
        let fragments = [fragment("a.md", "Added: a.")];
        let folded = fold(&unreleased, &version("0.1.0"), "2026-02-03", &fragments).unwrap();
        assert_eq!(
            folded,
            "# Changelog\n\nIntro.\n\n## 0.1.0 - 2026-02-03\n\nThe first release.\n\n### Added\n\n- a.\n"
        );
        // A repetition after a failure changes nothing.
        assert_eq!(fold(&folded, &version("0.1.0"), "2026-02-04", &[]).unwrap(), folded);
        let error = fold(&folded, &version("0.1.0"), "2026-02-04", &fragments).unwrap_err().to_string();
        assert!(error.contains("choose the next version"), "{error}");
    }

    #[test]
    fn fragment_of_unknown_kind_is_refused() {
        for text in ["Improved: a.", "a change", ""] {
            let error = fold(OLD, &version("0.2.0"), "2026-02-03", &[fragment("odd.md", text)]).unwrap_err();
            assert!(error.to_string().contains("odd.md does not open with one of `Added:`"), "{error}");
        }
    }

    #[test]
    fn notes_link_to_the_tag() {
        let log = "## 0.2.0 - 2026-02-03\n\n- [a](docs/a.md), [b](#b), [c](https://c.org)\n\n## 0.1.0 - 2026-01-01\n\nOld.\n";
        let text = notes(log, &version("0.2.0"), "https://g.org/r").unwrap();
        assert_eq!(text, "- [a](https://g.org/r/blob/v0.2.0/docs/a.md), [b](#b), [c](https://c.org)\n");
        assert!(notes(log, &version("0.3.0"), "").is_err());
    }

    /// The fragments of the repository can be released.
    #[test]
    fn fragments_of_repository_have_a_kind() {
        let root = crate::root().unwrap();
        for fragment in Fragment::read_all(root).unwrap() {
            fragment.entry().unwrap();
        }
    }
}

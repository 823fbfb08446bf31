//! The version of a release, and whether the manifest has it.

use std::fmt;

use anyhow::{Context, Result, bail};
use toml::{Table, Value};

/// A version in the form of Semantic Versioning, without build metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseVersion(String);

impl ReleaseVersion {
    /// Parses a version such as `0.1.0` or `0.2.0-rc.1`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (numbers, pre) = text.split_once('-').map_or((text, None), |(numbers, pre)| (numbers, Some(pre)));
        let is_number = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_digit())
                && (part == "0" || !part.starts_with('0'))
        };
        let is_word = |part: &str| {
            let has_only_digits = part.bytes().all(|byte| byte.is_ascii_digit());
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !part.is_empty() && part.bytes().all(is_allowed) && (!has_only_digits || is_number(part))
        };
        let is_valid = numbers.split('.').count() == 3
            && numbers.split('.').all(is_number)
            && pre.is_none_or(|pre| pre.split('.').all(is_word));
        if !is_valid {
            bail!("`{text}` is no version; write three numbers without `v`, such as `0.1.0`");
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the name of the tag.
    pub(super) fn tag(&self) -> String {
        format!("v{self}")
    }

    /// Checks that a workspace manifest has this version everywhere: for the packages, and for each dependency between them.
    pub(super) fn check_manifest(&self, manifest: &str) -> Result<()> {
        let manifest: Table = manifest.parse().context("Cargo.toml is not TOML")?;
        let workspace = manifest.get("workspace").context("Cargo.toml has no workspace")?;
        let package = workspace.get("package").and_then(|package| package.get("version"));
        let dependencies = workspace.get("dependencies").and_then(Value::as_table);
        let members = dependencies.into_iter().flatten().filter(|(_, value)| value.get("path").is_some());
        let versions = members.filter_map(|(name, value)| Some((name.as_str(), value.get("version")?)));
        let all = std::iter::once(("workspace.package", package.context("Cargo.toml has no version")?));
        let wrong: Vec<String> = all
            .chain(versions)
            .filter(|(_, version)| version.as_str() != Some(self.0.as_str()))
            .map(|(name, version)| format!("{name} {}", version.as_str().unwrap_or("without a text")))
            .collect();
        if !wrong.is_empty() {
            bail!(
                "Cargo.toml does not have the version {self} everywhere: {}; set it, and run `cargo update --workspace`",
                wrong.join(", ")
            );
        }
        Ok(())
    }
}

impl fmt::Display for ReleaseVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_semantic_versions_are_accepted() {
        for good in ["0.1.0", "1.0.0", "10.20.30", "0.2.0-rc.1", "1.0.0-alpha-2"] {
            assert_eq!(ReleaseVersion::parse(good).unwrap().tag(), format!("v{good}"));
        }
        for bad in [
            "",
            "1",
            "1.0",
            "v1.0.0",
            "1.0.0.0",
            "01.0.0",
            "1.0.x",
            "1.0.0-",
            "1.0.0-rc..1",
            "1.0.0-01",
            "1.0.0+a",
        ] {
            assert!(ReleaseVersion::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn manifest_with_other_version_is_refused() {
        let manifest = "[workspace.package]\nversion = \"0.2.0\"\n[workspace.dependencies]\n\
            ferrata = { path = \"crates/ferrata\", version = \"0.2.0\" }\n\
            ferrata-tests = { path = \"tests\" }\nserde = { version = \"1.0.0\" }\n";
        let version = ReleaseVersion::parse("0.2.0").unwrap();
        version.check_manifest(manifest).unwrap();
        let old = manifest
            .replace("crates/ferrata\", version = \"0.2.0\"", "crates/ferrata\", version = \"0.1.0\"");
        let error = version.check_manifest(&old).unwrap_err().to_string();
        assert!(error.contains("ferrata 0.1.0") && !error.contains("workspace.package"), "{error}");
        assert!(ReleaseVersion::parse("0.3.0").unwrap().check_manifest(manifest).is_err());
    }
}

//! Checks what a published crate needs, so that its pages on the registry and on docs.rs describe it.

use toml::{Table, Value};

use super::Fault;
use super::repo::Repo;

/// Checks that each published crate has a README, both licenses, keywords, and documentation with all features.
pub(super) fn complete(repo: &Repo) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in repo.under("crates/").filter(|(path, _)| path.ends_with("/Cargo.toml")) {
        let Ok(table) = text.parse::<Table>() else { continue };
        let Some(package) = table.get("package").and_then(Value::as_table) else { continue };
        if package.get("publish").and_then(Value::as_bool) == Some(false) {
            continue;
        }
        let folder = path.trim_end_matches("Cargo.toml");
        let mut lacks = |what: &str| faults.push(Fault::file(path, format!("is published and lacks {what}")));
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            if !repo.exists(&format!("{folder}{file}")) {
                lacks(&format!("the file {file}"));
            }
        }
        for list in ["keywords", "categories"] {
            // The registry accepts at most five keywords and five categories.
            let words = package.get(list).and_then(Value::as_array).map_or(0, Vec::len);
            if !(1..=5).contains(&words) {
                lacks(&format!("one to five {list}"));
            }
        }
        let documented = package.get("metadata").and_then(|metadata| metadata.get("docs")?.get("rs"));
        if documented.and_then(|docs| docs.get("all-features")).and_then(Value::as_bool) != Some(true) {
            lacks("`all-features = true` in [package.metadata.docs.rs]");
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_crate_has_what_its_pages_show() {
        let whole = "[package]\nkeywords = [\"a\"]\ncategories = [\"b\"]\n[package.metadata.docs.rs]\nall-features = true\n";
        let bare = "[package]\nname = \"bare\"\nkeywords = [\"1\", \"2\", \"3\", \"4\", \"5\", \"6\"]\n";
        let repo = Repo::of([
            ("crates/whole/Cargo.toml", whole),
            ("crates/whole/README.md", ""),
            ("crates/whole/LICENSE-MIT", ""),
            ("crates/whole/LICENSE-APACHE", ""),
            ("crates/inner/Cargo.toml", "[package]\npublish = false\n"),
            ("crates/bare/Cargo.toml", bare),
            ("crates/bare/LICENSE-MIT", ""),
        ]);
        let found: String = complete(&repo).iter().map(|fault| format!("{fault}\n")).collect();
        for what in ["README.md", "LICENSE-APACHE", "five keywords", "five categories", "all-features"] {
            assert!(found.contains(what), "{what}: {found}");
        }
        assert_eq!(found.lines().count(), 5, "{found}");
    }
}

//! Texts that are generated from the repository: the picture of the crates, and the page of all guarantees.

use std::path::Path;

use anyhow::{Context, Result};

use super::repo::Repo;
use super::{Fault, crates, guarantees};

/// The page that contains the picture of the crates.
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// The lines before and after the picture.
const MARKS: (&str, &str) = ("<!-- generated: crates -->\n", "<!-- end of generated -->");

/// Checks that each generated text is up to date.
pub(super) fn current(repo: &Repo) -> Vec<Fault> {
    let is_old = |(path, text): &(String, String)| repo.text(path) != Some(text);
    let fault =
        |(path, _)| Fault::file(path, "a generated part is out of date; run `cargo xtask tidy --write`");
    texts(repo).into_iter().filter(is_old).map(fault).collect()
}

/// Writes the generated texts that are not up to date.
///
/// # Errors
///
/// Fails if a file cannot be written.
pub(super) fn write(root: &Path, repo: &Repo) -> Result<()> {
    for (path, text) in texts(repo) {
        if repo.text(&path) != Some(&text) {
            let file = root.join(&path);
            file.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            std::fs::write(file, text).with_context(|| format!("cannot write {path}"))?;
        }
    }
    Ok(())
}

/// Returns the files with generated parts in their current form.
fn texts(repo: &Repo) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    if let Some(page) = guarantees::page(repo) {
        texts.push((guarantees::PAGE.to_owned(), page));
    }
    if let Some(text) = repo.text(ARCHITECTURE)
        && let Some((before, rest)) = text.split_once(MARKS.0)
        && let Some((_, after)) = rest.split_once(MARKS.1)
    {
        let picture = crates::picture(repo);
        texts.push((ARCHITECTURE.to_owned(), format!("{before}{}{picture}{}{after}", MARKS.0, MARKS.1)));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_picture_is_found() {
        let manifest = "[package]\nname = \"ferrata-a\"\n[dependencies]\nferrata-b.workspace = true\n";
        let page = |picture: &str| format!("# A\n{}{picture}{}\nMore.\n", MARKS.0, MARKS.1);
        let found = |picture: &str| {
            let page = page(picture);
            let other = "[package]\nname = \"ferrata-b\"\n";
            let files = [
                ("crates/a/Cargo.toml", manifest),
                ("crates/b/Cargo.toml", other),
                (ARCHITECTURE, page.as_str()),
            ];
            current(&Repo::of(files)).len()
        };
        assert_eq!(found("\n```text\nb\na  b\n```\n\n"), 0);
        assert_eq!(found("\nold\n"), 1);
    }
}

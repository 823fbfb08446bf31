//! Checks Markdown: the targets of links, and the content of changelog fragments.

use super::Fault;
use super::repo::Repo;

/// Checks that every relative link leads to a file or folder of the repository.
pub(super) fn links(repo: &Repo) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in repo.ending(".md") {
        for (index, line) in prose(text) {
            for target in targets(&line) {
                let file = target.split('#').next().unwrap_or_default();
                if is_relative(target) && !resolve(path, file).is_some_and(|file| repo.exists(&file)) {
                    faults.push(Fault::line(
                        path,
                        index,
                        format!("links to `{target}`, which does not exist"),
                    ));
                }
            }
        }
    }
    faults
}

/// Returns the lines outside of fenced code. Each character of inline code is replaced by a space.
fn prose(text: &str) -> Vec<(usize, String)> {
    let (mut fenced, mut lines) = (false, Vec::new());
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if !fence && !fenced {
            let mut code = false;
            let blanked = line.chars().map(|c| {
                code ^= c == '`';
                if code { ' ' } else { c }
            });
            lines.push((index, blanked.collect()));
        }
    }
    lines
}

/// Returns the targets of the links in a line: `[text](target)` and `[name]: target`.
fn targets(line: &str) -> Vec<&str> {
    let inline = line.match_indices("](").filter_map(|(at, _)| line[at + 2..].split([')', ' ']).next());
    let definition =
        line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target.trim());
    inline.chain(definition).collect()
}

/// Returns whether a link leads into the repository, and not to the web, to its own page, or to an item of a crate.
fn is_relative(target: &str) -> bool {
    !(target.contains("://")
        || target.starts_with(['#', '<'])
        || target.starts_with("mailto:")
        || target.contains("::"))
}

/// Returns the path from the root that `target` stands for in the file `from`; `None` if it leaves the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Checks that every file in `changes/` is a Markdown file that is not empty.
pub(super) fn fragments(repo: &Repo) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in repo.under("changes/") {
        if !path.ends_with(".md") {
            faults.push(Fault::file(path, "is not Markdown; name it `<what-changed>.md`"));
        } else if text.trim().is_empty() {
            faults.push(Fault::file(path, "is empty; say what the user sees"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_nothing_is_found() {
        let page = "[good](../README.md#words) [folder](errors/) [gone](gone.md)\n\
                    [web](https://example.org/gone.md) [here](#words) [item](crate::Gone)\n\
                    `[code](gone.md)`\n```text\n[code](gone.md)\n```\n\
                    [out](../../README.md)\n[def]: errors/GONE.md\n";
        let repo = Repo::of([("docs/a.md", page), ("README.md", ""), ("docs/errors/LATE.md", "")]);
        let found: Vec<String> = links(&repo).iter().map(Fault::to_string).collect();
        assert_eq!(
            found,
            [
                "docs/a.md:1: links to `gone.md`, which does not exist",
                "docs/a.md:7: links to `../../README.md`, which does not exist",
                "docs/a.md:8: links to `errors/GONE.md`, which does not exist",
            ]
        );
    }

    #[test]
    fn a_fragment_that_says_nothing_is_found() {
        let repo = Repo::of([
            ("changes/a.md", "Added: a.\n"),
            ("changes/b.md", " \n"),
            ("changes/c.txt", "Added: c.\n"),
        ]);
        let found: Vec<String> = fragments(&repo).into_iter().map(|fault| fault.path).collect();
        assert_eq!(found, ["changes/b.md", "changes/c.txt"]);
    }
}

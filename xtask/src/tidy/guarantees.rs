//! Guarantees: each promise of a page has an id, and each id has a test.
//!
//! A page lists its guarantees in a table with rows such as `| QUEUE-3 | At most `limit` slots of a queue are held at a time. |`. A test names
//! those that it checks in its doc comment: `/// Guarantees: QUEUE-3, QUEUE-5.`

use std::collections::BTreeMap;

use super::Fault;
use super::repo::{Repo, is_test};

/// The page that lists all guarantees. The page is generated.
pub(super) const PAGE: &str = "docs/reference/guarantees.md";

/// The mark of a comment that names guarantees.
const MARK: &str = "/// Guarantees: ";

/// The folder of the store suite's properties. Each property is a function that becomes a test of every store.
const PROPERTIES: &str = "crates/store-conformance/src/cases/";

/// A guarantee that a page lists.
struct Guarantee<'a> {
    id: &'a str,
    text: &'a str,
    path: &'a str,
    line: usize,
}

/// Checks that each id is on one page and has a test, and that each id in a test is on a page.
pub(super) fn ids(repo: &Repo) -> Vec<Fault> {
    let guarantees: Vec<Guarantee<'_>> = listed(repo).collect();
    let mut faults = Vec::new();
    let mut pages: BTreeMap<&str, &Guarantee<'_>> = BTreeMap::new();
    for guarantee in &guarantees {
        if let Some(first) = pages.insert(guarantee.id, guarantee) {
            let message = format!(
                "`{}` is also on line {} of {}; use a new id",
                guarantee.id,
                first.line + 1,
                first.path
            );
            faults.push(Fault::line(guarantee.path, guarantee.line, message));
        }
    }
    let mut tested: Vec<&str> = Vec::new();
    for (path, text) in repo.ending(".rs").filter(|(path, _)| !path.starts_with("xtask/")) {
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(named) = line.strip_prefix(MARK) else { continue };
            if !is_before_a_test(path, &lines[index..]) {
                faults.push(Fault::line(path, index, "names guarantees, but no test follows"));
            }
            for id in named.trim_end_matches('.').split(", ") {
                if !pages.contains_key(id) {
                    let message = format!(
                        "`{id}` stands on no page; correct it, or add it to the page's table of guarantees"
                    );
                    faults.push(Fault::line(path, index, message));
                }
                tested.push(id);
            }
        }
    }
    for guarantee in guarantees.iter().filter(|guarantee| !tested.contains(&guarantee.id)) {
        let message = format!("no test checks `{0}`; add `{MARK}{0}.` to one", guarantee.id);
        faults.push(Fault::line(guarantee.path, guarantee.line, message));
    }
    faults
}

/// Returns the text of the page that lists all guarantees; `None` if there are none.
pub(super) fn page(repo: &Repo) -> Option<String> {
    let mut text = String::from(
        "# Guarantees\n\nThis page lists every guarantee with the page that explains it. Each has at least one test. The page is generated.\n",
    );
    let mut last = None;
    for Guarantee { id, text: guarantee, path, .. } in listed(repo) {
        if last != Some(path) {
            let title = repo.text(path).and_then(|page| page.lines().next()).unwrap_or_default();
            let link = relative(path);
            text += &format!(
                "\n## [{}]({link})\n\n| Id | Guarantee |\n|---|---|\n",
                title.trim_start_matches('#').trim()
            );
            last = Some(path);
        }
        text += &format!("| {id} | {guarantee} |\n");
    }
    last.map(|_| text)
}

/// Returns the link from the generated page to another page.
fn relative(path: &str) -> String {
    match path.strip_prefix("docs/") {
        Some(rest) => match rest.strip_prefix("reference/") {
            Some(file) => file.to_owned(),
            None => format!("../{rest}"),
        },
        None => format!("../../{path}"),
    }
}

/// Returns the guarantees of all pages, in the order of pages and lines.
fn listed(repo: &Repo) -> impl Iterator<Item = Guarantee<'_>> {
    let pages = repo.ending(".md").filter(|(path, _)| *path != PAGE && !path.starts_with("changes/"));
    pages.flat_map(|(path, text)| {
        text.lines().enumerate().filter_map(move |(line, row)| {
            let (id, text) = row.strip_prefix("| ")?.split_once(" | ")?;
            let text = text.strip_suffix(" |")?;
            is_id(id).then_some(Guarantee { id, text, path, line })
        })
    })
}

/// Returns whether a text is an id such as `QUEUE-3` or `STORE-FS-1`.
fn is_id(text: &str) -> bool {
    let Some((topic, number)) = text.rsplit_once('-') else { return false };
    let is_topic = topic.starts_with(|c: char| c.is_ascii_uppercase())
        && topic.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-');
    is_topic && !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
}

/// Returns whether a comment at the beginning of `lines` belongs to a test, or to a property of the store suite.
fn is_before_a_test(path: &str, lines: &[&str]) -> bool {
    let mut after = lines.iter().skip_while(|line| line.starts_with("///"));
    let is_test_file = is_test(path) || path.starts_with(PROPERTIES);
    let mut marked = false;
    // An attribute may extend over several lines.
    let mut is_open = false;
    after
        .find_map(|line| {
            if is_open || line.starts_with("#[") {
                marked |= line.contains("test");
                is_open = !line.contains(']');
                return None;
            }
            Some(line.contains("fn ") && (marked || is_test_file) || is_test_file && line.contains('!'))
        })
        .unwrap_or(false)
}

#[cfg(test)]
mod checks {
    use super::*;

    const TEST: (&str, &str) = (
        "crates/core/tests/runtime/pauses.rs",
        "/// A pause holds.\n///\n/// Guarantees: PAUSE-1, PAUSE-2.\n#[tokio::test]\nasync fn pause_holds() {}\n",
    );
    const PAGE_TEXT: &str =
        "# Pauses\n\n| Id | Guarantee |\n|---|---|\n| PAUSE-1 | It holds. |\n| PAUSE-2 | It ends. |\n";

    fn messages(faults: &[Fault]) -> Vec<String> {
        faults.iter().map(Fault::to_string).collect()
    }

    #[test]
    fn each_id_has_a_test_and_a_page() {
        assert_eq!(ids(&Repo::of([TEST, ("docs/pauses.md", PAGE_TEXT)])), []);
        let untested = format!("{PAGE_TEXT}| PAUSE-3 | It is quick. |\n");
        let found = messages(&ids(&Repo::of([TEST, ("docs/pauses.md", &untested)])));
        assert!(
            found[0].starts_with("docs/pauses.md:7: no test checks `PAUSE-3`") && found.len() == 1,
            "{found:?}"
        );
        let unknown = PAGE_TEXT.replace("PAUSE-2", "PAUSES-2");
        let found = messages(&ids(&Repo::of([TEST, ("docs/pauses.md", &unknown)])));
        assert!(
            found[0].contains("pauses.rs:3: `PAUSE-2` stands on no page") && found.len() == 2,
            "{found:?}"
        );
    }

    #[test]
    fn an_id_is_used_once() {
        let twice = [("docs/a.md", PAGE_TEXT), ("docs/b.md", PAGE_TEXT), TEST];
        let found = messages(&ids(&Repo::of(twice)));
        assert!(found[0].contains("docs/b.md:5: `PAUSE-1` is also on line 5 of docs/a.md"), "{found:?}");
    }

    #[test]
    fn a_mark_stands_before_a_test() {
        let helper = TEST.1.replace("#[tokio::test]\n", "");
        let ignored =
            TEST.1.replace("async fn", "#[cfg_attr(\n    not(server),\n    ignore = \"none\"\n)]\nasync fn");
        for (path, text, count) in [
            ("crates/core/src/a.rs", ignored.as_str(), 0),
            ("crates/core/src/a.rs", TEST.1, 0),
            ("crates/core/src/a.rs", helper.as_str(), 1),
            ("crates/store-conformance/src/cases/a.rs", helper.as_str(), 0),
        ] {
            let found = ids(&Repo::of([(path, text), ("docs/pauses.md", PAGE_TEXT)]));
            assert_eq!(found.len(), count, "{path} {found:?}");
        }
    }

    #[test]
    fn the_generated_page_lists_all() {
        let repo = Repo::of([
            ("docs/guide/pauses.md", PAGE_TEXT),
            ("docs/reference/stores.md", "# S\n| S-1 | A. |\n"),
        ]);
        let page = page(&repo).unwrap();
        assert!(
            page.contains(
                "## [Pauses](../guide/pauses.md)\n\n| Id | Guarantee |\n|---|---|\n| PAUSE-1 | It holds. |\n"
            ),
            "{page}"
        );
        assert!(page.contains("## [S](stores.md)\n"), "{page}");
        assert!(super::page(&Repo::of([])).is_none());
    }
}

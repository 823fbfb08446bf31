//! Checks the comments that name tests: in the rustdoc of public calls, and on pages that have no table of guarantees yet.
//!
//! `<!-- held by: pauses::a_pause_holds_what_waits, filters::runs_are_found_by_label -->` names functions that are tests, or properties of
//! the store suite, by file and name. `<!-- held by: example -->` names the code of the section, which runs as a test.
//! `<!-- promises nothing -->` marks a call whose errors no test covers. Pages list their promises as [guarantees](super::guarantees) instead.

use std::collections::BTreeSet;

use super::Fault;
use super::repo::{Repo, is_test};

const HELD: &str = "<!-- held by:";
const NOTHING: &str = "<!-- promises nothing -->";
/// What stands for the code of the section itself.
const EXAMPLE: &str = "example";

/// Where the store suite keeps its properties: each is a function.
const PROPERTIES: &str = "crates/store-conformance/src/cases/";

/// Every test that a page or a comment names is there.
pub(super) fn tests(repo: &Repo) -> Vec<Fault> {
    let known = known(repo);
    let mut faults = Vec::new();
    let texts = repo.ending(".md").chain(repo.ending(".rs").filter(|(path, _)| !path.starts_with("xtask/")));
    for (path, text) in texts {
        for (index, line) in text.lines().enumerate() {
            for name in held(line).filter(|name| *name != EXAMPLE) {
                if !known.contains(name) {
                    let message = format!("is held by `{name}`, which is no test; name it `file::function`");
                    faults.push(Fault::line(path, index, message));
                }
            }
            if line.contains(HELD) && !line[line.find(HELD).unwrap_or_default()..].contains("-->") {
                faults.push(Fault::line(path, index, "the comment that names tests ends in a later line"));
            }
        }
    }
    faults
}

/// Where public calls promise: each that can fail says in its documentation by which test that is held, or that it promises nothing.
const PROMISING: [&str; 4] =
    ["crates/core/src/node/", "crates/core/src/past/", "crates/core/src/runtime/", "crates/ferrata/src/"];

/// Every public call of the runtime and the stores whose documentation has a part on errors names a test there.
pub(super) fn calls(repo: &Repo) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in repo.ending(".rs").filter(|(path, _)| is_promising(path)) {
        let (mut errors, mut marked, mut in_trait) = (false, false, false);
        for (index, line) in text.lines().enumerate() {
            in_trait = line.starts_with("pub trait ") || in_trait && line != "}";
            let code = line.trim_start();
            if let Some(said) = code.strip_prefix("///") {
                errors |= said.trim() == "# Errors";
                marked |= said.contains(HELD) || said.contains(NOTHING);
                continue;
            }
            if code.starts_with("#[") {
                continue;
            }
            let public = code.starts_with("pub ") && !code.starts_with("pub(") || in_trait;
            if let Some(name) = function(code).filter(|_| public && errors && !marked) {
                let message = format!(
                    "`{name}` names no test; add `/// {HELD} file::function -->`, or `/// {NOTHING}`"
                );
                faults.push(Fault::line(path, index, message));
            }
            (errors, marked) = (false, false);
        }
    }
    faults
}

fn is_promising(path: &str) -> bool {
    let store = path.strip_prefix("crates/store").and_then(|rest| rest.split_once("/src/"));
    let in_store = store.is_some_and(|(name, _)| name != "-conformance");
    !is_test(path) && (in_store || PROMISING.iter().any(|folder| path.starts_with(folder)))
}

/// Returns the names in a line's comment.
fn held(line: &str) -> impl Iterator<Item = &str> {
    line.split(HELD).skip(1).flat_map(|rest| {
        let names = rest.split("-->").next().unwrap_or_default();
        names.split(',').map(str::trim).filter(|name| !name.is_empty())
    })
}

/// Returns every test as `file::function`. A `mod.rs`, `main.rs`, `lib.rs` or `tests.rs` goes by its folder.
fn known(repo: &Repo) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for (path, text) in repo.ending(".rs") {
        let property = path.starts_with(PROPERTIES);
        // How many lines ago something said that the next function is a test.
        let mut marked = false;
        for line in text.lines().map(str::trim_start) {
            if line.starts_with("#[") && line.split(']').next().is_some_and(|mark| mark.contains("test")) {
                marked = !line.contains("cfg(");
            }
            let Some(name) = function(line) else { continue };
            // A macro of a test file makes tests of functions that it is given.
            if marked || property || is_test(path) && text.contains("macro_rules!") {
                known.insert(format!("{}::{name}", stem(path)));
            }
            marked = false;
        }
    }
    known
}

/// Returns the name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
    let line = line.strip_prefix("const ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    let name = line.strip_prefix("fn ")?;
    name.split(['(', '<']).next()
}

fn stem(path: &str) -> &str {
    let mut parts = path.rsplit('/');
    let file = parts.next().unwrap_or_default().trim_end_matches(".rs");
    match file {
        "mod" | "main" | "lib" | "tests" => match parts.next() {
            Some("src" | "tests") => parts.next().unwrap_or(file),
            folder => folder.unwrap_or(file),
        },
        file => file,
    }
}

#[cfg(test)]
mod checks {
    use super::*;

    const TESTS: (&str, &str) = (
        "crates/core/tests/runtime/pauses.rs",
        "#[tokio::test]\nasync fn a_pause_holds() {}\nfn helper() {}\n#[cfg(test)]\nfn no_test() {}\n",
    );

    #[test]
    fn a_test_that_is_named_must_be_there() {
        let page = "It holds. <!-- held by: pauses::a_pause_holds, example -->\n";
        assert_eq!(tests(&Repo::of([TESTS, ("docs/a.md", page)])), []);
        for name in ["pauses::helper", "pauses::no_test", "runtime::a_pause_holds", "a_pause_holds"] {
            let page = format!("It holds. <!-- held by: {name} -->\n");
            let faults = tests(&Repo::of([TESTS, ("docs/a.md", &page)]));
            assert!(faults[0].message.contains(name), "{name}");
        }
    }

    #[test]
    fn a_comment_in_code_names_tests_in_the_same_way() {
        let code = "/// Holds. <!-- held by: pauses::gone -->\nfn f() {}\n";
        assert_eq!(tests(&Repo::of([TESTS, ("crates/core/src/a.rs", code)])).len(), 1);
        let open = "<!-- held by: pauses::a_pause_holds,\nmore -->\n";
        assert_eq!(tests(&Repo::of([TESTS, ("docs/a.md", open)])).len(), 1);
    }

    #[test]
    fn a_public_call_that_can_fail_names_a_test_or_promises_nothing() {
        let code = "/// Does it.\n///\n/// # Errors\n///\n/// Never.\n#[must_use]\npub async fn f() {}\n/// # Errors\nfn g() {}\n\
                    /// No errors.\npub fn h() {}\npub trait T {\n    /// # Errors\n    fn t();\n}\n";
        let names = |path: &str, code: &str| {
            let faults = calls(&Repo::of([(path, code)]));
            faults.iter().map(|fault| fault.message.split('`').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
        };
        for path in ["crates/core/src/runtime/a.rs", "crates/store/src/a.rs", "crates/store-fs/src/a.rs"] {
            assert_eq!(names(path, code), ["f", "t"]);
            let marked = code.replace("# Errors", "<!-- held by: a::b -->\n/// # Errors");
            assert_eq!(names(path, &marked), [""; 0]);
            assert_eq!(names(path, &code.replace("/// Never.", "/// <!-- promises nothing -->")), ["t"]);
        }
        for path in ["crates/store-conformance/src/a.rs", "crates/core/src/graph/a.rs", "xtask/src/a.rs"] {
            assert_eq!(names(path, code), [""; 0]);
        }
    }

    #[test]
    fn properties_of_the_store_suite_are_tests() {
        let suite =
            ("crates/store-conformance/src/cases/append.rs", "pub(crate) async fn in_order(s: &S) {}\n");
        let page = ("docs/a.md", "<!-- held by: append::in_order -->\n");
        assert_eq!(tests(&Repo::of([suite, page])), []);
    }

    #[test]
    fn files_that_stand_for_their_folder_go_by_its_name() {
        assert_eq!(stem("crates/core/tests/history/main.rs"), "history");
        assert_eq!(stem("crates/core/src/runtime/log/tests.rs"), "log");
        assert_eq!(stem("crates/cli/tests/main.rs"), "cli");
        assert_eq!(stem("tests/tests/kill.rs"), "kill");
    }
}

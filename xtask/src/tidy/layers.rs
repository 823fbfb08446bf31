//! How the modules of `ferrata-core` depend on each other.

use super::Fault;
use super::repo::{Repo, is_test};

/// The layers of core: each may use those before it.
///
/// A new entry, or another order, is a decision about the design; ARCHITECTURE.md has the same list and says what each layer is for.
const LAYERS: &[&str] =
    &["state", "ask", "record", "telemetry", "node", "graph", "store", "engine", "past", "runtime"];

/// The small modules that every layer may use. They use only each other.
const COMMON: &[&str] = &["clock", "compact", "error", "failure", "id", "panics", "wording"];

/// Where the layers are.
const ROOT: &str = "crates/core/src/";

/// Every module of core uses only the layers before its own. What is tested together may use more.
pub(super) fn order(repo: &Repo) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, source) in repo.rust() {
        let Some(inside) = path.strip_prefix(ROOT).filter(|_| !is_test(path)) else { continue };
        let module = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        if !LAYERS.contains(&module) && !COMMON.contains(&module) {
            let message =
                format!("`{module}` has no layer; say in LAYERS what it may use, and what may use it");
            faults.push(Fault::file(path, message));
            continue;
        }
        for (index, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.test) {
            for used in named(&line.code) {
                if let Some(message) = refuse(module, used) {
                    faults.push(Fault::line(path, index, message));
                }
            }
        }
    }
    faults
}

/// Returns the modules that a line of code names.
fn named(code: &str) -> impl Iterator<Item = &str> {
    code.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        &rest[..end]
    })
}

/// Says why one module may not use another, if it may not.
fn refuse(module: &str, used: &str) -> Option<String> {
    let place = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    if module == used || COMMON.contains(&used) {
        return None;
    }
    if used.is_empty() {
        return Some("names several modules at once; write `use crate::module` for each".into());
    }
    match (place(module), place(used)) {
        (Some(above), Some(below)) if below < above => None,
        // What the root of the crate defines or re-exports, such as a macro.
        (_, None) => None,
        _ => Some(format!("`{module}` may not use `{used}`; move what they share to a layer before both")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_uses_a_later_layer_is_found() {
        let repo = Repo::of([
            ("crates/core/src/lib.rs", "//! Core.\nmod state;\n"),
            (
                "crates/core/src/engine/fold.rs",
                "//! Folds.\nuse crate::record::Record;\nuse crate::runtime::Runtime;\n",
            ),
            (
                "crates/core/src/ask/answer.rs",
                "//! Answers. Not `crate::record::Record`.\nuse crate::record::Failure;\n",
            ),
            (
                "crates/core/src/panics.rs",
                "//! Panics.\nuse crate::error::Result;\nfn f() { crate::state::apply() }\n",
            ),
            ("crates/core/src/past/mod.rs", "//! Reads.\nuse crate::{engine, runtime};\n"),
            ("crates/core/src/extra/mod.rs", "//! Has no layer.\n"),
            (
                "crates/core/src/state/fold.rs",
                "//! Tested with more.\n#[cfg(test)]\nmod tests {\n    use crate::runtime::Runtime;\n}\n",
            ),
            ("crates/core/src/state/tests.rs", "//! Tests.\nuse crate::runtime::Runtime;\n"),
            ("crates/dot/src/runtime.rs", "//! Another crate.\nuse crate::testing::Clock;\n"),
        ]);
        let found: String = order(&repo).iter().map(|fault| format!("{fault}\n")).collect();
        assert!(found.contains("engine/fold.rs:3: `engine` may not use `runtime`"), "{found}");
        assert!(found.contains("ask/answer.rs:2: `ask` may not use `record`"), "{found}");
        assert!(found.contains("panics.rs:3: `panics` may not use `state`"), "{found}");
        assert!(found.contains("past/mod.rs:2: names several modules at once"), "{found}");
        assert!(found.contains("extra/mod.rs: `extra` has no layer"), "{found}");
        assert_eq!(found.lines().count(), 5, "{found}");
    }
}

//! Checks the dependencies between the modules of `ferrata-engine`, of `ferrata-history` and of `ferrata-core`.

use super::Fault;
use super::repo::{Repo, is_test};

/// A crate with layers. Each layer may use the layers before it.
///
/// A new entry or another order is a design decision. ARCHITECTURE.md has the same lists, and explains the purpose of each layer.
struct Crate {
    /// The folder of the layers.
    root: &'static str,
    layers: &'static [&'static str],
    /// The small modules that every layer may use, and the layers of the crate below. Such modules use only each other.
    common: &'static [&'static str],
    /// Names that no code of the crate may contain, each with the reason.
    never: &'static [(&'static str, &'static str)],
}

const CRATES: [Crate; 3] = [
    Crate {
        root: "crates/engine/src/",
        layers: &["state", "ask", "record", "graph", "engine"],
        common: &["clock", "compact", "error", "failure", "id"],
        never: &[
            ("dyn Any", "the engine knows no runtime under any type; pass what it needs"),
            ("tokio", "the engine starts no task and waits for nothing"),
            ("SystemTime::now", "the engine reads no clock; pass the time"),
            ("Instant::now", "the engine reads no clock; pass the time"),
        ],
    },
    Crate {
        root: "crates/history/src/",
        layers: &[
            "log_reader",
            "verdict",
            "questions",
            "logged_graph",
            "origin",
            "position",
            "ended",
            "details",
            "lineage",
            "checkpoint",
            "phase",
            "reason",
            "explain",
            "sentence",
            "report",
            "check",
            "diff",
            "archive",
            "retention",
            "run_tree",
            "sweep",
        ],
        common: &["ask", "clock", "engine", "error", "graph", "id", "record", "state", "store", "wording"],
        never: &[
            ("dyn Any", "the past knows no runtime under any type; pass what it needs"),
            ("tokio", "the past starts no task; it waits only for the store and the caller's clock"),
            ("SystemTime::now", "the past reads no clock; pass the time"),
            ("Instant::now", "the past reads no clock; pass the time"),
        ],
    },
    Crate {
        root: "crates/core/src/",
        layers: &["telemetry", "node", "graph", "store", "verify", "runtime"],
        common: &[
            "ask", "clock", "compact", "engine", "error", "failure", "id", "panics", "past", "record",
            "state", "wording",
        ],
        never: &[],
    },
];

/// Checks that every module uses only the layers before its own. Tests may use more.
pub(super) fn order(repo: &Repo) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, source) in repo.rust() {
        let Some(own) = CRATES.iter().find(|own| path.starts_with(own.root)).filter(|_| !is_test(path))
        else {
            continue;
        };
        let inside = &path[own.root.len()..];
        let module = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        if !own.layers.contains(&module) && !own.common.contains(&module) {
            let message =
                format!("`{module}` has no layer; say in CRATES what it may use, and what may use it");
            faults.push(Fault::file(path, message));
            continue;
        }
        for (index, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.test) {
            for used in named(&line.code) {
                if let Some(message) = own.refuse(module, used) {
                    faults.push(Fault::line(path, index, message));
                }
            }
            for (word, reason) in own.never.iter().filter(|(word, _)| line.code.contains(word)) {
                faults.push(Fault::line(path, index, format!("`{word}`: {reason}")));
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

impl Crate {
    /// Returns the reason why one module may not use another; `None` if it may.
    fn refuse(&self, module: &str, used: &str) -> Option<String> {
        let place = |name: &str| self.layers.iter().position(|layer| *layer == name);
        if module == used || self.common.contains(&used) {
            return None;
        }
        if used.is_empty() {
            return Some("names several modules at once; write `use crate::module` for each".into());
        }
        match (place(module), place(used)) {
            (Some(above), Some(below)) if below < above => None,
            // An item that the root of the crate defines or exports again, such as a macro.
            (_, None) => None,
            _ => {
                Some(format!("`{module}` may not use `{used}`; move what they share to a layer before both"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_of_later_layer_is_reported() {
        let repo = Repo::of([
            ("crates/core/src/lib.rs", "//! Core.\nmod state;\n"),
            (
                "crates/engine/src/record/fold.rs",
                "//! Folds.\nuse crate::state::Patch;\nuse crate::engine::Machine;\n",
            ),
            (
                "crates/engine/src/ask/answer.rs",
                "//! Answers. Not `crate::record::Record`.\nuse crate::record::Failure;\n",
            ),
            (
                "crates/engine/src/engine/host.rs",
                "//! Reaches upward.\nstruct Host(std::sync::Weak<dyn Any>);\nuse tokio::sync::Notify;\n",
            ),
            (
                "crates/core/src/panics.rs",
                "//! Panics.\nuse crate::error::Result;\nfn f() { crate::graph::apply() }\n",
            ),
            (
                "crates/core/src/verify.rs",
                "//! Reads.\nuse crate::state::Patch;\nuse crate::{engine, runtime};\n",
            ),
            ("crates/core/src/extra/mod.rs", "//! Has no layer.\n"),
            (
                "crates/core/src/node/fold.rs",
                "//! Tested with more.\n#[cfg(test)]\nmod tests {\n    use crate::runtime::Runtime;\n}\n",
            ),
            ("crates/core/src/node/tests.rs", "//! Tests.\nuse crate::runtime::Runtime;\n"),
            ("crates/dot/src/runtime.rs", "//! Another crate.\nuse crate::testing::Clock;\n"),
        ]);
        let found: String = order(&repo).iter().map(|fault| format!("{fault}\n")).collect();
        assert!(found.contains("record/fold.rs:3: `record` may not use `engine`"), "{found}");
        assert!(found.contains("ask/answer.rs:2: `ask` may not use `record`"), "{found}");
        assert!(found.contains("engine/host.rs:2: `dyn Any`: the engine knows no runtime"), "{found}");
        assert!(found.contains("engine/host.rs:3: `tokio`: the engine starts no task"), "{found}");
        assert!(found.contains("panics.rs:3: `panics` may not use `graph`"), "{found}");
        assert!(found.contains("verify.rs:3: names several modules at once"), "{found}");
        assert!(found.contains("extra/mod.rs: `extra` has no layer"), "{found}");
        assert_eq!(found.lines().count(), 7, "{found}");
    }
}

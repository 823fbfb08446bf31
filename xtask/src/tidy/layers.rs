//! Checks the dependencies between the modules of `ferrata-engine`, of `ferrata-history`, of `ferrata-core` and of its runtime.

use super::Fault;
use super::repo::{Repo, is_test};

/// A folder with layers: a crate, or a module of a crate. Each layer may use the layers before it.
///
/// A new entry or another order is a design decision. ARCHITECTURE.md has the same lists, and explains the purpose of each layer.
struct LayeredFolder {
    /// The folder of the layers.
    root: &'static str,
    /// The path of the folder's module, as code of the crate names it.
    module: &'static str,
    layers: &'static [&'static str],
    /// The small modules that every layer may use, and the layers of the crate below. Such modules use only each other.
    common: &'static [&'static str],
    /// Names that no code of the folder may contain, each with the reason.
    never: &'static [(&'static str, &'static str)],
    /// The files in which these names are allowed.
    exempt: &'static [&'static str],
}

const FOLDERS: [LayeredFolder; 4] = [
    LayeredFolder {
        root: "crates/engine/src/",
        module: "crate::",
        layers: &["state", "ask", "record", "graph", "engine"],
        common: &["claim", "clock", "compact", "error", "failure", "id"],
        never: &[
            ("dyn Any", "the engine knows no runtime under any type; pass what it needs"),
            ("tokio", "the engine starts no task and waits for nothing"),
            ("SystemTime::now", "the engine reads no clock; pass the time"),
            ("Instant::now", "the engine reads no clock; pass the time"),
        ],
        exempt: &[],
    },
    LayeredFolder {
        root: "crates/history/src/",
        module: "crate::",
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
            "redact",
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
        exempt: &[],
    },
    LayeredFolder {
        root: "crates/core/src/",
        module: "crate::",
        layers: &["telemetry", "store", "kernel", "node", "graph", "verify", "runtime"],
        common: &[
            "ask", "claim", "clock", "compact", "engine", "error", "failure", "id", "panics", "past",
            "record", "state", "wording",
        ],
        never: &[("dyn Any", "the compiler must see who knows whom; name the type, or a trait of its layer")],
        exempt: &[
            // Values of the application and of libraries, found by their type.
            "crates/core/src/kernel/extensions.rs",
            "crates/core/src/kernel/resources.rs",
            // The connection of the application's database, as the store contract passes it.
            "crates/core/src/runtime/requests/transactional_start.rs",
            "crates/core/src/store/bounded.rs",
            // The payload of a panic.
            "crates/core/src/panics.rs",
        ],
    },
    LayeredFolder {
        root: "crates/core/src/runtime/",
        module: "crate::runtime::",
        layers: &[
            "watch",
            "writes",
            "outbox",
            "claims",
            "child_ends",
            "signals",
            "child_control",
            "handle",
            "attempt",
            "driver",
            "requests",
            "children",
            "fleet",
            "builder",
            "extension",
            "history",
            "api",
        ],
        common: &["inbox", "input_fingerprint", "load", "outcome", "payload", "runtime"],
        never: &[],
        exempt: &[],
    },
];

/// Checks that every module uses only the layers before its own. Tests may use more.
pub(super) fn order(repo: &Repo) -> Vec<Fault> {
    let mut faults = Vec::new();
    for folder in &FOLDERS {
        for (path, source) in repo.rust() {
            let Some(inside) = path.strip_prefix(folder.root).filter(|_| !is_test(path)) else { continue };
            let parents: Vec<&str> = module_path(inside);
            let Some(own) = parents.first().copied().filter(|own| *own != "lib") else { continue };
            if !folder.layers.contains(&own) && !folder.common.contains(&own) {
                let message =
                    format!("`{own}` has no layer; say in FOLDERS what it may use, and what may use it");
                faults.push(Fault::file(path, message));
                continue;
            }
            for (index, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.test) {
                let above = "super::".repeat(parents.len());
                for used in named(&line.code, folder.module).chain(named(&line.code, &above)) {
                    if let Some(message) = folder.refuse(own, used) {
                        faults.push(Fault::line(path, index, message));
                    }
                }
                let words = folder.never.iter().filter(|(word, _)| has_word(&line.code, word));
                for (word, reason) in words.filter(|_| !folder.exempt.contains(&path)) {
                    faults.push(Fault::line(path, index, format!("`{word}`: {reason}")));
                }
            }
        }
    }
    faults
}

/// Returns whether a line of code has a word, and not only a longer name that begins with it.
fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word)
        .any(|(at, _)| !code[at + word.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Returns the modules of a file below its layered folder, outermost first. It is empty for the folder's own `mod.rs`.
fn module_path(inside: &str) -> Vec<&str> {
    inside.trim_end_matches(".rs").split('/').filter(|part| *part != "mod").collect()
}

/// Returns the modules that a line of code names directly below `folder`, such as `crate::` or `super::super::`.
fn named<'c>(code: &'c str, folder: &'c str) -> impl Iterator<Item = &'c str> {
    let starts = code.match_indices(folder).filter(|(at, _)| {
        // A longer chain of `super::` names another folder.
        let before = &code[..*at];
        !before.ends_with("super::")
            && !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
    });
    starts.map(|(at, _)| {
        let rest = &code[at + folder.len()..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        &rest[..end]
    })
}

impl LayeredFolder {
    /// Returns the reason why one module may not use another; `None` if it may.
    fn refuse(&self, module: &str, used: &str) -> Option<String> {
        let place = |name: &str| self.layers.iter().position(|layer| *layer == name);
        if module == used || used == "super" || self.common.contains(&used) {
            return None;
        }
        if used.is_empty() {
            return Some(format!(
                "names several modules at once; write `use {}module` for each",
                self.module
            ));
        }
        match (place(module), place(used)) {
            (Some(above), Some(below)) if below < above => None,
            // An item that the root of the crate defines or exports again, such as a macro.
            (_, None) if self.module == "crate::" => None,
            (_, None) => Some(format!("`{used}` hides its layer; name the module that defines it")),
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
            (
                "crates/core/src/kernel/inner.rs",
                "//! Reaches upward.\nuse crate::node::Node;\nstruct Host(std::sync::Weak<dyn Any>);\n",
            ),
            ("crates/core/src/kernel/extensions.rs", "//! Exempt.\nstruct Values(Vec<Box<dyn Any>>);\n"),
            (
                "crates/core/src/runtime/driver/mod.rs",
                "//! Reaches upward. Takes a `dyn AnyGraph`.\nuse super::requests::drive::drive;\nuse super::attempt::Attempt;\n",
            ),
            (
                "crates/core/src/runtime/driver/signal.rs",
                "//! Reaches upward.\nuse super::super::children::wake;\nuse super::requests;\nuse crate::runtime::Outcome;\n",
            ),
            ("crates/core/src/runtime/mod.rs", "//! Exports.\npub use self::api::Runtime;\n"),
        ]);
        let found: String = order(&repo).iter().map(|fault| format!("{fault}\n")).collect();
        assert!(found.contains("record/fold.rs:3: `record` may not use `engine`"), "{found}");
        assert!(found.contains("ask/answer.rs:2: `ask` may not use `record`"), "{found}");
        assert!(found.contains("engine/host.rs:2: `dyn Any`: the engine knows no runtime"), "{found}");
        assert!(found.contains("engine/host.rs:3: `tokio`: the engine starts no task"), "{found}");
        assert!(found.contains("panics.rs:3: `panics` may not use `graph`"), "{found}");
        assert!(found.contains("verify.rs:3: names several modules at once"), "{found}");
        assert!(found.contains("extra/mod.rs: `extra` has no layer"), "{found}");
        assert!(found.contains("kernel/inner.rs:2: `kernel` may not use `node`"), "{found}");
        assert!(found.contains("kernel/inner.rs:3: `dyn Any`"), "{found}");
        assert!(found.contains("driver/mod.rs:2: `driver` may not use `requests`"), "{found}");
        assert!(found.contains("driver/signal.rs:2: `driver` may not use `children`"), "{found}");
        assert!(found.contains("driver/signal.rs:4: `Outcome` hides its layer"), "{found}");
        assert_eq!(found.lines().count(), 12, "{found}");
    }
}

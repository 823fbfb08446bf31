//! Checks the dependencies between the crates of the workspace, which their manifests declare.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use super::Fault;
use super::repo::Repo;

/// The crates of the workspace on which each crate may depend, apart from its tests.
///
/// A new entry is a decision about the design; ARCHITECTURE.md gives the reason.
const ALLOWED: &[(&str, &[&str])] = &[
    ("ferrata-macros", &[]),
    // The contract of a store. The author of a store needs no other crate of Ferrata.
    ("ferrata-store", &[]),
    ("ferrata-store-conformance", &["ferrata-store", "ferrata-testing"]),
    // For tests only. It uses the runtime for tests of workflows, if a feature is enabled.
    ("ferrata-testing", &["ferrata-core", "ferrata-store"]),
    // This pattern includes `ferrata-store-sharded`, whose caller passes the inner stores.
    ("ferrata-store-*", &["ferrata-store"]),
    // It shows that the author of a store needs only the contract.
    ("ferrata-example-redb-store", &["ferrata-store"]),
    // The state machine of a run and its data. It contains no runtime, and of the stores only the types of the contract.
    ("ferrata-engine", &["ferrata-store"]),
    // Reads the logs of runs, and knows no runtime.
    ("ferrata-history", &["ferrata-engine", "ferrata-store"]),
    ("ferrata-core", &["ferrata-engine", "ferrata-history", "ferrata-store"]),
    // Servers for tests only. A library may use it only in its tests.
    ("ferrata-test-servers", &[]),
    ("ferrata-dot", &["ferrata-core"]),
    // The calendar is a separate crate, so that other libraries do not depend on time zones.
    ("ferrata-schedule", &["ferrata-core"]),
    // Functions as runs. They use only what a node may do.
    ("ferrata-flow", &["ferrata-core"]),
    // Queues act across all processes through the contract of the store. They change runs only through public calls.
    ("ferrata-queue", &["ferrata-core"]),
    // Values outside of the records. The crate reads stores, and uses the same source of keys as the records.
    ("ferrata-blobs", &["ferrata-store", "ferrata-store-envelope"]),
    (
        "ferrata",
        &[
            "ferrata-blobs",
            "ferrata-core",
            "ferrata-flow",
            "ferrata-macros",
            "ferrata-store-*",
            "ferrata-testing",
            "ferrata-dot",
            "ferrata-queue",
            "ferrata-schedule",
        ],
    ),
    // It reads runs only through the runtime, independent of the store. It reads queues through the crate of queues.
    ("ferrata-inspector", &["ferrata-core", "ferrata-queue", "ferrata-schedule"]),
    // The suite of stores is for `store check --conformance`, and the inspector is for `serve`.
    (
        "ferrata-cli",
        &["ferrata", "ferrata-core", "ferrata-dot", "ferrata-inspector", "ferrata-store-conformance"],
    ),
    ("ferrata-benches", &["ferrata"]),
    (
        "ferrata-tests",
        &["ferrata", "ferrata-core", "ferrata-store-*", "ferrata-test-servers", "ferrata-testing"],
    ),
    ("ferrata-mistakes", &["ferrata"]),
    ("xtask", &["ferrata-test-servers"]),
];

/// The section of a manifest that declares a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    Test,
}

/// The manifest of a member of the workspace.
struct Manifest<'a> {
    path: &'a str,
    name: String,
    table: Table,
}

impl Manifest<'_> {
    /// Returns each declared dependency with the name of its package.
    fn dependencies(&self) -> Vec<(String, &Value, Kind)> {
        let targets = self.table.get("target").and_then(Value::as_table);
        let conditional = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
        std::iter::once(&self.table).chain(conditional).flat_map(dependencies_in).collect()
    }
}

fn dependencies_in(table: &Table) -> Vec<(String, &Value, Kind)> {
    let sections = [
        ("dependencies", Kind::Normal),
        ("build-dependencies", Kind::Normal),
        ("dev-dependencies", Kind::Test),
    ];
    let mut found = Vec::new();
    for (section, kind) in sections {
        for (name, value) in table.get(section).and_then(Value::as_table).into_iter().flatten() {
            let package = value.get("package").and_then(Value::as_str).unwrap_or(name);
            found.push((package.to_owned(), value, kind));
        }
    }
    found
}

/// Returns the manifests of the members, and a fault for each manifest that cannot be read.
fn members(repo: &Repo) -> (Vec<Manifest<'_>>, Vec<Fault>) {
    let (mut members, mut faults) = (Vec::new(), Vec::new());
    for (path, text) in repo.ending("/Cargo.toml") {
        match text.parse::<Table>() {
            Err(error) => faults.push(Fault::file(path, format!("is not TOML: {}", error.message()))),
            // This is a separate workspace such as `fuzz/`, with its own rules.
            Ok(table) if table.contains_key("workspace") => {}
            Ok(table) => {
                let package = table.get("package").and_then(|package| package.get("name"));
                match package.and_then(Value::as_str).map(str::to_owned) {
                    Some(name) => members.push(Manifest { path, name, table }),
                    None => faults.push(Fault::file(path, "names no package; add `[package] name`")),
                }
            }
        }
    }
    (members, faults)
}

/// Checks that every member takes its lints and versions from the workspace, and that the folder `crates/x` contains `ferrata-x`.
pub(super) fn manifests(repo: &Repo) -> Vec<Fault> {
    let (members, mut faults) = members(repo);
    for member in &members {
        let lints = member.table.get("lints").and_then(|lints| lints.get("workspace"));
        if lints.and_then(Value::as_bool) != Some(true) {
            faults.push(Fault::file(
                member.path,
                "does not take the workspace's lints; add `[lints] workspace = true`",
            ));
        }
        for (name, value, kind) in member.dependencies() {
            let inherits = value.get("workspace").and_then(Value::as_bool) == Some(true);
            // The store suite and the memory store of core test each other. They declare only the path, so that neither needs the other to be
            // published first.
            let sibling = kind == Kind::Test && value.get("path").is_some() && value.get("version").is_none();
            if !inherits && !sibling {
                let message =
                    format!("sets the version of `{name}` itself; move it to [workspace.dependencies]");
                faults.push(Fault::file(member.path, message));
            }
        }
        let folder = member.path.strip_prefix("crates/").and_then(|path| path.strip_suffix("/Cargo.toml"));
        if let Some(folder) = folder {
            let wanted = if folder == "ferrata" { folder.to_owned() } else { format!("ferrata-{folder}") };
            if member.name != wanted {
                faults.push(Fault::file(
                    member.path,
                    format!("is named `{}`; the folder says `{wanted}`", member.name),
                ));
            }
        }
    }
    faults
}

/// Checks that dependencies inside the workspace follow [`ALLOWED`]. Tests may use more, but no store depends on another store.
pub(super) fn directions(repo: &Repo) -> Vec<Fault> {
    let (members, _) = members(repo);
    let mut faults = Vec::new();
    for member in &members {
        let rule = ALLOWED.iter().find(|(pattern, _)| matches(pattern, &member.name));
        if rule.is_none() && member.path.starts_with("crates/") {
            let message = format!("`{}` has no rule; say in ALLOWED what it may depend on", member.name);
            faults.push(Fault::file(member.path, message));
        }
        let Some((_, allowed)) = rule else { continue };
        for (name, _, kind) in member.dependencies() {
            let inside = members.iter().any(|other| other.name == name);
            let legal = match kind {
                Kind::Normal => allowed.iter().any(|pattern| matches(pattern, &name)),
                Kind::Test => !(is_store(&member.name) && is_store(&name)),
            };
            if inside && !legal {
                let message = format!(
                    "`{}` may not depend on `{name}`; move what is shared to a crate below both",
                    member.name
                );
                faults.push(Fault::file(member.path, message));
            }
        }
    }
    faults
}

/// Returns the crates in `crates/` by their folders, each with the crates of the workspace on which it depends outside of its tests. The crates with
/// the fewest layers below them come first.
pub(super) fn picture(repo: &Repo) -> String {
    let (members, _) = members(repo);
    let folder = |path: &str| Some(path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?.to_owned());
    let folders: BTreeMap<&str, String> =
        members.iter().filter_map(|member| Some((member.name.as_str(), folder(member.path)?))).collect();
    let below = |member: &Manifest<'_>| {
        let normal = member.dependencies().into_iter().filter(|(.., kind)| *kind == Kind::Normal);
        normal.filter_map(|(name, ..)| folders.get(name.as_str()).cloned()).collect::<BTreeSet<_>>()
    };
    let edges: BTreeMap<String, BTreeSet<String>> =
        members.iter().filter_map(|member| Some((folder(member.path)?, below(member)))).collect();
    let mut rows: Vec<(usize, &str)> =
        edges.keys().map(|name| (depth(&edges, name), name.as_str())).collect();
    rows.sort_unstable();
    let width = edges.keys().map(String::len).max().unwrap_or_default() + 2;
    let mut text = String::from("\n```text\n");
    for (_, name) in rows {
        let below: Vec<&str> = edges[name].iter().map(String::as_str).collect();
        text += format!("{name:width$}{}", below.join(" ")).trim_end();
        text.push('\n');
    }
    text + "```\n\n"
}

/// Returns the length of the longest chain of dependencies below a crate.
fn depth(edges: &BTreeMap<String, BTreeSet<String>>, name: &str) -> usize {
    let below = edges.get(name).into_iter().flatten();
    below.map(|below| 1 + depth(edges, below)).max().unwrap_or_default()
}

/// Returns whether a crate is a store that itself stores runs. A store that wraps other stores does not count.
fn is_store(name: &str) -> bool {
    matches("ferrata-store-*", name) && name != "ferrata-store-sharded"
}

/// Returns whether `pattern` matches `name`. A `*` at its end matches any store, but not the store suite.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start) && name != "ferrata-store-conformance",
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a manifest with the workspace's lints and these lines.
    fn manifest(name: &str, lines: &str) -> String {
        format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{lines}")
    }

    fn messages(faults: Vec<Fault>) -> String {
        faults.into_iter().map(|fault| format!("{fault}\n")).collect()
    }

    #[test]
    fn a_manifest_that_leaves_the_workspace_is_found() {
        let good = manifest(
            "ferrata-core",
            "[dependencies]\nserde.workspace = true\n[dev-dependencies]\nferrata-store-conformance = { path = \"../store-conformance\" }\n",
        );
        let own = manifest("ferrata-dot", "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n");
        let bare = "[package]\nname = \"ferrata\"\n";
        let repo = Repo::of([
            ("Cargo.toml", "[workspace]\n"),
            ("crates/core/Cargo.toml", &good),
            ("crates/graphs/Cargo.toml", &own),
            ("crates/ferrata/Cargo.toml", bare),
            ("fuzz/Cargo.toml", "[workspace]\n[dependencies]\na = \"1\"\n"),
            ("xtask/Cargo.toml", "name = [\n"),
        ]);
        let found = messages(manifests(&repo));
        assert!(found.contains("crates/graphs/Cargo.toml: sets the version of `libc` itself"), "{found}");
        assert!(found.contains("crates/graphs/Cargo.toml: is named `ferrata-dot`"), "{found}");
        assert!(found.contains("crates/ferrata/Cargo.toml: does not take the workspace's lints"), "{found}");
        assert!(found.contains("xtask/Cargo.toml: is not TOML"), "{found}");
        assert_eq!(found.lines().count(), 4, "{found}");
    }

    #[test]
    fn a_dependency_against_the_direction_is_found() {
        let core = manifest(
            "ferrata-core",
            "[dependencies]\nferrata-store.workspace = true\n[build-dependencies]\nferrata-dot.workspace = true\n",
        );
        let store = manifest("ferrata-store", "[dependencies]\nferrata-core.workspace = true\n");
        let fs = manifest(
            "ferrata-store-fs",
            "[dependencies]\nferrata-store.workspace = true\n[dev-dependencies]\nferrata-core.workspace = true\nferrata-store-conformance.workspace = true\nferrata-store-s3.workspace = true\n",
        );
        let s3 = manifest(
            "ferrata-store-s3",
            "[dependencies]\nshared = { package = \"ferrata-store-fs\", workspace = true }\n[dev-dependencies]\nferrata-store-sharded.workspace = true\n",
        );
        let sharded =
            manifest("ferrata-store-sharded", "[dependencies]\nferrata-store-fs.workspace = true\n");
        let suite = manifest("ferrata-store-conformance", "[dependencies]\nferrata-core.workspace = true\n");
        let dot = manifest("ferrata-dot", "");
        let new = manifest("ferrata-new", "");
        let repo = Repo::of([
            ("crates/core/Cargo.toml", &core),
            ("crates/store/Cargo.toml", &store),
            ("crates/store-fs/Cargo.toml", &fs),
            ("crates/store-s3/Cargo.toml", &s3),
            ("crates/store-sharded/Cargo.toml", &sharded),
            ("crates/store-conformance/Cargo.toml", &suite),
            ("crates/dot/Cargo.toml", &dot),
            ("crates/new/Cargo.toml", &new),
        ]);
        let found = messages(directions(&repo));
        assert!(found.contains("`ferrata-core` may not depend on `ferrata-dot`"), "{found}");
        assert!(found.contains("`ferrata-store-fs` may not depend on `ferrata-store-s3`"), "{found}");
        assert!(found.contains("`ferrata-store-s3` may not depend on `ferrata-store-fs`"), "{found}");
        assert!(found.contains("`ferrata-store-sharded` may not depend on `ferrata-store-fs`"), "{found}");
        assert!(found.contains("`ferrata-store` may not depend on `ferrata-core`"), "{found}");
        assert!(found.contains("`ferrata-store-conformance` may not depend on `ferrata-core`"), "{found}");
        assert!(found.contains("`ferrata-new` has no rule"), "{found}");
        assert_eq!(found.lines().count(), 7, "{found}");
    }
}

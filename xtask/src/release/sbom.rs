//! The software bill of materials of a release, in the JSON form of CycloneDX 1.5 (<https://cyclonedx.org/docs/1.5/json/>).
//!
//! It lists each crate that the published crates need on the target of the archive, with all features and without the dependencies of tests.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use toml::Table;

/// A crate of the release or of its dependencies, as `cargo metadata` describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Package<'a>(&'a Value);

impl<'a> Package<'a> {
    fn text(self, field: &str) -> &'a str {
        self.0.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn name(self) -> &'a str {
        self.text("name")
    }

    pub(super) fn version(self) -> &'a str {
        self.text("version")
    }

    /// Returns the path of its `Cargo.toml`.
    pub(super) fn manifest(self) -> &'a str {
        self.text("manifest_path")
    }

    /// Returns the license as an SPDX expression. Old crates separate alternatives by a slash.
    pub(super) fn license(self) -> String {
        let parts: Vec<&str> = self.text("license").split('/').map(str::trim).collect();
        parts.join(" OR ")
    }

    /// Whether the crate comes from outside of the repository.
    pub(super) fn is_external(self) -> bool {
        self.0.get("source").is_some_and(Value::is_string)
    }

    fn purl(self) -> String {
        format!("pkg:cargo/{}@{}", self.name(), self.version())
    }
}

/// The published crates and everything that they need, by id, each with the ids of its dependencies.
#[derive(Debug)]
pub(super) struct Materials<'a> {
    packages: BTreeMap<&'a str, (Package<'a>, BTreeSet<&'a str>)>,
    roots: Vec<&'a str>,
}

impl<'a> Materials<'a> {
    /// Collects the materials from the output of `cargo metadata`.
    pub(super) fn collect(metadata: &'a Value) -> Result<Self> {
        let list = |pointer: &str| metadata.pointer(pointer).and_then(Value::as_array);
        let packages = list("/packages").context("cargo metadata lists no packages")?;
        let packages: HashMap<&str, Package<'_>> =
            packages.iter().map(|package| (Package(package).text("id"), Package(package))).collect();
        let nodes = list("/resolve/nodes").context("cargo metadata resolved no dependencies")?;
        let nodes: HashMap<&str, BTreeSet<&str>> =
            nodes.iter().filter_map(|node| Some((node.get("id")?.as_str()?, dependencies(node)))).collect();
        let members = list("/workspace_members").context("cargo metadata lists no members")?;
        let is_published = |id: &&str| packages.get(id).is_some_and(|package| package.0["publish"].is_null());
        let roots: Vec<&str> = members.iter().filter_map(Value::as_str).filter(is_published).collect();
        let mut waiting = roots.clone();
        let mut found = BTreeMap::new();
        while let Some(id) = waiting.pop() {
            if !found.contains_key(id) {
                let package = *packages.get(id).with_context(|| format!("cargo metadata lacks `{id}`"))?;
                let needed = nodes.get(id).cloned().unwrap_or_default();
                waiting.extend(&needed);
                found.insert(id, (package, needed));
            }
        }
        Ok(Self { packages: found, roots })
    }

    /// Returns the crates from outside of the repository, by name and version.
    pub(super) fn external(&self) -> Vec<Package<'a>> {
        let all = self.packages.values().map(|(package, _)| *package);
        let mut external: Vec<_> = all.filter(|package| package.is_external()).collect();
        external.sort_by_key(|package| (package.name(), package.version()));
        external
    }

    /// Returns the bill of materials. `lock` is the lock file, which has the checksums; `timestamp` is the time of the commit.
    pub(super) fn bill(&self, lock: &Table, version: &str, target: &str, timestamp: &str) -> Value {
        let checksums = checksums(lock);
        let refs = |ids: &mut dyn Iterator<Item = &&str>| -> BTreeSet<String> {
            ids.filter_map(|id| self.packages.get(id)).map(|(package, _)| package.purl()).collect()
        };
        let whole = format!("pkg:github/ferrata-rs/ferrata@v{version}");
        let mut components: Vec<Value> =
            self.packages.values().map(|(package, _)| component(*package, &checksums)).collect();
        components.sort_by_key(|component| component["bom-ref"].as_str().unwrap_or_default().to_owned());
        let mut graph: BTreeMap<String, BTreeSet<String>> = self
            .packages
            .values()
            .map(|(package, needed)| (package.purl(), refs(&mut needed.iter())))
            .collect();
        graph.insert(whole.clone(), refs(&mut self.roots.iter()));
        let graph: Vec<Value> =
            graph.into_iter().map(|(of, on)| json!({ "ref": of, "dependsOn": on })).collect();
        json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "timestamp": timestamp,
                "tools": { "components": [{ "type": "application", "name": "cargo xtask release" }] },
                "component": {
                    "type": "application",
                    "bom-ref": whole,
                    "name": "ferrata",
                    "version": version,
                    "licenses": [{ "expression": "MIT OR Apache-2.0" }],
                    "properties": [{ "name": "cargo:target", "value": target }],
                },
            },
            "components": components,
            "dependencies": graph,
        })
    }
}

/// Returns the ids of the packages that a node of the resolved graph needs for its library or its build script.
fn dependencies(node: &Value) -> BTreeSet<&str> {
    let is_needed = |dependency: &&Value| {
        let kinds = dependency["dep_kinds"].as_array();
        kinds.is_none_or(|kinds| kinds.iter().any(|kind| kind["kind"] != "dev"))
    };
    let all = node["deps"].as_array().into_iter().flatten().filter(is_needed);
    all.filter_map(|dependency| dependency["pkg"].as_str()).collect()
}

/// Returns the checksum of each crate in the lock file, by name and version.
fn checksums(lock: &Table) -> HashMap<(&str, &str), &str> {
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    packages
        .filter_map(|package| {
            let text = |field: &str| package.get(field).and_then(toml::Value::as_str);
            Some(((text("name")?, text("version")?), text("checksum")?))
        })
        .collect()
}

fn component(package: Package<'_>, checksums: &HashMap<(&str, &str), &str>) -> Value {
    let license = package.license();
    let licenses = match license.is_empty() {
        true => json!([{ "license": { "name": "see the license file of the crate" } }]),
        false => json!([{ "expression": license }]),
    };
    let mut component = json!({
        "type": "library",
        "bom-ref": package.purl(),
        "purl": package.purl(),
        "name": package.name(),
        "version": package.version(),
        "licenses": licenses,
    });
    if let Some(checksum) = checksums.get(&(package.name(), package.version())) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    let repository = package.text("repository");
    if repository.contains("://") {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Value {
        let package = |id: &str, license: &str, publish: Value, source: Value| {
            json!({
                "id": id, "name": id, "version": "1.0.0", "license": license, "publish": publish, "source": source,
                "repository": "https://example.org/r", "manifest_path": format!("/{id}/Cargo.toml"),
            })
        };
        let needs =
            |id: &str, kind: Value| json!({ "pkg": id, "dep_kinds": [{ "kind": kind, "target": null }] });
        json!({
            "workspace_members": ["app", "tests"],
            "packages": [
                package("app", "MIT", Value::Null, Value::Null),
                package("tests", "MIT", json!([]), Value::Null),
                package("lib", "MIT/Apache-2.0", Value::Null, json!("registry")),
                package("cc", "", Value::Null, json!("registry")),
                package("proptest", "MIT", Value::Null, json!("registry")),
                package("redb", "MIT", Value::Null, json!("registry")),
            ],
            "resolve": { "nodes": [
                { "id": "app", "deps": [needs("lib", Value::Null), needs("proptest", json!("dev"))] },
                { "id": "lib", "deps": [needs("cc", json!("build"))] },
                { "id": "tests", "deps": [needs("redb", Value::Null)] },
            ] },
        })
    }

    #[test]
    fn bill_lists_what_published_crates_need() {
        let metadata = metadata();
        let lock = "[[package]]\nname = \"lib\"\nversion = \"1.0.0\"\nchecksum = \"abc\"\n".parse().unwrap();
        let materials = Materials::collect(&metadata).unwrap();
        let bill = materials.bill(&lock, "0.2.0", "x86_64-unknown-linux-musl", "2026-02-03T00:00:00Z");
        let names: Vec<&str> =
            bill["components"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["app", "cc", "lib"]);
        let lib = &bill["components"][2];
        assert_eq!(lib["purl"], "pkg:cargo/lib@1.0.0");
        assert_eq!(lib["licenses"], json!([{ "expression": "MIT OR Apache-2.0" }]));
        assert_eq!(lib["hashes"], json!([{ "alg": "SHA-256", "content": "abc" }]));
        assert_eq!(
            bill["components"][1]["licenses"][0]["license"]["name"],
            "see the license file of the crate"
        );
        let graph = bill["dependencies"].as_array().unwrap();
        let on = |name: &str| &graph.iter().find(|row| row["ref"] == name).unwrap()["dependsOn"];
        assert_eq!(on("pkg:cargo/app@1.0.0"), &json!(["pkg:cargo/lib@1.0.0"]));
        assert_eq!(on("pkg:github/ferrata-rs/ferrata@v0.2.0"), &json!(["pkg:cargo/app@1.0.0"]));
        assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&json!("CycloneDX"), &json!("1.5")));
        let external: Vec<&str> = materials.external().iter().map(|package| package.name()).collect();
        assert_eq!(external, ["cc", "lib"]);
    }

    #[test]
    fn incomplete_metadata_is_an_error() {
        assert!(Materials::collect(&json!({ "packages": [] })).is_err());
        let mut metadata = metadata();
        metadata["packages"].as_array_mut().unwrap().remove(3);
        assert!(Materials::collect(&metadata).unwrap_err().to_string().contains("`cc`"));
    }
}

//! Lists large files and large types. A large one gives a reason for itself, or is recorded until it is split.
//!
//! A reason is a comment `// Large: ...`, which opens a file below its description, or stands directly above a type. `xtask/sizes.toml` records the
//! large ones without a reason. A new one is a fault, so the record can only shrink. `cargo xtask tidy --write` removes what is no longer large.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

use super::Fault;
use super::repo::{Repo, is_test};
use super::source::{Line, Source};

/// The largest number of code lines of a file, of fields of a struct, and of methods of a type that needs no reason.
const LINES: usize = 250;
const FIELDS: usize = 12;
const METHODS: usize = 40;

/// The mark of a reason.
const REASON: &str = "// Large: ";

/// The file of the large files and types that give no reason.
const RECORD: &str = "xtask/sizes.toml";

/// A large file or type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LargeItem {
    path: String,
    /// The line of the type, from 0. `None` for a file.
    line: Option<usize>,
    /// The path of the file, or the crate and the name of the type.
    name: String,
    size: String,
    reason: Option<String>,
}

impl fmt::Display for LargeItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` has {}", self.name, self.size)?;
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

/// The names of the large files and types that give no reason.
#[derive(Debug, Default)]
struct Record {
    unexplained: BTreeSet<String>,
}

/// A struct of a file.
struct Struct {
    name: String,
    line: usize,
    fields: usize,
    reason: Option<String>,
}

/// Checks that each large file or type gives a reason or is recorded, and that the record names no other.
pub(super) fn large(repo: &Repo) -> Vec<Fault> {
    let record = match read(repo) {
        Ok(Some(record)) => record,
        Ok(None) => {
            return vec![Fault::file(RECORD, "is missing; make it with `cargo xtask tidy --write`")];
        }
        Err(error) => return vec![Fault::file(RECORD, format!("cannot be read: {error:#}"))],
    };
    let (mut faults, mut unexplained) = (Vec::new(), BTreeSet::new());
    for item in measure(repo).into_iter().filter(|item| item.reason.is_none()) {
        if !record.unexplained.contains(&item.name) {
            let message =
                format!("{item}; split it, or say why it is one thing in a comment `{REASON}...` above it");
            faults.push(Fault { path: item.path.clone(), line: item.line.map(|line| line + 1), message });
        }
        unexplained.insert(item.name);
    }
    let gone = record.unexplained.difference(&unexplained);
    faults.extend(gone.map(|name| {
        Fault::file(RECORD, format!("`{name}` is no longer large; run `cargo xtask tidy --write`"))
    }));
    faults
}

/// Returns the large files and types of the repository, one in each line, with the reasons that they give.
pub(super) fn list(repo: &Repo) -> String {
    measure(repo).iter().map(|item| format!("{item}\n")).collect()
}

/// Removes from the record what is no longer large or gives a reason.
///
/// # Errors
///
/// Fails if the record cannot be read or written.
pub(super) fn lower(root: &Path, repo: &Repo) -> Result<()> {
    let record = read(repo)?;
    let items = measure(repo).into_iter().filter(|item| item.reason.is_none());
    let names: BTreeSet<String> = items
        .map(|item| item.name)
        .filter(|name| record.as_ref().is_none_or(|record| record.unexplained.contains(name)))
        .collect();
    let mut text = "# Large files and types that give no reason; see `xtask/src/tidy/sizes.rs`. The list can only shrink.\n\
        unexplained = [\n"
        .to_owned();
    text.extend(names.iter().map(|name| format!("    {name:?},\n")));
    text.push_str("]\n");
    std::fs::write(root.join(RECORD), text).with_context(|| format!("cannot write {RECORD}"))
}

fn read(repo: &Repo) -> Result<Option<Record>> {
    let Some(text) = repo.text(RECORD) else { return Ok(None) };
    let table: toml::Table = text.parse()?;
    let names =
        table.get("unexplained").and_then(toml::Value::as_array).context("lacks the list `unexplained`")?;
    let names = names.iter().filter_map(toml::Value::as_str).map(ToOwned::to_owned);
    Ok(Some(Record { unexplained: names.collect() }))
}

/// Returns the large files and types of the libraries, by name.
fn measure(repo: &Repo) -> Vec<LargeItem> {
    let mut large = Vec::new();
    // By crate and name: where the type stands, and the number of its methods in all files of the crate.
    let mut types: BTreeMap<String, (String, Struct)> = BTreeMap::new();
    let mut methods: BTreeMap<String, usize> = BTreeMap::new();
    for (path, source) in repo.rust() {
        let Some(krate) = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()) else {
            continue;
        };
        if is_test(path) || !path.contains("/src/") {
            continue;
        }
        let lines = source.lines.iter().filter(|line| line.is_code() && !line.test).count();
        if lines > LINES {
            let reason = reason_before(&source, first_code(&source));
            let (path, size) = (path.to_owned(), format!("{lines} code lines"));
            large.push(LargeItem { name: path.clone(), path, line: None, size, reason });
        }
        for found in structs(&source) {
            types.insert(format!("{krate}::{}", found.name), (path.to_owned(), found));
        }
        for (name, count) in methods_of(&source) {
            *methods.entry(format!("{krate}::{name}")).or_default() += count;
        }
    }
    for (name, (path, found)) in types {
        let count = methods.get(&name).copied().unwrap_or_default();
        let size = match (found.fields > FIELDS, count > METHODS) {
            (true, true) => format!("{} fields and {count} methods", found.fields),
            (true, false) => format!("{} fields", found.fields),
            (false, true) => format!("{count} methods"),
            (false, false) => continue,
        };
        large.push(LargeItem { path, line: Some(found.line), name, size, reason: found.reason });
    }
    large.sort();
    large
}

/// Returns the index of the first line with code.
fn first_code(source: &Source<'_>) -> usize {
    let is_code = |line: &Line<'_>| !line.code.trim().is_empty() && !line.code.trim().starts_with("#![");
    source.lines.iter().position(is_code).unwrap_or(source.lines.len())
}

/// Returns the reason in the comments and attributes directly before a line.
fn reason_before(source: &Source<'_>, line: usize) -> Option<String> {
    let before = source.lines[..line].iter().rev();
    let mut block = before.take_while(|line| {
        let code = line.code.trim();
        !line.comment.is_empty() || line.raw.trim().is_empty() || code.starts_with("#[")
    });
    block.find_map(|line| line.raw.trim().strip_prefix(REASON)).map(ToOwned::to_owned)
}

/// Returns the structs with named fields.
fn structs(source: &Source<'_>) -> Vec<Struct> {
    let (mut found, mut open, mut depth) = (Vec::new(), None::<Struct>, 0_usize);
    for (index, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.test) {
        let code = line.code.trim();
        if let Some(open) = &mut open {
            if depth == 1 && is_field(code) {
                open.fields += 1;
            }
        } else {
            let Some(name) = name_after(code, "struct ") else { continue };
            let reason = reason_directly_before(source, index);
            open = Some(Struct { name: name.to_owned(), line: index, fields: 0, reason });
            depth = 0;
        }
        depth += code.matches(['{', '(']).count();
        depth = depth.saturating_sub(code.matches(['}', ')']).count());
        if depth == 0 && code.ends_with(['}', ';']) {
            found.extend(open.take());
        }
    }
    found
}

/// Returns the reason in the comments and attributes directly before a type. An empty line ends them.
fn reason_directly_before(source: &Source<'_>, line: usize) -> Option<String> {
    let before = source.lines[..line].iter().rev();
    let mut block = before
        .take_while(|line| !line.comment.is_empty() || line.code.trim().starts_with("#["))
        .map(|line| line.raw.trim());
    block.find_map(|line| line.strip_prefix(REASON)).map(ToOwned::to_owned)
}

/// Returns the number of methods in each inherent `impl` block, by the name of the type.
fn methods_of(source: &Source<'_>) -> Vec<(String, usize)> {
    let (mut found, mut open, mut depth) = (Vec::new(), None::<(String, usize)>, 0_usize);
    for line in source.lines.iter().filter(|line| !line.test) {
        let code = line.code.trim();
        match &mut open {
            Some((_, count)) => {
                if depth == 1 && name_after(code, "fn ").is_some() {
                    *count += 1;
                }
            }
            None => {
                let Some(name) = line.code.strip_prefix("impl").and_then(implemented) else { continue };
                (open, depth) = (Some((name.to_owned(), 0)), 0);
            }
        }
        depth += code.matches('{').count();
        depth = depth.saturating_sub(code.matches('}').count());
        if depth == 0 && code.ends_with('}') {
            found.extend(open.take());
        }
    }
    found
}

/// Returns the type of an inherent `impl`, from the text after this word. `None` for the `impl` of a trait.
fn implemented(rest: &str) -> Option<&str> {
    if rest.contains(" for ") {
        return None;
    }
    let (mut depth, mut before) = (0_usize, ' ');
    let after = rest.find(|c: char| {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = c;
        depth == 0 && c == ' '
    })?;
    leading_name(rest[after..].trim_start())
}

/// Returns the name after a keyword that begins an item, with or without a visibility before it.
fn name_after<'c>(code: &'c str, keyword: &str) -> Option<&'c str> {
    let at = code.find(keyword)?;
    let before = code[..at].trim_end();
    let is_item = before.split(' ').all(|word| {
        matches!(word, "" | "pub" | "const" | "async" | "unsafe")
            || word.starts_with("pub(")
            || word.ends_with(')')
    });
    if is_item { leading_name(&code[at + keyword.len()..]) } else { None }
}

fn leading_name(code: &str) -> Option<&str> {
    let end = code.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(code.len());
    (end > 0).then(|| &code[..end])
}

/// Returns whether a line inside a struct begins a field: `name:`, with or without a visibility before it.
fn is_field(code: &str) -> bool {
    let Some((before, _)) = code.split_once(':') else { return false };
    let name = before.rsplit([' ', ')']).next().unwrap_or_default();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '#');
    is_name && (before == name || before.starts_with("pub")) && !code.starts_with("#[")
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "unexplained = []\n";

    /// A file with a type of so many fields and methods, and a text above the type.
    fn file(fields: usize, methods: usize, above: &str) -> String {
        let fields: String = (0..fields)
            .map(|n| {
                format!(
                    "    /// One: of {n}.\n    #[serde(default)]\n    pub(crate) f{n}: Vec<crate::a::B>,\n"
                )
            })
            .collect();
        let methods: String = (0..methods)
            .map(|n| format!("    pub(crate) async fn m{n}(&self) {{\n        run();\n    }}\n"))
            .collect();
        format!(
            "//! A.\nuse b::C;\n\nstruct Unit;\nstruct Pair(u8, u8);\n\n/// Holds.\n{above}pub(crate) struct Large<S: State>\nwhere\n    S: Send,\n\
             {{\n{fields}}}\n\nimpl<S: Fn(u8) -> u8> Large<S> {{\n{methods}}}\n\nimpl fmt::Debug for Large {{\n    fn fmt() {{}}\n}}\n"
        )
    }

    fn faults(text: &str, record: &str) -> String {
        let repo = Repo::of([("crates/core/src/a.rs", text), (RECORD, record)]);
        large(&repo).iter().map(|fault| format!("{fault}\n")).collect()
    }

    #[test]
    fn large_type_without_reason_is_found() {
        assert_eq!(faults(&file(FIELDS, METHODS, ""), EMPTY), "");
        let found = faults(&file(FIELDS + 1, METHODS, ""), EMPTY);
        assert!(
            found.starts_with("crates/core/src/a.rs:8: `core::Large` has 13 fields; split it"),
            "{found}"
        );
        let found = faults(&file(FIELDS, METHODS + 1, ""), EMPTY);
        assert!(found.contains("`core::Large` has 41 methods"), "{found}");
    }

    #[test]
    fn reason_or_record_explains_large_type() {
        let (with, without) = (
            file(FIELDS + 1, METHODS + 1, "// Large: the form of a stored record.\n"),
            file(FIELDS + 1, 0, ""),
        );
        assert_eq!(faults(&with, EMPTY), "");
        assert_eq!(faults(&without, "unexplained = [\"core::Large\"]\n"), "");
        let idle = faults(&with, "unexplained = [\"core::Large\"]\n");
        assert!(idle.contains("`core::Large` is no longer large"), "{idle}");
        let repo = Repo::of([("crates/core/src/a.rs", with.as_str())]);
        assert_eq!(list(&repo), "`core::Large` has 13 fields and 41 methods: the form of a stored record.\n");
    }

    #[test]
    fn large_file_without_reason_is_found() {
        let lines = "x();\n".repeat(LINES);
        let full = format!("//! A.\n\n{lines}// note\n\n#[cfg(test)]\nmod tests {{\n    fn a() {{}}\n}}\n");
        assert_eq!(faults(&full, EMPTY), "");
        let over = faults(&format!("//! A.\n\ny();\n{lines}"), EMPTY);
        assert!(
            over.starts_with("crates/core/src/a.rs: `crates/core/src/a.rs` has 251 code lines"),
            "{over}"
        );
        assert_eq!(faults(&format!("//! A.\n// Large: a table.\n\ny();\n{lines}"), EMPTY), "");
    }
}

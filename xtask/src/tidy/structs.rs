//! Checks the number of fields of structs that have behavior.

use super::Fault;
use super::repo::{Repo, is_test};

/// Maximum number of fields of a struct with behavior. A struct with more fields combines two objects and must be split.
const MOST: usize = 15;

/// The folders in which structs are checked: the code that changes runs, and the code that drives them.
const ROOTS: [&str; 2] = ["crates/engine/src/engine/", "crates/core/src/runtime/"];

/// Structs of plain data that are stored or shown unchanged, so that their fields are a format.
const PLAIN: &[&str] = &["StoredMachine"];

/// Checks that no struct of the engine or the runtime has more fields than the maximum. Plain data is an exception.
pub(super) fn fields(repo: &Repo) -> Vec<Fault> {
    fields_except(repo, PLAIN)
}

fn fields_except(repo: &Repo, plain: &[&str]) -> Vec<Fault> {
    let (mut faults, mut needed) = (Vec::new(), Vec::new());
    for (path, source) in repo.rust() {
        if is_test(path) || !ROOTS.iter().any(|root| path.starts_with(root)) {
            continue;
        }
        // The struct whose braces are open: its line, its name, and the number of its fields so far.
        let mut open: Option<(usize, String, usize)> = None;
        let mut depth = 0_usize;
        for (index, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.test) {
            let code = line.code.trim();
            if open.is_none() {
                let Some(name) = name(code) else { continue };
                open = Some((index, name.to_owned(), 0));
                depth = 0;
            } else if let Some((.., count)) = &mut open
                && depth == 1
                && is_field(code)
            {
                *count += 1;
            }
            depth += code.matches(['{', '(']).count();
            depth = depth.saturating_sub(code.matches(['}', ')']).count());
            if depth > 0 || !code.ends_with(['}', ';']) {
                continue;
            }
            let Some((at, name, count)) = open.take().filter(|(.., count)| *count > MOST) else { continue };
            if plain.contains(&&*name) {
                needed.push(name);
            } else {
                let message = format!(
                    "`{name}` has {count} fields, over {MOST}; split it into objects with private fields, or name it in PLAIN if it \
                     is plain data that is stored or shown"
                );
                faults.push(Fault::line(path, at, message));
            }
        }
    }
    let idle = plain.iter().filter(|name| !needed.iter().any(|needed| needed == *name));
    faults.extend(idle.map(|name| {
        let message = format!("`{name}` needs no exception; remove it from PLAIN");
        Fault::file("xtask/src/tidy/structs.rs", message)
    }));
    faults
}

/// Returns the name of a struct that begins in this line.
fn name(code: &str) -> Option<&str> {
    let rest = match code.find("struct ") {
        Some(0) => &code[7..],
        Some(at) if code.starts_with("pub") && code[..at].ends_with([' ', ')']) => &code[at + 7..],
        _ => return None,
    };
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
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

    fn of(count: usize) -> String {
        let fields: String = (0..count)
            .map(|n| {
                format!(
                    "    /// One: of {n}.\n    #[serde(default)]\n    pub(crate) f{n}: Vec<crate::a::B>,\n"
                )
            })
            .collect();
        format!(
            "//! A.\nstruct Unit;\nstruct Pair(u8, u8);\npub(crate) struct Large<S: State>\nwhere\n    S: Send,\n{{\n{fields}}}\n\
             impl Large {{\n    fn a(&self) {{\n        let b: u8 = 1;\n    }}\n}}\n"
        )
    }

    #[test]
    fn an_object_with_too_many_fields_is_found() {
        let found = |path: &str, count: usize| {
            let text = of(count);
            fields_except(&Repo::of([(path, text.as_str())]), &[])
        };
        assert_eq!(found("crates/engine/src/engine/a.rs", MOST), []);
        assert_eq!(found("crates/core/src/record/a.rs", MOST + 1), []);
        let faults = found("crates/core/src/runtime/a.rs", MOST + 1);
        assert!(faults[0].message.contains("`Large` has 16 fields"), "{faults:?}");
        assert_eq!(faults.len(), 1, "{faults:?}");
    }

    #[test]
    fn plain_struct_exception_must_be_needed() {
        let (large, small) = (of(MOST + 1), of(MOST));
        let found =
            |text: &str| fields_except(&Repo::of([("crates/engine/src/engine/a.rs", text)]), &["Large"]);
        assert_eq!(found(&large), []);
        assert!(found(&small)[0].message.contains("needs no exception"));
    }
}

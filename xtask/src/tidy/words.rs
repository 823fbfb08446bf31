//! Checks the glossary to the extent that a program can: public items must not be named with words that the glossary replaces by others.

use super::Fault;
use super::repo::{Repo, is_test};
use super::source::is_word;

/// A banned word in `snake_case`, and the word to use instead. Only words without another proper use are in this list.
const BANNED: &[(&str, &str)] = &[
    ("savepoint", "checkpoint"),
    ("superstep", "activation"),
    ("checkpointer", "store"),
    ("snapshot_store", "checkpoint store"),
    ("saver", "store"),
    ("vertex", "node"),
    ("pending_edge", "token"),
    ("workflow_run", "run"),
    ("fencing_token", "epoch"),
];

/// Words that may come between `pub` and the name.
const KEYWORDS: [&str; 11] =
    ["async", "const", "enum", "fn", "mod", "static", "struct", "trait", "type", "union", "unsafe"];

/// Checks that no public item, field or module is named with a banned word.
pub(super) fn banned(repo: &Repo) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, source) in repo.rust().filter(|(path, _)| !is_test(path)) {
        for (index, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.test) {
            let Some(name) = public_name(&line.code) else { continue };
            let snake = format!("_{}_", snake_case(name));
            let says =
                |word: &str| snake.contains(&format!("_{word}_")) || snake.contains(&format!("_{word}s_"));
            for (word, instead) in BANNED.iter().filter(|(word, _)| says(word)) {
                faults.push(Fault::line(
                    path,
                    index,
                    format!("`{name}` says `{word}`; the word here is \"{instead}\""),
                ));
            }
        }
    }
    faults
}

/// Returns the name that a line of code makes public.
fn public_name(code: &str) -> Option<&str> {
    let declared = code.trim_start().strip_prefix("pub ")?;
    let mut words = declared.split(|c| !is_word(c)).filter(|word| !word.is_empty());
    words.find(|word| !KEYWORDS.contains(word)).filter(|word| *word != "use")
}

/// Returns `name` in lower case, with an underscore before each new word.
fn snake_case(name: &str) -> String {
    let (mut snake, mut before) = (String::new(), '_');
    for c in name.chars() {
        if c.is_uppercase() && before.is_lowercase() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
        before = c;
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_word_in_public_name_is_reported() {
        let text = "pub struct RunSavepoint;\npub async fn next_superstep() {}\n    pub vertex: u32,\npub(crate) fn vertex() {}\npub use vertex::Node;\npub struct Savepoints;\nfn vertex() {}\npub const VERTEX: u8 = 1;\n";
        let found: Vec<_> =
            banned(&Repo::of([("a.rs", text)])).into_iter().map(|fault| fault.line.unwrap()).collect();
        assert_eq!(found, [1, 2, 3, 6, 8]);
    }

    #[test]
    fn the_fault_names_the_word_to_use() {
        let fault = &banned(&Repo::of([("a.rs", "pub trait SnapshotStore {}")]))[0];
        assert_eq!(
            fault.message,
            "`SnapshotStore` says `snapshot_store`; the word here is \"checkpoint store\""
        );
    }
}

//! Finds the types of a crate and counts their names by kind.

use std::collections::BTreeMap;

use super::super::source::{Source, is_word};

/// Names that are a verb form. Such names say what happened to a thing, and not what the thing is.
const PARTICIPLES: &[&str] = &[
    "Answered",
    "Applied",
    "Arrived",
    "Asked",
    "Asking",
    "Asks",
    "Awaited",
    "Begun",
    "Broken",
    "Called",
    "Came",
    "Captured",
    "Carries",
    "Changed",
    "Chosen",
    "Claimed",
    "Claiming",
    "Closed",
    "Closing",
    "Collected",
    "Connected",
    "Counted",
    "Dealt",
    "Declined",
    "Derived",
    "Doing",
    "Done",
    "Ended",
    "Ending",
    "Ends",
    "Entered",
    "Fetched",
    "Fired",
    "Finished",
    "Folded",
    "Found",
    "Gathered",
    "Given",
    "Going",
    "Gone",
    "Got",
    "Guarded",
    "Happened",
    "Heard",
    "Hearing",
    "Held",
    "Holds",
    "Joined",
    "Judged",
    "Kept",
    "Known",
    "Left",
    "Listed",
    "Listens",
    "Loaded",
    "Loading",
    "Looked",
    "Looks",
    "Lost",
    "Made",
    "Making",
    "Means",
    "Meant",
    "Mentioned",
    "Met",
    "Mine",
    "Missing",
    "Moved",
    "Named",
    "Never",
    "Noted",
    "Owed",
    "Placed",
    "Posed",
    "Posted",
    "Refused",
    "Removing",
    "Replaced",
    "Rested",
    "Resting",
    "Restored",
    "Said",
    "Salvaged",
    "Seen",
    "Sending",
    "Sent",
    "Settled",
    "Shown",
    "Signed",
    "Sorted",
    "Spanned",
    "Stepped",
    "Stood",
    "Stopped",
    "Stopping",
    "Stored",
    "Swept",
    "Taken",
    "Takes",
    "Told",
    "Touched",
    "Tried",
    "Tries",
    "Unborn",
    "Undelivered",
    "Unread",
    "Unsound",
    "Used",
    "Visited",
    "Waiting",
    "Waits",
    "Walked",
    "Wanted",
    "Woken",
    "Written",
    "Writes",
];

/// Names that are a function word. Such names do not name a thing.
const FUNCTION_WORDS: &[&str] = &[
    "About", "Again", "Anew", "Around", "Aside", "Before", "Behind", "Beside", "By", "Either", "Few", "From",
    "Here", "How", "Mine", "Nobody", "Nothing", "Over", "Same", "Such", "Then", "There", "To", "Until",
    "Via", "What", "When", "While", "Who", "Whole", "Why",
];

/// Counts of the type names of a crate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NameCounts {
    pub(super) types: usize,
    /// Names of one word.
    pub(super) one_word: usize,
    /// Names that are a verb form or a function word, in alphabetical order.
    pub(super) wordless: Vec<String>,
    /// Names that two files or more define.
    pub(super) repeated: usize,
}

/// The files that define a type, by its name.
#[derive(Debug, Default)]
pub(super) struct TypeNames(BTreeMap<String, Vec<String>>);

impl TypeNames {
    /// Adds the types that a file defines outside of its tests.
    pub(super) fn add(&mut self, path: &str, source: &Source<'_>) {
        for line in source.lines.iter().filter(|line| !line.test) {
            let Some(name) = defined_type(&line.code) else { continue };
            let files = self.0.entry(name.to_owned()).or_default();
            if files.last().is_none_or(|last| last != path) {
                files.push(path.to_owned());
            }
        }
    }

    /// Counts the names by kind.
    pub(super) fn counts(&self) -> NameCounts {
        let names = || self.0.keys();
        NameCounts {
            types: self.0.len(),
            one_word: names().filter(|name| is_one_word(name)).count(),
            wordless: names().filter(|name| is_wordless(name)).cloned().collect(),
            repeated: self.0.values().filter(|files| files.len() > 1).count(),
        }
    }
}

/// Returns whether a name is a verb form or a function word.
fn is_wordless(name: &str) -> bool {
    PARTICIPLES.contains(&name) || FUNCTION_WORDS.contains(&name)
}

fn is_one_word(name: &str) -> bool {
    name.chars().skip(1).all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
}

/// Returns the name of the struct, enum, trait or union that a line of code defines.
fn defined_type(code: &str) -> Option<&str> {
    let code = code.trim_start();
    let code = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) if rest.starts_with(' ') => rest.trim_start(),
        _ => code,
    };
    let rest =
        ["struct ", "enum ", "trait ", "union "].iter().find_map(|keyword| code.strip_prefix(keyword))?;
    let name = rest.split(|c| !is_word(c)).next()?;
    name.starts_with(|c: char| c.is_ascii_uppercase()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_counted_by_their_names() {
        let mut names = TypeNames::default();
        let first = "pub struct Told;\npub(crate) enum RunState {}\nunion Why {}\n// struct Comment;\n#[cfg(test)]\nmod tests {\n    struct Other;\n}\n";
        names.add("a.rs", &Source::new(first));
        names.add("b.rs", &Source::new("trait RunState {}\nlet structure = 1;\n"));
        let counts = names.counts();
        let wordless = vec!["Told".to_owned(), "Why".to_owned()];
        assert_eq!(counts, NameCounts { types: 3, one_word: 2, wordless, repeated: 1 });
    }
}

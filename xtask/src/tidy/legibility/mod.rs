//! The legibility meter: counts the type names and sentences that are hard for a stranger, and compares the counts with recorded maxima.
//!
//! `xtask/legibility.toml` records the counts of each crate and of the documentation. If a count is higher than the recorded one, both as a number
//! and as a share, it is a fault. So the counts can only fall. `cargo xtask tidy --write` lowers the record. The counts help to rank texts. The
//! counts do not prove that a sentence is bad, so read the sentences that they count.

mod names;
mod prose;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result};

use self::names::TypeNames;
use self::prose::ProseCounts;
use super::Fault;
use super::repo::Repo;

/// The file with the recorded maxima.
const RECORD: &str = "xtask/legibility.toml";

/// Folders whose Rust files are tests or demonstrations.
const TESTS: [&str; 5] = ["tests", "test", "benches", "examples", "fuzz"];

/// Markdown files that are not measured. The changelog is a list, and its fragments become part of it.
const UNMEASURED: [&str; 2] = ["CHANGELOG", "changes/"];

/// The number of hard sentences or types in a group, and the total number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    count: usize,
    total: usize,
}

impl Share {
    /// Returns whether the share is higher than `record`, both as a number and as a percentage.
    fn exceeds(self, record: Self) -> bool {
        self.count > record.count && self.count * record.total.max(1) > record.count * self.total.max(1)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.count, self.total)
    }
}

impl FromStr for Share {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (count, total) = text.split_once(" of ").context("a figure reads `3 of 120`")?;
        Ok(Self { count: count.parse()?, total: total.parse()? })
    }
}

/// The counts of each group, by name. The groups are `docs`, and each crate by its folder.
type Groups = BTreeMap<String, BTreeMap<String, Share>>;

/// The recorded counts or the measured counts.
#[derive(Debug, Default)]
struct Figures {
    groups: Groups,
    /// The types whose name is a verb form or a function word.
    wordless: Vec<String>,
}

impl Figures {
    /// Reads the recorded counts.
    ///
    /// # Errors
    ///
    /// Fails if the text does not have the form that [`write`](Self::write) writes.
    fn read(text: &str) -> Result<Self> {
        let mut record: toml::Table = toml::from_str(text)?;
        let wordless = record.remove("wordless").context("`wordless` is missing")?.try_into()?;
        let mut groups = Groups::new();
        for (group, figures) in record {
            let figures: BTreeMap<String, String> = figures.try_into()?;
            let parsed: Result<_> =
                figures.into_iter().map(|(name, share)| Ok((name, share.parse()?))).collect();
            groups.insert(group, parsed?);
        }
        Ok(Self { groups, wordless })
    }

    fn write(&self) -> String {
        let mut text = String::from(
            "# The most names and sentences that a reader may stumble over; see `xtask/src/tidy/legibility`. `cargo xtask tidy --write`\n\
             # lowers these figures, and so does `cargo xtask fix`.\n",
        );
        let names: Vec<String> = self.wordless.iter().map(|name| format!("{name:?}")).collect();
        text += &format!("wordless = [{}]\n", names.join(", "));
        for (group, figures) in &self.groups {
            text += &format!("\n[{group}]\n");
            text.extend(figures.iter().map(|(name, share)| format!("{name} = \"{share}\"\n")));
        }
        text
    }

    /// Counts the names and sentences in the repository.
    fn measure(repo: &Repo) -> Self {
        let mut docs = ProseCounts::default();
        for (_, text) in
            repo.ending(".md").filter(|(path, _)| !UNMEASURED.iter().any(|part| path.contains(part)))
        {
            prose::markdown(text).iter().for_each(|(_, sentence)| docs.add(sentence));
        }
        let mut crates: BTreeMap<&str, (ProseCounts, TypeNames)> = BTreeMap::new();
        for (path, source) in repo.rust() {
            let Some(name) = crate_of(path).filter(|_| !is_test(path)) else { continue };
            let (counts, names) = crates.entry(name).or_default();
            let text = repo.text(path).unwrap_or_default();
            prose::comments(text).iter().for_each(|(_, sentence)| counts.add(sentence));
            names.add(path, &source);
        }
        let mut measured = Self::default();
        measured.groups.insert("docs".to_owned(), of_prose(docs));
        for (name, (counts, names)) in crates {
            let names = names.counts();
            let mut figures = of_prose(counts);
            let of = |count| Share { count, total: names.types };
            figures.insert("one_word_types".to_owned(), of(names.one_word));
            figures.insert("repeated_types".to_owned(), of(names.repeated));
            measured.groups.insert(name.to_owned(), figures);
            measured.wordless.extend(names.wordless);
        }
        measured.wordless.sort_unstable();
        measured.wordless.dedup();
        measured
    }
}

fn of_prose(counts: ProseCounts) -> BTreeMap<String, Share> {
    let parts = [
        ("riddles", counts.riddles),
        ("passives", counts.passives),
        ("turned", counts.turned),
        ("long", counts.long),
    ];
    parts
        .into_iter()
        .map(|(name, count)| (name.to_owned(), Share { count, total: counts.sentences }))
        .collect()
}

/// Checks that no count is above its record, and that only recorded types are named by a verb form or a function word.
pub(super) fn rises(repo: &Repo) -> Vec<Fault> {
    let record = match repo.text(RECORD).map(Figures::read) {
        Some(Ok(record)) => record,
        Some(Err(error)) => return vec![Fault::file(RECORD, format!("cannot be read: {error:#}"))],
        None => return vec![Fault::file(RECORD, "is missing; make it with `cargo xtask tidy --write`")],
    };
    let measured = Figures::measure(repo);
    let mut faults = Vec::new();
    for (group, figures) in &measured.groups {
        for (name, share) in figures {
            let recorded = record.groups.get(group).and_then(|figures| figures.get(name));
            let recorded = recorded.copied().unwrap_or(Share { count: 0, total: 1 });
            if share.exceeds(recorded) {
                let message = format!(
                    "{name} of `{group}` rose from {recorded} to {share}; rewrite the new text by its facts, or the new names"
                );
                faults.push(Fault::file(RECORD, message));
            }
        }
    }
    for name in measured.wordless.iter().filter(|name| !record.wordless.contains(name)) {
        let message = format!(
            "the type `{name}` is named by a verb form or a function word; name the thing that it is"
        );
        faults.push(Fault::file(RECORD, message));
    }
    faults
}

/// Records the current counts, except counts that have risen.
///
/// # Errors
///
/// Fails if the old record cannot be read, or the new one cannot be written.
pub(super) fn lower(root: &Path, repo: &Repo) -> Result<()> {
    let mut figures = Figures::measure(repo);
    if let Some(record) = repo.text(RECORD).map(Figures::read).transpose()? {
        for (group, measured) in &mut figures.groups {
            let Some(recorded) = record.groups.get(group) else { continue };
            for (name, share) in measured {
                *share =
                    recorded.get(name).copied().filter(|recorded| share.exceeds(*recorded)).unwrap_or(*share);
            }
        }
        figures.wordless.retain(|name| record.wordless.contains(name));
    }
    std::fs::write(root.join(RECORD), figures.write()).with_context(|| format!("cannot write {RECORD}"))
}

/// Returns the folder of the crate that a file belongs to.
fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split_once('/').map(|(name, _)| name)
}

fn is_test(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    path.split('/').any(|part| TESTS.contains(&part)) || matches!(file, "tests.rs" | "test.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str =
        "//! The file holds one idea.\n\n/// What came of a run that ended.\npub struct Told;\n";

    /// Returns the faults of `code` if the counts of `before` are recorded.
    fn faults(before: &str, code: &str) -> Vec<String> {
        let record = Figures::measure(&Repo::of([("crates/core/src/a.rs", before)])).write();
        let faults = rises(&Repo::of([("crates/core/src/a.rs", code), (RECORD, &record)]));
        faults.into_iter().map(|fault| fault.message).collect()
    }

    #[test]
    fn rises_are_found() {
        assert_eq!(faults(CODE, CODE), [""; 0]);
        let longer = format!("{CODE}\n/// Those that are told of the end.\nfn f() {{}}\n");
        let found = faults(CODE, &longer);
        assert!(
            found.iter().any(|fault| fault.contains("riddles of `core` rose from 1 of 2 to 2 of 3")),
            "{found:?}"
        );
        assert!(found.iter().any(|fault| fault.contains("passives of `core` rose from 0 of 2")), "{found:?}");
        let named = faults("struct RunState;\n", "struct Told;\n");
        assert!(named.iter().any(|fault| fault.contains("`Told`")), "{named:?}");
    }

    #[test]
    fn a_shorter_or_larger_text_is_no_rise() {
        let shorter = "/// What came of a run that ended.\npub struct Told;\n";
        assert_eq!(faults(CODE, shorter), [""; 0]);
        let larger = format!("{CODE}/// The store appends it.\n/// What is left of it then.\n");
        assert_eq!(faults(CODE, &larger), [""; 0], "a share that stays");
    }

    #[test]
    fn tests_and_fragments_are_not_measured() {
        let repo = Repo::of([
            ("crates/core/tests/a.rs", "/// What came of it was told.\nstruct Told;\n"),
            ("changes/a.md", "What came of it was told to somebody.\n"),
            (RECORD, "wordless = []\n"),
        ]);
        assert_eq!(rises(&repo), []);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let figures = Figures::measure(&Repo::of([("crates/core/src/a.rs", CODE)]));
        let read = Figures::read(&figures.write()).unwrap();
        assert_eq!((read.groups, read.wordless), (figures.groups, figures.wordless));
        let broken = Repo::of([(RECORD, "wordless = []\n[docs]\nlong = 3\n")]);
        assert!(rises(&broken)[0].message.contains("cannot be read"));
        assert!(rises(&Repo::of([]))[0].message.contains("is missing"));
    }
}

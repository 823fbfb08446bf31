//! The layout of keys. Only this module builds and parses keys, and only from validated ids.
//!
//! ```text
//! <prefix>/
//!   ferrata.json                                     the version of the layout: {"version":1}
//!   log/<tenant>/<run>/<generation>/<record>               the records of one append, and what a prune left of them
//!   index/live/<created>/<tenant>/<run>/<entry>      a run that may continue
//!   index/done/<created>/<tenant>/<run>/<entry>      a finished run
//!   executors/<executor>                             a heartbeat: {"ttl_ms":15000}, dated by the server
//!   probe/<id>/<number>                              the tests of `setup`, which removes them
//! ```
//!
//! - `generation` is 8 hex digits, the bitwise complement of the number of purges of this id.
//! - `record` is 16 hex digits, the complement of the number of the object's first record.
//! - `created` is 16 hex digits, the complement of the run's time of creation in milliseconds since 1970 with its sign bit flipped.
//! - `entry` is `<generation>.<seq>.<record id>.<status>.<owner>.<wake-up>`. `generation` and `seq` are 8 and 16 hex digits, not complemented. `-` stands for no owner.
//!   `never` stands for no wake-up, other times are in milliseconds since 1970. The object is empty.

use ferrata_store::index::RunStanding;
use ferrata_store::{ExecutorId, RunId, RunKey, TenantId, Timestamp};

use crate::entry::IndexKey;

/// The version of keys and objects.
pub(crate) const VERSION: u32 = 1;

/// One half of the index. Active runs, which recovery lists again and again, are separate from finished runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tree {
    /// Runs that may continue, or that wait for a wake-up.
    Live,
    /// Runs that are finished and have no deliveries left.
    Done,
}

impl Tree {
    /// Returns the half of the index for a run in this state.
    pub(crate) fn of(standing: &RunStanding) -> Self {
        if standing.status.is_finished() && standing.wake_at.is_none() { Self::Done } else { Self::Live }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Done => "done",
        }
    }
}

/// The position of one object of a log: the generation of the run, and the number of the object's first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectPlace {
    pub(crate) generation: u32,
    pub(crate) start: u64,
}

impl ObjectPlace {
    /// The position of the first object of a run with a new id. After the first write, the key stays taken forever: by the first record, or by a
    /// mark. So a start that gets this key need not check for an existing or former run.
    pub(crate) const FIRST: Self = Self { generation: 0, start: 0 };
}

/// Builds and parses the keys below one prefix.
///
/// Ids contain no slash and no character that keys forbid, and never start with a dot. So each id is one part of a key without escapes, and two
/// runs never share a part. Counters are inverted, in hexadecimal digits of fixed width: a listing only ascends, and callers ask for the newest
/// objects.
#[derive(Clone, Debug)]
pub(crate) struct S3Keys {
    /// The prefix: empty, or with a slash at its end.
    prefix: String,
}

impl S3Keys {
    /// Creates the keys for a prefix without slashes at its ends.
    pub(crate) fn new(prefix: &str) -> Self {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Self { prefix }
    }

    /// Returns the key of the marker, which names the bucket's layout.
    pub(crate) fn marker(&self) -> String {
        format!("{}ferrata.json", self.prefix)
    }

    /// Returns a key for the probe of the server. `name` is unique.
    pub(crate) fn probe(&self, name: &str, number: usize) -> String {
        format!("{}probe/{name}/{number}", self.prefix)
    }

    pub(crate) fn executors(&self) -> String {
        format!("{}executors/", self.prefix)
    }

    pub(crate) fn executor(&self, executor: &ExecutorId) -> String {
        format!("{}executors/{executor}", self.prefix)
    }

    /// Returns the prefix of all logs.
    pub(crate) fn logs(&self) -> String {
        format!("{}log/", self.prefix)
    }

    /// Returns the prefix of the log of one run, in all its generations.
    pub(crate) fn run(&self, run: &RunKey) -> String {
        format!("{}log/{}/{}/", self.prefix, run.tenant, run.run)
    }

    /// Returns the key of the object at this position.
    pub(crate) fn object(&self, run: &RunKey, place: ObjectPlace) -> String {
        format!(
            "{}log/{}/{}/{:08x}/{:016x}",
            self.prefix, run.tenant, run.run, !place.generation, !place.start
        )
    }

    /// Returns the position in a key of this run.
    pub(crate) fn place_of(&self, run: &RunKey, key: &str) -> Option<ObjectPlace> {
        let (generation, start) = key.strip_prefix(&self.run(run))?.split_once('/')?;
        let generation = u32::from_str_radix(generation, 16).ok().filter(|_| generation.len() == 8)?;
        let start = u64::from_str_radix(start, 16).ok().filter(|_| start.len() == 16)?;
        Some(ObjectPlace { generation: !generation, start: !start })
    }

    /// Returns the part of an object's key after the folder of logs, for any prefix.
    pub(crate) fn below_logs<'k>(&self, key: &'k str) -> &'k str {
        key.strip_prefix(&self.logs()).unwrap_or(key)
    }

    /// Returns the run whose log has this key.
    pub(crate) fn run_of_log(&self, key: &str) -> Option<RunKey> {
        let mut parts = key.strip_prefix(&self.logs())?.split('/');
        let key = RunKey::new(TenantId::new(parts.next()?).ok()?, RunId::new(parts.next()?).ok()?);
        (parts.count() == 2).then_some(key)
    }

    /// Returns the prefix of one half of the index.
    pub(crate) fn tree(&self, tree: Tree) -> String {
        format!("{}index/{}/", self.prefix, tree.as_str())
    }

    /// Returns the prefix of the runs created at this time, in one half of the index.
    pub(crate) fn created(&self, tree: Tree, created: Timestamp) -> String {
        format!("{}index/{}/{:016x}/", self.prefix, tree.as_str(), inverted(created))
    }

    /// Returns the prefix of a run's entries in one half of the index. `tree` names the half: active runs or finished runs.
    pub(crate) fn entries(&self, tree: Tree, created: Timestamp, run: &RunKey) -> String {
        format!("{}{}/{}/", self.created(tree, created), run.tenant, run.run)
    }

    /// Returns the key of an index entry.
    pub(crate) fn entry(&self, created: Timestamp, run: &RunKey, entry: &IndexKey) -> String {
        format!("{}{entry}", self.entries(entry.tree(), created, run))
    }

    /// Parses a key of one half of the index.
    pub(crate) fn entry_of(&self, tree: Tree, key: &str) -> Option<(Timestamp, RunKey, IndexKey)> {
        let mut parts = key.strip_prefix(&self.tree(tree))?.split('/');
        let created = parts.next().filter(|part| part.len() == 16)?;
        let created = restored(u64::from_str_radix(created, 16).ok()?);
        let run = RunKey::new(TenantId::new(parts.next()?).ok()?, RunId::new(parts.next()?).ok()?);
        let entry = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some((created, run, entry))
    }
}

/// Returns a number that is smaller for later times, including times before 1970.
fn inverted(created: Timestamp) -> u64 {
    !(created.unix_ms().cast_unsigned() ^ (1 << 63))
}

fn restored(inverted: u64) -> Timestamp {
    Timestamp::from_unix_ms((!inverted ^ (1 << 63)).cast_signed())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(tenant: &str, run: &str) -> RunKey {
        RunKey::new(TenantId::new(tenant).unwrap(), RunId::new(run).unwrap())
    }

    #[test]
    fn the_newest_of_a_run_comes_first() {
        let layout = S3Keys::new("a/b");
        let run = run("t", "r:1");
        let key = |generation, start| layout.object(&run, ObjectPlace { generation, start });
        assert_eq!(key(0, 0), "a/b/log/t/r:1/ffffffff/ffffffffffffffff");
        assert!(key(0, 1) < key(0, 0) && key(0, 256) < key(0, 255));
        assert!(
            key(1, 0) < key(0, u64::MAX),
            "a later generation is listed before all keys of an earlier one"
        );
        assert!(key(1, 0).starts_with(&layout.run(&run)));
    }

    /// Guarantees: S3-8.
    #[test]
    fn object_key_stays_below_one_kibibyte() {
        let longest = "x".repeat(128);
        let run = run(&longest, &longest);
        let layout = S3Keys::new(&"p".repeat(crate::config::MAX_PREFIX));
        let entry = IndexKey::longest();
        assert!(layout.entry(Timestamp::default(), &run, &entry).len() <= 1024);
        assert!(layout.object(&run, ObjectPlace { generation: 0, start: 0 }).len() <= 1024);
    }

    proptest! {
        #[test]
        fn places_come_back(generation: u32, start: u64, prefix in "[a-z]{0,3}") {
            let (layout, run) = (S3Keys::new(&prefix), run("t.1", "a:b"));
            let place = ObjectPlace { generation, start };
            let key = layout.object(&run, place);
            prop_assert_eq!(layout.place_of(&run, &key), Some(place));
            prop_assert_eq!(layout.run_of_log(&key), Some(run));
        }

        #[test]
        fn later_runs_come_first(a: i64, b: i64) {
            let layout = S3Keys::new("");
            let key = |ms| layout.created(Tree::Live, Timestamp::from_unix_ms(ms));
            prop_assert_eq!(a.cmp(&b), key(b).cmp(&key(a)));
        }
    }
}

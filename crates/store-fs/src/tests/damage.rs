//! Logs that are cut short, damaged, spliced, of newer versions or in the wrong place. A read returns a typed error or the intact beginning, never
//! panics, and does not affect other runs.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use ferrata_store::{At, Error, ErrorKind, HeaderRange, Page, Record, RecordId, RunAppend, RunQuery, Seq};
use proptest::prelude::*;
use tempfile::TempDir;

use super::author::Author;
use super::hasty::HastyDisk;
use super::{append, folder, ids, purge, reopened};
use crate::error::FsStoreError;
use crate::inner::FsInner;
use crate::line;

/// A folder with the run `r`, which has several appends, and the run `other`.
struct Place {
    directory: TempDir,
    author: Author,
    appends: Vec<RunAppend>,
    /// The log of `r`, and the offset at which each of its appends ends.
    log: Vec<u8>,
    ends: Vec<usize>,
    /// The offset at which each line begins. The first line is the opening line.
    lines: Vec<usize>,
    other: Vec<RecordId>,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let folder = reopened(directory.path());
    folder.set_up().unwrap();
    let mut author = Author::new("r");
    let long = format!("\"{}\"", "x y@".repeat(150));
    let appends = vec![
        author.write(&["0", "[1]"]),
        author.write(&["2"]),
        author.write(&["3", "not json", "5"]),
        author.write_base("{\"a\": 6}"),
        author.write(&["7", &long]),
    ];
    let mut ends = Vec::new();
    let path = folder.layout.log(&author.run);
    for entry in &appends {
        append(&folder, entry).unwrap();
        ends.push(usize::try_from(fs::metadata(&path).unwrap().len()).unwrap());
    }
    let mut other = Author::new("other");
    let start = other.write(&["0"]);
    append(&folder, &start).unwrap();
    let log = fs::read(path).unwrap();
    let after_newlines = log.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let lines = std::iter::once(0).chain(after_newlines).filter(|at| *at < log.len()).collect();
    Place { directory, author, appends, log, ends, lines, other: vec![start.records[0].header.id] }
}

impl Place {
    fn path(&self) -> PathBuf {
        self.folder().layout.log(&self.author.run)
    }

    fn folder(&self) -> FsInner {
        folder(self.directory.path(), Arc::new(HastyDisk))
    }

    fn put(&self, log: &[u8]) -> FsInner {
        fs::write(self.path(), log).unwrap();
        self.folder()
    }

    fn records(&self, appends: usize) -> Vec<Record> {
        self.appends[..appends].iter().flat_map(|append| append.records.clone()).collect()
    }

    fn ids(&self, appends: usize) -> Vec<RecordId> {
        self.records(appends).iter().map(|record| record.header.id).collect()
    }

    /// Checks that the other run can be read and is listed. Returns whether `r` is listed as well.
    fn check_others(&self, folder: &FsInner) -> bool {
        assert_eq!(ids(folder, &Author::new("other").run).unwrap().as_ref(), Some(&self.other));
        let listed = folder.runs(&RunQuery::default(), &Page::default()).unwrap().items;
        let mut names: Vec<_> = listed.iter().map(|head| head.run.run.as_str()).collect();
        names.sort_unstable();
        assert!(names == ["other"] || names == ["other", "r"], "{names:?}");
        names.len() == 2
    }
}

fn kind(fault: FsStoreError) -> ErrorKind {
    Error::from(fault).kind()
}

fn check_unreadable(place: &Place, folder: &FsInner, expected: ErrorKind) {
    let run = &place.author.run;
    assert_eq!(kind(folder.load(run, At::Latest).unwrap_err()), expected);
    assert_eq!(kind(folder.headers(run, HeaderRange::newest(50)).unwrap_err()), expected);
    assert_eq!(kind(folder.head(run).unwrap_err()), expected);
    let mut author = place.author.clone();
    let before = fs::metadata(place.path()).map(|metadata| metadata.len()).ok();
    assert_eq!(kind(append(folder, &author.write(&["9"])).unwrap_err()), expected);
    assert_eq!(kind(append(folder, &place.appends[0]).unwrap_err()), expected);
    assert_eq!(fs::metadata(place.path()).map(|metadata| metadata.len()).ok(), before);
    assert!(!place.check_others(folder));
}

/// Guarantees: FS-5.
#[test]
fn log_cut_anywhere_preserves_whole_appends() {
    let place = place();
    for length in 0..place.log.len() {
        let folder = place.put(&place.log[..length]);
        let whole = place.ends.iter().take_while(|end| **end <= length).count();
        if whole == 0 {
            // A log gets its name with its first append in it, so no crash can cause this. The store must not report a missing run.
            check_unreadable(&place, &folder, ErrorKind::Corrupt);
            continue;
        }
        assert_eq!(ids(&folder, &place.author.run).unwrap(), Some(place.ids(whole)), "{length}");
        assert!(place.check_others(&folder));
        // Readers do not cut off anything.
        assert_eq!(fs::metadata(place.path()).unwrap().len(), length as u64);
    }
}

#[test]
fn append_truncates_torn_end_and_continues() {
    let place = place();
    for length in (place.ends[3] + 1..place.log.len()).step_by(13) {
        let folder = place.put(&place.log[..length]);
        append(&folder, &place.appends[4]).unwrap();
        assert_eq!(fs::read(place.path()).unwrap(), place.log, "{length}");
        // An append that is refused cuts nothing off either.
        let folder = place.put(&place.log[..length]);
        let refused = append(&folder, &place.author.clone().write(&["9"])).unwrap_err();
        assert_eq!(kind(refused), ErrorKind::Conflict);
        assert_eq!(fs::read(place.path()).unwrap(), place.log[..place.ends[3]], "{length}");
    }
}

/// Guarantees: FS-6.
#[test]
fn flipped_bit_is_damage_and_removes_nothing() {
    let place = place();
    let run = &place.author.run;
    let all = place.records(5);
    let head = all.last().map(|record| record.header.id);
    let latest = &all[6..];
    for at in 0..place.log.len() {
        // Over all bytes, this flips each bit many times. Flipping all bits of every byte would take a minute and find nothing more.
        for bit in [at % 8, (at + 3) % 8] {
            let mut log = place.log.clone();
            log[at] ^= 1 << bit;
            let folder = place.put(&log);
            let told = format!("bit {bit} of byte {at}");
            let fault = folder.headers(run, HeaderRange::newest(1_000)).expect_err(&told);
            let error = Error::from(fault);
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{told}");
            let line = place.lines.iter().rposition(|begin| *begin <= at).unwrap();
            if line > 0 {
                // If a newline is damaged, two lines become one.
                let seq = error.seq().expect(&told).get();
                assert!(seq + 1 == line as u64 || place.log[at] == b'\n', "{told}: {error}");
            }
            match folder.load(run, At::Latest) {
                Ok(records) => assert_eq!(records.unwrap(), latest, "{told}"),
                Err(fault) => assert_eq!(kind(fault), ErrorKind::Corrupt, "{told}"),
            }
            let readable = match folder.head(run) {
                Ok(found) => {
                    assert_eq!(found.map(|found| found.id), head, "{told}");
                    true
                }
                Err(fault) => {
                    assert_eq!(kind(fault), ErrorKind::Corrupt, "{told}");
                    false
                }
            };
            if bit == at % 8 {
                assert_eq!(place.check_others(&folder), readable);
                let appended = append(&folder, &place.author.clone().write(&["9"]));
                assert_eq!(appended.is_ok(), readable, "{told}");
                assert!(fs::read(place.path()).unwrap().starts_with(&log), "{told}");
                let purged = purge(&folder, run).unwrap();
                assert!(purged.records >= all.len() as u64 - 2, "{told}");
                assert!(folder.head(run).unwrap().is_none());
            }
        }
    }
}

/// Guarantees: FS-6.
#[test]
fn only_crash_remains_after_last_append_are_truncated() {
    let place = place();
    let run = &place.author.run;
    let whole = &place.log[..place.ends[3]];
    let last = &place.log[place.ends[3]..];
    let with = |end: &[u8]| place.put(&[whole, end].concat());
    let zeros = vec![0; last.len()];
    let sector = 512 - place.ends[3] % 512;
    let half_zeros = [&zeros[..sector], &last[sector..]].concat();
    for torn in [&last[..10], &zeros, &zeros[..1], &half_zeros, b"\0\0\0"] {
        let folder = with(torn);
        assert_eq!(ids(&folder, run).unwrap(), Some(place.ids(4)));
        append(&folder, &place.appends[4]).unwrap();
        assert_eq!(fs::read(place.path()).unwrap(), place.log);
    }
    let mut author = place.author.clone();
    let mut foreign = Vec::new();
    line::write_record(&mut foreign, &author.record("9", false), None, line::Part { number: 2, of: 2 });
    let no_sector = [&zeros[..sector - 1], &last[sector - 1..]].concat();
    let wrong_newline = [&last[..last.len() - 1], b"\r"].concat();
    let second_line = &last[last.iter().position(|byte| *byte == b'\n').unwrap() + 1..];
    for damage in [
        b"\n".as_slice(),
        &no_sector,
        b"x\n",
        b"{}\n{}\n",
        &foreign,
        &wrong_newline,
        second_line,
        &place.log[..place.lines[1]],
    ] {
        check_unreadable(&place, &with(damage), ErrorKind::Corrupt);
    }
    // A torn end after a damaged record: the damaged record was acknowledged.
    let mut log = [whole, &last[..10]].concat();
    log[place.ends[2] + 40] ^= 1;
    check_unreadable(&place, &place.put(&log), ErrorKind::Corrupt);
}

#[test]
fn missing_or_misplaced_record_is_damage() {
    let place = place();
    let run = &place.author.run;
    // Without the line of record 2, which is an append of its own.
    let log = [&place.log[..place.ends[0]], &place.log[place.ends[1]..]].concat();
    let folder = place.put(&log);
    for result in [
        folder.headers(run, HeaderRange::newest(50)).map(|_| ()),
        folder.load(run, At::Seq(Seq::new(3))).map(|_| ()),
    ] {
        let error = Error::from(result.unwrap_err());
        assert_eq!((error.kind(), error.seq()), (ErrorKind::Corrupt, Some(Seq::new(2))));
    }
    // The same append twice.
    let log = [&place.log[..place.ends[1]], &place.log[place.ends[0]..]].concat();
    assert_eq!(kind(place.put(&log).headers(run, HeaderRange::newest(50)).unwrap_err()), ErrorKind::Corrupt);
    // Without any base.
    let mut opening = Vec::new();
    line::write_opening(&mut opening, run, Seq::new(2), &super::author::facts());
    let log = [&opening, &place.log[place.ends[0]..place.ends[1]]].concat();
    let folder = place.put(&log);
    assert_eq!(kind(folder.load(run, At::Latest).unwrap_err()), ErrorKind::Corrupt);
    // The log of another run.
    fs::copy(folder.layout.log(&Author::new("other").run), place.path()).unwrap();
    check_unreadable(&place, &folder, ErrorKind::Corrupt);
}

/// Every call refuses a folder from before the first release, and changes nothing in it.
///
/// Guarantees: FS-3.
#[test]
fn unreleased_folder_is_unsupported() {
    let place = place();
    let folder = place.folder();
    fs::remove_dir(folder.layout.journals()).unwrap();
    for layout in [1, 2, 3] {
        let marker = format!("{{\"layout\":{layout}}}\n");
        fs::write(folder.layout.marker(), &marker).unwrap();
        let folder = place.folder();
        for refused in [folder.set_up(), folder.ready_to_read(), folder.ready_to_write()] {
            let error = Error::from(refused.unwrap_err());
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.message().contains("start with an empty folder"), "{error}");
        }
        assert_eq!(fs::read_to_string(folder.layout.marker()).unwrap(), marker);
        assert!(!folder.layout.journals().exists());
        assert_eq!(fs::read(folder.layout.log(&place.author.run)).unwrap(), place.log);
    }
}

/// Guarantees: FS-3.
#[test]
fn newer_format_is_unsupported_and_can_be_purged() {
    let place = place();
    let run = &place.author.run;
    let resealed = |line: &str| {
        let mut line = line.as_bytes().to_vec();
        line::write_sum(&mut line, 0);
        line
    };
    let record = [&place.log[..], &resealed(r#"{"v":3,"seq":9,"new":["#)].concat();
    let layout = [&resealed(r#"{"ferrata":2,"new":["#), &place.log[place.lines[1]..]].concat();
    for log in [record, layout] {
        let folder = place.put(&log);
        check_unreadable(&place, &folder, ErrorKind::Unsupported);
        assert!(purge(&folder, run).unwrap().records >= 9);
        assert!(folder.head(run).unwrap().is_none());
    }
    // A newer record in the middle hides only the records that depend on it.
    let at = place.lines[2];
    let log = [&place.log[..at], &resealed(r#"{"v":2"#), &place.log[place.lines[3]..]].concat();
    let folder = place.put(&log);
    assert_eq!(folder.load(run, At::Latest).unwrap().unwrap().len(), 3);
    let error = Error::from(folder.load(run, At::Seq(Seq::new(5))).unwrap_err());
    assert_eq!((error.kind(), error.seq()), (ErrorKind::Unsupported, Some(Seq::new(1))));
    // A newer layout of the whole folder.
    fs::write(folder.layout.marker(), "{\"version\":2,\"new\":true}\n").unwrap();
    let folder = place.folder();
    assert_eq!(kind(folder.set_up().unwrap_err()), ErrorKind::Unsupported);
    assert_eq!(kind(folder.ready_to_read().unwrap_err()), ErrorKind::Unsupported);
    assert_eq!(kind(folder.ready_to_write().unwrap_err()), ErrorKind::Unsupported);
    assert_eq!(fs::read(folder.layout.marker()).unwrap(), b"{\"version\":2,\"new\":true}\n");
    for wrong in ["nonsense\n", "{}\n", "{\"version\":0}\n"] {
        fs::write(folder.layout.marker(), wrong).unwrap();
        assert_eq!(kind(place.folder().set_up().unwrap_err()), ErrorKind::Corrupt, "{wrong}");
    }
    // A marker that a crash cut short has no meaning yet.
    fs::write(folder.layout.marker(), "{\"ver").unwrap();
    place.folder().ready_to_read().unwrap();
    place.folder().set_up().unwrap();
    assert_eq!(fs::read(folder.layout.marker()).unwrap(), b"{\"version\":1}\n");
}

/// Guarantees: FS-19.
#[test]
fn foreign_object_at_log_path_is_damage() {
    let place = place();
    let run = &place.author.run;
    let folder = place.folder();
    fs::remove_file(place.path()).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.path()).unwrap();
    assert_eq!(kind(folder.load(run, At::Latest).unwrap_err()), ErrorKind::Corrupt);
    assert!(!place.check_others(&folder));
    purge(&folder, run).unwrap();

    fs::create_dir(place.path()).unwrap();
    check_unreadable(&place, &folder, ErrorKind::Corrupt);
    fs::write(place.path().join("precious"), "").unwrap();
    assert_eq!(kind(purge(&folder, run).unwrap_err()), ErrorKind::Corrupt);
    fs::remove_file(place.path().join("precious")).unwrap();
    purge(&folder, run).unwrap();
    assert!(folder.head(run).unwrap().is_none());

    // A file in the place of a tenant's directory.
    let mut author = Author::new("r");
    author.run.tenant = "t".parse().unwrap();
    fs::write(folder.layout.tenant(&author.run.tenant), "").unwrap();
    assert_eq!(kind(folder.load(&author.run, At::Latest).unwrap_err()), ErrorKind::Corrupt);
    assert_eq!(kind(append(&folder, &author.write(&["0"])).unwrap_err()), ErrorKind::Corrupt);
    place.check_others(&folder);

    // Listings skip files that do not belong to the store.
    for name in ["x y.jsonl", "README", ".hidden", ".r.new"] {
        fs::write(place.path().with_file_name(name), "x").unwrap();
    }
    fs::remove_file(folder.layout.tenant(&author.run.tenant)).unwrap();
    fs::create_dir(folder.layout.runs().join("not a tenant")).unwrap();
    place.check_others(&folder);
}

#[test]
fn unlisted_run_is_named_in_warning() {
    let place = place();
    let folder = place.put(b"");
    let heard = Warnings::default();
    tracing::subscriber::with_default(heard.clone(), || assert!(!place.check_others(&folder)));
    let heard = heard.0.lock().unwrap().join("\n");
    assert!(heard.contains("runs/default/r.jsonl") && heard.contains("the file is empty"), "{heard}");
    assert!(!heard.contains("other"), "{heard}");
}

/// Guarantees: FS-19.
#[test]
fn unlistable_tenant_folder_hides_no_other() {
    let place = place();
    let folder = place.folder();
    let tenant = folder.layout.tenant(&"t".parse().unwrap());
    std::os::unix::fs::symlink(&tenant, &tenant).unwrap();
    let heard = Warnings::default();
    tracing::subscriber::with_default(heard.clone(), || assert!(place.check_others(&folder)));
    let heard = heard.0.lock().unwrap().join("\n");
    assert!(heard.contains("runs/t") && !heard.contains("default"), "{heard}");
}

/// Guarantees: FS-6.
#[test]
fn a_cut_is_told_in_a_warning() {
    let place = place();
    let folder = place.put(&place.log[..place.log.len() - 1]);
    let heard = Warnings::default();
    tracing::subscriber::with_default(heard.clone(), || append(&folder, &place.appends[4]).unwrap());
    let heard = heard.0.lock().unwrap().join("\n");
    assert!(heard.contains("partial write") && heard.contains("runs/default/r.jsonl"), "{heard}");
}

fn check_garbage(place: &Place, log: &[u8]) -> Result<(), TestCaseError> {
    let run = &place.author.run;
    let folder = place.put(log);
    let all = place.records(5);
    let is_known = |record: &Record| all.contains(record);
    if let Ok(found) = folder.load(run, At::Latest) {
        prop_assert!(found.unwrap().iter().all(is_known));
    }
    if let Ok(page) = folder.headers(run, HeaderRange::newest(1_000)) {
        prop_assert!(page.items.len() <= all.len());
    }
    let listed = place.check_others(&folder);
    prop_assert_eq!(listed, folder.head(run).is_ok());
    let _appended = append(&folder, &place.appends[4]);
    purge(&folder, run).unwrap();
    prop_assert!(folder.head(run).unwrap().is_none());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_in_a_file_makes_the_store_panic(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        check_garbage(&place(), &bytes)?;
    }

    #[test]
    fn damaged_log_never_yields_invented_records(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..600, 0_u8..4, any::<prop::sample::Index>()), 1..4),
    ) {
        let place = place();
        let mut log = place.log.clone();
        for (at, length, what, from) in edits {
            if log.is_empty() {
                break;
            }
            let begin = at.index(log.len());
            let end = (begin + length).min(log.len());
            let patch = match what {
                0 => vec![],
                1 => vec![0; end - begin],
                2 => place.log[from.index(place.log.len())..].iter().copied().take(length).collect(),
                _ => vec![b'\n'; length % 5],
            };
            log.splice(begin..end, patch);
        }
        check_garbage(&place, &log)?;
    }
}

/// Collects the messages that are logged as warnings.
#[derive(Clone, Default)]
struct Warnings(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _span: &tracing::span::Id) {}

    fn exit(&self, _span: &tracing::span::Id) {}
}

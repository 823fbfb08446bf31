//! The contract of a store on real files, through the public interface.

use std::sync::Arc;
use std::time::Duration;

use ferrata_store::{
    At, CheckpointStore, Cursor, ErrorKind, ExecutorId, HeadRef, HeaderRange, Order, Page, PruneCut, Record,
    Result, RunAppend, RunFilter, RunId, RunKey, RunQuery, RunStatus, Seq, TenantId,
};
use ferrata_store_fs::{FsOptions, FsStore};
use tempfile::TempDir;

#[path = "../src/tests/author.rs"]
mod author;

use author::{Author, fresh_id, key};

struct Place {
    directory: TempDir,
    store: FsStore,
}

async fn place() -> Place {
    let directory = tempfile::tempdir().expect("a folder for the test");
    let store = FsStore::open(directory.path()).expect("a store");
    store.setup().await.expect("a folder of this test");
    Place { directory, store }
}

impl Place {
    /// Another instance, which knows only the files.
    fn reopen(&self) -> FsStore {
        FsStore::open(self.directory.path()).expect("a store")
    }

    fn log(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(format!("runs/default/{name}.jsonl"))
    }
}

async fn append(store: &FsStore, entry: RunAppend) -> Result<HeadRef> {
    store.append(vec![entry]).await.pop().expect("a result")
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("an error").kind()
}

async fn latest(store: &FsStore, run: &RunKey) -> Vec<Record> {
    store.load(run, At::Latest).await.expect("the run must be readable").expect("a run")
}

fn seqs(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.header.seq.get()).collect()
}

#[tokio::test]
async fn any_instance_loads_appends_from_newest_base() {
    let place = place().await;
    let mut author = Author::new("r");
    let mut all = Vec::new();
    for entry in [
        author.write(&[r#"{"a":1}"#]),
        author.write(&["1", "not json", "", "two\nlines", " 3"]),
        author.write_base(r#"{"b": 2}"#),
        author.write(&["4"]),
    ] {
        all.extend(entry.records.clone());
        assert_eq!(append(&place.store, entry).await.unwrap(), all.last().unwrap().header.head());
    }
    for store in [&place.store, &place.reopen()] {
        assert_eq!(latest(store, &author.run).await, all[6..]);
        for (seq, from) in [(0, 0), (3, 0), (5, 0), (6, 6), (7, 6)] {
            let expected = &all[from..=seq];
            let at = At::Seq(Seq::new(seq as u64));
            assert_eq!(store.load(&author.run, at).await.unwrap().unwrap(), expected);
            let at = At::Record(all[seq].header.id);
            assert_eq!(store.load(&author.run, at).await.unwrap().unwrap(), expected);
        }
        for at in [At::Seq(Seq::new(8)), At::Seq(Seq::new(u64::MAX)), At::Record(fresh_id())] {
            assert_eq!(kind(store.load(&author.run, at).await), ErrorKind::NotFound);
        }
        assert!(store.load(&key("other"), At::Latest).await.unwrap().is_none());
        let head = store.head(&author.run).await.unwrap().unwrap();
        assert_eq!((head.head(), head.first), (all[7].header.head(), Seq::new(0)));
        assert_eq!(head.facts, author::facts());
        assert!(store.head(&key("other")).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn append_to_wrong_head_conflicts_with_actual_head() {
    let place = place().await;
    let mut author = Author::new("r");
    let start = author.write(&["0"]);
    let mut rival = author.clone();
    append(&place.store, start).await.unwrap();
    let won = append(&place.store, author.write(&["1"])).await.unwrap();
    for store in [&place.store, &place.reopen()] {
        let error = append(store, rival.clone().write(&["2"])).await.unwrap_err();
        assert_eq!((error.kind(), error.actual_head()), (ErrorKind::Conflict, Some(Some(won))));
        let error = append(store, Author::new("r").write(&["0"])).await.unwrap_err();
        assert_eq!((error.kind(), error.actual_head()), (ErrorKind::Conflict, Some(Some(won))));
        rival.run = key("absent");
        let error = append(store, rival.clone().write(&["2"])).await.unwrap_err();
        assert_eq!((error.kind(), error.actual_head()), (ErrorKind::Conflict, Some(None)));
        rival.run = key("r");
    }
    assert_eq!(seqs(&latest(&place.store, &author.run).await), [0, 1]);
}

#[tokio::test]
async fn repeating_last_append_writes_nothing() {
    let place = place().await;
    let mut author = Author::new("r");
    let start = author.write(&["0", "1"]);
    let more = author.write(&["2", "3"]);
    append(&place.store, start.clone()).await.unwrap();
    append(&place.store, start.clone()).await.unwrap();
    append(&place.store, more.clone()).await.unwrap();
    let written = std::fs::read(place.log("r")).unwrap();
    let both = RunAppend { records: [&start.records[..], &more.records[..]].concat(), ..start.clone() };
    for store in [&place.store, &place.reopen()] {
        for entry in [&more, &both] {
            assert_eq!(append(store, entry.clone()).await.unwrap(), author.head.unwrap());
        }
        assert_eq!(kind(append(store, start.clone()).await), ErrorKind::Conflict);
    }
    assert_eq!(std::fs::read(place.log("r")).unwrap(), written);
    // Also after the first records were pruned.
    let base = author.write_base("4");
    append(&place.store, base.clone()).await.unwrap();
    let cut = PruneCut { at: Seq::new(4), base: None };
    place.store.prune(&author.run, cut).await.unwrap();
    let all = RunAppend { records: [&both.records[..], &base.records[..]].concat(), ..start };
    append(&place.store, all).await.unwrap();
}

#[tokio::test]
async fn the_entries_of_a_batch_are_independent() {
    let place = place().await;
    let mut authors: Vec<Author> = (0..40).map(|n| Author::new(&format!("r{n}"))).collect();
    let mut batch: Vec<RunAppend> = authors.iter_mut().map(|author| author.write(&["0"])).collect();
    batch[7].records[0].header.seq = Seq::new(1);
    batch.push(batch[3].clone());
    let results = place.store.append(batch.clone()).await;
    assert_eq!(results.len(), 41);
    for (number, result) in results.into_iter().enumerate() {
        match number {
            7 | 40 => assert_eq!(kind(result), ErrorKind::Invalid),
            _ => assert_eq!(result.unwrap(), authors[number].head.unwrap()),
        }
    }
    assert!(place.store.append(Vec::new()).await.is_empty());
}

/// Guarantees: FS-2.
#[tokio::test]
async fn ids_differ_by_every_letter_and_tenant() {
    let place = place().await;
    let longest = "x".repeat(128);
    let ids = ["a", "A", "a.jsonl", "a:b", "a-b", "a_b", "a.b", "-", "_", ":", &longest];
    for tenant in ["default", "t", "T", &longest] {
        for id in ids {
            let mut author = Author::new("r");
            author.run = RunKey::new(TenantId::new(tenant).unwrap(), RunId::new(id).unwrap());
            append(&place.store, author.write(&[&format!("\"{tenant}/{id}\"")])).await.unwrap();
        }
    }
    let all = place.store.runs(&RunQuery::default(), Page::first(1_000)).await.unwrap().items;
    assert_eq!(all.len(), 4 * ids.len());
    for head in all {
        let records = latest(&place.reopen(), &head.run).await;
        assert_eq!(records[0].body, format!("\"{}\"", head.run));
    }
}

#[tokio::test]
async fn ranges_from_both_ends_see_every_header_once() {
    let place = place().await;
    let mut author = Author::new("r");
    let mut headers = Vec::new();
    for number in 0..30 {
        let entry = match number % 7 {
            3 => author.write(&["1", "2", "3"]),
            5 => author.write_base("{}"),
            _ => author.write(&["\"x\""]),
        };
        headers.extend(entry.records.iter().map(|record| record.header.clone()));
        append(&place.store, entry).await.unwrap();
    }
    for pruned in [false, true] {
        if pruned {
            let at = headers.iter().rfind(|header| header.base).unwrap().seq;
            place.store.prune(&author.run, PruneCut { at, base: None }).await.unwrap();
            headers.retain(|header| header.seq >= at);
        }
        for limit in [1, 2, 7, 1_000] {
            for start in [HeaderRange::oldest(limit), HeaderRange::newest(limit)] {
                let (mut seen, mut range) = (Vec::new(), Some(start));
                while let Some(asked) = range {
                    let found = place.store.headers(&author.run, asked).await.unwrap();
                    assert!(found.items.len() <= limit as usize);
                    range = asked.after(&found);
                    seen.extend(found.items);
                }
                seen.sort_by_key(|header| header.seq);
                // The line omits these fields, which equal those of its neighbors in the file.
                assert_eq!(seen, headers, "{start:?}");
            }
        }
    }
    let other = place.store.headers(&key("other"), HeaderRange::newest(50)).await;
    assert_eq!(kind(other), ErrorKind::NotFound);
}

/// The log has no index. A range in the middle is found by bisection, whatever the lengths of the lines.
#[tokio::test]
async fn middle_range_is_found_without_reading_log() {
    let place = place().await;
    let mut author = Author::new("r");
    let mut headers = Vec::new();
    for number in 0..150_usize {
        let long = format!("\"{}\"", "x".repeat(number * 7_919 % 40_000));
        let entry = match number % 5 {
            2 => author.write(&["1", &long, "3"]),
            _ => author.write(&[&long]),
        };
        headers.extend(entry.records.iter().map(|record| record.header.clone()));
        append(&place.store, entry).await.unwrap();
    }
    for limit in [1, 4, 50] {
        for (seq, expected) in headers.windows(limit).enumerate() {
            let limit = u32::try_from(limit).unwrap();
            let (begin, end) = (expected[0].seq, expected[expected.len() - 1].seq);
            assert_eq!(begin.get(), seq as u64);
            for range in [HeaderRange::from(begin, limit), HeaderRange::up_to(end, limit)] {
                let found = place.store.headers(&author.run, range).await.unwrap();
                assert_eq!(found.items, expected, "{range:?}");
            }
        }
    }
}

#[tokio::test]
async fn listing_begun_before_prune_continues_after_it() {
    let place = place().await;
    for (name, start) in [("n", HeaderRange::newest(2)), ("o", HeaderRange::oldest(2))] {
        let mut author = Author::new(name);
        append(&place.store, author.write(&["0", "1", "2"])).await.unwrap();
        append(&place.store, author.write_base("3")).await.unwrap();
        let long = format!("\"{}\"", "x".repeat(1_000));
        append(&place.store, author.write(&[&long, &long, &long])).await.unwrap();
        let first = place.store.headers(&author.run, start).await.unwrap();
        place.store.prune(&author.run, PruneCut { at: Seq::new(3), base: None }).await.unwrap();
        let found = place.reopen().headers(&author.run, start.after(&first).unwrap()).await.unwrap();
        let found: Vec<u64> = found.items.iter().map(|header| header.seq.get()).collect();
        assert_eq!(found, [3, 4], "{start:?}");
    }
}

#[tokio::test]
async fn prune_removes_records_before_cut_only() {
    let place = place().await;
    let mut author = Author::new("r");
    let start = author.write(&["0", "11", "222"]);
    let group = author.write(&["3", "4", "5", "6"]);
    for entry in [&start, &group] {
        append(&place.store, entry.clone()).await.unwrap();
    }
    let prune = async |at, base| place.store.prune(&author.run, PruneCut { at: Seq::new(at), base }).await;
    assert_eq!(kind(prune(2, None).await), ErrorKind::Invalid);
    assert_eq!(kind(prune(7, None).await), ErrorKind::NotFound);
    // A base replaces a record in the middle of an append.
    let mut base = group.records[1].clone();
    base.header.base = true;
    let base = Record::seal(base.header, "{\"state\":4}".into()).unwrap();
    let mut other = base.clone();
    other.header.id = fresh_id();
    assert_eq!(kind(prune(4, Some(other)).await), ErrorKind::Invalid);
    let mut other = base.clone();
    other.header.status = RunStatus::Failed;
    assert_eq!(kind(prune(4, Some(other)).await), ErrorKind::Invalid);
    assert_eq!(kind(prune(4, Some(group.records[1].clone())).await), ErrorKind::Invalid);
    assert_eq!(seqs(&latest(&place.store, &author.run).await), [0, 1, 2, 3, 4, 5, 6]);

    let pruned = prune(4, Some(base.clone())).await.unwrap();
    assert_eq!((pruned.records, pruned.bytes), (4, 1 + 2 + 3 + 1));
    let kept = [vec![base.clone()], group.records[2..].to_vec()].concat();
    for store in [&place.store, &place.reopen()] {
        assert_eq!(latest(store, &author.run).await, kept);
        let head = store.head(&author.run).await.unwrap().unwrap();
        assert_eq!((head.first, head.head()), (Seq::new(4), author.head.unwrap()));
        assert_eq!(kind(store.load(&author.run, At::Seq(Seq::new(3))).await), ErrorKind::NotFound);
    }
    for again in [Some(base), None] {
        let pruned = prune(4, again).await.unwrap();
        assert_eq!((pruned.records, pruned.bytes), (0, 0));
    }
    append(&place.store, author.write(&["7"])).await.unwrap();
    append(&place.reopen(), author.write(&["8"])).await.unwrap();
    assert_eq!(seqs(&latest(&place.store, &author.run).await), [4, 5, 6, 7, 8]);
    assert_eq!(
        kind(place.store.prune(&key("other"), PruneCut { at: Seq::new(0), base: None }).await),
        ErrorKind::NotFound
    );
}

#[tokio::test]
async fn the_head_itself_can_be_the_cut() {
    let place = place().await;
    let mut author = Author::new("r");
    append(&place.store, author.write(&["0", "1"])).await.unwrap();
    let last = author.write(&["2"]);
    append(&place.store, last.clone()).await.unwrap();
    let mut base = last.records[0].clone();
    base.header.base = true;
    let base = Record::seal(base.header, "{}".into()).unwrap();
    place.store.prune(&author.run, PruneCut { at: Seq::new(2), base: Some(base.clone()) }).await.unwrap();
    append(&place.store, author.write(&["3"])).await.unwrap();
    let records = latest(&place.reopen(), &author.run).await;
    assert_eq!((records[0].clone(), seqs(&records)), (base, vec![2, 3]));
}

#[tokio::test]
async fn purge_leaves_no_trace_and_refuses_old_writer() {
    let place = place().await;
    let mut author = Author::new("r");
    append(&place.store, author.write(&["0", "11"])).await.unwrap();
    append(&place.store, author.write(&["222"])).await.unwrap();
    append(&place.store, Author::new("s").write(&["0"])).await.unwrap();
    // Files that a crash leaves.
    for name in [".r.new", ".r.cut"] {
        std::fs::write(place.directory.path().join("runs/default").join(name), "left").unwrap();
    }
    let other = place.reopen();
    assert_eq!(latest(&other, &author.run).await.len(), 3);
    let purged = other.purge(&author.run, None).await.unwrap();
    assert_eq!((purged.records, purged.bytes), (3, 6));
    let names: Vec<_> = std::fs::read_dir(place.directory.path().join("runs/default"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["s.jsonl"]);
    assert!(place.store.load(&author.run, At::Latest).await.unwrap().is_none());
    assert!(place.store.head(&author.run).await.unwrap().is_none());
    assert_eq!(other.purge(&author.run, None).await.unwrap().records, 0);
    assert_eq!(other.purge(&key("never"), None).await.unwrap().records, 0);

    let mut zombie = author.clone();
    assert_eq!(kind(append(&place.store, zombie.write(&["3"])).await), ErrorKind::Conflict);
    let mut anew = Author::new("r");
    append(&other, anew.write(&["0", "1", "2"])).await.unwrap();
    // It is as long as the old run, and its head has the same sequence number.
    let mut zombie = author.clone();
    let error = append(&place.store, zombie.write(&["3"])).await.unwrap_err();
    assert_eq!((error.kind(), error.actual_head()), (ErrorKind::Conflict, Some(anew.head)));
}

#[tokio::test]
async fn writer_with_open_file_notices_replacement() {
    let place = place().await;
    let other = place.reopen();
    let mut author = Author::new("r");
    append(&place.store, author.write(&["0", "1"])).await.unwrap();
    append(&place.store, author.write_base("2")).await.unwrap();
    // The prune writes the run to another file.
    other.prune(&author.run, PruneCut { at: Seq::new(2), base: None }).await.unwrap();
    append(&place.store, author.write(&["3"])).await.unwrap();
    assert_eq!(seqs(&latest(&other, &author.run).await), [2, 3]);
    // The run is purged and started again, so another file contains another run.
    other.purge(&author.run, None).await.unwrap();
    let mut anew = Author::new("r");
    append(&other, anew.write(&["0"])).await.unwrap();
    let error = append(&place.store, author.write(&["4"])).await.unwrap_err();
    assert_eq!((error.kind(), error.actual_head()), (ErrorKind::Conflict, Some(anew.head)));
    append(&place.store, anew.write(&["1"])).await.unwrap();
    assert_eq!(seqs(&latest(&other, &author.run).await), [0, 1]);
}

#[tokio::test]
async fn runs_are_listed_by_creation_and_filtered() {
    let place = place().await;
    let mut expected = Vec::new();
    for number in 0..25_i64 {
        let mut author = Author::new(&format!("r{number}"));
        author.run.tenant = TenantId::new(if number % 2 == 0 { "even" } else { "odd" }).unwrap();
        let mut entry = author.write(&["0"]);
        let facts = entry.facts.as_mut().unwrap();
        // The creation times are not in the order of the names, and some are equal.
        facts.created = ferrata_store::Timestamp::from_unix_ms((number * 7) % 10);
        facts.labels.insert("number", number.to_string()).unwrap();
        expected.push((facts.created, author.run.clone()));
        append(&place.store, entry).await.unwrap();
    }
    expected.sort();
    let list = async |query: &RunQuery, limit, order| {
        let mut page = Page::first(limit).with_order(order);
        let mut seen = Vec::new();
        loop {
            let found = place.store.runs(query, page.clone()).await.unwrap();
            assert!(found.items.len() <= limit as usize);
            seen.extend(found.items.into_iter().map(|head| (head.facts.created, head.run)));
            match found.next {
                Some(cursor) => page = page.with_cursor(cursor),
                None => return seen,
            }
        }
    };
    for limit in [1, 4, 25, 1_000] {
        assert_eq!(list(&RunQuery::default(), limit, Order::OldestFirst).await, expected);
        let mut newest = list(&RunQuery::default(), limit, Order::NewestFirst).await;
        newest.reverse();
        assert_eq!(newest, expected);
    }
    let mut query = RunQuery::default();
    query.tenant = Some(TenantId::new("odd").unwrap());
    assert_eq!(list(&query, 5, Order::OldestFirst).await.len(), 12);
    query.labels = vec![("number".into(), "7".into())];
    assert_eq!(list(&query, 5, Order::OldestFirst).await.len(), 1);
    query.tenant = Some(TenantId::new("nobody").unwrap());
    assert!(list(&query, 5, Order::OldestFirst).await.is_empty());
    let page = Page::default().with_cursor(Cursor::new("nonsense"));
    assert_eq!(kind(place.store.runs(&query, page).await), ErrorKind::Invalid);
}

/// Guarantees: FS-18.
#[tokio::test]
async fn owner_is_alive_until_heartbeat_expires_or_ends() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let open = || FsStore::open(directory.path()).unwrap().with_clock(Arc::clone(&clock) as _);
    let (store, other) = (open(), open());
    let executor = ExecutorId::from_uuid(*fresh_id().as_uuid());
    let mut author = Author::new("r");
    let expected = author.head;
    let mut record = author.record("0", true);
    record.header.owner = Some(executor);
    append(&store, author.entry(expected, vec![record])).await.unwrap();
    let is_alive = async || {
        let mut query = RunQuery::default();
        query.filter = RunFilter::Orphaned;
        let mut answers = Vec::new();
        for store in [&store, &other] {
            let alive = store.head(&author.run).await.unwrap().unwrap().owner_alive;
            let orphans = store.runs(&query, Page::default()).await.unwrap().items;
            assert_eq!(orphans.is_empty(), alive);
            answers.push(alive);
        }
        assert_eq!(answers[0], answers[1]);
        answers[0]
    };
    assert!(!is_alive().await);
    store.heartbeat(&executor, Duration::from_secs(10)).await.unwrap();
    assert!(is_alive().await);
    clock.advance(9_999);
    assert!(is_alive().await);
    clock.advance(1);
    assert!(!is_alive().await);
    // Through another instance of the same process, with a much longer validity.
    other.heartbeat(&executor, Duration::MAX).await.unwrap();
    assert!(is_alive().await);
    store.heartbeat(&executor, Duration::from_secs(1)).await.unwrap();
    clock.advance(500);
    assert!(is_alive().await);
    other.heartbeat(&executor, Duration::ZERO).await.unwrap();
    assert!(!is_alive().await);
    store.heartbeat(&executor, Duration::ZERO).await.unwrap();
    store.heartbeat(&executor, Duration::from_secs(1)).await.unwrap();
    assert!(is_alive().await);
    // Without these files, the process counts as dead until its next heartbeat.
    std::fs::remove_file(directory.path().join("executors").join(executor.to_string())).unwrap();
    assert!(!is_alive().await);
    store.heartbeat(&executor, Duration::from_secs(1)).await.unwrap();
    assert!(is_alive().await);
}

#[tokio::test]
async fn files_of_long_dead_processes_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let store = FsStore::open(directory.path()).unwrap().with_clock(Arc::clone(&clock) as _);
    let executor = || ExecutorId::from_uuid(*fresh_id().as_uuid());
    let (old, living, new) = (executor(), executor(), executor());
    store.heartbeat(&living, Duration::from_secs(1)).await.unwrap();
    let path = |executor: &ExecutorId| directory.path().join("executors").join(executor.to_string());
    // A killed process leaves a file with the same content, and without a lock.
    std::fs::copy(path(&living), path(&old)).unwrap();
    clock.advance(24 * 60 * 60 * 1_000);
    store.heartbeat(&executor(), Duration::from_secs(1)).await.unwrap();
    assert!(path(&old).exists());
    clock.advance(2_000);
    store.heartbeat(&new, Duration::from_secs(1)).await.unwrap();
    assert_eq!([&old, &living, &new].map(|executor| path(executor).exists()), [false, true, true]);
}

#[tokio::test]
async fn a_store_opens_anywhere_and_from_a_url() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file://{}/new%20one", directory.path().display());
    let store = FsStore::from_url(&url, FsOptions::default()).unwrap();
    // Before setup, reads find nothing and create nothing.
    assert!(store.head(&key("r")).await.unwrap().is_none());
    assert!(store.runs(&RunQuery::default(), Page::default()).await.unwrap().items.is_empty());
    assert_eq!(store.purge(&key("r"), None).await.unwrap().records, 0);
    assert!(!directory.path().join("new one").exists());
    append(&store, Author::new("r").write(&["0"])).await.unwrap();
    let marker = std::fs::read_to_string(directory.path().join("new one/ferrata.json")).unwrap();
    assert_eq!(marker, "{\"version\":1}\n");
    assert_eq!(kind(FsStore::open("")), ErrorKind::Invalid);
}

#[tokio::test]
async fn two_instances_with_small_cache_alternate_on_runs() {
    let directory = tempfile::tempdir().unwrap();
    let options = FsOptions::default().with_open_files(std::num::NonZeroUsize::new(3).unwrap());
    let open = || FsStore::open_with(directory.path(), options.clone()).unwrap();
    let stores = [open(), open()];
    let mut authors: Vec<Author> = (0..8).map(|n| Author::new(&format!("r{n}"))).collect();
    for round in 0..6 {
        let batch = authors.iter_mut().map(|author| author.write(&["0", "1"])).collect();
        for result in stores[round % 2].append(batch).await {
            result.unwrap();
        }
    }
    for author in &authors {
        assert_eq!(latest(&stores[0], &author.run).await.len(), 12);
    }
}

/// A clock that the test advances.
#[derive(Debug, Default)]
struct ManualClock(std::sync::atomic::AtomicI64);

impl ManualClock {
    fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, std::sync::atomic::Ordering::Relaxed);
    }
}

impl ferrata_store::Clock for ManualClock {
    fn now(&self) -> ferrata_store::Timestamp {
        ferrata_store::Timestamp::from_unix_ms(self.0.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.now().unix_ms().unsigned_abs())
    }

    fn sleep(&self, _duration: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }
}

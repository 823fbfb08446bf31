//! The database file: its name, permissions and size, and its removal or replacement while open.

use std::fs;
use std::num::NonZeroUsize;
use std::time::Duration;

use ferrata_store::{At, CheckpointStore, ErrorKind, Page, Paged, PruneCut, RunQuery, Seq};
use ferrata_store_sqlite::{SqliteOptions, SqliteStore, Synchronous};
use tokio::task::JoinSet;

use crate::support::{append, connection, execute, is_kept, is_refused, log, place};

/// Names that SQLite or its drivers treat as a URL, as options, or as memory, unless they are escaped.
#[tokio::test]
async fn a_store_opens_anywhere_and_from_a_url() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "a b",
        "100%",
        "%41",
        "é本",
        "a?mode=memory",
        "a#b",
        ":memory:",
        "file::memory:?x=1",
        "new/deep/er/runs",
    ] {
        let path = directory.path().join(name);
        let mut log = log("r");
        {
            let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
            store.setup().await.unwrap();
            log.write(&store, 2).await;
            assert!(fs::metadata(&path).unwrap().len() > 0, "{name} must be the file");
        }
        let hex = |byte: &u8| format!("%{byte:02x}");
        let url: String = path.to_str().unwrap().as_bytes().iter().map(hex).collect();
        let store = SqliteStore::from_url(&format!("sqlite:{url}"), SqliteOptions::default()).unwrap();
        is_kept(&store, &log).await;
    }
    let made: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(made.iter().all(|name| !["100", "a", "A", "file"].contains(&name.to_str().unwrap())), "{made:?}");
    assert_eq!(SqliteStore::open("", SqliteOptions::default()).unwrap_err().kind(), ErrorKind::Invalid);
}

/// Settings beyond the range of SQLite or the driver are clamped. The driver panics at a wait of 25 days.
#[tokio::test]
async fn extreme_settings_are_as_good_as_large_ones() {
    let options = SqliteOptions::default().with_lock_wait(Duration::MAX).with_readers(NonZeroUsize::MAX);
    let place = place(options.with_max_bytes(Some(u64::MAX))).await;
    let mut log = log("r");
    log.write(&place.store, 2).await;
    is_kept(&place.store, &log).await;
    let least = SqliteOptions::default().with_lock_wait(Duration::ZERO).with_readers(NonZeroUsize::MIN);
    let least = place.open(least.with_max_bytes(Some(0)));
    is_kept(&least, &log).await;
    let entry = log.next_body(vec![b'x'; 9_000]);
    assert_eq!(append(&least, entry).await.unwrap_err().kind(), ErrorKind::Unavailable, "no space is left");
    is_kept(&least, &log).await;
}

/// A read creates no file, and its error names the remedy.
#[tokio::test]
async fn store_without_setup_is_invalid() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let log = log("r");
    for _ in 0..2 {
        let read = store.runs(&RunQuery::default(), Page::default()).await.unwrap_err();
        assert_eq!(read.kind(), ErrorKind::Invalid, "{read:?}");
        assert!(read.to_string().contains("call `setup`"), "{read}");
        is_refused(&store, &log, ErrorKind::Invalid).await;
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    // A database of another program, and a missing one.
    execute(&mut connection_to_new(&path).await, "CREATE TABLE mine (x)").await;
    is_refused(&store, &log, ErrorKind::Invalid).await;
    let other = directory.path().join("other");
    fs::write(&other, "no database, but long enough to be looked at as if it were one ".repeat(20)).unwrap();
    let store = SqliteStore::open(&other, SqliteOptions::default()).unwrap();
    assert_eq!(store.setup().await.unwrap_err().kind(), ErrorKind::Invalid);
    is_refused(&store, &log, ErrorKind::Invalid).await;
}

async fn connection_to_new(path: &std::path::Path) -> sqlx::SqliteConnection {
    fs::write(path, "").unwrap();
    connection(path).await
}

/// The application's own tables stay in the same file.
#[tokio::test]
async fn application_database_can_hold_runs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.db");
    execute(&mut connection_to_new(&path).await, "CREATE TABLE mine (x); INSERT INTO mine VALUES (7)").await;
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    store.setup().await.unwrap();
    let mut log = log("r");
    log.write(&store, 3).await;
    let kept: i64 =
        sqlx::query_scalar("SELECT x FROM mine").fetch_one(&mut connection(&path).await).await.unwrap();
    assert_eq!(kept, 7);
}

/// Guarantees: SQLITE-10.
#[tokio::test]
async fn newer_layout_is_unsupported() {
    let place = place(SqliteOptions::default()).await;
    let mut log = log("r");
    log.write(&place.store, 1).await;
    let mut mine = place.connection().await;
    execute(&mut mine, "INSERT INTO ferrata_layout VALUES (2)").await;
    let store = place.open(SqliteOptions::default());
    assert_eq!(store.setup().await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(store.head(&log.key).await.unwrap_err().kind(), ErrorKind::Unsupported);
    is_refused(&store, &log, ErrorKind::Unsupported).await;
}

/// Every call refuses a file from before the first release, and writes nothing to it.
///
/// Guarantees: SQLITE-10.
#[tokio::test]
async fn unreleased_layout_is_unsupported() {
    let place = place(SqliteOptions::default()).await;
    let mut log = log("r");
    log.write(&place.store, 1).await;
    let mut mine = place.connection().await;
    let unreleased = "ALTER TABLE ferrata_layout ADD COLUMN usable_by INTEGER NOT NULL DEFAULT 1; DROP TABLE ferrata_heads";
    execute(&mut mine, unreleased).await;
    let schema = "SELECT group_concat(sql) FROM sqlite_schema";
    let before: String = sqlx::query_scalar(schema).fetch_one(&mut mine).await.unwrap();
    let store = place.open(SqliteOptions::default());
    let refused = store.setup().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.message().contains("use a new file"), "{refused:?}");
    assert_eq!(store.head(&log.key).await.unwrap_err().kind(), ErrorKind::Unsupported);
    is_refused(&store, &log, ErrorKind::Unsupported).await;
    let after: String = sqlx::query_scalar(schema).fetch_one(&mut mine).await.unwrap();
    assert_eq!(after, before);
}

/// A read-only database can be read, even by `setup`, and every write fails with an error that permits a retry.
///
/// Guarantees: SQLITE-15.
#[tokio::test]
async fn read_only_database_reads_and_refuses_writes() {
    let place = place(SqliteOptions::default()).await;
    let mut log = log("r");
    log.write(&place.store, 3).await;
    let reading = place.open(SqliteOptions::default().with_read_only(true));
    reading.setup().await.unwrap();
    is_kept(&reading, &log).await;
    is_refused(&reading, &log, ErrorKind::Unavailable).await;
    assert_eq!(reading.purge(&log.key, None).await.unwrap_err().kind(), ErrorKind::Unavailable);
    log.write(&place.store, 1).await;
    is_kept(&reading, &log).await;
    let missing =
        SqliteStore::open(place.path().join("x/y"), SqliteOptions::default().with_read_only(true)).unwrap();
    assert_eq!(missing.setup().await.unwrap_err().kind(), ErrorKind::Invalid);
}

/// A full disk refuses the records that do not fit, and nothing else is lost. With free space, writes continue.
///
/// Guarantees: SQLITE-2.
#[tokio::test]
async fn full_database_refuses_until_space_returns() {
    let place = place(SqliteOptions::default()).await;
    let small = place.open(SqliteOptions::default().with_max_bytes(Some(200 << 10)));
    let (mut log, mut other) = (log("r"), log("other"));
    other.write(&small, 1).await;
    let refused = loop {
        let entry = log.next_body(vec![b'x'; 10_000]);
        match append(&small, entry.clone()).await {
            Ok(_) => log.note_append(&entry),
            Err(error) => break error,
        }
        assert!(log.records.len() < 50, "the limit of 200 KiB is exceeded");
    };
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    assert!(log.records.len() > 5);
    is_kept(&small, &log).await;
    // A batch in which one entry does not fit is refused as a whole; the other entry alone fits.
    is_kept(&small, &other).await;
    small.purge(&log.key, log.head()).await.unwrap();
    other.write(&small, 1).await;
    let mut again = log.clone();
    again.records.clear();
    again.write(&small, 3).await;
    is_kept(&small, &again).await;
}

/// Pruned and purged space returns to the file system.
#[tokio::test]
async fn the_file_shrinks_when_runs_go() {
    let place = place(SqliteOptions::default()).await;
    let mut log = log("r");
    let entry = log.next_as(50, vec![b'x'; 20_000], |_| {});
    append(&place.store, entry.clone()).await.unwrap();
    log.note_append(&entry);
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    execute(&mut place.connection().await, checkpoint).await;
    let full = fs::metadata(place.path()).unwrap().len();
    assert_eq!(place.store.purge(&log.key, None).await.unwrap().records, 50);
    execute(&mut place.connection().await, checkpoint).await;
    let left = fs::metadata(place.path()).unwrap().len();
    assert!(full > 1_000_000 && left < full / 5, "{full} bytes, then {left}");
}

/// A large database is listed completely, page by page, and the space of pruned runs is returned. `FERRATA_SQLITE_MB` sets its size for long tests.
/// Each run has half a megabyte.
#[tokio::test]
async fn a_large_database_is_listed_and_pruned() {
    let mb: usize = std::env::var("FERRATA_SQLITE_MB").map_or(24, |text| text.parse().unwrap());
    let place = place(SqliteOptions::default().with_synchronous(Synchronous::Normal)).await;
    let mut logs = Vec::new();
    for run in 0..mb * 2 {
        let mut log = log(&format!("r-{run}"));
        let entry = log.next_as(8, vec![b'x'; 64 << 10], |_| {});
        append(&place.store, entry.clone()).await.unwrap();
        log.note_append(&entry);
        // Do not keep 10 GB of bodies in this test.
        logs.push((log.key.clone(), log.head().unwrap(), log.as_base(7)));
    }
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    execute(&mut place.connection().await, checkpoint).await;
    let full = fs::metadata(place.path()).unwrap().len();
    assert!(full > (mb as u64) << 19, "{full} bytes of {mb} MB");
    let (mut listed, mut page) = (Vec::new(), Page::first(20));
    loop {
        let Paged { items, next } = place.store.runs(&RunQuery::default(), page.clone()).await.unwrap();
        listed.extend(items.into_iter().map(|head| (head.run.clone(), head.head())));
        let Some(next) = next else { break };
        page.cursor = Some(next);
    }
    listed.sort_by_key(|(key, _)| key.to_string());
    let mut expected: Vec<_> = logs.iter().map(|(key, head, _)| (key.clone(), *head)).collect();
    expected.sort_by_key(|(key, _)| key.to_string());
    assert_eq!(listed, expected);
    for (key, head, base) in &logs {
        let cut = PruneCut { at: head.seq, base: Some(base.clone()) };
        assert_eq!(place.store.prune(key, cut).await.unwrap().records, 7, "{key}");
        assert_eq!(place.store.load(key, At::Latest).await.unwrap().unwrap(), std::slice::from_ref(base));
    }
    execute(&mut place.connection().await, checkpoint).await;
    let left = fs::metadata(place.path()).unwrap().len();
    assert!(left < full / 4, "{full} bytes, then {left}");
}

/// A removed database file does not swallow records: SQLite's commits to the unlinked file would succeed. The store does not create the file again,
/// because an empty database in place of an unmounted one would start every run twice.
///
/// Guarantees: SQLITE-3.
#[tokio::test]
async fn a_file_that_is_removed_swallows_nothing() {
    let place = place(SqliteOptions::default()).await;
    let mut log = log("r");
    log.write(&place.store, 2).await;
    is_kept(&place.store, &log).await;
    let away = place.directory.path().join("away");
    fs::rename(place.path(), &away).unwrap();
    for _ in 0..2 {
        is_refused(&place.store, &log, ErrorKind::Unavailable).await;
        assert_eq!(place.store.head(&log.key).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(!place.path().exists(), "the file must not be created again");
    fs::rename(&away, place.path()).unwrap();
    log.write(&place.store, 2).await;
    is_kept(&place.open(SqliteOptions::default()), &log).await;
}

/// The same for the write-ahead log, which people may remove as a leftover. Its records are lost, unless SQLite had it open and could checkpoint it.
/// A lost record is never acknowledged.
///
/// Guarantees: SQLITE-3.
#[tokio::test]
async fn removed_wal_loses_no_later_write() {
    let place = place(SqliteOptions::default()).await;
    let mut log = log("r");
    log.write(&place.store, 2).await;
    is_kept(&place.store, &log).await;
    fs::remove_file(place.log_path()).unwrap();
    let mut is_acknowledged = false;
    for _ in 0..5 {
        let entry = log.next(1);
        if append(&place.store, entry.clone()).await.is_ok() {
            is_acknowledged = true;
            log.note_append(&entry);
        }
    }
    if is_acknowledged {
        is_kept(&place.open(SqliteOptions::default()), &log).await;
    }
}

/// A backup that is restored under a running store is used from the next call on.
///
/// Guarantees: SQLITE-13.
#[tokio::test]
async fn a_restored_backup_is_used_at_once() {
    let place = place(SqliteOptions::default()).await;
    let mut log = log("r");
    log.write(&place.store, 2).await;
    let before = log.clone();
    let copy = place.directory.path().join("copy.db");
    place.store.back_up(&copy).await.unwrap();
    log.write(&place.store, 2).await;
    fs::remove_file(place.log_path()).unwrap();
    fs::remove_file(place.directory.path().join("runs.db-shm")).unwrap();
    fs::rename(&copy, place.path()).unwrap();
    is_kept(&place.store, &before).await;
    assert_eq!(append(&place.store, log.next(1)).await.unwrap_err().kind(), ErrorKind::Conflict);
    log = before;
    log.write(&place.store, 2).await;
    is_kept(&place.store, &log).await;
}

/// A copy that is made during writes is a complete store with a prefix of each run.
///
/// Guarantees: SQLITE-13.
#[tokio::test(flavor = "multi_thread")]
async fn backup_under_load_is_whole_store() {
    let place = place(SqliteOptions::default()).await;
    let mut writers = JoinSet::new();
    for run in 0..4 {
        let store = place.store.clone();
        writers.spawn(async move {
            let mut log = log(&format!("r-{run}"));
            for _ in 0..20 {
                log.write(&store, 1).await;
            }
            log
        });
    }
    let mut copies = Vec::new();
    for number in 0..3 {
        let path = place.directory.path().join(format!("copy-{number}.db"));
        place.store.back_up(&path).await.unwrap();
        assert_eq!(place.store.back_up(&path).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
        copies.push(path);
    }
    let logs = writers.join_all().await;
    let path = place.directory.path().join("last.db");
    place.store.back_up(&path).await.unwrap();
    for (number, path) in copies.iter().chain([&path]).enumerate() {
        let copy = SqliteStore::open(path, SqliteOptions::default()).unwrap();
        copy.setup().await.unwrap();
        for log in &logs {
            let Some(head) = copy.head(&log.key).await.unwrap() else {
                assert_ne!(number, 3);
                continue;
            };
            assert!(number < 3 || Some(head.head()) == log.head(), "the last copy must be complete");
            let loaded = copy.load(&log.key, At::Latest).await.unwrap().unwrap();
            assert_eq!(loaded, log.loaded(head.seq.get()));
            let mut on = log.clone();
            on.records.truncate(usize::try_from(head.seq.get()).unwrap() + 1);
            on.write(&copy, 1).await;
        }
    }
    let there = place.store.load(&logs[0].key, At::Seq(Seq::new(19))).await.unwrap().unwrap();
    assert_eq!(there, logs[0].loaded(19));
}

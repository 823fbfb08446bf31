//! Damage to the file: a read never returns a record that was not written, and each error names its run.

use std::fs;

use ferrata_store::{At, CheckpointStore, ErrorKind, HeaderRange, Page, PruneCut, Result, RunQuery, Seq};
use ferrata_store_sqlite::{SqliteOptions, SqliteStore, Synchronous};
use ferrata_testing::Log;

use crate::support::{append, connection, execute, is_kept, is_refused, log, place};

const PAGE: usize = 4_096;

/// The kind of damage to a page.
#[derive(Clone, Copy, Debug)]
enum How {
    Zero,
    Noise,
    /// One flipped bit, in the content area that fills from the end of the page.
    Bit(usize),
}

/// Writes runs of small and large records. Returns their logs, the bytes of the database, and the table pages that listings do not need: all except
/// those of indexes and of the schema.
async fn written() -> (Vec<Log>, Vec<u8>, Vec<usize>) {
    let place = place(SqliteOptions::default().with_synchronous(Synchronous::Normal)).await;
    let mut logs = Vec::new();
    for run in 0..8 {
        let mut log = log(&format!("r-{run}"));
        log.write(&place.store, 6).await;
        let entry = log.next_body(vec![b'x'; 9_000]);
        append(&place.store, entry.clone()).await.unwrap();
        log.note_append(&entry);
        logs.push(log);
    }
    let copy = place.directory.path().join("copy.db");
    place.store.back_up(&copy).await.unwrap();
    let of_tables =
        "SELECT pageno FROM dbstat WHERE name IN ('ferrata_runs', 'ferrata_records', 'ferrata_heartbeats')";
    let pages: Vec<i64> =
        sqlx::query_scalar(of_tables).fetch_all(&mut connection(&copy).await).await.unwrap();
    let pages = pages.into_iter().map(|page| usize::try_from(page).unwrap()).collect();
    (logs, fs::read(copy).unwrap(), pages)
}

/// Opens the database with one damaged page. Returns the number of readable runs.
async fn check(logs: &[Log], bytes: &[u8], page: usize, how: How, is_of_table: bool) -> usize {
    let what = format!("page {page}, {how:?}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let mut bytes = bytes.to_vec();
    let damaged = &mut bytes[(page - 1) * PAGE..page * PAGE];
    match how {
        How::Zero => damaged.fill(0),
        How::Noise => {
            damaged.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 167 + 13).to_le_bytes()[0])
        }
        How::Bit(bit) => damaged[bit / 8 % PAGE] ^= 1 << (bit % 8),
    }
    fs::write(&path, bytes).unwrap();
    let options = SqliteOptions::default().with_synchronous(Synchronous::Normal);
    let store = SqliteStore::open(&path, options).unwrap();
    let listed = store.runs(&RunQuery::default(), Page::default()).await;
    assert!(!is_of_table || listed.is_ok(), "{what}: unreadable runs hide others: {listed:?}");
    let mut readable = 0;
    for log in logs {
        match store.load(&log.key, At::Latest).await {
            Ok(Some(records)) => {
                let last = records.last().unwrap().header.seq.get();
                assert_eq!(records, log.loaded(last), "{what}: a read must return written records only");
                readable += 1;
                let is_listed = |listed: &ferrata_store::Paged<_>| {
                    listed.items.iter().any(|head: &ferrata_store::RunHead| head.run == log.key)
                };
                if store.head(&log.key).await.is_ok() {
                    assert!(
                        listed.as_ref().is_ok_and(is_listed) || listed.is_err(),
                        "{what}: {} is hidden",
                        log.key
                    );
                }
            }
            // A flipped bit of a name in an index, so that a search does not find it.
            Ok(None) => assert!(matches!(how, How::Bit(_)), "{what}: {} is reported as missing", log.key),
            Err(error) => {
                assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::Corrupt
                            | ErrorKind::Unsupported
                            | ErrorKind::Invalid
                            | ErrorKind::NotFound
                    ),
                    "{what}: {error:?}"
                );
                assert_eq!(error.run(), Some(&log.key), "{what}: {error:?}");
            }
        }
    }
    readable
}

/// Guarantees: SQLITE-11.
#[tokio::test]
async fn damaged_page_is_named_and_never_misread() {
    let (logs, bytes, of_tables) = written().await;
    let pages = bytes.len() / PAGE;
    let (mut spared, mut hurt) = (0, 0);
    for page in 2..=pages {
        for how in [How::Zero, How::Noise] {
            let readable = check(&logs, &bytes, page, how, of_tables.contains(&page)).await;
            spared += usize::from(readable > 0);
            hurt += usize::from(readable < logs.len());
        }
    }
    assert!(hurt > pages / 2, "{hurt} of {pages} pages matter");
    assert!(
        spared > pages / 2,
        "most damage must affect some runs and not others: {spared} of {pages} pages"
    );
    for seed in 0..120_usize {
        let page = 2 + seed * 31 % (pages - 1);
        check(&logs, &bytes, page, How::Bit(seed * 7_919 % (PAGE * 8)), of_tables.contains(&page)).await;
    }
}

/// Facts and headers that are not JSON: the run is reported as damaged, and no other run is hidden.
///
/// Guarantees: SQLITE-12.
#[tokio::test]
async fn invalid_json_is_corrupt_and_hides_no_run() {
    let place = place(SqliteOptions::default().with_synchronous(Synchronous::Normal)).await;
    let mut logs = Vec::new();
    for run in 0..2 {
        let mut log = log(&format!("r-{run}"));
        log.facts.labels.insert("a", "b").unwrap();
        log.write(&place.store, 2).await;
        logs.push(log);
    }
    let mut other = place.connection().await;
    execute(&mut other, "UPDATE ferrata_runs SET facts = 'x' || facts WHERE run = 'r-0'").await;
    let mut query = RunQuery::default();
    query.labels.push(("a".to_owned(), "b".to_owned()));
    let listed = place.store.runs(&query, Page::default()).await.unwrap().items;
    assert_eq!(listed.iter().map(|head| &head.run).collect::<Vec<_>>(), [&logs[1].key]);

    let damage = "UPDATE ferrata_records SET header = 'x' || header \
         WHERE run = (SELECT key FROM ferrata_runs WHERE run = 'r-1')";
    execute(&mut other, damage).await;
    is_refused(&place.store, &logs[1], ErrorKind::Corrupt).await;
    let id = logs[1].head().unwrap().id;
    let refused = place.store.load(&logs[1].key, At::Record(id)).await.unwrap_err();
    assert_ne!(refused.kind(), ErrorKind::Unsupported, "{refused:?}");
    let refused = place.store.load(&logs[1].key, At::Latest).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused:?}");
}

/// Head, row and records of a run that contradict each other are `Corrupt`, whichever of them is wrong and whichever call meets them. Other runs
/// are read and listed.
///
/// Guarantees: SQLITE-11.
#[tokio::test]
async fn contradiction_within_run_is_corrupt() {
    let of_listing =
        ["created = created + 1", "workflow = 'other'", "user_name = 'x'", "parent = 'default/x'"];
    let of_row =
        ["status = 'completed'", "owner = 'x'", "wake_at = 7", "first_seq = 1", "facts = facts || ' '"];
    // The key of the other run is 2.
    let of_head = ["seq = 3", "seq = 9", "key = 2"];
    let set = |table: &str, what: &str| format!("UPDATE {table} SET {what} WHERE run = 'a'");
    let mut changes: Vec<_> = of_listing.iter().map(|what| (set("ferrata_runs", what), true)).collect();
    changes.extend(of_row.iter().map(|what| (set("ferrata_runs", what), false)));
    changes.extend(of_head.iter().map(|what| (set("ferrata_heads", what), false)));
    changes.push(("DELETE FROM ferrata_heads WHERE run = 'a'".to_owned(), false));
    for (change, is_of_listing) in changes {
        let place = place(SqliteOptions::default()).await;
        let (mut damaged, mut other) = (log("a"), log("b"));
        for log in [&mut damaged, &mut other] {
            log.write(&place.store, 6).await;
        }
        execute(&mut place.connection().await, &change).await;
        let (store, run) = (place.open(SqliteOptions::default()), &damaged.key);
        let mut complete = RunQuery::default();
        complete.complete = true;
        let mut refused: Vec<(&str, Result<()>)> = vec![
            ("head", store.head(run).await.map(drop)),
            ("a complete listing", store.runs(&complete, Page::default()).await.map(drop)),
        ];
        if !is_of_listing {
            let mut stale = damaged.clone();
            stale.records.truncate(4);
            let cut = PruneCut { at: Seq::new(5), base: None };
            refused.extend([
                ("load", store.load(run, At::Latest).await.map(drop)),
                ("load by number", store.load(run, At::Seq(Seq::new(2))).await.map(drop)),
                ("load of the news", store.load_since(run, damaged.records[2].header.head()).await.map(drop)),
                ("headers", store.headers(run, HeaderRange::newest(9)).await.map(drop)),
                ("append behind the end", append(&store, stale.next(1)).await.map(drop)),
                ("prune", store.prune(run, cut).await.map(drop)),
            ]);
            // The columns for the start of the log are not read at its end, so an append with the true head may succeed.
            if !["first_seq", "facts"].iter().any(|column| change.contains(column)) {
                refused.push(("append", append(&store, damaged.next(1)).await.map(drop)));
            }
        }
        for (call, result) in refused {
            let error = result.expect_err(&format!("{call} after {change}"));
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{call} after {change}: {error}");
        }
        let listed = store.runs(&RunQuery::default(), Page::default()).await.unwrap().items;
        assert_eq!(listed, [store.head(&other.key).await.unwrap().unwrap()], "{change}");
        is_kept(&store, &other).await;
    }
}

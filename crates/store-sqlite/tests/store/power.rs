//! Power loss: the parts of the write-ahead log and of the database that reached the disk, and how a store recovers from them.
//!
//! The disk has a prefix of the log, because each transaction is synced before the next one starts, and any part of the last transaction. During a
//! checkpoint it has any pages of the database. A transaction is acknowledged after the sync of its last frame.

use std::fs;
use std::path::Path;

use ferrata_store::CheckpointStore;
use ferrata_store_sqlite::{SqliteOptions, SqliteStore};
use ferrata_testing::Log;

use crate::support::{FRAME, HEADER, Place, append, copy, execute, frames, is_kept, log, place};

/// The content of the disk and the number of transactions in the log, after an acknowledged append.
struct Snapshot {
    database: Vec<u8>,
    log: Vec<u8>,
    commits: usize,
    logs: [Log; 2],
}

fn snapshot(place: &Place, logs: &[Log; 2]) -> Snapshot {
    let read = |path: &Path| {
        let kept = place.directory.path().join("copy");
        copy(path, &kept);
        fs::read(kept).unwrap()
    };
    let (database, log) = (read(&place.path()), read(&place.log_path()));
    let commits = frames(&log).1.into_iter().filter(|is_end| *is_end).count();
    Snapshot { database, log, commits, logs: logs.clone() }
}

/// Appends alternately to two runs, with bodies below and above a page. Takes a snapshot of the disk after each append.
async fn write(place: &Place, logs: &mut [Log; 2], count: usize) -> Vec<Snapshot> {
    let mut all = Vec::new();
    for number in 0..count {
        let log = &mut logs[number % 2];
        let entry = log.next_as(1 + number % 2, vec![b'x'; 500 + 4_000 * (number % 3)], |_| {});
        append(&place.store, entry.clone()).await.unwrap();
        log.note_append(&entry);
        all.push(snapshot(place, logs));
    }
    all
}

/// Opens a store on a disk content. Checks that it has these logs, and continues them.
async fn finds(database: &[u8], log: &[u8], logs: &[Log; 2], what: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    fs::write(&path, database).unwrap();
    fs::write(directory.path().join("runs.db-wal"), log).unwrap();
    let options = SqliteOptions::default().with_synchronous(ferrata_store_sqlite::Synchronous::Normal);
    let store = SqliteStore::open(&path, options).unwrap();
    store.setup().await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    for log in logs {
        let head = store.head(&log.key).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_eq!(head.map(|head| head.head()), log.head(), "{what}");
        is_kept(&store, log).await;
    }
    logs[0].clone().write(&store, 1).await;
}

/// The logs after the last acknowledged of `commits` transactions.
fn after(all: &[Snapshot], commits: usize) -> [Log; 2] {
    let last = all.iter().rev().find(|snapshot| snapshot.commits <= commits);
    last.map_or_else(|| [log("a"), log("b")], |snapshot| snapshot.logs.clone())
}

/// Guarantees: SQLITE-1.
#[tokio::test]
async fn wal_prefix_is_transaction_prefix() {
    let place = place(SqliteOptions::default()).await;
    let mut logs = [log("a"), log("b")];
    let first = write(&place, &mut logs, 6).await;
    let end = first.last().unwrap();
    let (page, ends) = frames(&end.log);
    for (frame, end_of) in (0..).zip(&ends) {
        let start = HEADER + frame * (FRAME + page);
        let before = ends[..frame].iter().filter(|is_end| **is_end).count();
        // Before a frame, within its header, within its page, and at all but its last byte.
        for cut in [start, start + 9, start + FRAME + page / 2, start + FRAME + page - 1] {
            // A partial header has no effect. So test only one of these cuts in each frame.
            if cut == start || (cut + frame) % 4 == 0 {
                let what = format!("the log cut at {cut}, {before} transactions");
                finds(&end.database, &end.log[..cut], &after(&first, before), &what).await;
            }
        }
        // The disk had not written a page of the last transaction, but had written later ones.
        if !end_of && before == end.commits - 1 {
            let mut torn = end.log.clone();
            torn[start + FRAME..start + FRAME + page].fill(0);
            finds(&end.database, &torn, &after(&first, before), &format!("frame {frame} not written")).await;
        }
    }
    finds(&end.database, &end.log, &logs, "all of the log").await;
    finds(&end.database, &end.log[..HEADER / 2], &after(&first, 0), "half of the log's header").await;

    // A checkpoint copies the log into the database. Until the next transaction, the log contains all pages, whichever pages reached the database.
    execute(&mut place.connection().await, "PRAGMA wal_checkpoint(RESTART)").await;
    let done = snapshot(&place, &logs);
    assert_eq!(done.log, end.log, "a checkpoint must not change the log");
    assert_ne!(done.database, end.database);
    for seed in 0..8_usize {
        let mut mixed = end.database.clone();
        mixed.resize(done.database.len(), 0);
        for (number, page) in done.database.chunks(page).enumerate() {
            if (number * 7 + seed * 13) % 5 < 3 {
                mixed[number * page.len()..][..page.len()].copy_from_slice(page);
            }
        }
        finds(&mixed, &done.log, &logs, &format!("some pages of a checkpoint, seed {seed}")).await;
    }

    // The log is overwritten from its start. After a cut, the older content follows.
    let second = write(&place, &mut logs, 4).await;
    let end = second.last().unwrap();
    assert_eq!(end.database, done.database, "transactions must not change the database");
    let (_, ends) = frames(&end.log);
    for frame in 0..=ends.len() {
        let cut = HEADER + frame * (FRAME + page);
        let before = ends[..frame].iter().filter(|is_end| **is_end).count();
        let mut expected = after(&second, before);
        if second[0].commits > before {
            expected = done.logs.clone();
        }
        let log = [&end.log[..cut], &done.log[cut.min(done.log.len())..]].concat();
        finds(&end.database, &log, &expected, &format!("the second log cut at {cut}")).await;
    }
    let torn = [&end.log[..HEADER / 2], &done.log[HEADER / 2..]].concat();
    finds(&end.database, &torn, &done.logs, "half of the second log's header").await;
}

//! One flipped bit anywhere in the file: every call returns the truth or an error. No run is read, written or removed as another one, read short, or
//! reported as missing.
//!
//! `FERRATA_SQLITE_FLIPS` sets the number of flipped bits per page. A failure prints its bit, and `FERRATA_SQLITE_BIT` flips only that bit.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use ferrata_store::{
    At, CheckpointStore, Error, ErrorKind, ExecutorId, HeadRef, HeaderRange, Order, Page, PruneCut,
    RunFilter, RunHead, RunId, RunKey, RunQuery, RunStatus, TenantId, Timestamp, is_news,
};
use ferrata_store_sqlite::{SqliteOptions, SqliteStore, Synchronous};
use ferrata_testing::{Log, ManualClock, SeqIds, facts};

use crate::support::{append, connection, execute, place};

/// Small pages, so that few runs fill trees of several levels.
const PAGE: usize = 512;

/// Default number of flipped bits per page.
const FLIPS: usize = 4;

/// The environment variable for the number of flips.
const FLIPS_VARIABLE: &str = "FERRATA_SQLITE_FLIPS";

/// The environment variable for the only bit to flip.
const BIT_VARIABLE: &str = "FERRATA_SQLITE_BIT";

/// Error kinds that a call on a damaged file may return.
const REFUSALS: [ErrorKind; 4] =
    [ErrorKind::Corrupt, ErrorKind::Unsupported, ErrorKind::Invalid, ErrorKind::Unavailable];

/// Runs in a file, and the content of the file.
struct Written {
    logs: BTreeMap<RunKey, Log>,
    bytes: Vec<u8>,
    clock: ManualClock,
}

/// Writes runs of two tenants that occur in all kinds of listings. Each has the same number of records as another one.
async fn written() -> Written {
    let place = place(SqliteOptions::default().with_synchronous(Synchronous::Normal)).await;
    let clock = ManualClock::default();
    let store = place.open(SqliteOptions::default().with_synchronous(Synchronous::Normal));
    let store = store.with_clock(Arc::new(clock.clone()));
    let ids = Arc::new(SeqIds::new(1));
    let mut logs = BTreeMap::new();
    for (n, tenant) in [(1, "left"), (2, "right"), (3, "left"), (4, "right"), (5, "left"), (6, "right")] {
        let key = RunKey::new(TenantId::new(tenant).unwrap(), RunId::new(format!("r{n}")).unwrap());
        let mut log = Log::new(key.clone()).with_ids(Arc::clone(&ids) as _).with_facts(facts("review", n));
        log.write(&store, 3).await;
        let owner = ExecutorId::from_uuid(*log.records[0].header.id.as_uuid());
        log.write_with(&store, 1, |header| match n {
            1 | 2 => header.owner = Some(owner),
            3 => header.status = RunStatus::Interrupted,
            4 => header.status = RunStatus::Completed,
            5 => header.wake_at = Some(Timestamp::from_unix_ms(0)),
            _ => {}
        })
        .await;
        if n == 1 {
            store.heartbeat(&owner, std::time::Duration::from_secs(60)).await.unwrap();
        }
        if n == 6 {
            let entry = log.next_body(vec![b'x'; 3 * PAGE]);
            append(&store, entry.clone()).await.unwrap();
            log.note_append(&entry);
        }
        logs.insert(key, log);
    }
    drop(store);
    let copy = place.directory.path().join("copy.db");
    let mut other = place.connection().await;
    execute(&mut other, &format!("PRAGMA page_size = {PAGE}; VACUUM INTO '{}'", copy.display())).await;
    let mut copied = connection(&copy).await;
    let size: i64 = sqlx::query_scalar("PRAGMA page_size").fetch_one(&mut copied).await.unwrap();
    assert_eq!(usize::try_from(size).unwrap(), PAGE);
    Written { logs, bytes: fs::read(copy).unwrap(), clock }
}

/// One answer to compare: the call and its flip.
struct Asked<'a> {
    flip: &'a str,
    call: String,
}

impl Asked<'_> {
    /// Returns the result of the call, or none if it refused the run as damaged.
    fn said<T>(&self, result: Result<T, Error>, more: &[ErrorKind]) -> Option<T> {
        match result {
            Ok(said) => Some(said),
            Err(error) => {
                let is_refusal = REFUSALS.contains(&error.kind()) || more.contains(&error.kind());
                assert!(is_refusal, "{}: {} failed with {error:?}", self.flip, self.call);
                None
            }
        }
    }

    fn is<T: PartialEq + std::fmt::Debug>(&self, said: &T, truth: &T) {
        assert!(said == truth, "{}: {} returned {said:?} instead of {truth:?}", self.flip, self.call);
    }
}

/// The expected head. An owner whose heartbeat is damaged need not count as alive.
fn truth(log: &Log, said: &RunHead, alive: bool) -> RunHead {
    let mut head = log.run_head();
    head.owner_alive = said.owner_alive && alive;
    head
}

/// Reads a run with every reading call.
async fn reads(store: &SqliteStore, log: &Log, alive: bool, flip: &str) {
    let run = &log.key;
    let asked = |call: String| Asked { flip, call };
    let head = asked(format!("head of {run}"));
    if let Some(said) = head.said(store.head(run).await, &[]) {
        assert!(said.is_some(), "{flip}: {run} is reported as missing");
        head.is(&said, &said.as_ref().map(|said| truth(log, said, alive)));
    }
    let last = log.records.last().unwrap().header.seq.get();
    let mut places = vec![(At::Latest, last)];
    for header in log.headers() {
        places.extend([(At::Seq(header.seq), header.seq.get()), (At::Record(header.id), header.seq.get())]);
    }
    for (at, seq) in places {
        let load = asked(format!("load of {run} at {at}"));
        if let Some(said) = load.said(store.load(run, at).await, &[]) {
            load.is(&said, &Some(log.loaded(seq)));
        }
    }
    for known in [log.records[1].header.head(), log.head().unwrap()] {
        let load = asked(format!("load of {run} since {known}"));
        if let Some(said) = load.said(store.load_since(run, known).await, &[]) {
            let said = said.unwrap_or_else(|| panic!("{flip}: {run} is reported as missing"));
            let from = usize::try_from(known.seq.get()).unwrap() + 1;
            let is_news = is_news(known, &said);
            load.is(&said, &if is_news { log.records[from..].to_vec() } else { log.loaded(last) });
        }
    }
    for range in [HeaderRange::newest(2), HeaderRange::oldest(100)] {
        let headers = asked(format!("headers of {run}, {range:?}"));
        if let Some(said) = headers.said(store.headers(run, range).await, &[]) {
            let all = log.headers();
            headers.is(&said.items, &all[all.len().saturating_sub(range.limit() as usize)..].to_vec());
        }
    }
}

/// Lists the runs in several ways. Each listed run is correct, meets the query, and is listed once.
async fn listings(store: &SqliteStore, written: &Written, logs: &BTreeMap<RunKey, Log>, flip: &str) {
    let with = |set: &dyn Fn(&mut RunQuery)| {
        let mut query = RunQuery::default();
        set(&mut query);
        query
    };
    let queries = [
        with(&|_| {}),
        with(&|query| query.tenant = Some(TenantId::new("left").unwrap())),
        with(&|query| query.statuses = vec![RunStatus::Interrupted, RunStatus::Completed]),
        with(&|query| query.filter = RunFilter::Orphaned),
        with(&|query| query.filter = RunFilter::Due),
    ];
    for query in queries {
        for order in [Order::NewestFirst, Order::OldestFirst] {
            let asked = Asked { flip, call: format!("listing {query:?}") };
            let listed = store.runs(&query, Page::default().with_order(order)).await;
            let Some(listed) = asked.said(listed, &[]) else { continue };
            let mut seen = Vec::new();
            for head in listed.items {
                let log = logs.get(&head.run).unwrap_or_else(|| panic!("{flip}: {} is listed", head.run));
                asked.is(&head, &truth(log, &head, is_alive(log)));
                let now = ferrata_store::Clock::now(&written.clock);
                assert!(query.matches(&head, now), "{flip}: {} does not meet {query:?}", head.run);
                seen.push(head.run);
            }
            let count = seen.len();
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len(), count, "{flip}: a run is listed twice");
        }
    }
}

/// Whether the owner of this run has a heartbeat, which is the case for the first run only.
fn is_alive(log: &Log) -> bool {
    log.key.run.as_str() == "r1"
}

/// Changes a run with every changing call. Checks that each change was complete or refused. Returns the resulting log if it is known.
async fn changes(store: &SqliteStore, log: &Log, flip: &str) -> Option<Log> {
    let run = &log.key;
    let asked = |call: String| Asked { flip, call };
    let start = Log::new(run.clone()).next(1);
    let started = asked(format!("start of {run}"));
    let said = started.said(append(store, start).await, &[ErrorKind::Conflict]);
    assert!(said.is_none(), "{flip}: {run} was started a second time");
    let mut log = log.clone();
    for count in [1, 2] {
        let entry = log.next(count);
        let grown = asked(format!("append to {run}"));
        // A commit that meets a damaged page has an unknown outcome.
        match grown.said(append(store, entry.clone()).await, &[ErrorKind::Indeterminate]) {
            Some(head) => {
                log.note_append(&entry);
                grown.is(&Some(head), &log.head());
            }
            None => return None,
        }
    }
    let base = log.records.iter().map(|record| &record.header).rfind(|header| header.base)?;
    let cut = PruneCut { at: base.seq, base: None };
    match asked(format!("prune of {run}"))
        .said(store.prune(run, cut.clone()).await, &[ErrorKind::Indeterminate])
    {
        Some(_) => {
            log.records.retain(|record| record.header.seq >= cut.at);
            Some(log)
        }
        None => None,
    }
}

/// Removes a run, and checks that it is gone if the call succeeds.
async fn removal(store: &SqliteStore, run: &RunKey, expected: Option<HeadRef>, flip: &str) {
    let purged = Asked { flip, call: format!("purge of {run}") };
    if purged.said(store.purge(run, expected).await, &[ErrorKind::Indeterminate]).is_some() {
        let head = Asked { flip, call: format!("head of {run} after its purge") };
        if let Some(said) = head.said(store.head(run).await, &[]) {
            head.is(&said, &None);
        }
    }
}

/// Opens the file with one flipped bit, and makes every call.
async fn check(written: &Written, bit: usize) {
    let (byte, page) = (bit / 8, bit / 8 / PAGE + 1);
    let flip = &format!("bit {bit} (page {page}, byte {} of it)", byte % PAGE);
    // Use a file system in memory if there is one, because the test does not depend on the disk.
    let memory = std::path::Path::new("/dev/shm");
    let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let path = directory.path().join("runs.db");
    let mut bytes = written.bytes.clone();
    bytes[byte] ^= 1 << (bit % 8);
    fs::write(&path, bytes).unwrap();
    let options = SqliteOptions::default().with_synchronous(Synchronous::Normal);
    let store = SqliteStore::open(&path, options).unwrap().with_clock(Arc::new(written.clock.clone()));
    listings(&store, written, &written.logs, flip).await;
    for log in written.logs.values() {
        reads(&store, log, is_alive(log), flip).await;
    }
    // One run changes, another is removed, and the others are read again.
    let mut runs = written.logs.values().cycle().skip(bit % written.logs.len());
    let (changed, gone) = (runs.next().unwrap(), runs.next().unwrap());
    let changed = changes(&store, changed, flip).await.ok_or(changed);
    removal(&store, &gone.key, gone.head().filter(|_| bit.is_multiple_of(2)), flip).await;
    for log in written.logs.values().filter(|log| log.key != gone.key) {
        match &changed {
            Ok(changed) if changed.key == log.key => reads_pruned(&store, changed, flip).await,
            // The state of this run is unknown.
            Err(changed) if changed.key == log.key => {}
            _ => reads(&store, log, is_alive(log), flip).await,
        }
    }
}

/// Reads the end of a run with appended and pruned records.
async fn reads_pruned(store: &SqliteStore, log: &Log, flip: &str) {
    let load = Asked { flip, call: format!("load of {}", log.key) };
    if let Some(said) = load.said(store.load(&log.key, At::Latest).await, &[]) {
        load.is(&said, &Some(log.records.clone()));
    }
    let headers = Asked { flip, call: format!("headers of {}", log.key) };
    if let Some(said) = headers.said(store.headers(&log.key, HeaderRange::oldest(100)).await, &[]) {
        headers.is(&said.items, &log.headers());
    }
}

/// Guarantees: SQLITE-11.
#[tokio::test]
async fn flipped_bit_makes_no_answer_false() {
    let written = written().await;
    if let Ok(bit) = std::env::var(BIT_VARIABLE) {
        return check(&written, bit.parse().unwrap()).await;
    }
    let flips = std::env::var(FLIPS_VARIABLE).map_or(FLIPS, |flips| flips.parse().unwrap());
    let bits = PAGE * 8;
    eprintln!("{} pages, {flips} flips in each", written.bytes.len() / PAGE);
    for page in 0..written.bytes.len() / PAGE {
        for flip in 0..flips.min(bits) {
            // Spread the bits over the page, at other positions in each page. Half of them are in the header of the page.
            let at = match flip % 2 {
                0 if flips < bits => (page * 37 + flip * 101) % (24 * 8),
                _ => (page * 53 + flip * bits / flips) % bits,
            };
            check(&written, page * bits + at).await;
        }
    }
}
